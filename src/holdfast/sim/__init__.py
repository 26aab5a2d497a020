"""Seeded simulator: worlds of sessions and missions, judged by invariants."""
