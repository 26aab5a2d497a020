"""Settings: where they come from, whose count, and what they mean."""
