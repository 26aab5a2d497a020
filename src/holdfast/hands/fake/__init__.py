"""Hands in memory, for tests and the simulator."""
