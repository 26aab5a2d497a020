"""Invariants of inbox items, pauses, and the emergency stop (S21, S14)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.model import ModelRequestStart
from holdfast.facts.people import ApprovalDecided, ApprovalExpired, ApprovalSeen, UserPause, UserResume
from holdfast.facts.session import SessionCreated
from holdfast.facts.shift import ChildOpened, ClockSet, EmergencyReleased, EmergencyStopped, ShiftEnded, ShiftStarted
from holdfast.facts.tool import ToolDispatched
from holdfast.session.home import HOME
from holdfast.sim.invariants.history import HARNESS, History
from holdfast.sim.world import World

GRANT = "grant:"

GRACE_US = 3_600_000_000
"""Least time between the first view of an item and its expiry."""


def approvals_are_used_once(history: History) -> Iterator[str]:
    """S21: an approval is used by one dispatch, of the call and action it was requested for; a grant within its
    bounds.
    """
    used: dict[str, int] = {}
    for call_id, call in history.calls.items():
        for event, fact in call.dispatches:
            name = fact.approval_id
            if not name:
                continue
            used[name] = used.get(name, 0) + 1
            if name.startswith(GRANT):
                yield from _granted(history, event, fact, used[name])
                continue
            item = history.items.get(name)
            if used[name] > 1:
                yield f"{name} is used a second time at {event.seq}"
            if item is None or item.fact.call_id != call_id or item.fact.action_digest != fact.action_digest:
                yield f"{name}, used at {event.seq}, was asked for something else"
            elif (answer := item.answered_by(event.seq)) is None or answer.verdict != "approve":
                yield f"{name}, used at {event.seq}, was not approved"


def _granted(history: History, event: Event, fact: ToolDispatched, count: int) -> Iterator[str]:
    given = history.events[int(fact.approval_id.removeprefix(GRANT)) - 1]
    grant = given.fact.grant if isinstance(given.fact, ApprovalDecided) else None
    call = history.calls[fact.call_id]
    if grant is None or given.seq > event.seq:
        yield f"the dispatch at {event.seq} names a grant that was never given"
    elif grant.tool != call.fact.name or (grant.uses is not None and count > grant.uses):
        yield f"the dispatch at {event.seq} goes beyond the grant of {given.seq}"


def nothing_runs_unasked(history: History) -> Iterator[str]:
    """S21: a call under an `ask` rule runs only after an approval; a refusal is final."""
    for call_id, call in history.calls.items():
        if history.ruling(call) != "ask" or call.fact.name == "ask_person":
            continue
        first = call.dispatches[0] if call.dispatches else None
        if first is not None and not first[1].approval_id:
            yield f"{call_id} ({call.fact.name}) was dispatched at {first[0].seq} without an approval"
        answers = [item.answered_by(call.end_seq) for item in history.items_of(call_id)]
        allowed = any(answer is not None and answer.verdict == "approve" for answer in answers)
        if call.fact.name in HARNESS and call.end == "ok" and not allowed:
            yield f"{call_id} ({call.fact.name}) was done at {call.end_seq} without an approval"


def items_are_decided_once(history: History) -> Iterator[str]:
    """S21: an item has one answer, from an approver or its default, and a second answer is refused."""
    replied = history.world.record.replied
    for item_id, item in history.items.items():
        if len(item.answers) > 1:
            yield f"{item_id} has {len(item.answers)} answers"
        if any(event.seq < item.event.seq for event, _ in item.answers):
            yield f"{item_id} was answered before it was asked"
        taken = [each for each in replied if each.item_id == item_id and each.seq]
        stands = [(event.seq, fact.verdict) for event, fact in item.answers if isinstance(fact, ApprovalDecided)]
        if [(each.seq, each.verdict) for each in taken] != stands[: len(taken)] or len(taken) > 1:
            yield f"{item_id} was answered with {taken}, and {stands} stands"


def nothing_unseen_expires(history: History) -> Iterator[str]:
    """S21: an item expires only after its time, and only after an approver could see it long enough."""
    for item_id, item in history.items.items():
        for event, fact in item.answers:
            if not isinstance(fact, ApprovalExpired):
                continue
            seen = [each for each in item.seen if each.seq < event.seq]
            if not seen:
                yield f"{item_id} expired at {event.seq} and was never seen"
                continue
            until_us = [item.fact.expires_us, getattr(seen[0].fact, "expires_us", None)]
            back_us = _set_back_us(history, item.event.seq, event.seq)  # a clock set back prolongs no wait
            if any(at is not None and at > event.at_us + back_us for at in until_us):
                yield f"{item_id} expired at {event.seq}, before its time"
            if fact.verdict != item.fact.default:
                yield f"{item_id} expired at {event.seq} as {fact.verdict}, its default is {item.fact.default}"


def _set_back_us(history: History, first: int, last: int) -> int:
    """Return by how much the clock was set back between two events: as event times show it, or exactly, by the boot
    times that brains read before, between, and after them in the same boot.
    """
    shown_us = _shown_back_us(history, first, last)
    readings = _readings(history, first, last)
    if len(readings) < 2:
        return shown_us
    exact_us = sum(max(0, earlier[1] - later[1]) for earlier, later in pairwise(readings))
    before_us = _shown_back_us(history, readings[0][0], first)
    return max(shown_us, exact_us - before_us + _shown_back_us(history, readings[-1][0], last))


def _shown_back_us(history: History, first: int, last: int) -> int:
    times = [event.at_us for event in history.events if first <= event.seq <= last]
    return sum(max(0, before - after) for before, after in pairwise(times))


def _readings(history: History, first: int, last: int) -> list[tuple[int, int]]:
    """Return the position and the wall time of the boot of the latest reading up to `first` and of all later ones up to
    `last` in the same boot.
    """
    found, boot_id = list[tuple[int, int]](), ""
    for event in history.events[:last]:
        fact = event.fact
        if not isinstance(fact, ShiftStarted | ShiftEnded | ClockSet | ApprovalSeen) or not fact.booted_us:
            continue
        if event.seq <= first:
            found, boot_id = [], fact.boot_id
        if fact.boot_id == boot_id:
            found.append((event.seq, min(fact.booted_us, event.at_us - fact.up_us)))
    return found


def items_close_with_their_session(history: History) -> Iterator[str]:
    """S21: a finished session has no open items, and the inbox agrees with its log."""
    rows = history.world.beside.items
    for event in history.events:
        if isinstance(event.fact, ShiftEnded) and event.fact.status in ("done", "failed", "cancelled"):
            for item_id, item in history.items.items():
                if item.open_at(event.seq):
                    yield f"{item_id} is open when the session ends at {event.seq}"
    for item_id, item in history.items.items():
        row = rows.get(item_id)
        is_open = not item.answers and not item.over
        if row is None or (row.status == "open") != is_open:
            yield f"the inbox says of {item_id}: {row.status if row else 'nothing'}"


def pauses_are_kept(history: History) -> Iterator[str]:
    """S14: a paused session requests nothing and dispatches no new call until it is resumed."""
    paused = 0
    for event in history.events:
        match event.fact:
            case UserPause():
                paused = event.seq
            case UserResume():
                paused = 0
            case ModelRequestStart() if paused:
                yield f"the model was asked at {event.seq}, the session is paused since {paused}"
            case ToolDispatched(call_id=call_id, attempt=1) if paused:
                yield f"{call_id} was dispatched at {event.seq}, the session is paused since {paused}"
            case ChildOpened() if paused:
                yield f"a child was opened at {event.seq}, the session is paused since {paused}"


def stops_hold(world: World) -> Iterator[str]:
    """S14: after an emergency stop, no shift and no session begins until its release."""
    stopped = 0
    for commit in world.record.commits:
        facts: list[Fact] = [event.fact for event in commit.events]
        if commit.session_id == HOME:
            for event in commit.events:
                if isinstance(event.fact, EmergencyStopped):
                    stopped = stopped or event.seq
                elif isinstance(event.fact, EmergencyReleased) and event.fact.stop_seq == stopped:
                    stopped = 0
        elif stopped and commit.kind == "acquire":
            yield f"{commit.who} began a shift at {commit.events[-1].seq} while everything is stopped"
        elif stopped and any(isinstance(fact, SessionCreated) for fact in facts):
            yield f"{commit.who} opened a session while everything is stopped"
    if stopped:
        yield "everything is stopped at rest"


ALL = (
    approvals_are_used_once,
    nothing_runs_unasked,
    items_are_decided_once,
    nothing_unseen_expires,
    items_close_with_their_session,
    pauses_are_kept,
)

WORLD = (stops_hold,)
