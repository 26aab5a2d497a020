"""Estimates of tokens from text, for the context line and for reservations."""

from __future__ import annotations

from typing import Any

from holdfast.facts.base import Block, Content, Text
from holdfast.facts.session import SessionCreated

BYTES_PER_TOKEN = 4
"""The usual rule of thumb for English and code."""

OVERHEAD_TOKENS = 8
"""What a message costs beside its text."""


def estimate(text: str) -> int:
    """About how many tokens `text` is."""
    return len(text) // BYTES_PER_TOKEN + OVERHEAD_TOKENS if text else 0


def estimate_pinned(created: SessionCreated) -> int:
    """About how many tokens stand in every context of a session (S17)."""
    return sum(estimate(text) for text in (created.goal, created.rules, created.agent.system, *created.criteria))


BLOCK_TOKENS = 1_600
"""About what a picture or a page costs: Anthropic documents up to 1,600 tokens a picture, others are in that range."""


def estimate_content(content: Content) -> int:
    """About how many tokens a message is. Other documents than text are taken by their size, 3 kB a page."""
    return sum(_estimate_block(block) for block in content)


def _estimate_block(block: Block) -> int:
    if isinstance(block, Text):
        return estimate(block.text)
    if block.media_type.startswith("text/"):
        return len(block.data) // BYTES_PER_TOKEN + OVERHEAD_TOKENS
    pages = 1 if block.media_type.startswith("image/") else max(1, len(block.data) // 3_000)
    return BLOCK_TOKENS * pages


def estimate_input(value: dict[str, Any]) -> int:
    """About how many tokens the arguments of a tool call are."""
    return sum(len(key) + len(str(item)) for key, item in value.items()) // BYTES_PER_TOKEN + OVERHEAD_TOKENS
