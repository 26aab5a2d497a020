"""Acts of the brain, grouped by subject."""
