"""Shared code of models that compute each response from the request, and of their reading of files in messages."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator

import msgspec
from anyio.lowlevel import checkpoint

from holdfast.clock import Clock
from holdfast.facts.base import Usage
from holdfast.facts.model import Handoff
from holdfast.model.base import Finish, ModelRequest, StreamPart, TextDelta, ToolCallDelta, ToolCallStart
from holdfast.proof.rebuild.strip import Block
from holdfast.session.money import price_per_mtok
from holdfast.sim.turns import Turn

PRICE = price_per_mtok(3.0, 15.0)
"""Nominal price, so that the cost is not zero."""

_CHARACTERS_PER_TOKEN = 4

# Possible prefixes of a line of the `read` tool; the one that fits the text best is removed.
_GUTTERS = tuple(re.compile(rf"^\s*\d+{mark}") for mark in ("\t", ": ", ":", r" \| ", r"\| ", r"\|", "→", "  ", " "))


class ComputedModel:
    """Stateless model: its next turn is a function of the request, so a killed brain gets the same one again.

    The name before the colon is in the ids of its calls. Text and arguments are streamed in pieces of `piece`
    characters, with a pause of `delta_s` between them for a demo that a user can watch.
    """

    piece = 20

    def __init__(self, name: str, clock: Clock | None = None, delta_s: float = 0.0) -> None:
        self.name = name
        self._clock = clock
        self._delta_s = delta_s

    def _next(self, request: ModelRequest) -> Turn:
        raise NotImplementedError

    def _asked(self, request: ModelRequest) -> Turn:
        """Return the next turn of a request that is sent, not only priced."""
        return self._next(request)

    def _usage(self, request: ModelRequest, turn: Turn) -> Usage:
        """Estimate the tokens that a model would count."""
        sent = len(request.system) + len(msgspec.json.encode((request.messages, request.tools)))
        return Usage(tokens(sent), tokens(turn.characters()))

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        """Return the cost of the request with the longest response that it allows (S15)."""
        usage = self._usage(request, self._next(request))
        return self.cost_pico(Usage(usage.input_tokens, max(usage.output_tokens, request.max_output_tokens)))

    def cost_pico(self, usage: Usage) -> int | None:
        """Return the cost of that usage at the nominal price, in pico-dollars."""
        return PRICE.cost(usage)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Stream the next turn in small pieces."""
        turn = self._asked(request)
        for part in self._streamed(turn, request.responses):
            if self._clock and self._delta_s:
                await self._clock.sleep(self._delta_s)
            else:
                await checkpoint()
            yield part
        yield Finish("tool_use" if turn.calls else "end_turn", self._usage(request, turn))

    def _streamed(self, turn: Turn, responses: int) -> Iterator[StreamPart]:
        for piece in self._pieces(turn.text):
            yield TextDelta(piece)
        for index, (name, value) in enumerate(turn.calls):
            yield ToolCallStart(index, name, f"{self.name.partition(':')[0]}_{responses}_{index}")
            for piece in self._pieces(msgspec.json.encode(value).decode()):
                yield ToolCallDelta(index, piece)

    def _pieces(self, text: str) -> Iterator[str]:
        for start in range(0, len(text), self.piece):
            yield text[start : start + self.piece]


def tokens(characters: int) -> int:
    """Estimate the number of tokens of that many characters."""
    return -(-characters // _CHARACTERS_PER_TOKEN)


def note(request: ModelRequest, done: str, following: str) -> Turn:
    """Return the summary of a compaction, or a handoff with the next step."""
    if request.purpose == "compaction":
        return Turn(done)
    fields: dict[str, list[str]] = {name: [] for name in Handoff.__struct_fields__}
    return Turn(msgspec.json.encode(fields | {"workspace": [done], "next": [following]}).decode())


def shown_lines(content: str, blocks: tuple[Block, ...]) -> list[str]:
    """Return the lines of a file from the output of `read`, without line numbers of any style."""
    known = {line for block in blocks for text in (block.stub, block.true) for line in text.split("\n") if line.strip()}
    raw = content.split("\n")
    readings = [raw, *([gutter.sub("", line) for line in raw] for gutter in _GUTTERS)]
    return max(readings, key=lambda lines: sum(line in known for line in lines))


def contains(lines: list[str], text: str) -> bool:
    """Return True if the lines of a text occur in `lines`, one after another."""
    wanted = text.split("\n")
    first = wanted[0]
    return any(line == first and lines[start : start + len(wanted)] == wanted for start, line in enumerate(lines))


def height(text: str) -> int:
    """Count the lines of a text."""
    return text.count("\n") + 1
