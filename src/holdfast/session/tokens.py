"""Estimates of tokens from text, for the context line and for reservations."""

from __future__ import annotations

from typing import Any

BYTES_PER_TOKEN = 4
"""The usual rule of thumb for English and code."""

OVERHEAD_TOKENS = 8
"""What a message costs beside its text."""


def estimate(text: str) -> int:
    """About how many tokens `text` is."""
    return len(text) // BYTES_PER_TOKEN + OVERHEAD_TOKENS if text else 0


def estimate_input(value: dict[str, Any]) -> int:
    """About how many tokens the arguments of a tool call are."""
    return sum(len(key) + len(str(item)) for key, item in value.items()) // BYTES_PER_TOKEN + OVERHEAD_TOKENS
