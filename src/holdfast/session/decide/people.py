"""What waits for people, and until when (S21). Waiting is a row: no process, thread or timer."""

from __future__ import annotations

from holdfast.facts.base import Fact
from holdfast.facts.people import ApprovalRequested, ApprovalSuperseded, ItemKind
from holdfast.facts.session import People
from holdfast.facts.shift import ShiftEnded
from holdfast.session.actions import Action, End, Expire, Notify
from holdfast.session.decide.children import due, is_over
from holdfast.session.state import Ask, State, notice_key

ROUNDS = ("first", "reminder", "second")
"""Messages about an item: when it is opened, when nobody has answered, when a second person is told."""

PAUSED = "paused by a person"
STOPPED = "an emergency stop"
"""Why a session rests, as its row says it."""

SEEN_GRACE_US = 3_600_000_000
"""Whoever sees an item for the first time has at least this long before its default applies."""


def may_answer(people: People, owner: str, item: ApprovalRequested, now_us: int) -> tuple[str, ...]:
    """Who may answer an item now, as names after `user:`; empty means anybody.

    `owner` is the person whom the session belongs to now: it may have been handed over since it asked. A second
    person may once the item has waited long enough.
    """
    first = people.approvers or ((owner,) if owner else ())
    late = item.escalate_us is not None and now_us >= item.escalate_us
    return (*first, *item.second) if first and late else first


def proof_text(proof: str) -> str:
    """What is proven about who answered an item, in words."""
    kind, _, value = proof.partition(":")
    match kind:
        case "process_uid":
            return f"from a process of uid {value}"
        case "reply_code":
            return "by a reply from a reader of the notice"
        case _:
            return "the name is not verified"


def seen_until_us(expires_us: int | None, now_us: int) -> int | None:
    """When the default of an item applies that is first seen now; None for never."""
    return None if expires_us is None else max(expires_us, now_us + SEEN_GRACE_US)


def unanswered(state: State) -> list[Ask]:
    """Questions without an answer, oldest first."""
    return [ask for ask in state.asks.values() if ask.verdict is None]


def ask_for(state: State, call_id: str, kind: ItemKind) -> Ask | None:
    """The question of that kind about a call, while it counts."""
    return next((ask for ask in state.asks.values() if ask.call_id == call_id and ask.kind == kind), None)


def step(state: State, now_us: int) -> Action | None:
    """What is due with people: a default that applies, a message to send."""
    for ask in unanswered(state):
        expires_us = _expiry_us(ask)
        if ask.default is not None and expires_us is not None and is_over(state, ask.seq, expires_us, now_us):
            return Expire(ask.item_id, ask.default)
    return _notice(state, now_us)


def _notice(state: State, now_us: int) -> Notify | None:
    for ask in unanswered(state):
        for round_ in ROUNDS:
            due_us = _round_us(ask, round_)
            for target in _targets(state, round_):
                sent = state.notices.get(notice_key(ask.item_id, round_, target))
                at_us = due_us if sent is None else sent.again_us
                if at_us is not None and is_over(state, ask.seq, at_us, now_us):
                    return Notify(ask.item_id, round_, target, sent.tries if sent else 0)
    return None


def _targets(state: State, round_: str) -> tuple[str, ...]:
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
    """When the default applies; None while nobody has seen the question, and where there is no default."""
    return ask.expires_us if ask.default is not None and ask.seen_us else None


def deadline_us(state: State) -> int | None:
    """When something is due with people again, None for never: what nobody has seen does not expire."""
    return min((due(state, seq, at_us) for seq, at_us in _deadlines(state)), default=None)


def _deadlines(state: State) -> list[tuple[int, int]]:
    """What is waited for: since which event, and until when."""
    times: list[tuple[int, int]] = []
    for ask in unanswered(state):
        expires_us = _expiry_us(ask)
        if expires_us is not None:
            times.append((ask.expires_seq or ask.seq, expires_us))
        for round_ in ROUNDS:
            for target in _targets(state, round_):
                sent = state.notices.get(notice_key(ask.item_id, round_, target))
                due_us = _round_us(ask, round_) if sent is None else sent.again_us
                if due_us is not None:
                    times.append((ask.seq, due_us))
    return times


def wait(state: State, now_us: int, detail: str) -> End:
    """Park until a person answers."""
    return End(ShiftEnded(status="parked", reason="person", detail=detail, due_us=deadline_us(state)))


def standing(state: State, kind: ItemKind, reason: str) -> tuple[Fact, ...]:
    """The facts that end every question of a kind."""
    return tuple(
        ApprovalSuperseded(item_id=ask.item_id, reason=reason) for ask in state.asks.values() if ask.kind == kind
    )


def close_all(state: State, reason: str) -> tuple[Fact, ...]:
    """The facts that end every question that nobody has answered."""
    return tuple(ApprovalSuperseded(item_id=ask.item_id, reason=reason) for ask in unanswered(state))
