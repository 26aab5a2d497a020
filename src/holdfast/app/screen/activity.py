"""The current act of a session, and a look at the sessions below it: what each does now, and what the tree costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.app.exits import short_name
from holdfast.app.screen.progress import Acts
from holdfast.app.wrap import terminal_width
from holdfast.facts.codec import Event
from holdfast.facts.model import AgentToolUse, ModelRequestEnd, ModelRequestStart
from holdfast.facts.shift import ShiftEnded, ShiftStarted
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.log.base import Which
from holdfast.model.base import StreamPart, TextDelta, ThinkingDelta, ToolCallStart
from holdfast.service.event_lines import describe, one_line
from holdfast.service.sessions import Store
from holdfast.session.costs import Cost, own_cost
from holdfast.session.rows import SessionRow


@dataclass(frozen=True)
class Act:
    """One act: its label, when it began, and whether it still goes on."""

    label: str
    since_us: int
    ongoing: bool = True
    more: int = 0


class Activity:
    """Current act of a session: its running call, its open request, or the last thing that it did."""

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}
        self._running: dict[str, int] = {}
        self._model: tuple[str, int] | None = None
        self._last: Act | None = None

    def take(self, event: Event) -> None:
        """Apply an event."""
        match event.fact:
            case ModelRequestStart(model=model):
                self._model = (f"asking {one_line(model)}", event.at_us)
            case ModelRequestEnd():
                self._model = None
            case ShiftStarted() | ShiftEnded():
                self._model = None
                self._running.clear()
            case AgentToolUse(call_id=call_id):
                self._calls[call_id] = describe(event)
            case ToolDispatched(call_id=call_id):
                self._running[call_id] = event.at_us
            case ToolResult(call_id=call_id) | ToolOutcomeUnknown(call_id=call_id):
                self._running.pop(call_id, None)
                self._last = Act(self._calls.pop(call_id, call_id) + describe(event), event.at_us, False)
            case _:
                if line := describe(event):
                    self._last = Act(line, event.at_us, False)

    def stream(self, part: StreamPart, now_us: int) -> None:
        """Apply a piece of a response."""
        began = self._model[1] if self._model else now_us
        match part:
            case TextDelta():
                self._model = ("answering", began)
            case ThinkingDelta():
                self._model = ("thinking", began)
            case ToolCallStart(name=name):
                self._model = (f"calling {one_line(name)}", began)
            case _:
                return

    def now(self) -> Act | None:
        """The current act; None if it has done nothing yet."""
        if self._running:
            call_id, since_us = list(self._running.items())[-1]
            return Act(self._calls.get(call_id, call_id), since_us, more=len(self._running) - 1)
        return Act(*self._model) if self._model else self._last


@dataclass(frozen=True)
class Worker:
    """A session below the shown one: its name and its current act."""

    name: str
    act: Act


@dataclass(frozen=True)
class Glance:
    """The sessions below a session at one moment: those that are not over, and the cost of all of them."""

    cost: Cost
    workers: tuple[Worker, ...] = ()


LATEST = 40
"""Latest events of a session from which its current act is read at first."""


@dataclass
class Below:
    """Looks at the sessions below one, whichever process runs them."""

    store: Store
    session_id: str
    tell: Callable[[str], None] | None = None
    """Receives their words and calls as lines, where no process of this command does that."""

    _acts: dict[str, Activity] = field(default_factory=dict)
    _seen: dict[str, int] | None = None

    async def look(self) -> Glance:
        """Read what they do now."""
        top = await self.store.find(self.session_id)
        known = {self.session_id}
        rows = []
        for row in sorted(await self.store.sessions(Which(root=top.root)), key=lambda row: row.depth):
            if row.parent in known:
                known.add(row.session_id)
                rows.append(row)
        live = [row for row in rows if row.status in ("runnable", "parked")]
        if self._seen is None:  # the first look: those that are over are history
            self._seen = {row.session_id: row.head if row not in live else max(0, row.head - LATEST) for row in rows}
        for row in rows:
            await self._read(row)
        self._acts = {row.session_id: self._acts[row.session_id] for row in live}
        holders = await self.store.holders()
        workers = []
        for row in sorted(live, key=lambda row: (row.created_us, row.session_id)):
            name = row.name if row.name not in ("", "agent") else f"child {short_name(row)}"
            act = self._acts[row.session_id].now() or Act("begins", row.updated_us)
            if row.session_id not in holders:
                why = f": {one_line(row.detail, 80)}" if row.detail else ""
                waits = "waits for a process" if row.status == "runnable" else f"parked ({row.reason}){why}"
                act = Act(waits, row.updated_us, ongoing=False)
            workers.append(Worker(one_line(name, 24), act))
        return Glance(sum(map(own_cost, rows), Cost()), tuple(workers))

    async def _read(self, row: SessionRow) -> None:
        """Read the latest events of one of them."""
        assert self._seen is not None
        activity = self._acts.setdefault(row.session_id, Activity())
        seen = self._seen.get(row.session_id, 0)
        if row.head <= seen:
            return
        events = await self.store.read(row.session_id, after=seen, limit=1_000)
        for event in events:
            activity.take(event)
            self._seen[row.session_id] = event.seq
        if self.tell is not None:
            Acts(row.name or short_name(row), self.tell, terminal_width()).on_events(events)
