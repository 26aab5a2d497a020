"""What can be true of a session: the vocabulary of events, and their bytes."""
