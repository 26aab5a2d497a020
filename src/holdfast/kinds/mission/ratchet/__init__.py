"""Ratchet: protection of the files that verify a worker's tree."""
