"""Briefs: what happened, from the log by code."""
