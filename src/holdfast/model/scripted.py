"""A model that follows a script, for tests and demos, without a key or a network.

The script is a JSON file:

    {"turns": [{"text": "I look first.", "thinking": "Where is it?",
                "tool_calls": [{"name": "bash", "input": {"command": "ls"}}],
                "usage": {"input_tokens": 1000, "output_tokens": 50},
                "delay_s": 0.0, "error": null}],
     "price": {"input_per_mtok": 3.0, "output_per_mtok": 15.0}}

The number of responses in the session's log selects the next turn, so a killed session continues where it was.
Details:

- `delay_s` passes before the first part or error of the turn.
- `error` is raised if `attempt` is 1, with `retry_after_s`; the retry gets the turn. `bad_stream` ends after
  some parts. `refusal` is an answer, not a failed request: the text of the turn, no calls, and the stop reason
  `refusal`; it consumes the turn.
- A call may carry `"malformed": "{bad"` instead of `input`: that text is streamed as its arguments.
- Without `usage`, tokens are estimated at four characters each, from the request and the turn.
- After the last turn the model answers that it is done, at no cost.
- `"cases": [{"contains": "item 7", "turns": [...]}]` beside `turns` are other turns for sessions whose goal contains
  that text; the first case that fits counts.
- Requests are counted per purpose: a compaction consumes no turn. Lists of turns named `compaction` and `handoff`
  beside `turns` answer those; after the last of them, a summary or note is derived from the request.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from anyio.lowlevel import checkpoint

from holdfast.clock import Clock
from holdfast.errors import ModelError, UsageError
from holdfast.facts.base import Usage
from holdfast.facts.model import StopReason
from holdfast.model.base import (
    Finish,
    ModelRequest,
    StreamPart,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStart,
)
from holdfast.session.context.conversation import TextPart
from holdfast.session.money import Price, price_per_mtok

DONE = "The script has no more turns: I am done."
"""Text of the answer after the last turn."""

EXAMPLE = (
    '{"turns": [{"text": "I look first.", "tool_calls": [{"name": "bash", "input": {"command": "ls"}}], '
    '"usage": {"input_tokens": 1000, "output_tokens": 50}}]}'
)
"""A valid script, shown in every error message."""

ErrorKind = Literal["rate_limited", "overloaded", "timeout", "bad_stream", "refusal", "auth", "invalid_request"]

_Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
_Dollars = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]

_PIECE = 24
"""Number of characters in one streamed piece."""

_CHARACTERS_PER_TOKEN = 4


class ScriptCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call of a turn. `malformed`, if not empty, is streamed instead of `input`."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    input: dict[str, Any] = {}
    malformed: str = ""

    def arguments(self) -> str:
        """Return the arguments as streamed."""
        return self.malformed or msgspec.json.encode(self.input).decode()


class ScriptUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Declared token counts of a turn."""

    input_tokens: _Count = 0
    output_tokens: _Count = 0
    cache_read_tokens: _Count = 0
    cache_write_tokens: _Count = 0


class ScriptTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One response. All fields are optional; an empty turn ends the work without text."""

    text: str = ""
    thinking: str = ""
    tool_calls: tuple[ScriptCall, ...] = ()
    usage: ScriptUsage | None = None
    delay_s: _Seconds = 0.0
    error: ErrorKind | None = None
    retry_after_s: _Seconds | None = None


class ScriptPrice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dollars per million tokens. Cached tokens cost as much as input tokens by default."""

    input_per_mtok: _Dollars
    output_per_mtok: _Dollars
    cache_read_per_mtok: _Dollars | None = None
    cache_write_per_mtok: _Dollars | None = None


class ScriptCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Turns of the sessions whose goal contains a text."""

    contains: Annotated[str, msgspec.Meta(min_length=1)]
    turns: tuple[ScriptTurn, ...]


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A complete script. `compaction` and `handoff` have their own turns; `cases` come before `turns`."""

    turns: tuple[ScriptTurn, ...]
    cases: tuple[ScriptCase, ...] = ()
    compaction: tuple[ScriptTurn, ...] = ()
    handoff: tuple[ScriptTurn, ...] = ()
    price: ScriptPrice | None = None


def parse_script(text: str, origin: str = "the script") -> Script:
    """Parse a script. Raises `UsageError` with `origin`, the place, the problem, and an example."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise _wrong(origin, f"{where} is not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise _wrong(origin, f"it is not JSON: {error}") from error
    try:
        script = msgspec.convert(value, Script)
    except msgspec.ValidationError as error:
        raise _wrong(origin, str(error).replace("`$", "`script")) from error
    for name in ("turns", "compaction", "handoff"):
        for number, turn in enumerate(getattr(script, name)):
            _check_turn(turn, f"script.{name}[{number}]", origin)
    for place, case in enumerate(script.cases):
        for number, turn in enumerate(case.turns):
            _check_turn(turn, f"script.cases[{place}].turns[{number}]", origin)
    return script


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _check_turn(turn: ScriptTurn, place: str, origin: str) -> None:
    if turn.retry_after_s is not None and turn.error is None:
        raise _wrong(origin, f"`retry_after_s` needs an `error` beside it - at `{place}`")
    for index, call in enumerate(turn.tool_calls):
        if call.malformed and call.input:
            raise _wrong(origin, f"a call has `input` or `malformed`, not both - at `{place}.tool_calls[{index}]`")


def _wrong(origin: str, what: str) -> UsageError:
    return UsageError(f"the model script {origin} cannot be used: {what}. A valid one looks like this: {EXAMPLE}")


def load_script(path: Path) -> Script:
    """Load a script file. Raises `UsageError`."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"the model script {path} cannot be read: {reason}. Name a file that you may read: --model scripted:FILE"
        ) from error
    except UnicodeDecodeError as error:
        raise _wrong(str(path), f"byte {error.start + 1} is not UTF-8 text") from error
    return parse_script(text, str(path))


