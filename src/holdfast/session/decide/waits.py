"""Waits for children, timers, approvers, and a lost workspace (S4, S11, S21). Waiting is a row: no process, thread, or
timer.
"""

from __future__ import annotations

from holdfast.facts.base import Fact
from holdfast.facts.people import ApprovalRequested, ApprovalSuperseded, ItemKind
from holdfast.facts.session import People
from holdfast.facts.shift import BreakerClosed, ShiftEnded
from holdfast.session.actions import Action, CancelChildren, End, Expire, Notify, Record, RunHarness, WaitUntil
from holdfast.session.context.window import arrived, left_over
from holdfast.session.state import Ask, Call, Child, State, notice_key

WAIT_HERE_US = 5_000_000
"""Longest wait inside a shift; a longer one parks the session, which costs nothing."""


def cancel_first(state: State) -> CancelChildren | None:
    """Return the children to cancel before their parent: those at work, and those parked indefinitely."""
    unfinished = [child for child in state.children.values() if child.status in (None, "parked")]
    working = tuple(child.child_id for child in unfinished if not child.cancelled)
    return CancelChildren(working) if working else None


def awaited(state: State, call: Call) -> list[Child]:
    """Return the children that a call still waits for."""
    found = [state.children[name] for name in call.waits_for if name in state.children]
    return [child for child in found if child.status is None]


def wait_for_children(state: State, call: Call, now_us: int) -> Action:
    """Continue a call that waits for children: report, or park."""
    working = awaited(state, call)
    over = call.until_us is not None and is_over(state, call.seq, call.until_us, now_us, call.at_us)
    if not working or over or state.message_seq > call.seq or left_over(state, call):
        return RunHarness(call.call_id)
    names = ", ".join(child.name or child.child_id for child in working[:3])
    detail = f"waits for {len(working)} of its children ({names})"
    due_us = None if call.until_us is None else due(state, call.seq, call.until_us, call.at_us)
    return End(ShiftEnded(status="parked", reason="child", detail=detail, due_us=due_us))


def sleep(state: State, call: Call, now_us: int) -> Action:
    """Continue a call that sleeps."""
    assert call.until_us is not None
    woken = arrived(state, call)
    if woken or is_over(state, call.seq, call.until_us, now_us, call.at_us):
        return RunHarness(call.call_id)
    due_us = due(state, call.seq, call.until_us, call.at_us)
    if due_us - now_us <= WAIT_HERE_US:
        return WaitUntil(due_us)
    return End(ShiftEnded(status="parked", reason="timer", detail="asleep", due_us=due_us))


def is_over(state: State, since_seq: int, until_us: int, now_us: int, began_us: int | None = None) -> bool:
    """Return True if a wait that began with the event at `since_seq` is over, also when the clock was set back
    meanwhile.
    """
    return now_us >= due(state, since_seq, until_us, began_us)


def due(state: State, since_seq: int, until_us: int, began_us: int | None = None) -> int:
    """Return when that wait is over: earlier by as much as the clock has been set back since it began.

    With `began_us`, when it began, it ends at the latest its whole length after an event that shows the clock set back:
    a clock that was set forward unseen before the wait may have put its end far into the future.
    """
    jumps = [jump for jump in state.set_back if jump.seq > since_seq]
    due_us = until_us - sum(jump.back_us for jump in jumps)
    if began_us is None:
        return due_us
    return min([due_us, *(jump.at_us + until_us - began_us for jump in jumps)])


ROUNDS = ("first", "reminder", "second")
"""Rounds of notifications about an item: when it is opened, as a reminder, and to the second approvers."""

PAUSED = "paused by a person"
"""Detail of the rows of paused sessions."""
STOPPED = "an emergency stop"
"""Detail of the rows of sessions under an emergency stop."""

SEEN_GRACE_US = 3_600_000_000
"""Minimum time between the first view of an item and its default."""


def may_answer(people: People, owner: str, item: ApprovalRequested, now_us: int) -> tuple[str, ...]:
    """Return the users who may answer an item now, without `user:`; empty means any user.

    `owner` is the session's present owner: it may have been transferred since. The second approvers may answer once the
    item has waited long enough.
    """
    first = people.approvers or ((owner,) if owner else ())
    late = item.escalate_us is not None and now_us >= item.escalate_us
    return (*first, *item.second) if first and late else first


def proof_text(proof: str) -> str:
    """Describe the evidence of who answered an item."""
    kind, _, value = proof.partition(":")
    match kind:
        case "process_uid":
            return f"from a process of uid {value}"
        case "login_link":
            return f"in a browser that a process of uid {value} logged in"
        case "api_key":
            return f"with the API key {value}"
        case "reply_code":
            return "by a reply from a reader of the notice"
        case _:
            return "the name is not verified"


