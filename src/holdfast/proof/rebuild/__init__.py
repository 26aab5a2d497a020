"""Libraries without function bodies, for an agent to rewrite and their own tests to judge."""
