"""The state of a mission, folded from its events."""
