"""A shift as plain lines: what it is doing, tokens, money, time. Nothing moves or blinks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.clock import Clock, rfc3339
from holdfast.facts.base import Usage, text_of
from holdfast.facts.codec import Event, export_line
from holdfast.facts.hands import HandsLost, HandsProvisioned
from holdfast.facts.model import AgentMessage, AgentToolUse, ModelRequestEnd, ModelRequestStart
from holdfast.facts.session import SessionError
from holdfast.facts.shift import LeaseStolen, ShiftEnded, ShiftStarted
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.facts.user import UserCancel, UserInterrupt, UserMessage
from holdfast.model.base import StreamPart
from holdfast.session.money import usd

MAIN_ARGUMENT = {"bash": "command", "read": "file_path", "write": "file_path", "edit": "file_path"}
_WIDTH = 100


def one_line(text: str, width: int = _WIDTH) -> str:
    """`text` on one line, cut to `width`, with control characters made harmless."""
    flat = " ".join(text.split())
    clean = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in flat)
    return clean if len(clean) <= width else clean[: width - 1] + "…"


def describe(event: Event) -> str:
    """An event as a short line for people; empty for one that says nothing by itself."""
    match event.fact:
        case AgentToolUse(name=name, input=value):
            return f"{name}: {one_line(str(value.get(MAIN_ARGUMENT.get(name, 'pattern'), '')))}"
        case ToolResult() as result:
            return _result(result)
        case ToolOutcomeUnknown(reason=reason):
            return f"  → outcome unknown: {reason}; the model is told"
        case AgentMessage(content=content):
            return one_line(text_of(content))
        case ModelRequestEnd(outcome="error") as end:
            return f"model request failed ({end.error_kind}): {one_line(end.message)}"
        case ModelRequestEnd(outcome="presumed"):
            return "a model request died with its process; its reservation counts as spent"
        case _:
            return _about_the_session(event)


def _about_the_session(event: Event) -> str:
    match event.fact:
        case HandsProvisioned(provider=provider, isolation=isolation):
            weak = "" if isolation.get("files") == "hard" else "  NOT SANDBOXED"
            return f"hands ready ({provider}){weak}"
        case HandsLost(reason=reason):
            return f"hands lost: {reason}"
        case ShiftStarted(pid=pid):
            return f"shift {event.epoch} begins in process {pid}"
        case LeaseStolen(from_worker_id=worker):
            return f"the lease was taken from {worker}"
        case ShiftEnded(status=status, reason=reason, detail=detail):
            why = f" ({reason})" if reason else ""
            return f"shift ends: {status}{why}{': ' + one_line(detail) if detail else ''}"
        case UserMessage(content=content):
            return f"message from {event.actor}: {one_line(text_of(content))}"
        case UserInterrupt():
            return f"interrupted by {event.actor}"
        case UserCancel():
            return f"cancelled by {event.actor}"
        case SessionError(message=message):
            return f"error: {one_line(message)}"
        case _:
            return ""


def _result(result: ToolResult) -> str:
    seconds = f" in {result.duration_ms / 1000:.1f} s" if result.duration_ms is not None else ""
    taken = ", taken from the hands' journal" if result.reconciled else ""
    status = f", exit status {result.exit_code}" if result.exit_code else ""
    return f"  → {result.outcome}{status}{seconds}{taken}"


class PlainProgress:
    """An observer that prints a line for each event worth one."""

    def __init__(self, clock: Clock, print_line: Callable[[str], None]) -> None:
        self._clock = clock
        self._print = print_line
        self._began_s = clock.monotonic_s()
        self._usage = Usage()
        self._cost_pico = 0
        self._turns = 0

    def on_events(self, events: list[Event]) -> None:
        """Print them."""
        for event in events:
            fact = event.fact
            if isinstance(fact, ModelRequestEnd):
                self._usage = self._usage + (fact.usage or Usage())
                self._cost_pico += fact.cost_pico or 0
            elif isinstance(fact, ModelRequestStart):
                self._turns += fact.attempt == 1
            line = describe(event)
            if line:
                self._print(f"{self._gauge()}  {line}")

    def on_delta(self, part: StreamPart) -> None:
        """Deltas make no line: plain output shows what is finished."""

    def _gauge(self) -> str:
        elapsed = self._clock.monotonic_s() - self._began_s
        tokens = self._usage.input_tokens + self._usage.cache_read_tokens + self._usage.output_tokens
        return f"{elapsed:7.1f}s  turn {self._turns:<3d} {tokens / 1000:7.1f}k tok  {usd(self._cost_pico):>8s}"


class JsonProgress:
    """An observer that emits each event as a JSON object."""

    def __init__(self, emit: Callable[[dict[str, Any]], None]) -> None:
        self._emit = emit

    def on_events(self, events: list[Event]) -> None:
        """Emit them."""
        for event in events:
            self._emit(public(event))

    def on_delta(self, part: StreamPart) -> None:
        """Deltas are not events."""


def public(event: Event) -> dict[str, Any]:
    """An event as `--json` shows it: flat, with `at` as RFC 3339."""
    return {**export_line(event), "at": rfc3339(event.at_us)}
