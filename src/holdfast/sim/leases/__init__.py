"""Leases among homes that share a database."""
