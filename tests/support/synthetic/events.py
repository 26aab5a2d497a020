"""Synthetic sessions as facts, turn by turn, with the fill of the context, for measuring signs without a model.

Independent of how signs are detected. All randomness comes from one seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from holdfast.facts.base import Fact, Text, Usage
from holdfast.facts.model import (
    AgentMessage,
    AgentThinking,
    AgentToolUse,
    ContextCompacted,
    ContextReset,
    Handoff,
    ModelRequestEnd,
    ModelRequestStart,
)
from holdfast.facts.people import UserMessage
from holdfast.facts.tool import FileSeen, ToolDispatched, ToolResult

HELD_OUT = 1_000_000
"""Seeds from here on are for measuring only; thresholds were chosen on lower ones."""

LINE_TOKENS = 100_000
"""Context limit of every synthetic session."""

AFTER_COMPACTION, AFTER_RESET = 0.25, 0.1
"""Fill of a context after a compaction and after a reset."""

TOKENS_A_TURN = (700, 2_600, 6_000)
"""Tokens of a turn: low, middle, and high, as measured from workers."""


class Done(msgspec.Struct, frozen=True):
    """Tool call with its result. `files` maps paths to the digest after the call."""

    name: str
    input: dict[str, Any]
    content: str = ""
    ok: bool = True
    files: dict[str, str] = {}
    duration_ms: float = 40.0


class Say(msgspec.Struct, frozen=True):
    """Turn: text and calls."""

    text: str
    calls: tuple[Done, ...] = ()
    thinking: str = ""


class Told(msgspec.Struct, frozen=True):
    """Turn as facts with positions, and the fill of the context at its end. `bad` marks turns to detect."""

    facts: tuple[tuple[int, Fact], ...]
    fill: float
    bad: bool = False


class Tale(msgspec.Struct, frozen=True):
    """Whole session. `onset` is the index of the first turn with a detectable problem, -1 for a healthy session."""

    kind: str
    seed: int
    turns: tuple[Told, ...]
    onset: int = -1


class Teller:
    """Converter of a worker's turns into facts, which tracks the fill of its context."""

    def __init__(self, chance: random.Random, life: Literal["compaction", "reset"] = "compaction") -> None:
        self.chance = chance
        self.turns: list[Told] = []
        self.fill = chance.uniform(0.03, 0.15)
        self.rate = chance.triangular(0.6, 1.6)
        self._life = life
        self._seq = 1

    def tell(self, say: Say, *, bad: bool = False, tokens: int | None = None) -> None:
        """Add a turn; a full context is compacted or reset first."""
        facts: list[tuple[int, Fact]] = []
        if self.fill > 1 and not bad:
            self._make_room(facts)
        start = self._add(facts, ModelRequestStart(
            purpose="turn", model="m", attempt=1, inputs_through=self._seq, max_output_tokens=8_192))  # fmt: skip
        if say.thinking:
            self._add(facts, AgentThinking(request_seq=start, text=say.thinking))
        if say.text:
            self._add(facts, AgentMessage(request_seq=start, content=(Text(say.text),)))
        for index, call in enumerate(say.calls):
            self._add(facts, AgentToolUse(
                request_seq=start, call_id=f"{start}.{index}", name=call.name, input=call.input))  # fmt: skip
        self._add(facts, ModelRequestEnd(
            request_seq=start, outcome="ok", usage=Usage(10, 10), cost_pico=1,
            stop_reason="tool_use" if say.calls else "end_turn"))  # fmt: skip
        for index, call in enumerate(say.calls):
            self._add(facts, ToolDispatched(
                call_id=f"{start}.{index}", attempt=1, hands_id="hnd_1", action_digest="0", on_unknown="tell",
                timeout_s=120))  # fmt: skip
            self._add(facts, ToolResult(
                call_id=f"{start}.{index}", outcome="ok" if call.ok else "error", content=call.content,
                duration_ms=call.duration_ms,
                files=tuple(FileSeen(path, digest) for path, digest in call.files.items())))  # fmt: skip
        low, middle, high = TOKENS_A_TURN
        spent = tokens if tokens is not None else int(self.chance.triangular(low, high, middle) * self.rate)
        self.fill += spent / LINE_TOKENS
        self.turns.append(Told(tuple(facts), self.fill, bad))

    def hear(self, text: str) -> None:
        """Add a user message before the next turn."""
        seq = self._seq
        self._seq += 1
        self.turns.append(Told(((seq, UserMessage(content=(Text(text),))),), self.fill))

    def _make_room(self, facts: list[tuple[int, Fact]]) -> None:
        if self._life == "reset":
            self._add(facts, ContextReset(cause="line", through_seq=self._seq - 1, handoff=Handoff(next=("go on",))))
            self.fill = AFTER_RESET
        else:
            self._add(facts, ContextCompacted(
                request_seq=0, from_seq=1, through_seq=max(1, self._seq - 20), summary="what was done"))  # fmt: skip
            self.fill = AFTER_COMPACTION

    def _add(self, facts: list[tuple[int, Fact]], fact: Fact) -> int:
        facts.append((self._seq, fact))
        self._seq += 1
        return self._seq - 1


