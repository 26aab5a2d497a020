"""The seeded simulator: whole worlds of sessions and missions, judged by invariants."""
