"""The verbs of missions."""
