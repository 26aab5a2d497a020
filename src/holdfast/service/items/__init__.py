"""Use cases of runs over a list, and the lines of their events."""
