"""Simulated duties: real brains over the log in memory, with firings that are played."""
