"""What follows from the facts: state, the next action, the context, permissions, money. Pure."""