class ScriptedModel:
    """A model that serves a script: a pure function of the request, except for time."""

    def __init__(self, script: Script, clock: Clock, name: str = "scripted") -> None:
        self.name = name
        self._script = script
        self._clock = clock
        self._price = _price(script.price)

    @classmethod
    def from_file(cls, path: Path, clock: Clock) -> ScriptedModel:
        """Load the model of `--model scripted:FILE`. Raises `UsageError`."""
        return cls(load_script(path), clock, f"scripted:{path}")

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        """Return the cost of the turn's declared or estimated usage (S15)."""
        return self.cost_pico(self._usage(request))

    def cost_pico(self, usage: Usage) -> int | None:
        """Return the cost of a usage in pico-dollars, None for a script without a price."""
        return None if self._price is None else self._price.cost(usage)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Stream the parts of the turn. Raises `ModelError` if the script has an error here."""
        turn = self._turn(request)
        error = turn.error if request.attempt == 1 else None
        if turn.delay_s:
            await self._clock.sleep(turn.delay_s)
        if error is not None and error not in ("bad_stream", "refusal"):
            raise _failure(error, turn)
        parts = _parts(turn, request.responses, refused=error == "refusal")
        if error == "bad_stream":
            parts = parts[: (len(parts) + 1) // 2]
        for part in parts:
            await checkpoint()
            yield part
        if error == "bad_stream":
            raise _failure(error, turn)
        ended: StopReason = "tool_use" if turn.tool_calls else "end_turn"
        yield Finish("refusal" if error == "refusal" else ended, self._usage(request))

    def _turn(self, request: ModelRequest) -> ScriptTurn:
        script, number = self._script, request.responses
        match request.purpose:
            case "compaction":
                if number < len(script.compaction):
                    return script.compaction[number]
                return ScriptTurn(text=f"Summary {number + 1}: {_said_of(request)}")
            case "handoff":
                return script.handoff[number] if number < len(script.handoff) else _note(request)
            case _:
                parts = request.messages[0].parts if script.cases else ()
                goal = "\n".join(part.text for part in parts if isinstance(part, TextPart))
                turns = next((each.turns for each in script.cases if each.contains in goal), script.turns)
                return turns[number] if number < len(turns) else _LAST

    def _usage(self, request: ModelRequest) -> Usage:
        turn = self._turn(request)
        if turn.usage is None:
            sent = len(request.system) + len(msgspec.json.encode((request.messages, request.tools)))
            calls = sum(len(call.name) + len(call.arguments()) for call in turn.tool_calls)
            return Usage(_tokens(sent), _tokens(len(turn.thinking) + len(turn.text) + calls))
        declared = turn.usage
        return Usage(
            declared.input_tokens, declared.output_tokens, declared.cache_read_tokens, declared.cache_write_tokens
        )


_LAST = ScriptTurn(text=DONE, usage=ScriptUsage())


def _said_of(request: ModelRequest) -> str:
    text = "\n".join(part.text for message in request.messages for part in message.parts if isinstance(part, TextPart))
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{len(text)} characters of work were shown (SHA-256 {digest})."


def _note(request: ModelRequest) -> ScriptTurn:
    said = f"Note {request.responses + 1}: {_said_of(request)}"
    return ScriptTurn(text=msgspec.json.encode({"done": [said], "next": ["Look at the workspace."]}).decode())


def _price(price: ScriptPrice | None) -> Price | None:
    if price is None:
        return None
    return price_per_mtok(
        price.input_per_mtok, price.output_per_mtok, price.cache_read_per_mtok, price.cache_write_per_mtok
    )


def _failure(kind: ErrorKind, turn: ScriptTurn) -> ModelError:
    return ModelError(kind, f"the script says {kind} here", retry_after_s=turn.retry_after_s)


def _parts(turn: ScriptTurn, responses: int, *, refused: bool) -> list[StreamPart]:
    parts: list[StreamPart] = []
    thinking = _pieces(turn.thinking)
    parts += [ThinkingDelta(piece) for piece in thinking[:-1]]
    parts += [ThinkingDelta(piece, "scripted") for piece in thinking[-1:]]
    parts += [TextDelta(piece) for piece in _pieces(turn.text)]
    for index, call in enumerate(() if refused else turn.tool_calls):
        parts.append(ToolCallStart(index, call.name, f"scripted_{responses}_{index}"))
        parts += [ToolCallDelta(index, piece) for piece in _pieces(call.arguments())]
    return parts


def _pieces(text: str) -> list[str]:
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


def _tokens(characters: int) -> int:
    return -(-characters // _CHARACTERS_PER_TOKEN)