_SYLLABLES = "ba co di fu ge ha jo ki lu me no pa qui ro su te va wi xe yo zu lan mor pel sti tru".split()


class Project:
    """Made-up project: files, symbols, failing tests, and a clock."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        folder = chance.choice(("src", "lib", "app", "pkg/core", "server"))
        ending = chance.choice((".py", ".py", ".ts", ".go", ".rs"))
        self.files = [f"{folder}/{self.word()}{ending}" for _ in range(chance.randint(12, 40))]
        self.symbols = [f"{self.word()}_{self.word()}" for _ in range(30)]
        self.tests = [f"tests/test_{self.word()}.py::test_{self.word()}" for _ in range(chance.randint(8, 60))]
        self.failing = chance.sample(self.tests, min(len(self.tests), chance.randint(2, 8)))
        self.test_command = chance.choice(
            (
                "make test",
                "python -m pytest -q",
                "pytest -x -q 2>&1 | tail -30",
                "npm test",
                "go test ./...",
                "cargo test",
            )
        )
        self.versions: dict[str, int] = {}
        self.seconds = chance.randint(0, 80_000)

    def word(self) -> str:
        """Return a made-up word."""
        return "".join(self.chance.choices(_SYLLABLES, k=self.chance.randint(2, 3)))

    def prose(self, words: int) -> str:
        """Return a number of made-up words."""
        return " ".join(self.word() for _ in range(max(1, words)))

    def now(self) -> str:
        """Return the time of day, which advances with each call."""
        self.seconds += self.chance.randint(2, 90)
        return f"{self.seconds // 3600 % 24:02d}:{self.seconds // 60 % 60:02d}:{self.seconds % 60:02d}"

    def body(self, path: str, lines: int = 12) -> str:
        """Return the text of a file, equal for equal versions."""
        own = random.Random(f"{path}{self.versions.get(path, 0)}")
        names = [own.choice(self.symbols) for _ in range(lines)]
        return "\n".join(f"{index + 1}\tdef {name}({own.choice(_SYLLABLES)}):" for index, name in enumerate(names))

    def changed(self, path: str) -> dict[str, str]:
        """Change a file; return its new digest."""
        self.versions[path] = self.versions.get(path, 0) + 1
        return self.digest(path)

    def digest(self, path: str) -> dict[str, str]:
        """Return the digest of a file."""
        return {path: f"{path}@{self.versions.get(path, 0)}"}

    def report(self) -> str:
        """Return the output of the test command."""
        lines = [f"FAILED {test} - AssertionError: {abs(hash_of(test)) % 97}" for test in self.failing]
        took = f"{self.chance.uniform(0.5, 40):.2f}s"
        passed = len(self.tests) - len(self.failing)
        return "\n".join((*lines, f"{len(self.failing)} failed, {passed} passed in {took}"))


def hash_of(text: str) -> int:
    """Return a number for a text, equal in every process."""
    return sum(ord(letter) * (index + 1) for index, letter in enumerate(text))


def pick(chance: random.Random, weights: dict[str, float]) -> str:
    """Draw one of the keys by weight."""
    return chance.choices(list(weights), weights=list(weights.values()))[0]


def backoff(chance: random.Random) -> Iterator[int]:
    """Return growing waits in seconds."""
    wait: float = chance.choice((5, 10, 15, 30))
    factor = chance.choice((1.0, 1.5, 2.0))
    while True:
        yield int(wait)
        wait = min(900, wait * factor)
