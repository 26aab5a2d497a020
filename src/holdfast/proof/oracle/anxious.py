"""Model with context anxiety: it works properly until its context is filled to some degree, then it hurries.

For tests of the whole brain. The work is a number of files `part_01.txt` and so on, each with a line `done 1` and some
text, each checked with a command after it is written. An anxious turn has little text, writes a placeholder, checks
nothing, and mentions its limit; after a few such turns the model stops. In a fresh context it reads the files and
replaces the placeholders.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.errors import UsageError
from holdfast.facts.base import Usage
from holdfast.model.base import ModelRequest
from holdfast.proof.oracle.base import ComputedModel, tokens
from holdfast.session.context.conversation import Message
from holdfast.sim.turns import Outcome, Turn, history

ANXIOUS_TURNS = 6
"""Placeholders in one context before the model stops."""

_FOUND = re.compile(r"part_(\d+)\.txt:\d+:\s*(done|TODO)\b")
_LOOK = {"pattern": "^(done|TODO)"}

_HURRIED = (
    "Given how little context remains, only a stub.",
    "I am running low on context. This should work.",
    "In the interest of time I skip the checks.",
    "I'll leave the rest of this one for later.",
)
_GIVES_UP = "I am low on context, so I'll stop here. The remaining parts can be done in another session."


class _Seen(msgspec.Struct):
    """State of the work according to the conversation: each part's content, the parts read, the part to check."""

    looked: bool = False
    parts: dict[int, str] = {}
    read: set[int] = set()
    unchecked: int = 0
    failed: int = 0
    stubs: int = 0


