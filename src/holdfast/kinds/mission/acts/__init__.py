"""Effects of a mission and of its roles on repositories, sandboxes, and child sessions."""
