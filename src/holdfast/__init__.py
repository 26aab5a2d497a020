"""Holdfast: a runtime for AI agents that keep working for hours, days and weeks."""

__version__ = "0.1.0"
