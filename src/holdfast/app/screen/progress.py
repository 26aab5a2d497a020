"""A shift as plain lines: what it is doing, tokens, money, time. Nothing moves or blinks."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from holdfast.app.screen.progress_jobs import about_jobs
from holdfast.app.screen.progress_mission import about_mission
from holdfast.app.screen.progress_outside import about_outside, policy_line
from holdfast.clock import Clock, rfc3339
from holdfast.facts.base import Usage, text_of
from holdfast.facts.codec import Event, export_line
from holdfast.facts.hands import HandsLost, HandsReleased, WorkspaceSnapshotted
from holdfast.facts.model import (
    AgentMessage,
    AgentThinking,
    AgentToolUse,
    ContextCompacted,
    ContextFailed,
    ContextReset,
    ContextSign,
    ModelRequestEnd,
    ModelRequestStart,
    PhaseEnded,
    RuleBreached,
)
from holdfast.facts.people import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalSeen,
    ApprovalSuperseded,
    NoticeSent,
    UserCancel,
    UserInterrupt,
    UserMessage,
    UserPause,
    UserResume,
)
from holdfast.facts.session import SessionCreated, SessionError, SessionEventsLost, SessionForked, SessionUpdated
from holdfast.facts.shift import (
    BreakerClosed,
    BreakerOpened,
    BudgetSet,
    ClockSet,
    EmergencyReleased,
    EmergencyStopped,
    LeaseStolen,
    ShiftEnded,
    ShiftStarted,
)
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.model.base import StreamPart
from holdfast.session.context.text import harmless
from holdfast.session.decide.waits import proof_text
from holdfast.session.money import usd
from holdfast.session.rows import SessionRow
from holdfast.session.tools import TOOLS

MAIN_ARGUMENT = {name: tool.main or "reason" for name, tool in TOOLS.items()}
_WIDTH = 100


def one_line(text: str, width: int = _WIDTH) -> str:
    """`text` on one line, cut to `width`, with control characters made harmless."""
    clean = harmless(" ".join(text.split()))
    return clean if len(clean) <= width else clean[: width - 1] + "…"


def counted(number: int, noun: str) -> str:
    """`1 turn`, `2 turns`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def known_cost(row: SessionRow) -> int | None:
    """What a session cost, None when that is not known: it used tokens, and none of them had a price."""
    used = row.input_tokens + row.output_tokens
    return None if used and not row.cost_pico else row.cost_pico


def in_detail(event: Event) -> str:
    """An event as a short line for people, also one that is of no news while it happens."""
    match event.fact:
        case SessionCreated(goal=goal):
            return one_line(goal)
        case ModelRequestStart() as start:
            held = f", {usd(start.reserved_pico)} held" if start.reserved_pico is not None else ""
            return f"attempt {start.attempt}, about {start.input_tokens_estimate} tokens{held}"
        case ModelRequestEnd(outcome="ok" | "cancelled" as outcome, usage=usage) as end:
            tokens = f", {usage.input_tokens} tokens in, {usage.output_tokens} out" if usage else ""
            return f"{outcome}{tokens}, {usd(end.cost_pico)}"
        case AgentThinking(text=text):
            return one_line(text)
        case ToolDispatched(call_id=call_id, attempt=attempt):
            return f"call {call_id}" + (f", attempt {attempt}" if attempt > 1 else "")
        case ToolResult(outcome="ok", content=content) as result:
            return f"{_result(result)}: {one_line(content)}"
        case HandsReleased():
            return "hands given back"
        case SessionForked(origin=origin, origin_seq=seq):
            return f"a fork of {origin} at {seq}"
        case WorkspaceSnapshotted(error="") as kept:
            return f"files as after event {kept.through_seq} kept: {counted(kept.files, 'file')}"
        case WorkspaceSnapshotted(error=error):
            return f"files could not be kept: {one_line(error)}"
        case ApprovalSeen(item_id=item_id, by=by):
            return f"{item_id} seen by {by}"
        case _:
            return describe(event)


