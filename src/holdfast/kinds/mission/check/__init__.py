"""Checks: how they run, what they can show, and what their results mean."""
