"""A model that follows a script: for tests and demonstrations, with no key and no network.

The script is a JSON file:

    {"turns": [{"text": "I look first.", "thinking": "Where is it?",
                "tool_calls": [{"name": "bash", "input": {"command": "ls"}}],
                "usage": {"input_tokens": 1000, "output_tokens": 50},
                "delay_s": 0.0, "error": null}],
     "price": {"input_per_mtok": 3.0, "output_per_mtok": 15.0}}

The turn served is the number of responses already in the session's log, so a session that was killed
goes on where it was. What the format leaves open is settled here:

- `delay_s` passes before whatever the turn yields first, its error included.
- `error` is served when `attempt` is 1; the retry gets the turn. `retry_after_s` stands beside it.
  `bad_stream` breaks off in the middle, after some parts. `refusal` is no failed request but an
  answer: the words of the turn, no call, and the stop reason `refusal`; it uses the turn up.
- A call may carry `"malformed": "{bad"` in place of `input`: that text is streamed as its arguments.
- A turn without `usage` costs an estimate: four characters a token, of what was sent and of the turn.
- After the last turn the model says that it is done, and that costs nothing.
- Requests are counted per purpose: a compaction uses up no turn. Lists of turns named `compaction` and `handoff`
  beside `turns` answer those; after the last of them comes a summary or a note that follows from what was shown.
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
"""What is said after the last turn."""

EXAMPLE = (
    '{"turns": [{"text": "I look first.", "tool_calls": [{"name": "bash", "input": {"command": "ls"}}], '
    '"usage": {"input_tokens": 1000, "output_tokens": 50}}]}'
)
"""A right script, shown with every complaint about a wrong one."""

ErrorKind = Literal["rate_limited", "overloaded", "timeout", "bad_stream", "refusal"]

_Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
_Dollars = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]

_PIECE = 24
"""Characters in one streamed piece."""

_CHARACTERS_PER_TOKEN = 4


class ScriptCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call of a turn. `malformed`, when not empty, is streamed in place of `input`."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    input: dict[str, Any] = {}
    malformed: str = ""

    def arguments(self) -> str:
        """The text that is streamed as the call's arguments."""
        return self.malformed or msgspec.json.encode(self.input).decode()


class ScriptUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The declared tokens of a turn."""

    input_tokens: _Count = 0
    output_tokens: _Count = 0
    cache_read_tokens: _Count = 0
    cache_write_tokens: _Count = 0


class ScriptTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One response. Everything may be left out; an empty turn ends the work without a word."""

    text: str = ""
    thinking: str = ""
    tool_calls: tuple[ScriptCall, ...] = ()
    usage: ScriptUsage | None = None
    delay_s: _Seconds = 0.0
    error: ErrorKind | None = None
    retry_after_s: _Seconds | None = None


class ScriptPrice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dollars per million tokens. Cached tokens cost as input ones unless said."""

    input_per_mtok: _Dollars
    output_per_mtok: _Dollars
    cache_read_per_mtok: _Dollars | None = None
    cache_write_per_mtok: _Dollars | None = None


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole script. `compaction` and `handoff` are answered in their own order."""

    turns: tuple[ScriptTurn, ...]
    compaction: tuple[ScriptTurn, ...] = ()
    handoff: tuple[ScriptTurn, ...] = ()
    price: ScriptPrice | None = None


def parse_script(text: str, origin: str = "the script") -> Script:
    """The script in `text`. Raises `UsageError` with `origin`, the place, what is wrong and an example."""
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
    _check_turns(script, origin)
    return script


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _check_turns(script: Script, origin: str) -> None:
    for name in ("turns", "compaction", "handoff"):
        for number, turn in enumerate(getattr(script, name)):
            _check_turn(turn, f"script.{name}[{number}]", origin)


def _check_turn(turn: ScriptTurn, place: str, origin: str) -> None:
    if turn.retry_after_s is not None and turn.error is None:
        raise _wrong(origin, f"`retry_after_s` needs an `error` beside it - at `{place}`")
    for index, call in enumerate(turn.tool_calls):
        if call.malformed and call.input:
            raise _wrong(origin, f"a call has `input` or `malformed`, not both - at `{place}.tool_calls[{index}]`")


def _wrong(origin: str, what: str) -> UsageError:
    return UsageError(f"the model script {origin} cannot be used: {what}. A right one looks like this: {EXAMPLE}")


def load_script(path: Path) -> Script:
    """The script in a file. Raises `UsageError` when it cannot be read or is no script."""
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
    """Serves a script through the door of the models. A pure function of the request, but for time."""

    def __init__(self, script: Script, clock: Clock, name: str = "scripted") -> None:
        self.name = name
        self._script = script
        self._clock = clock
        self._price = _price(script.price)

    @classmethod
    def from_file(cls, path: Path, clock: Clock) -> ScriptedModel:
        """The model of `--model scripted:FILE`. Raises `UsageError`."""
        return cls(load_script(path), clock, f"scripted:{path}")

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        """What the turn's declared usage costs (S15); its estimate when none is declared."""
        return self.cost_pico(self._usage(request))

    def cost_pico(self, usage: Usage) -> int | None:
        """What that usage costs in pico-dollars, None for a script without a price."""
        return None if self._price is None else self._price.cost(usage)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """The parts of the turn. Raises `ModelError` where the script says so."""
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
        yield Finish(_stop_reason(turn, error), self._usage(request))

    def _turn(self, request: ModelRequest) -> ScriptTurn:
        script, number = self._script, request.responses
        match request.purpose:
            case "compaction":
                return script.compaction[number] if number < len(script.compaction) else _summary(request)
            case "handoff":
                return script.handoff[number] if number < len(script.handoff) else _note(request)
            case _:
                return script.turns[number] if number < len(script.turns) else _LAST

    def _usage(self, request: ModelRequest) -> Usage:
        turn = self._turn(request)
        if turn.usage is None:
            return Usage(input_tokens=_tokens(_sent(request)), output_tokens=_tokens(_answered(turn)))
        declared = turn.usage
        return Usage(
            declared.input_tokens, declared.output_tokens, declared.cache_read_tokens, declared.cache_write_tokens
        )


_LAST = ScriptTurn(text=DONE, usage=ScriptUsage())


def _said_of(request: ModelRequest) -> str:
    text = "\n".join(part.text for message in request.messages for part in message.parts if isinstance(part, TextPart))
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{len(text)} characters of work were shown (SHA-256 {digest})."


def _summary(request: ModelRequest) -> ScriptTurn:
    return ScriptTurn(text=f"Summary {request.responses + 1}: {_said_of(request)}")


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


def _stop_reason(turn: ScriptTurn, error: ErrorKind | None) -> StopReason:
    if error == "refusal":
        return "refusal"
    return "tool_use" if turn.tool_calls else "end_turn"


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


def _sent(request: ModelRequest) -> int:
    return len(request.system) + len(msgspec.json.encode((request.messages, request.tools)))


def _answered(turn: ScriptTurn) -> int:
    calls = sum(len(call.name) + len(call.arguments()) for call in turn.tool_calls)
    return len(turn.thinking) + len(turn.text) + calls
