"""Hooks of a project around the calls of a session, and when it stops. Kinds of sessions share them."""
