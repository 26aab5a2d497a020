"""Secrets by reference: where their values are, never the values themselves."""
