"""Libraries without their function bodies, for an agent to write again and their own tests to judge."""
