"""Simulated missions."""
