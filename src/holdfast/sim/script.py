"""Model of a simulated session: a script drawn from a seed, equal for every brain that asks.

A response depends only on the request's purpose, its count of responses, and its attempt. Every call that changes
something carries its own key, so that each real effect can be counted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from holdfast.errors import ModelErrorKind
from holdfast.facts.base import Usage
from holdfast.facts.model import Purpose, StopReason
from holdfast.model.base import Finish, StreamPart, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallStart
from holdfast.session.money import PICO, Price

FILES = ("notes.md", "src/a.py")
"""Files that calls read and write."""

PRICE = Price(input=2_000_000, output=10_000_000, cache_read=0, cache_write=0)
"""Price of models that have one."""


@dataclass(frozen=True)
class SaidCall:
    """Tool call as the model streams it. `key` names its effect, if any."""

    name: str
    arguments: str
    key: str = ""


@dataclass(frozen=True)
class Trouble:
    """Failed attempt: the number of parts before it, and its kind; None ends the stream without an error."""

    after: int
    kind: ModelErrorKind | None
    retry_after_s: float | None


@dataclass(frozen=True)
class Turn:
    """Response with the failed attempts before it."""

    thinking: str
    signature: str
    text: str
    calls: tuple[SaidCall, ...]
    stop_reason: StopReason
    output_tokens: int
    troubles: tuple[Trouble, ...]

    def parts(self, provider_id: str, children: Sequence[str] = ()) -> list[StreamPart]:
        """Return the stream before the finish. `children` are those that the session has opened, in order."""
        parts: list[StreamPart] = []
        if self.thinking:
            parts += [ThinkingDelta(self.thinking[:4]), ThinkingDelta(self.thinking[4:], self.signature)]
        if self.text:
            parts += [TextDelta(self.text[:6]), TextDelta(self.text[6:])]
        for index, call in enumerate(self.calls):
            parts.append(ToolCallStart(index, call.name, f"{provider_id}.{index}"))
            arguments = named(call.arguments, children)
            cut = len(arguments) // 2
            parts += [ToolCallDelta(index, arguments[:cut]), ToolCallDelta(index, arguments[cut:])]
        return parts

    def finish(self, input_tokens: int, max_output_tokens: int) -> Finish:
        return Finish(self.stop_reason, Usage(input_tokens, min(self.output_tokens, max_output_tokens)))


def named(arguments: str, children: Sequence[str]) -> str:
    """Replace `@0` in arguments by the id of the first child or job, `@1` by the second, and so on."""
    for number, child_id in enumerate(children):
        arguments = arguments.replace(f'"@{number}"', f'"{child_id}"')
    return arguments


@dataclass
class Script:
    """Responses of one session's model. `length` of them call tools; then it is done.

    `powers` are the harness tools that it uses. With `wants` it calls a command each turn until the budget is used.
    """

    name: str
    seed: int
    length: int
    trouble: float
    priced: bool
    powers: tuple[str, ...] = ()
    wants: bool = False
    _turns: dict[tuple[Purpose, int], Turn] = field(default_factory=dict)

    def turn(self, responses: int, purpose: Purpose = "turn") -> Turn:
        """Return the response of that purpose after that many others."""
        key = (purpose, responses)
        if key not in self._turns:
            if purpose == "turn":
                self._turns[key] = _draw(Random(self.seed * 1_000_003 + responses), self, responses)
            else:
                self._turns[key] = _note(Random(f"{self.seed} {purpose} {responses}"), self, responses, purpose)
        return self._turns[key]

    def say(self, responses: int, turn: Turn) -> None:
        """Set a response instead of drawing it."""
        self._turns["turn", responses] = turn

    def child(self, call_id: str, number: int) -> Script:
        """Return the script of the child number `number`, from 0, that a call of this session opens."""
        chance = Random(f"{self.seed} child {call_id}")
        down = len(self.name)
        return Script(
            self.name + "abcdefghijklmnopqrstuvwxyz"[number],
            seed=chance.getrandbits(40),
            length=8 if self.wants else chance.randint(1, 3),
            trouble=self.trouble if self.wants else chance.choice((0.0, 0.0, 0.15, 0.4)),
            priced=self.priced,
            powers=() if self.wants or down > 2 or chance.random() < 0.7 else self.powers,
            wants=self.wants,
        )


def _note(chance: Random, script: Script, responses: int, purpose: Purpose) -> Turn:
    """Return a summary or a handoff, sometimes an unusable one."""
    mark = f"{purpose} {script.name}.{responses}"
    text, stop = f"{mark}: so far so good", "end_turn"
    if purpose == "handoff":
        text = json.dumps({"done": [mark], "next": [f"go on from {mark} with {FILES[0]}"]})
    draw = chance.random()
    if draw < 0.1:
        text = "{" if purpose == "handoff" else " "
    elif draw < 0.15:
        stop = "refusal" if draw < 0.12 else "max_tokens"
    return Turn(
        thinking="",
        signature="",
        text=text,
        calls=(),
        stop_reason=stop,  # type: ignore[arg-type]
        output_tokens=chance.randint(5, 200),
        troubles=tuple(_troubles(chance, script.trouble)),
    )


def _draw(chance: Random, script: Script, responses: int) -> Turn:
    calls: tuple[SaidCall, ...] = ()
    stop: StopReason = "end_turn"
    if responses < script.length or chance.random() < (0.0 if script.wants else 0.3):
        draw = chance.random()
        if draw < 0.06:
            stop = "max_tokens"
        elif draw < 0.08 and not script.wants:
            stop = "refusal"
        else:
            calls = tuple(_calls(chance, script, responses))
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


def _calls(chance: Random, script: Script, responses: int) -> list[SaidCall]:
    prefix = f"k{script.name}.{responses}"
    if script.powers and chance.random() < 0.7:
        return _orders(chance, script, responses)
    draw = chance.random()
    if draw < 0.25:
        return [_look(chance) for _ in range(chance.randint(1, 3))]
    if draw < 0.5:
        return [_change(chance, f"{prefix}.0")]
    return [_any(chance, f"{prefix}.{index}") for index in range(chance.randint(1, 4))]


def _orders(chance: Random, script: Script, responses: int) -> list[SaidCall]:
    """Return calls of harness tools, sometimes with others between them."""
    count = chance.choice((1, 1, 2, 3))
    orders = [_order(chance, script, f"{script.name}.{responses}.{index}") for index in range(count)]
    if chance.random() < 0.25:
        orders.insert(chance.randint(0, count), _any(chance, f"k{script.name}.{responses}.{count}"))
    return orders


def _order(chance: Random, script: Script, name: str) -> SaidCall:
    power = chance.choice(script.powers)
    child = f"@{chance.choice((0, 0, 0, 1, 1, 2, 9))}"
    given: dict[str, Any]
    match power:
        case "spawn":
            given = _part(chance, name)
        case "message_child":
            given = {"child_id": child, "text": f"word {name}"}
        case "wait_for_children":
            given = {} if chance.random() < 0.6 else {"child_ids": [child]}
            if chance.random() < 0.4:
                given["timeout_s"] = chance.choice((3.0, 90.0, 4000.0))
        case "cancel_child":
            given = {"child_id": child}
        case "sleep":
            given = {"seconds": chance.choice((2.0, 4.0, 60.0, 5000.0, -1.0))}
        case "ask_person":
            given = {"question": f"what about {name}?"}
            if chance.random() < 0.3:
                given["options"] = ["left", "right"]
        case _:
            given = {"name": f"phase {name}"}
    return _call(power, given)


def _part(chance: Random, name: str) -> dict[str, Any]:
    """Return the arguments of a `spawn` call."""
    given: dict[str, Any] = {"goal": f"part {name}", "name": f"child {name}"}
    if chance.random() < 0.5:
        given["criteria"] = [f"{name} is there", "nothing else changed"]
    if chance.random() < 0.4:
        one = (PRICE.input * 200 + PRICE.output * 1024) / PICO
        given["budget_usd"] = round(one * chance.uniform(0.3, 5.0), 6)
    if chance.random() < 0.2:
        given["max_turns"] = chance.choice((1, 2, 5))
    if chance.random() < 0.2:
        given["tools"] = chance.choice((["bash", "read"], ["fly"]))
    return given


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
"""Calls that are malformed, unknown, invalid, or without effect."""
