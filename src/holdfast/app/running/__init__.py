"""Running sessions: in the foreground, beside it, and as a worker."""
