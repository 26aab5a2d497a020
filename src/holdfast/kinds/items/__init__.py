"""Work by the item: a run over a list, with a session for each item."""
