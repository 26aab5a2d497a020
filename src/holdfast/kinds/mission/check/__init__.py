"""Checks: their runs, proofs, and results."""
