"""Context of a session: its content, and its renewal."""
