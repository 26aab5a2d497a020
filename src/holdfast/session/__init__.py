"""Pure core of a session: state, decisions, context, permissions, money, and signs."""
