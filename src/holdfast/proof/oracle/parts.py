"""What oracles have in common: what a conversation says of calls and files, and how an answer streams."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from holdfast.facts.base import Usage
from holdfast.model.base import ModelRequest, StreamPart, TextDelta, ToolCallDelta, ToolCallStart
from holdfast.proof.rebuild.strip import Block
from holdfast.sim.turns import Turn

_PIECE = 20
_CHARACTERS_PER_TOKEN = 4

# How a line of the `read` tool may begin; whichever fits the text best is taken off.
_GUTTERS = tuple(re.compile(rf"^\s*\d+{mark}") for mark in ("\t", ": ", ":", r" \| ", r"\| ", r"\|", "→", "  ", " "))


def shown_lines(content: str, blocks: tuple[Block, ...]) -> list[str]:
    """The lines of a file out of what `read` printed, whatever it puts before each."""
    known = {line for block in blocks for text in (block.stub, block.true) for line in text.split("\n") if line.strip()}
    raw = content.split("\n")
    readings = [raw, *([gutter.sub("", line) for line in raw] for gutter in _GUTTERS)]
    return max(readings, key=lambda lines: sum(line in known for line in lines))


def contains(lines: list[str], text: str) -> bool:
    """Whether these lines have the lines of a text, one after another."""
    wanted = text.split("\n")
    first = wanted[0]
    return any(line == first and lines[start : start + len(wanted)] == wanted for start, line in enumerate(lines))


def height(text: str) -> int:
    """How many lines a text has."""
    return text.count("\n") + 1


def _arguments(value: Mapping[str, Any]) -> str:
    return msgspec.json.encode(value).decode()


def _tokens(characters: int) -> int:
    return -(-characters // _CHARACTERS_PER_TOKEN)


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE]


def parts(turn: Turn, responses: int) -> Iterator[StreamPart]:
    """The answer in small pieces; `responses` is in the ids of its calls."""
    for piece in _pieces(turn.text):
        yield TextDelta(piece)
    for index, (name, value) in enumerate(turn.calls):
        yield ToolCallStart(index, name, f"oracle_{responses}_{index}")
        for piece in _pieces(_arguments(value)):
            yield ToolCallDelta(index, piece)


def usage_of(request: ModelRequest, turn: Turn) -> Usage:
    """About as many tokens as a model would count."""
    sent = len(request.system) + len(msgspec.json.encode((request.messages, request.tools)))
    return Usage(input_tokens=_tokens(sent), output_tokens=_tokens(turn.characters()))
