"""Tampers: what a worker hands in that would rather be green than right, each run as a whole verification."""
