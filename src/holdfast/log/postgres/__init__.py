"""The log in PostgreSQL (extra `postgres`)."""
