"""The context of a session: what the model sees, and when it is renewed."""
