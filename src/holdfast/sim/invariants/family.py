"""Invariants of sessions that open others (S4): opened once, reported once, ended with their parent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdfast.facts.child import ChildCancelled, ChildFinished, ChildMessaged, ChildOpened
from holdfast.facts.codec import Event
from holdfast.facts.session import SessionCreated
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.tool import ToolResult
from holdfast.facts.user import UserCancel, UserMessage
from holdfast.sim.invariants.history import History
from holdfast.sim.invariants.rest import working_children
from holdfast.sim.world import World
from holdfast.sim.world_record import Commit

FOR_GOOD = ("done", "failed", "cancelled")

STUCK = ("cap", "budget", "context")
"""Why a parked child is moved by nobody but its parent or a person."""


def _transactions(world: World) -> dict[int, list[Commit]]:
    out: dict[int, list[Commit]] = {}
    for commit in world.record.commits:
        out.setdefault(commit.transaction, []).append(commit)
    return out


def children_are_opened_once(world: World) -> Iterator[str]:
    """S4: a call opens at most one child, and the child's own log begins in the transaction that says so."""
    opened: dict[tuple[str, str], str] = {}
    for parts in _transactions(world).values():
        begun = [each for part in parts for each in part.events if isinstance(each.fact, SessionCreated)]
        begun = [event for event in begun if isinstance(event.fact, SessionCreated) and event.fact.parent]
        told = [(event, event.fact) for part in parts for event in part.events if isinstance(event.fact, ChildOpened)]
        if sorted(event.session_id for event in begun) != sorted(fact.child_id for _, fact in told):
            yield f"a transaction begins {len(begun)} children and names {len(told)}"
        for event, fact in told:
            if opened.setdefault((event.session_id, fact.call_id), fact.child_id) != fact.child_id:
                yield f"call {fact.call_id} opened two children, the second at {event.seq}"
            yield from _born(world, event, fact, parts)


def _born(world: World, event: Event, fact: ChildOpened, parts: list[Commit]) -> Iterator[str]:
    child = world.sessions.get(fact.child_id)
    up = child.created.parent if child is not None else None
    if up is None or (up.session_id, up.call_id) != (event.session_id, fact.call_id):
        yield f"the child opened at {event.seq} does not name the call that opened it"
    mine = [each.fact for part in parts for each in part.events if each.session_id == event.session_id]
    if not any(isinstance(each, ToolResult) and each.call_id == fact.call_id for each in mine):
        yield f"the call that opened a child at {event.seq} has no result in the same transaction"


def children_report_once(world: World) -> Iterator[str]:
    """S4: how a child came to rest reaches its parent in the transaction that says so: once for each such end."""
    for parts in _transactions(world).values():
        ends = [each for part in parts for each in part.events if _may_be_told(world, each)]
        told = [each.fact for part in parts for each in part.events if isinstance(each.fact, ChildFinished)]
        said: Counter[tuple[str, str]] = Counter((fact.child_id, fact.status) for fact in told)
        may: Counter[tuple[str, str]] = Counter((event.session_id, getattr(event.fact, "status", "")) for event in ends)
        must: Counter[tuple[str, str]] = Counter(
            (each.session_id, getattr(each.fact, "status", "")) for each in ends if _is_told(each)
        )
        if must - said or said - may:
            yield f"in one transaction {sorted(may)} ended, and parents are told {[fact.child_id for fact in told]}"
    for session in world.sessions.values():
        up = session.created.parent
        row = world.beside.rows[session.session_id]
        if up is None or row.status not in FOR_GOOD:
            continue
        heard = [event.fact for event in world.events[up.session_id] if isinstance(event.fact, ChildFinished)]
        last = [fact for fact in heard if fact.child_id == session.session_id]
        if not last or last[-1].status != row.status:
            yield f"child {session.script.name} is {row.status}, and its parent does not know"


def _may_be_told(world: World, event: Event) -> bool:
    """Whether this is a child's end that its parent may be told of."""
    session = world.sessions.get(event.session_id)
    if session is None or session.created.parent is None or not isinstance(event.fact, ShiftEnded):
        return False
    return event.fact.status in FOR_GOOD or (event.fact.status == "parked" and event.fact.reason in STUCK)


def _is_told(event: Event) -> bool:
    """Whether it must be: one that waits for a time may go on by itself, or be woken for a reminder alone."""
    return isinstance(event.fact, ShiftEnded) and (event.fact.status in FOR_GOOD or event.fact.due_us is None)


def children_end_with_their_parent(history: History) -> Iterator[str]:
    """S4: children of a cancelled session end; what a session says to a child reaches it in the same transaction."""
    world = history.world
    cancelled: set[str] = set()
    for event in history.events:
        match event.fact:
            case ChildCancelled(child_id=child_id):
                cancelled.add(child_id)
                if not any(_cancels(each) for each in _told(history, event.seq, child_id)):
                    yield f"the child cancelled at {event.seq} was not told"
            case ChildMessaged(child_id=child_id):
                if not any(_speaks(each) for each in _told(history, event.seq, child_id)):
                    yield f"what was said to a child at {event.seq} did not reach it"
            case ShiftEnded(status="cancelled"):
                for child_id in set(working_children(history, event.seq)) - cancelled:
                    yield f"the session is cancelled at {event.seq}, and its child {child_id} works on"
    if world.beside.rows[history.session.session_id].status == "cancelled":
        for _, child_id in history.session.children:
            if world.beside.rows[child_id].status not in FOR_GOOD and not _taken_up(history, child_id):
                yield f"the session is cancelled, and its child {child_id} is not over"


def _taken_up(history: History, child_id: str) -> bool:
    """Whether a person spoke to a child that was over: what it does then is not its parent's."""
    ends = [
        commit.tick
        for commit in history.commits
        for event in commit.events
        if isinstance(event.fact, ChildFinished) and event.fact.child_id == child_id
    ]
    mine = {commit.transaction for commit in history.commits}
    commits = [each for each in history.world.record.commits if each.session_id == child_id]
    others = [each for each in commits if each.transaction not in mine and _speaks(each)]
    return bool(ends) and any(each.tick > ends[-1] for each in others)


def _told(history: History, seq: int, child_id: str) -> list[Commit]:
    """What the transaction of that event wrote into a child, and what of the same kind was there before."""
    mine = next(each for each in history.commits if any(event.seq == seq for event in each.events))
    commits = [each for each in history.world.record.commits if each.session_id == child_id]
    return [each for each in commits if each.transaction == mine.transaction or (each.tick < mine.tick)]


def _speaks(commit: Commit) -> bool:
    return any(isinstance(event.fact, UserMessage) for event in commit.events)


def _cancels(commit: Commit) -> bool:
    return any(isinstance(event.fact, UserCancel) for event in commit.events)


ALL = (children_end_with_their_parent,)

WORLD = (children_are_opened_once, children_report_once)
