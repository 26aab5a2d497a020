"""Invariants of parked and finished sessions: no input is forgotten, stops are honored (S2, S3, S14, S27)."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.brain.doors import uptime
from holdfast.facts.codec import Event
from holdfast.facts.hands import HandsLost, HandsProvisioned, HandsReleased
from holdfast.facts.model import ModelRequestEnd, ModelRequestStart
from holdfast.facts.people import (
    ApprovalDecided,
    ApprovalExpired,
    UserCancel,
    UserInterrupt,
    UserMessage,
    UserPause,
    UserResume,
)
from holdfast.facts.session import SessionError, SessionUpdated
from holdfast.facts.shift import (
    BudgetSet,
    ChildFinished,
    ChildMessaged,
    ChildOpened,
    LeaseStolen,
    ShiftEnded,
    ShiftStarted,
)
from holdfast.facts.tool import ToolDispatched, ToolResult
from holdfast.kinds import KINDS
from holdfast.session.decide import is_idle
from holdfast.session.fold import empty, fold
from holdfast.session.rows import is_due
from holdfast.sim.invariants.history import History
from holdfast.sim.record import Commit
from holdfast.sim.world import World

PROMPT_S = 4.0
"""Seconds in which an undisturbed brain must stop running work; its door calls are slow here."""

FAILURES = 3
"""Wakes that may fail at one position, each with another error, before the session waits for a user."""

LASTING = ("invalid_request",)
"""Request errors that no retry fixes."""


def all_is_at_rest(history: History) -> Iterator[str]:
    """S27: a session at rest is done, failed, parked, or cancelled, by the end of its log and by its row."""
    row = history.world.beside.rows[history.session.session_id]
    cancelled = any(isinstance(event.fact, UserCancel) for event in history.events)
    ended = _last_end(history)
    if ended is None:
        yield "the session never ended a shift"
        return
    event, fact = ended
    after = [each for each in history.events[event.seq :] if _wakes(fact.status, each.fact)]
    if fact.status == "released" or after:
        yield f"the session rests at {event.seq} ({fact.status}) with {len(after)} events after it"
    if (fact.status == "cancelled") != cancelled:
        yield f"the session rests as {fact.status}, and it was {'' if cancelled else 'not '}cancelled"
    if (row.status, row.reason, row.holder) != (fact.status, fact.reason or "", ""):
        yield f"its row says {row.status} {row.reason} held by {row.holder!r}, its log says {fact.status} {fact.reason}"
    if row.due_us is not None or fact.due_us is not None:
        yield f"the session waits for {fact.due_us}, its row for {row.due_us}, and nothing woke it"


def _wakes(status: str, fact: object) -> bool:
    """True if a fact wakes a session that ended with that status."""
    if status == "cancelled":
        return False
    if isinstance(fact, UserMessage | UserInterrupt | UserCancel | SessionUpdated):
        return True
    steers = UserPause | UserResume | ApprovalDecided | ApprovalExpired | ChildFinished | BudgetSet
    return status == "parked" and isinstance(fact, steers)


def wake_rows_agree(history: History) -> Iterator[str]:
    """S27: a session has a due time exactly when its fold has something to do."""
    session_id = history.session.session_id
    row = history.world.beside.rows[session_id]
    state = fold(empty(session_id, KINDS), history.events)
    clock = history.world.clock
    now_us, up = clock.now_us(), uptime(clock, history.world.hands.boot_id)
    due = is_due(row, now_us, up)
    if is_idle(state, now_us, up) == due:
        what = "something" if due else "nothing"
        yield f"by its row (due at {row.due_us}) there is {what} to do, but not by its fold"


def _last_end(history: History) -> tuple[Event, ShiftEnded] | None:
    for event in reversed(history.events):
        if isinstance(event.fact, ShiftEnded):
            return event, event.fact
    return None


def no_input_is_forgotten(history: History) -> Iterator[str]:
    """S2, S3: a session neither finishes nor waits for a user with messages that the model has not seen."""
    seen = max((request.fact.inputs_through for request in history.ok()), default=0)
    for event in history.events:
        if not isinstance(event.fact, ShiftEnded):
            continue
        waiting = [post.seq for post in history.messages if seen_before(history, event.seq) < post.seq < event.seq]
        stopped = [e.seq for e in history.events[: event.seq] if isinstance(e.fact, UserInterrupt)]
        if event.fact.status == "done" and waiting:
            yield f"the session is done at {event.seq} and has not seen the message at {waiting[0]}"
        if event.fact.status == "parked" and event.fact.reason == "person":
            yield from _waits_for_a_person(history, event.seq, waiting, stopped)
    if (ended := _last_end(history)) and ended[1].status == "done" and not history.ok():
        yield f"the session is done and the model never answered ({seen})"


def _waits_for_a_person(history: History, seq: int, waiting: list[int], stopped: list[int]) -> Iterator[str]:
    marks = [event.fact for event in history.events[: seq - 1] if isinstance(event.fact, UserPause | UserResume)]
    if marks and isinstance(marks[-1], UserPause):
        return
    if failed := _failed_again(history, seq):
        if any(at > failed for at in waiting):
            yield f"the session waits for a person at {seq} since it failed, and one wrote after {failed}"
        return
    asked = [item.event.seq for item in history.items.values() if item.open_at(seq)]
    since = max([*asked, *stopped], default=0)
    if not since:
        yield f"the session waits for a person at {seq} without a stop or an open item"
    elif any(at > since for at in waiting):
        yield f"the session waits for a person at {seq}, and one wrote after {since}"


def _failed_again(history: History, seq: int) -> int:
    """Return the position of a wake right before this end that failed like an earlier one there, or after `FAILURES`
    others; 0 without one.
    """
    errors = [event.fact for event in history.events[: seq - 1] if isinstance(event.fact, SessionError)]
    if not errors or history.events[seq - 2].fact is not errors[-1]:
        return 0
    there = [each for each in errors if each.at_seq == errors[-1].at_seq]
    same = len(there) > 1 and there[-2].kind == there[-1].kind
    return there[-1].at_seq if same or len(there) > FAILURES else 0


def seen_before(history: History, seq: int) -> int:
    """Return the position up to which the model had seen the log before the event at `seq`."""
    done = [request for request in history.ok() if request.ends[0][0].seq < seq]
    return done[-1].fact.inputs_through if done else 0


def ends_have_reasons(history: History) -> Iterator[str]:
    """DESIGN 3.8: each end of a shift follows from the log: an answer, a refusal, a cap, a provider, or a stop."""
    calls = history.calls.values()
    for event in history.events:
        if not isinstance(event.fact, ShiftEnded) or event.fact.status == "released":
            continue
        fact = event.fact
        before = [request for request in history.requests if request.start.seq < event.seq]
        tried = [each.end for each in before if each.end and each.end.outcome not in ("presumed", "cancelled")]
        turns = [
            each.end
            for each in before
            if each.fact.purpose == "turn" and each.end and each.end.outcome not in ("presumed", "cancelled")
        ]
        last = turns[-1] if turns else None
        answers = [request for request in history.ok() if request.start.seq < event.seq]
        stop = answers[-1].end.stop_reason if answers and answers[-1].end else None
        refused = any(
            item.fact.kind == "escalation" and given.verdict == "deny"
            for item in history.items.values()
            for at, given in item.answers
            if at.seq < event.seq
        )
        right = {
            "done": stop == "end_turn" and last is not None and last.outcome == "ok",
            "failed": stop == "refusal" or refused or (last is not None and last.error_kind in LASTING),
            "cancelled": any(isinstance(each.fact, UserCancel) for each in history.events[: event.seq]),
            "cap": len(answers) >= _limit(history, event.seq, "max_turns"),
            "budget": not history.session.script.priced
            or _limit(history, event.seq, "budget_pico") is not None
            or len(history.world.sessions) > 1
            or any(isinstance(each.fact, BudgetSet) for each in history.events[: event.seq]),
            "provider": bool(tried) and any(end.outcome == "error" for end in tried[-3:]),
            "context": _limit(history, event.seq, "context_tokens") < 1000,
            "person": True,
            "child": bool(working_children(history, event.seq)),
            "timer": any(call.fact.name == "sleep" and call.use.seq < event.seq < call.end_seq for call in calls),
        }[fact.reason or fact.status]
        if not right:
            yield f"the shift ended at {event.seq} as {fact.status} {fact.reason or ''} for no reason in the log"
        if fact.reason == "provider" and fact.due_us is None:
            yield f"the session waits for a provider at {event.seq} and nothing will wake it"


def working_children(history: History, seq: int) -> list[str]:
    """Return children that were working before that position."""
    working: dict[str, bool] = {}
    for event in history.events[: seq - 1]:
        match event.fact:
            case ChildOpened(child_id=name):
                working[name] = True
            case ChildMessaged(child_id=name):
                working[name] = True
            case ChildFinished(child_id=name):
                working[name] = False
    return [name for name, works in working.items() if works]


def _limit(history: History, seq: int, name: str) -> int:
    value = getattr(history.created.limits, name)
    for event in history.events[:seq]:
        changed = getattr(event.fact, name, None) if event.type == "session.updated" else None
        value = value if changed is None else changed
    return value  # type: ignore[no-any-return]


def stops_are_honoured(history: History) -> Iterator[str]:
    """S14: after a cancel, and from an interrupt to the next message, nothing is requested or dispatched."""
    stopped = 0
    for event in history.events:
        match event.fact:
            case UserCancel():
                stopped = 2
            case UserInterrupt():
                stopped = max(stopped, 1)
            case UserMessage():
                stopped = 2 if stopped == 2 else 0
            case ToolDispatched(call_id=call_id) if _was_interrupted(history, call_id, event.seq):
                yield f"{call_id} was dispatched at {event.seq} although a person had interrupted its response"
            case ModelRequestStart() | ToolDispatched():
                if stopped:
                    yield f"{event.type} at {event.seq} after a person {'cancelled' if stopped == 2 else 'interrupted'}"
            case ShiftEnded(status=status, reason=reason):
                if stopped == 1 and status != "released" and reason != "person":
                    yield f"the shift ended at {event.seq} as {status} after a person interrupted"


def stops_are_prompt(history: History) -> Iterator[str]:
    """S14: a brain watches the log while an effect runs, so what runs at a stop ends soon."""
    stopped: dict[str, float] = {}
    for commit in history.commits:
        for event in commit.events:
            match event.fact:
                case UserInterrupt() | UserCancel():
                    stopped.update({name: commit.at_s for name in _under_way(history, event.seq)})
                case ToolResult(call_id=name, reconciled=False):
                    yield from _late(history, commit, stopped.get(name), name, name)
                case ModelRequestEnd(request_seq=seq, outcome="ok" | "cancelled" | "error"):
                    yield from _late(history, commit, stopped.get(str(seq)), str(seq), f"the request at {seq}")


def _under_way(history: History, seq: int) -> list[str]:
    """Return calls and requests running at that position."""
    requests = [
        each for each in history.requests if each.start.seq < seq and (not each.ends or each.ends[0][0].seq > seq)
    ]
    calls = [
        call for call in history.calls.values() if call.dispatches and call.dispatches[0][0].seq < seq < call.end_seq
    ]
    return [str(each.start.seq) for each in requests] + [call.fact.call_id for call in calls]


def _late(history: History, commit: Commit, since_s: float | None, name: str, what: str) -> Iterator[str]:
    """Report late ends, except by a process that was frozen or took over from another."""
    begun = [each.who for each in history.commits if any(_begins(event.fact, name, event.seq) for event in each.events)]
    alert = begun == [commit.who] and commit.who not in history.world.record.slept
    if since_s is not None and alert and commit.at_s - since_s > PROMPT_S:
        yield f"{what} went on for {commit.at_s - since_s:.1f} s after a person had stopped it"


def _begins(fact: object, name: str, seq: int) -> bool:
    match fact:
        case ToolDispatched(call_id=call_id):
            return call_id == name
        case ModelRequestStart():
            return str(seq) == name
    return False


def no_shift_for_nothing(history: History) -> Iterator[str]:
    """S2, S27: a parked or finished session is not woken before it has news or is due."""
    ended: ShiftEnded | None = None
    since_us = 0
    for event in history.events:
        match event.fact:
            case ShiftEnded(status=status) as fact:
                ended, since_us = fact if status != "released" else None, event.at_us
            case LeaseStolen():
                continue  # its shift follows
            case ShiftStarted() as started:
                back = event.at_us < since_us  # the elapsed time is unknown
                if ended is not None and not _is_over(ended, started, event.at_us) and not back:
                    yield f"a shift began at {event.seq} and there was nothing to do"
                ended = None
            case _:
                ended = None


def _is_over(ended: ShiftEnded, started: ShiftStarted, at_us: int) -> bool:
    """True if a wait was over by the wall clock or, within one boot, by the uptime."""
    if ended.due_us is None:
        return False
    same = ended.boot_id == started.boot_id
    up_us = max(started.up_us, at_us - started.booted_us)  # the clock may be set between the decision and its event
    return at_us >= ended.due_us or (same and up_us >= ended.due_us - ended.booted_us)


def _was_interrupted(history: History, call_id: str, seq: int) -> bool:
    """True if a user interrupted between the request of the call and that position."""
    start = history.calls[call_id].fact.request_seq
    return any(isinstance(event.fact, UserInterrupt) for event in history.events[start : seq - 1])


def hands_are_given_back(history: History) -> Iterator[str]:
    """DESIGN 3, S27: a session at rest holds no hands, and its former hands are gone."""
    world = history.world
    excused = world.stuck_until.keys()
    held: set[str] = set()
    for event in history.events:
        match event.fact:
            case HandsProvisioned(hands_id=hands_id):
                held.add(hands_id)
                if hands_id in world.hands.alive() and hands_id not in excused:
                    yield f"the hands made at {event.seq} live on"
            case HandsLost(hands_id=hands_id) | HandsReleased(hands_id=hands_id):
                held.discard(hands_id)
            case ShiftEnded(status=status):
                if held and status != "released":
                    yield f"the shift that ended at {event.seq} kept hands"
    if held:
        yield f"the session rests with {len(held)} hands"


def nothing_unexplained(world: World) -> Iterator[str]:
    """DESIGN 3: a brain raises no error that the weather does not explain."""
    for mishap in world.record.mishaps:
        yield f"{mishap.who} raised {type(mishap.error).__name__}: {mishap.error}"


ALL = (
    all_is_at_rest,
    wake_rows_agree,
    no_input_is_forgotten,
    ends_have_reasons,
    stops_are_honoured,
    stops_are_prompt,
    no_shift_for_nothing,
    hands_are_given_back,
)

WORLD = (nothing_unexplained,)
