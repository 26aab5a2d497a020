"""State of a mission, folded from its events."""