def seen_until_us(expires_us: int | None, now_us: int) -> int | None:
    """Return when the default applies of an item that is first seen now; None for never."""
    return None if expires_us is None else max(expires_us, now_us + SEEN_GRACE_US)


def unanswered(state: State) -> list[Ask]:
    """Return the items without an answer, oldest first."""
    return [ask for ask in state.asks.values() if ask.verdict is None]


def ask_for(state: State, call_id: str, kind: ItemKind) -> Ask | None:
    """Return the current item of that kind about a call."""
    return next((ask for ask in state.asks.values() if ask.call_id == call_id and ask.kind == kind), None)


def expire_or_notify(state: State, now_us: int) -> Action | None:
    """Return the due default or notification of an item."""
    for ask in unanswered(state):
        expires_us = _expiry_us(ask)
        if ask.default is not None and expires_us is not None and is_over(state, ask.seq, expires_us, now_us):
            return Expire(ask.item_id, ask.default)
    return _notice(state, now_us)


def _notice(state: State, now_us: int) -> Notify | None:
    for ask in unanswered(state):
        for round_ in ROUNDS:
            due_us = _round_us(ask, round_)
            for target in _targets(state, ask, round_):
                sent = state.notices.get(notice_key(ask.item_id, round_, target))
                at_us = due_us if sent is None else sent.again_us
                if at_us is not None and is_over(state, ask.seq, at_us, now_us):
                    return Notify(ask.item_id, round_, target, sent.tries if sent else 0)
    return None


def _targets(state: State, ask: Ask, round_: str) -> tuple[str, ...]:
    if ask.notify is not None:
        return ask.notify
    if state.created is None:
        return ()
    people = state.created.people
    return (*people.notify, *people.notify_second) if round_ == "second" else people.notify


def _round_us(ask: Ask, round_: str) -> int | None:
    match round_:
        case "first":
            return ask.asked_us
        case "reminder":
            return ask.remind_us
        case _:
            return ask.escalate_us


def _expiry_us(ask: Ask) -> int | None:
    """Return when the default applies; None while no approver has seen the item, or without a default."""
    return ask.expires_us if ask.default is not None and ask.seen_us else None


def deadline_us(state: State) -> int | None:
    """Return when an item is next due, None for never: an unseen item does not expire."""
    return min((due(state, seq, at_us) for seq, at_us in _deadlines(state)), default=None)


def _deadlines(state: State) -> list[tuple[int, int]]:
    """Return the deadlines of items, each with the event at which its wait began."""
    times: list[tuple[int, int]] = []
    for ask in unanswered(state):
        expires_us = _expiry_us(ask)
        if expires_us is not None:
            times.append((ask.expires_seq or ask.seq, expires_us))
        for round_ in ROUNDS:
            for target in _targets(state, ask, round_):
                sent = state.notices.get(notice_key(ask.item_id, round_, target))
                due_us = _round_us(ask, round_) if sent is None else sent.again_us
                if due_us is not None:
                    times.append((ask.seq, due_us))
    return times


def wait(state: State, now_us: int, detail: str) -> End:
    """Park until an approver answers."""
    return End(ShiftEnded(status="parked", reason="person", detail=detail, due_us=deadline_us(state)))


def standing(state: State, kind: ItemKind, reason: str) -> tuple[Fact, ...]:
    """Return the facts that supersede every item of a kind."""
    return tuple(
        ApprovalSuperseded(item_id=ask.item_id, reason=reason) for ask in state.asks.values() if ask.kind == kind
    )


def close_all(state: State, reason: str) -> tuple[Fact, ...]:
    """Return the facts that supersede every unanswered item."""
    return tuple(ApprovalSuperseded(item_id=ask.item_id, reason=reason) for ask in unanswered(state))


WORKSPACE = "workspace"
"""Breaker for a lost workspace."""


def wait_for_workspace(state: State, now_us: int) -> Action | None:
    """Return the action while the workspace is lost, before any call: ask a user, recreate nothing (S11)."""
    if state.breaker != WORKSPACE:
        return None
    ask = next((each for each in state.asks.values() if each.kind == "escalation"), None)
    if ask is None or state.message_seq > max(ask.seq, ask.decided_seq):
        over = (
            standing(state, "escalation", "a person wrote instead") if ask is not None and ask.verdict is None else ()
        )
        return Record((BreakerClosed(breaker=WORKSPACE, detail="it is looked for again"), *over))
    if ask.verdict is None:
        return wait(state, now_us, "the workspace is gone; a person is asked")
    if ask.verdict == "approve":
        return Record((BreakerClosed(breaker=WORKSPACE, detail=ask.note or "a person said to look again"),))
    return End(
        ShiftEnded(status="parked", reason="person", detail="the workspace is gone; send a message to look again")
    )
