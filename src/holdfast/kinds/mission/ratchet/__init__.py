"""The ratchet: what a worker's tree may not do to the files that judge it."""
