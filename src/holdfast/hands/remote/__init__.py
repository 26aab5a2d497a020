"""Hands behind a queue: a worker near the data polls for work over HTTP, and needs no incoming connection."""
