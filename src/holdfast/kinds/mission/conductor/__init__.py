"""Conductor: code that decides the next step of a mission."""
