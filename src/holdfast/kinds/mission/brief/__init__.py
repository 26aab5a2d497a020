"""Briefs: summaries of a session's events, made from the log by code."""
