"""Plain sessions with checks before they are done, and with a commit at each park."""
