"""Formats of contracts: read as they are, written back in place."""