def describe(event: Event) -> str:
    """An event as a short line for people; empty for one that is no news while it happens."""
    match event.fact:
        case AgentToolUse(name=name, malformed=malformed, input=value):
            return f"{name}: {one_line(malformed or str(value.get(MAIN_ARGUMENT.get(name, 'pattern'), '')))}"
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
        case HandsLost(reason=reason):
            return f"hands lost: {reason}"
        case ShiftStarted(pid=pid):
            return f"shift {event.epoch} begins in process {pid}"
        case ClockSet(booted_us=booted_us):
            return f"the clock was set; this machine now says that it was started at {rfc3339(booted_us)}"
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
        case SessionUpdated() as update:
            return _update(update)
        case SessionEventsLost(known_seq=known_seq, calls=calls):
            last = f", event {known_seq} among them" if known_seq else ""
            return f"acknowledged events were lost{last}{'; calls that ran: ' + ', '.join(calls) if calls else ''}"
        case SessionError(message=message):
            return f"error: {one_line(message)}"
        case _:
            return _about_people(event)


def _about_people(event: Event) -> str:
    match event.fact:
        case ApprovalRequested(item_id=item_id, title=title, action=action):
            return f"a person is asked ({item_id}): {one_line(title)} {one_line(action)}"
        case ApprovalDecided(item_id=item_id, verdict=verdict, note=note, proof=proof):
            done = "approved" if verdict == "approve" else "denied"
            by = f"{event.actor} ({proof_text(proof)})"
            return f"{item_id} {done} by {by}{': ' + one_line(note) if note else ''}"
        case ApprovalExpired(item_id=item_id, verdict=verdict):
            return f"nobody answered {item_id} in time: its default, {verdict}, applies"
        case ApprovalSuperseded(item_id=item_id, reason=reason):
            return f"{item_id} counts no more: {one_line(reason)}"
        case NoticeSent(held=False, ok=ok, target=target, item_id=item_id, detail=detail):
            return f"{target} was told of {item_id}" if ok else f"{target} could not be told: {one_line(detail)}"
        case _:
            return _about_the_context(event)


def _about_the_context(event: Event) -> str:
    match event.fact:
        case ContextCompacted(through_seq=through):
            return f"the turns through event {through} are summarised"
        case ContextReset(cause=cause, detail=detail):
            return f"a fresh context ({cause.replace('_', ' ')}){': ' + one_line(detail) if detail else ''}"
        case ContextFailed(purpose=purpose, reason=reason):
            return f"a {purpose} failed: {one_line(reason)}"
        case ContextSign(kind=kind, detail=detail):
            return f"a sign of {kind.replace('_', ' ')}: {one_line(detail)}"
        case PhaseEnded(name=name, next=following):
            return f"phase {one_line(name)} is over{'; next: ' + one_line(following) if following else ''}"
        case RuleBreached(rule=rule, detail=detail):
            return f"a rule was not kept: {one_line(rule)} ({one_line(detail)})"
        case _:
            return _about_bounds(event)


def _about_bounds(event: Event) -> str:
    """Caps, breakers, pauses, and the stop of everything."""
    match event.fact:
        case BudgetSet(account_id=account, period=period, cap_pico=cap):
            return f"cap of {account} ({period}): {'none' if cap is None else usd(cap)}"
        case BreakerOpened(breaker=breaker, detail=detail):
            return f"breaker {breaker} opens: {one_line(detail)}"
        case BreakerClosed(breaker=breaker):
            return f"breaker {breaker} closes"
        case EmergencyStopped(reason=reason):
            return f"everything is stopped by {event.actor}{': ' + one_line(reason) if reason else ''}"
        case UserPause(stop_seq=stop_seq):
            return f"{'stopped with everything' if stop_seq else 'paused'} by {event.actor}"
        case UserResume():
            return f"resumed by {event.actor}"
        case EmergencyReleased():
            return f"the emergency stop is lifted by {event.actor}"
        case _:
            return about_jobs(event.fact) or one_line(about_mission(event.fact) or about_outside(event.fact), 160)


