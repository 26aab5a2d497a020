"""A session as it stood after one of its events, from the log alone (S22)."""

from __future__ import annotations

import msgspec

from holdfast.brain.recall import PAGE
from holdfast.errors import LogDamaged, UsageError
from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.model import AgentToolUse
from holdfast.facts.session import Agent, SessionForked
from holdfast.facts.tool import ToolDispatched
from holdfast.facts.workspace import WorkspaceSnapshotted
from holdfast.log.base import Log
from holdfast.session.fold import empty, fold
from holdfast.session.rows import FIRST, SessionRow, first_row, next_row
from holdfast.session.state import Kinds, State
from holdfast.session.tools import find_tool


class Ran(msgspec.Struct, frozen=True):
    """A call that went out at `seq` and may have changed the workspace."""

    seq: int
    call_id: str
    name: str


class Point(msgspec.Struct, frozen=True):
    """Row and state after an event, and what is known of the workspace then.

    `kept` names the latest snapshot of the workspace that is not after the event: as it was after event
    `kept_seq`. Empty and 0 when there is none; `later_seq` is then the first one after, 0 for none at all, and
    `trouble` why it could not be kept. `unkept` are calls between the snapshot and the event.
    """

    row: SessionRow
    state: State
    kept: str = ""
    kept_seq: int = 0
    later_seq: int = 0
    trouble: str = ""
    unkept: tuple[Ran, ...] = ()


async def point_at(log: Log, row: SessionRow, seq: int, kinds: Kinds) -> Point:
    """The point after the event at `seq`. Events up to it are verified; damage after it is no hindrance.

    Raises `UsageError` for a position that the session has not, `LogDamaged`.
    """
    if not 1 <= seq <= row.head:
        raise UsageError(
            f"--at {seq}: session {row.session_id} has the events 1 to {row.head}; an example is --at {row.head}"
        )
    state, look = empty(row.session_id, kinds), _Look(seq)
    while state.seq < seq:
        events = await log.read(row.session_id, after=state.seq, prev=state.hash, limit=min(PAGE, seq - state.seq))
        state = fold(state, events)
        look.before(events)
    await _after(log, row, state, look)
    kept_seq, kept = look.kept
    unkept = tuple(ran for ran in look.ran if ran.seq > kept_seq)
    return Point(look.row or row, state, kept, kept_seq, look.later_seq, look.trouble, unkept)


async def _after(log: Log, row: SessionRow, state: State, look: _Look) -> None:
    """The workspace is kept beside the model's work, so a snapshot of a point may be named only after it."""
    at, prev = state.seq, state.hash
    try:
        while not look.over and (events := await log.read(row.session_id, after=at, prev=prev, limit=PAGE)):
            look.after(events)
            at, prev = events[-1].seq, events[-1].hash
    except LogDamaged:
        return


class _Look:
    """What is gathered on the way through a log to the event at `seq`, and a little beyond."""

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.row: SessionRow | None = None
        self.kept = (0, "")
        self.later_seq = 0
        self.trouble = ""
        self.over = False
        self.ran: list[Ran] = []
        self._agent: Agent | None = None
        self._names: dict[str, str] = {}

    def before(self, events: list[Event]) -> None:
        for event in events:
            fact = event.fact
            if isinstance(fact, FIRST):
                self.row = first_row(event)
                self._agent = self._agent if isinstance(fact, SessionForked) else fact.agent
            elif self.row is not None:
                self.row = next_row(self.row, event)
            self._work(fact, event.seq)
            self._files(fact, event.seq)

    def after(self, events: list[Event]) -> None:
        for event in events:
            self._files(event.fact, event.seq)
            if self.over:
                return

    def _work(self, fact: Fact, seq: int) -> None:
        if isinstance(fact, AgentToolUse):
            self._names[fact.call_id] = fact.name
        if not isinstance(fact, ToolDispatched) or fact.place:
            return
        name = self._names.get(fact.call_id, "")
        tool = find_tool(self._agent, name) if self._agent else None
        if tool is None or not tool.read_only:
            self.ran = [ran for ran in self.ran if ran.call_id != fact.call_id]
            self.ran.append(Ran(seq, fact.call_id, name))

    def _files(self, fact: Fact, seq: int) -> None:
        if isinstance(fact, SessionForked):
            through_seq, snapshot = seq, fact.snapshot
        elif isinstance(fact, WorkspaceSnapshotted):
            through_seq, snapshot, self.trouble = fact.through_seq, fact.snapshot, fact.error
        else:
            return
        if through_seq <= self.seq and snapshot:
            self.kept = max(self.kept, (through_seq, snapshot))
        elif through_seq > self.seq and snapshot:
            self.later_seq, self.over = through_seq, True