class AnxiousModel(ComputedModel):
    """Model that writes `parts` files of about `size` characters. Anxious above `fill` of `line_tokens` tokens."""

    piece = 40

    def __init__(self, fill: float, *, line_tokens: int = 100_000, parts: int = 12, size: int = 6_000) -> None:
        super().__init__(f"anxious:{fill:g}")
        self._fill = fill
        self._line_tokens = line_tokens
        self._parts = parts
        self._size = size

    @classmethod
    def from_name(cls, name: str, line_tokens: int) -> AnxiousModel:
        """Return the model of `--model anxious:FILL`. Raises `UsageError`."""
        text = name.partition(":")[2]
        try:
            fill = float(text)
        except ValueError:
            fill = -1.0
        if not 0 < fill <= 1:
            raise UsageError(
                f"the model {name!r} needs a part of the context line, more than 0 and at most 1; nothing was started: "
                "use for example --model anxious:0.7"
            )
        return cls(fill, line_tokens=line_tokens)

    def _usage(self, request: ModelRequest, turn: Turn) -> Usage:
        return Usage(_shown(request), tokens(turn.characters()))

    def _next(self, request: ModelRequest) -> Turn:
        seen = _seen(request.messages)
        if request.purpose != "turn" or request.output_schema is not None:
            return _note(request, seen)
        if not seen.looked:
            return Turn("First I look at what is there already, before I begin or go on.", (("grep", _LOOK),))
        missing = [part for part in range(1, self._parts + 1) if seen.parts.get(part) != "done"]
        if _shown(request) > self._fill * self._line_tokens:
            return self._hurried(request, seen, missing)
        if seen.unchecked:
            command = f"grep -c '^done {seen.unchecked}$' {_file(seen.unchecked)}"
            text = f"Part {seen.unchecked} is written. I check that its file begins as it should before I go on."
            return Turn(text, (("bash", {"command": command}),))
        if not missing:
            return Turn(f"Done: all {self._parts} parts are written and checked.")
        if seen.failed >= 3:
            return Turn(f"I am stuck: {_file(missing[0])} cannot be written. {len(missing)} parts are missing.")
        return self._work(seen, missing[0])

    def _work(self, seen: _Seen, part: int) -> Turn:
        if seen.parts.get(part) == "TODO" and part not in seen.read:
            text = f"{_file(part)} holds only a placeholder. I read it, then write the whole part."
            return Turn(text, (("read", {"file_path": _file(part)}),))
        body = "\n".join(f"line {line} of part {part}, with some words to fill it" for line in range(self._size // 48))
        text = (
            f"Now part {part} of {self._parts}. It begins with the line that the check looks for, then comes its text; "
            "after it I run the check, and only then the next part."
        )
        return Turn(text, (("write", {"file_path": _file(part), "content": f"done {part}\n{body}\n"}),))

    def _hurried(self, request: ModelRequest, seen: _Seen, missing: list[int]) -> Turn:
        untouched = [part for part in missing if part not in seen.parts]
        if seen.stubs >= ANXIOUS_TURNS or not untouched:
            return Turn(_GIVES_UP)
        part = untouched[0]
        text = _HURRIED[request.responses % len(_HURRIED)]
        return Turn(text, (("write", {"file_path": _file(part), "content": f"TODO part {part}\n"}),))


def _file(part: int) -> str:
    return f"part_{part:02d}.txt"


def _shown(request: ModelRequest) -> int:
    """Return the size of the request in tokens."""
    return tokens(len(request.system) + len(msgspec.json.encode(request.messages)))


def _seen(messages: tuple[Message, ...]) -> _Seen:
    seen = _Seen()
    for happened in history(messages):
        if isinstance(happened, Outcome):
            _take(seen, happened)
    return seen


def _take(seen: _Seen, outcome: Outcome) -> None:
    match outcome.name:
        case "grep" if outcome.ok:
            seen.looked = True
            for part, holds in _FOUND.findall(outcome.content):
                if seen.parts.get(int(part)) != "done":
                    seen.parts[int(part)] = holds
        case "read":
            seen.read.add(_part_of(outcome.input))
        case "write" if not outcome.ok:
            seen.failed += 1
            seen.read.discard(_part_of(outcome.input))
            seen.looked = False  # the present content is no longer known
        case "write":
            part = _part_of(outcome.input)
            stub = str(outcome.input.get("content", "")).startswith("TODO")
            seen.parts[part] = "TODO" if stub else "done"
            seen.failed = 0
            seen.stubs += stub
            seen.read.add(part)
            seen.unchecked = seen.unchecked if stub else part
        case "bash":
            seen.unchecked = 0
            if not outcome.ok:
                seen.failed += 1


def _part_of(value: Mapping[str, Any]) -> int:
    digits = re.sub(r"\D", "", str(value.get("file_path", "")))
    return int(digits) if digits else 0


def _note(request: ModelRequest, seen: _Seen) -> Turn:
    """Return a summary, or a value that fits the schema of a handoff."""
    done = [_file(part) for part, holds in sorted(seen.parts.items()) if holds == "done"]
    stubs = [_file(part) for part, holds in sorted(seen.parts.items()) if holds == "TODO"]
    said = f"Written and checked: {', '.join(done) or 'none'}. Placeholders: {', '.join(stubs) or 'none'}."
    if request.output_schema is None:
        return Turn(said)
    return Turn(msgspec.json.encode(_fitting(request.output_schema, request.output_schema, said)).decode())


def _fitting(schema: Mapping[str, Any], whole: Mapping[str, Any], said: str) -> Any:
    """Build a value of that schema with `said` in place of each string."""
    reference = str(schema.get("$ref", ""))
    if reference:
        target: Any = whole
        for key in reference.removeprefix("#/").split("/"):
            target = target[key]
        return _fitting(target, whole, said)
    match schema.get("type"):
        case "object":
            properties: Mapping[str, Any] = schema.get("properties", {})
            return {name: _fitting(inner, whole, said) for name, inner in properties.items()}
        case "array":
            return [_fitting(schema.get("items", {"type": "string"}), whole, said)]
        case "integer" | "number":
            return 0
        case "boolean":
            return False
        case _:
            return said
