"""Proof: the seeded simulator, the model that knows the answer, and the libraries it rebuilds."""
