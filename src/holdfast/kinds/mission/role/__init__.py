"""Roles: sessions that work for a mission."""
