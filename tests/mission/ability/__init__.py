"""Probes of checks, with the real runners."""
