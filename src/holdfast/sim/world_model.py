"""The model of a simulated session: a script drawn from a seed, the same for every brain that asks.

What is said depends on the request's count of responses and on its attempt alone. Every call that
changes something carries a key of its own, so that each real effect can be counted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

from holdfast.errors import ModelErrorKind
from holdfast.facts.base import Usage
from holdfast.facts.model import StopReason
from holdfast.model.base import Finish, StreamPart, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStart
from holdfast.session.money import Price

FILES = ("notes.md", "src/a.py")
"""The files that calls are about."""

PRICE = Price(input=2_000_000, output=10_000_000, cache_read=0, cache_write=0)
"""Of models that have one."""


@dataclass(frozen=True)
class SaidCall:
    """A tool call as the model streams it. `key` names its effect, empty when it has none."""

    name: str
    arguments: str
    key: str = ""


@dataclass(frozen=True)
class Trouble:
    """A failed attempt: after how many parts, and how; `kind` None ends the stream without a word."""

    after: int
    kind: ModelErrorKind | None
    retry_after_s: float | None


@dataclass(frozen=True)
class Turn:
    """One response, and the attempts that fail before it comes."""

    thinking: str
    signature: str
    text: str
    calls: tuple[SaidCall, ...]
    stop_reason: StopReason
    output_tokens: int
    troubles: tuple[Trouble, ...]

    def parts(self, provider_id: str) -> list[StreamPart]:
        """What is streamed before the finish."""
        parts: list[StreamPart] = []
        if self.thinking:
            parts += [ThinkingDelta(self.thinking[:4]), ThinkingDelta(self.thinking[4:], self.signature)]
        if self.text:
            parts += [TextDelta(self.text[:6]), TextDelta(self.text[6:])]
        for index, call in enumerate(self.calls):
            parts.append(ToolCallStart(index, call.name, f"{provider_id}.{index}"))
            cut = len(call.arguments) // 2
            parts += [ToolCallDelta(index, call.arguments[:cut]), ToolCallDelta(index, call.arguments[cut:])]
        return parts

    def finish(self, input_tokens: int, max_output_tokens: int) -> Finish:
        """The last part."""
        return Finish(self.stop_reason, Usage(input_tokens, min(self.output_tokens, max_output_tokens)))


@dataclass
class Script:
    """All that the model of one session will ever say. `length` responses do something, then it is done."""

    name: str
    seed: int
    length: int
    trouble: float
    priced: bool
    _turns: dict[int, Turn] = field(default_factory=dict)

    def turn(self, responses: int) -> Turn:
        """The response that comes after that many."""
        if responses not in self._turns:
            self._turns[responses] = _draw(Random(self.seed * 1_000_003 + responses), self, responses)
        return self._turns[responses]


def _draw(chance: Random, script: Script, responses: int) -> Turn:
    calls: tuple[SaidCall, ...] = ()
    stop: StopReason = "end_turn"
    if responses < script.length or chance.random() < 0.3:
        draw = chance.random()
        if draw < 0.06:
            stop = "max_tokens"
        elif draw < 0.08:
            stop = "refusal"
        else:
            calls = tuple(_calls(chance, f"k{script.name}.{responses}"))
            stop = "tool_use"
    thinking = f"think {responses} about it" if chance.random() < 0.3 else ""
    return Turn(
        thinking=thinking,
        signature="signed" if thinking and chance.random() < 0.6 else "",
        text=f"answer {script.name}.{responses}" if chance.random() < 0.8 or not calls else "",
        calls=calls,
        stop_reason=stop,
        output_tokens=chance.randint(5, 400),
        troubles=tuple(_troubles(chance, script.trouble)),
    )


def _troubles(chance: Random, rate: float) -> list[Trouble]:
    troubles: list[Trouble] = []
    while len(troubles) < 7 and chance.random() < rate:
        kind: ModelErrorKind | None = chance.choice(
            ("rate_limited", "overloaded", "timeout", "bad_stream", "unavailable", None)
        )
        if chance.random() < 0.04:
            kind = "invalid_request"
        wait = chance.choice((None, None, 0.0, 2.0, 20.0, 300.0, 5000.0)) if kind == "rate_limited" else None
        troubles.append(Trouble(chance.choice((0, 0, 1, 3, 99)), kind, wait))
    return troubles


def _calls(chance: Random, prefix: str) -> list[SaidCall]:
    draw = chance.random()
    if draw < 0.25:
        return [_look(chance) for _ in range(chance.randint(1, 3))]
    if draw < 0.5:
        return [_change(chance, f"{prefix}.0")]
    return [_any(chance, f"{prefix}.{index}") for index in range(chance.randint(1, 4))]


def _any(chance: Random, key: str) -> SaidCall:
    draw = chance.random()
    if draw < 0.6:
        return _change(chance, key)
    if draw < 0.85:
        return _look(chance)
    return chance.choice(_WRONG)


def _look(chance: Random) -> SaidCall:
    draw = chance.random()
    path = chance.choice(FILES)
    if draw < 0.6:
        return _call("read", {"file_path": path})
    return _call("glob", {"pattern": "**/*.py"}) if draw < 0.8 else _call("grep", {"pattern": "mark", "path": "."})


def _change(chance: Random, key: str) -> SaidCall:
    draw = chance.random()
    path = chance.choice(FILES)
    if draw < 0.55:
        word = chance.choice(("do", "do", "fail", "touch"))
        given: dict[str, Any] = {"command": f"{word} {key} {path}"}
        if chance.random() < 0.1:
            given["timeout_ms"] = 1500
        return _call("bash", given, key)
    if draw < 0.85:
        return _call("write", {"file_path": path, "content": f"mark {key}\n"}, key)
    return _call("edit", {"file_path": path, "old_string": "mark", "new_string": f"mark {key}"}, key)


def _call(name: str, given: dict[str, Any], key: str = "") -> SaidCall:
    return SaidCall(name, json.dumps(given), key)


_WRONG = (
    SaidCall("bash", '{"command": "do'),
    SaidCall("read", "[1, 2]"),
    SaidCall("teleport", '{"where": "home"}'),
    SaidCall("write", '{"file_path": 3}'),
    SaidCall("bash", "{}"),
    SaidCall("bash", '{"restart": true}'),
)
"""Calls that are malformed, unknown, invalid, or change nothing."""
