"""Notifications to users outside the terminal, and their replies: Protocols, a fake, and real targets."""