def _result(result: ToolResult) -> str:
    seconds = f" in {result.duration_ms / 1000:.1f} s" if result.duration_ms is not None else ""
    taken = ", taken from the hands' journal" if result.reconciled else ""
    status = f", exit status {result.exit_code}" if result.exit_code else ""
    why = f": {one_line(_last_line(result.content))}" if result.outcome in ("error", "denied") else ""
    strange = ", from outside" if result.untrusted else ""
    return f"  → {result.outcome}{status}{seconds}{strange}{taken}{why}"


def _last_line(text: str) -> str:
    """What a failure says last, without our own note in brackets."""
    lines = [line for line in text.splitlines() if line.strip()]
    spoken = [line for line in lines if not line.startswith("[")]
    return (spoken or lines or [""])[-1]


def _update(update: SessionUpdated) -> str:
    new = {
        "budget": usd(update.budget_pico) if update.budget_pico is not None else "",
        "turns": str(update.max_turns or ""),
        "context tokens": str(update.context_tokens or ""),
    }
    if update.owner is not None:
        return f"handed over to {update.owner}"
    if update.egress is not None:
        return f"may talk to: {one_line(policy_line(update.egress))}"
    return "new caps: " + ", ".join(f"{name} {value}" for name, value in new.items() if value)


def terminal_width(descriptor: int = 2) -> int | None:
    """Columns of the terminal behind a descriptor, None when there is no terminal."""
    try:
        return os.get_terminal_size(descriptor).columns or None
    except OSError:
        return None


class PlainProgress:
    """An observer that prints a line for each event worth one, no wider than the terminal.

    With `row` it counts on from where the session stands.
    """

    def __init__(
        self,
        clock: Clock,
        print_line: Callable[[str], None],
        row: SessionRow | None = None,
        width: int | None = None,
    ) -> None:
        self._clock = clock
        self._print = print_line
        self._width = width
        self._began_s = clock.monotonic_s()
        self._tokens = row.input_tokens + row.output_tokens if row else 0
        self._cost_pico: int | None = known_cost(row) if row else 0
        self._responses = row.turns if row else 0
        self._turn = self._responses
        self._is_turn = True

    def on_events(self, events: list[Event]) -> None:
        """Print them. How a shift ended is left to whoever reports on the whole."""
        for time, gauge, line in self.told(events):
            self._print(self._fit(f"{time}  {gauge}  {line}"))

    def told(self, events: list[Event]) -> list[tuple[str, str, str]]:
        """Those worth a line: the time since the beginning, what was used by then, what happened."""
        told = []
        for event in events:
            self._count(event)
            line = "" if isinstance(event.fact, ShiftEnded) else describe(event)
            if line:
                elapsed = self._clock.monotonic_s() - self._began_s
                told.append((f"{elapsed:6.1f}s", self._gauge(), line))
        return told

    def on_delta(self, part: StreamPart) -> None:
        """Deltas make no line: plain output shows what is finished."""

    def _count(self, event: Event) -> None:
        match event.fact:
            case ModelRequestStart(purpose=purpose):
                self._is_turn = purpose == "turn"
                self._turn = self._responses + self._is_turn
            case ModelRequestEnd(usage=usage, cost_pico=cost, outcome=outcome):
                self._responses += outcome == "ok" and self._is_turn
                used = usage or Usage()
                self._tokens += used.input_tokens + used.cache_read_tokens + used.output_tokens
                known = self._cost_pico is not None and cost is not None
                self._cost_pico = (self._cost_pico or 0) + (cost or 0) if known else None
            case _:
                return

    def _gauge(self) -> str:
        return f"turn {self._turn:<3d} {self._tokens / 1000:6.1f}k tok  {usd(self._cost_pico):>8s}"

    def _fit(self, line: str) -> str:
        if self._width is None or len(line) <= self._width:
            return line
        return line[: max(60, self._width) - 1] + "…"


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
