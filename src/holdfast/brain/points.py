"""Points of a log: a session as it was after an event, with the files of then; and checkpoints to fold from."""

from __future__ import annotations

import contextlib

import msgspec

from holdfast.brain.recall import PAGE, decode, encode
from holdfast.errors import HoldfastError, LogDamaged, UsageError
from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.hands import HandsRestored, WorkspaceSnapshotted
from holdfast.facts.model import AgentToolUse
from holdfast.facts.session import Agent, SessionForked
from holdfast.facts.tool import ToolDispatched, ToolResult
from holdfast.log.base import Log
from holdfast.session.fold import empty, fold
from holdfast.session.rows import FIRST, SessionRow, first_row, next_row
from holdfast.session.state import Kinds, State
from holdfast.session.tools import find_tool


class Ran(msgspec.Struct, frozen=True):
    """A call that was dispatched at `seq` and may have changed the workspace."""

    seq: int
    call_id: str
    name: str


class Point(msgspec.Struct, frozen=True):
    """The row and state of a session after an event, and its latest snapshot by then.

    `kept` names the latest snapshot of the workspace up to the event, taken after event `kept_seq`; empty and 0 without
    one. `later_seq` is then the first snapshot after the event, 0 for none, and `trouble` says why none was taken.
    `unkept` are calls between the snapshot and the event.
    """

    row: SessionRow
    state: State
    kept: str = ""
    kept_seq: int = 0
    later_seq: int = 0
    trouble: str = ""
    unkept: tuple[Ran, ...] = ()


class _Files(msgspec.Struct):
    """The row of a session, and the snapshots of its workspace, collected while its log is read.

    `ran` are the calls since the latest snapshot, by id; `names` are the tools of calls without a result.
    """

    row: SessionRow | None = None
    kept: tuple[int, str] = (0, "")
    trouble: str = ""
    ran: dict[str, Ran] = {}
    agent: Agent | None = None
    names: dict[str, str] = {}

    def before(self, events: list[Event]) -> None:
        """Take events up to the point."""
        for event in events:
            fact = event.fact
            if isinstance(fact, FIRST):
                self.row = first_row(event)
                self.agent = self.agent if isinstance(fact, SessionForked) else fact.agent
            elif self.row is not None:
                self.row = next_row(self.row, event)
            if isinstance(fact, AgentToolUse):
                self.names[fact.call_id] = fact.name
            elif isinstance(fact, ToolDispatched) and not fact.place:
                name = self.names.get(fact.call_id, "")
                tool = find_tool(self.agent, name) if self.agent else None
                if tool is None or not tool.read_only:
                    self.ran.pop(fact.call_id, None)
                    self.ran[fact.call_id] = Ran(event.seq, fact.call_id, name)
            elif isinstance(fact, ToolResult):
                self.names.pop(fact.call_id, None)
            self.snapshot(fact, event.seq, event.seq)

    def snapshot(self, fact: Fact, seq: int, point: int) -> int:
        """Take the snapshot of an event. Return its position if it is after the point, else 0."""
        if isinstance(fact, SessionForked | HandsRestored):
            through_seq, snapshot = seq, fact.snapshot
        elif isinstance(fact, WorkspaceSnapshotted):
            through_seq, snapshot, self.trouble = fact.through_seq, fact.snapshot, fact.error
        else:
            return 0
        if not snapshot or through_seq > point:
            return through_seq if snapshot else 0
        self.kept = max(self.kept, (through_seq, snapshot))
        self.ran = {name: ran for name, ran in self.ran.items() if ran.seq > self.kept[0]}
        return 0


class Checkpoint(msgspec.Struct, frozen=True):
    """A session after the event at `seq`, to fold later events from. Valid for one program only."""

    seq: int
    state: bytes
    files: bytes


async def checkpoints(
    log: Log, row: SessionRow, seq: int, kinds: Kinds, *, every: int, start: Checkpoint | None = None
) -> list[Checkpoint]:
    """Fold on from a checkpoint through the event at `seq`; return a checkpoint each `every` events.

    Ends early at a damaged event: earlier points remain available.
    """
    found = []
    with contextlib.suppress(HoldfastError):
        state, files = _begin(row, kinds, start)
        while state.seq < seq:
            count = min(every, seq - state.seq)
            events = await log.read(row.session_id, after=state.seq, prev=state.hash, limit=count)
            state = fold(state, events)
            files.before(events)
            found.append(Checkpoint(state.seq, encode(state), msgspec.msgpack.encode(files)))
    return found


def _begin(row: SessionRow, kinds: Kinds, start: Checkpoint | None) -> tuple[State, _Files]:
    state = decode(start.state, kinds) if start is not None else None
    if start is None or state is None:
        return empty(row.session_id, kinds), _Files()
    return state, msgspec.msgpack.decode(start.files, type=_Files)


async def point_at(
    log: Log, row: SessionRow, seq: int, kinds: Kinds, start: Checkpoint | None = None, further: int | None = None
) -> Point:
    """Return the point after the event at `seq`. Events up to it are verified; damage after it does not matter.

    Folds from `start`, by default from the first event. A later snapshot is looked for in the next `further` events, by
    default in all. Raises `UsageError` for a position that does not exist, and `LogDamaged`.
    """
    if not 1 <= seq <= row.head:
        raise UsageError(
            f"there is no event {seq}: session {row.session_id} has the events 1 to {row.head}; choose one of them"
        )
    state, files = _begin(row, kinds, start)
    while state.seq < seq:
        events = await log.read(row.session_id, after=state.seq, prev=state.hash, limit=min(PAGE, seq - state.seq))
        state = fold(state, events)
        files.before(events)
    at, prev, later_seq = state.seq, state.hash, 0
    last = row.head if further is None else min(row.head, seq + further)
    with contextlib.suppress(LogDamaged):  # snapshots are taken while the model works: the event of one may follow
        while at < last and not later_seq:
            events = await log.read(row.session_id, after=at, prev=prev, limit=min(PAGE, last - at))
            later_seq = next(filter(None, (files.snapshot(each.fact, each.seq, seq) for each in events)), 0)
            at, prev = events[-1].seq, events[-1].hash
    kept_seq, kept = files.kept
    return Point(files.row or row, state, kept, kept_seq, later_seq, files.trouble, tuple(files.ran.values()))
