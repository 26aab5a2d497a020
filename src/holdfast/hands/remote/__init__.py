"""Hands behind a queue: a worker where the data is asks for work over HTTP, and needs no way in."""
