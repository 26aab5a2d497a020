"""Logs in SQL databases: statements, rows, and verbs that SQLite and PostgreSQL share."""
