"""Running sessions: in the foreground, detached, and as a worker."""
