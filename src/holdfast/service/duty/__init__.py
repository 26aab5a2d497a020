"""Use cases about the events and the rules of duties."""
