"""Vocabulary of events and their encoding."""
