"""Data of the API as structs. Times are RFC 3339 text in UTC, amounts are dollars; null is unknown or none."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.clock import rfc3339
from holdfast.facts.codec import Event
from holdfast.facts.people import ApprovalDecided, ApprovalExpired, ItemKind, Verdict
from holdfast.facts.shift import Period
from holdfast.log.base import PostReceipt
from holdfast.service import sessions
from holdfast.service.inbox import Shown
from holdfast.service.posting import person
from holdfast.service.search import Hit
from holdfast.session.money import AccountRow, usd_float


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A session. `state` is `running` while a live process holds it; `cost_usd` is that of it and all below it."""

    session_id: str
    key: str
    state: Literal["running", "runnable", "parked", "done", "failed", "cancelled"]
    reason: str
    detail: str
    goal: str
    model: str
    name: str
    owner: str
    workspace: str
    created_at: str
    updated_at: str
    due_at: str | None
    events: int
    turns: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    own_cost_usd: float | None
    parent: str
    root: str
    depth: int
    marks: list[str]


class SessionPage(msgspec.Struct, frozen=True):
    """Sessions, newest first. A page may be short; `next` is the cursor of the next one, null at the end."""

    sessions: list[SessionInfo]
    next: str | None


class ForkInfo(msgspec.Struct, frozen=True):
    """A fork of session `origin` after event `origin_seq`; its files are those of the snapshot after `kept_seq`.

    `unkept_calls` ran between the two: their changes are not in it. `duplicate`: the key named this fork before.
    """

    session_id: str
    key: str
    origin: str
    origin_seq: int
    workspace: str
    kept_seq: int
    unkept_calls: list[str]
    duplicate: bool = False


class EventInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An event. `seq` is its position, from 1 without gaps; `data` has the fields of its type."""

    session_id: str
    seq: int
    id: str
    type: str
    at: str
    actor: str
    epoch: int
    hash: str
    data: dict[str, Any]


class EventPage(msgspec.Struct, frozen=True):
    """Events, oldest first. `next` is the position to go on after, null at the present end of the log."""

    events: list[EventInfo]
    next: int | None


class MatchInfo(msgspec.Struct, frozen=True):
    """A matching event. `kind` says whose words match; `marks` are the words in the excerpt, as start and end."""

    seq: int
    kind: str
    at: str
    excerpt: str
    marks: list[tuple[int, int]]


class HitInfo(msgspec.Struct, frozen=True):
    """A session with matching events: the best of them, and the number of all."""

    session: SessionInfo
    matching: int
    matches: list[MatchInfo]


class SearchPage(msgspec.Struct, frozen=True):
    """Sessions with matching events, best first. `next` is the cursor of the next page, null at the end.

    `complete` is false if only the latest matching events were looked at; `lag_events` are not indexed yet.
    """

    hits: list[HitInfo]
    next: str | None
    complete: bool
    lag_events: int


class Receipt(msgspec.Struct, frozen=True):
    """The event that a command appended; null if there was nothing to do.

    `duplicate`: the idempotency key was used before, and nothing was appended again.
    """

    session_id: str
    seq: int | None
    duplicate: bool = False


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an inbox item. `by` is the user who decided, empty for an expiry or a superseded item."""

    outcome: Literal["approved", "denied", "expired", "superseded"]
    by: str
    at: str
    note: str = ""
    proof: str = ""


class ItemInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An inbox item. `action` is the whole action, `digest` binds an answer to it."""

    item_id: str
    session_id: str
    seq: int
    kind: ItemKind
    status: str
    title: str
    action: str
    digest: str
    why: str
    touches: str
    options: list[str]
    evidence: list[int]
    needs_words: bool
    default: Verdict | None
    opened_at: str
    expires_at: str | None
    seen_at: str | None
    may_answer: list[str]
    cost_usd: float | None
    own_cost_usd: float | None
    account_id: str
    proposed_usd: float | None
    decision: Decision | None


class ItemPage(msgspec.Struct, frozen=True):
    """Open inbox items, oldest first."""

    items: list[ItemInfo]


class AnswerInfo(msgspec.Struct, frozen=True):
    """The recorded answer to an item. `duplicate`: this caller had given the same answer before."""

    item_id: str
    session_id: str
    seq: int
    verdict: Verdict
    by: str
    duplicate: bool = False


class PeriodInfo(msgspec.Struct, frozen=True):
    """The cap of an account for one period, and the spend that counts under it."""

    cap_usd: float | None
    spent_usd: float


class AccountInfo(msgspec.Struct, frozen=True):
    """A money account. `held_usd` is reserved by open requests."""

    account_id: str
    held_usd: float
    total: PeriodInfo
    day: PeriodInfo
    week: PeriodInfo


class AccountPage(msgspec.Struct, frozen=True):
    """Accounts; those of a session from its own to that of the home."""

    accounts: list[AccountInfo]


class FilePage(msgspec.Struct, frozen=True):
    """The files of a workspace after event `at`, as kept in the snapshot after event `kept_seq`.

    `unkept_calls` ran between the two: their changes are not in it. The paths are cut at `limit`; `total` is the number
    of all.
    """

    at: int
    kept_seq: int
    unkept_calls: list[str]
    total: int
    files: list[str]


class FindingInfo(msgspec.Struct, frozen=True):
    """One inconsistency. `seq` is the first bad position, 0 for data beside the events."""

    session_id: str
    seq: int
    message: str


class Verification(msgspec.Struct, frozen=True):
    """The result of checking the hash chain of a session, and the data beside it."""

    ok: bool
    sessions: int
    events: int
    findings: list[FindingInfo]


class Stopped(msgspec.Struct, frozen=True):
    """An emergency stop or its release, and the sessions that it concerns."""

    stopped: bool
    sessions: list[str]


class Failure(msgspec.Struct, frozen=True):
    """The error of a failed request: a type for programs, and a message for users."""

    type: str
    message: str


class Failed(msgspec.Struct, frozen=True):
    """The body of every failed request."""

    error: Failure


def session_info(each: sessions.Session) -> SessionInfo:
    """Return a session as data."""
    row = each.row
    return SessionInfo(
        session_id=row.session_id,
        key=row.key,
        state="running" if each.running else row.status,
        reason=row.reason,
        detail=row.detail,
        goal=row.goal,
        model=row.model,
        name=row.name,
        owner=row.owner,
        workspace=row.workspace,
        created_at=rfc3339(row.created_us),
        updated_at=rfc3339(row.updated_us),
        due_at=_time(row.due_us),
        events=row.head,
        turns=row.turns,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cost_usd=each.costs.tree.usd,
        own_cost_usd=each.costs.own.usd,
        parent=row.parent,
        root=row.root,
        depth=row.depth,
        marks=row.marks.split(),
    )


def hit_info(hit: Hit) -> HitInfo:
    """Return a session that a search found as data."""
    matches = [
        MatchInfo(each.seq, each.kind, rfc3339(each.at_us), each.excerpt.text, list(each.excerpt.marks))
        for each in hit.events
    ]
    return HitInfo(session_info(hit.session), hit.count, matches)


def event_info(event: Event) -> EventInfo:
    """Return an event as data."""
    data = msgspec.to_builtins(event.fact)
    data.pop("type", None)
    return EventInfo(
        session_id=event.session_id,
        seq=event.seq,
        id=event.id,
        type=event.type,
        at=rfc3339(event.at_us),
        actor=event.actor,
        epoch=event.epoch,
        hash=event.hash.hex(),
        data=data,
    )


def item_info(shown: Shown) -> ItemInfo:
    """Return an inbox item as data."""
    item, request = shown.item, shown.request
    return ItemInfo(
        item_id=item.item_id,
        session_id=item.session_id,
        seq=item.seq,
        kind=request.kind,
        status=item.status,
        title=request.title,
        action=request.action,
        digest=request.action_digest,
        why=request.why,
        touches=request.touches,
        options=list(request.options),
        evidence=list(request.evidence),
        needs_words=request.needs_words,
        default=request.default,
        opened_at=rfc3339(item.opened_us),
        expires_at=_time(item.expires_us),
        seen_at=_time(item.seen_us),
        may_answer=list(shown.names),
        cost_usd=shown.costs.tree.usd,
        own_cost_usd=shown.costs.own.usd,
        account_id=request.account_id,
        proposed_usd=usd_float(request.proposed_pico),
        decision=_decision(shown.closing) if shown.closing is not None else None,
    )


def _decision(event: Event) -> Decision:
    fact, at = event.fact, rfc3339(event.at_us)
    if isinstance(fact, ApprovalDecided):
        outcome: Literal["approved", "denied"] = "approved" if fact.verdict == "approve" else "denied"
        return Decision(outcome=outcome, by=person(event.actor), at=at, note=fact.note, proof=fact.proof)
    if isinstance(fact, ApprovalExpired):
        return Decision(outcome="expired", by="", at=at, note=f"its default was applied: {fact.verdict}")
    return Decision(outcome="superseded", by="", at=at, note=getattr(fact, "reason", ""))


def account_info(account: AccountRow, now_us: int) -> AccountInfo:
    """Return an account as data."""

    def period(name: Period) -> PeriodInfo:
        return PeriodInfo(usd_float(account.cap_of(name)), usd_float(account.spent_in(name, now_us)) or 0.0)

    held = usd_float(account.reserved_pico) or 0.0
    return AccountInfo(account.account_id, held, period("total"), period("day"), period("week"))


def receipt(given: PostReceipt) -> Receipt:
    """Return the receipt of a command as data."""
    return Receipt(given.session_id, given.seq, given.duplicate)


def _time(at_us: int | None) -> str | None:
    return None if at_us is None else rfc3339(at_us)
