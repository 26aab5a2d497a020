"""Secrets by reference: Holdfast stores the location of a value, never the value."""
