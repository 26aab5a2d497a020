"""Transactions of the log, independent of the store.

Pure: a transaction reads through a view, takes the time as a number, and keeps the changes to write. Both stores
run it, so stamping, fencing, posts, money, and rows are defined once (S1–S5, S15, S20).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from holdfast.errors import EmergencyStop, Fenced, HeadMoved, LeaseHeld, SchemaTooNew, UsageError
from holdfast.facts.base import Fact
from holdfast.facts.codec import SCHEMA, Draft, Event, body_digest, chain, genesis, prepare
from holdfast.facts.model import ModelRequestStart
from holdfast.facts.people import ApprovalRequested
from holdfast.facts.session import SessionCreated, SessionForked
from holdfast.facts.shift import EmergencyReleased, EmergencyStopped, LeaseStolen, LimitSet, ShiftEnded, ShiftStarted
from holdfast.facts.union import type_of
from holdfast.log.base import Lease, Post, PostReceipt
from holdfast.log.chain import holder
from holdfast.log.ledger import Books, Ledger
from holdfast.log.limiter import Gauges, check_room, count_request
from holdfast.log.names import unknown
from holdfast.log.removal import Gone, fact_of
from holdfast.session import money
from holdfast.session.home import HOME, HOME_FACTS, Stop, home_created, stop_in
from holdfast.session.money import CAP_FACTS, path_of
from holdfast.session.rows import ANSWERS, FIRST, ItemRow, SessionRow, first_row, item_key, item_of, next_item, next_row


class View(Books, Gauges, Protocol):
    """The stored data that a transaction reads."""

    def item(self, item_id: str) -> ItemRow | None:
        """Return one inbox item."""
        ...

    def row(self, session_id: str) -> SessionRow | None:
        """Return one session's row."""
        ...

    def keyed(self, key: str) -> str | None:
        """Return the id of the session opened under that key."""
        ...

    def link_at(self, session_id: str, seq: int) -> tuple[bytes, int] | None:
        """Return the chain hash and the epoch of one of a session's own events."""
        ...

    def posted(self, session_id: str, key: str) -> int | None:
        """Return the sequence number of the post with this key."""
        ...

    def vocabulary(self, session_id: str) -> int | None:
        """Return the highest schema version among a session's bodies."""
        ...


class Sealed(msgspec.Struct, frozen=True, gc=False):
    """A stamped event with its bytes."""

    event: Event
    body: bytes
    digest: bytes


class Ready(msgspec.Struct, frozen=True, gc=False):
    """A draft with its encoded bytes, prepared before the database is locked."""

    draft: Draft
    body: bytes
    digest: bytes
    fact: Fact


def ready(draft: Draft, key: str = "") -> Ready:
    """Encode a draft, with the key of a post. Raises `UsageError` for values that cannot be stored."""
    body, fact = prepare(draft, key)
    return Ready(draft, body, body_digest(body), fact)


class Transaction:
    """One transaction: its verbs stamp events; `sealed`, `rows`, `items`, `ledger`, `posts`, and `used_us` are written.

    `removed` are sessions to delete with everything of theirs, and `closed` their own accounts.
    After a verb raises, nothing of the transaction may be written.
    """

    __slots__ = (
        "_now_us",
        "_view",
        "before",
        "closed",
        "items",
        "ledger",
        "posts",
        "removed",
        "rows",
        "sealed",
        "used_us",
    )

    def __init__(self, view: View, now_us: int) -> None:
        self._view = view
        self._now_us = now_us
        self.sealed: list[Sealed] = []
        self.before: dict[str, SessionRow | None] = {}
        self.rows: dict[str, SessionRow] = {}
        self.posts: dict[tuple[str, str], int] = {}
        self.items: dict[str, ItemRow] = {}
        self.removed: tuple[str, ...] = ()
        self.closed: frozenset[str] = frozenset()
        self.ledger = Ledger(view, now_us)
        self.used_us: dict[str, int] = {}

    def append(
        self,
        session_id: str,
        epoch: int,
        drafts: Sequence[Ready],
        head: int | None,
        posts: Sequence[Post],
        holder: str = "",
    ) -> list[Event]:
        """`Log.append`."""
        row = self._need(session_id)
        if epoch != row.epoch or (holder and holder != row.holder):
            raise fenced(row, epoch)
        _check_head(row, head)
        events = [self._stamp(session_id, epoch, draft) for draft in drafts]
        for post in posts:
            receipt = self.post(post, create=isinstance(post.draft.fact, SessionCreated))
            if receipt.session_id != post.session_id:
                raise UsageError(
                    f"session {post.session_id} cannot be opened: session {receipt.session_id} has its key; give the "
                    "new one another key, or none"
                )
        return events

    def post(self, post: Post, *, create: bool = False) -> PostReceipt:
        """`Log.post`."""
        if not post.key:
            raise UsageError("a post needs a key, so that a repeated one can be dropped")
        if create:
            return self._open(post)
        if post.session_id == HOME and self.row(HOME) is None:
            self._stamp(HOME, 0, ready(home_created(), "created"), "created")
        row = self._need(post.session_id)
        seq = self._posted(post)
        if seq is not None:
            return PostReceipt(post.session_id, seq, True)
        event = self._stamp(post.session_id, row.epoch, ready(post.draft, post.key), post.key)
        return PostReceipt(post.session_id, event.seq, False)

    def acquire(
        self,
        session_id: str,
        draft: Draft,
        stolen_id: str,
        *,
        steal: bool,
        live: Callable[[str], bool],
        head: int | None = None,
        orphaned_by: Callable[[str], bool] = lambda _: False,
    ) -> Lease:
        """`Leases.acquire`. `live` returns True for a live worker; `stolen_id` is the id of a `lease.stolen`.

        `orphaned_by` returns True for a live worker that does not run the session, whatever the row says.
        """
        if not isinstance(draft.fact, ShiftStarted):
            raise UsageError(f"a lease begins with shift.started, not with {type_of(draft.fact)}")
        row = self._need(session_id)
        self._check_vocabulary(session_id)
        self._check_stop()
        is_held = bool(row.holder) and live(row.holder) and not orphaned_by(row.holder)
        if is_held and not steal:
            raise held(row)
        _check_head(row, head)
        home = self.row(HOME)
        if home is not None and home.marks:
            check_room(self._view, row, home, live)
        epoch = row.epoch + 1
        drafts = [draft]
        if is_held:
            fact = LeaseStolen(from_worker_id=row.holder, from_epoch=row.epoch)
            drafts.insert(0, Draft(stolen_id, "system", fact))
        events = tuple(self._stamp(session_id, epoch, ready(each)) for each in drafts)
        return Lease(session_id, epoch, draft.fact.worker_id, events)

    def release(self, lease: Lease, ended_id: str) -> None:
        """`Leases.release`: end the shift unless it has ended or was taken over."""
        row = self.row(lease.session_id)
        if row is not None and row.holder and (row.epoch, row.holder) == (lease.epoch, lease.worker_id):
            ended = Draft(ended_id, "system", ShiftEnded(status="released"))
            self._stamp(lease.session_id, lease.epoch, ready(ended))

    def remove(self, gone: Gone, event_id: str, actor: str, *, live: Callable[[str], bool]) -> None:
        """`Removals.remove`, of sessions as they were read. Raises `HeadMoved` if one of them, or the home, moved."""
        for row in gone.rows:
            now = self._need(row.session_id)
            if now.holder and live(now.holder):
                raise held(now)
            _check_head(now, row.head)
        home = self.row(HOME)
        if home is None:
            self._stamp(HOME, 0, ready(home_created(), "created"), "created")
        else:
            _check_head(home, gone.home_head)
        paths = {row.session_id: row.accounts for row in gone.rows}
        for (session_id, seq), amount in gone.held.items():
            self.ledger.drop(session_id, seq, amount, paths[session_id])
        stay = [self.ledger.accounts.get(each.account_id) or self._view.account(each.account_id) for each in gone.spent]
        fact = fact_of(gone, [account for account in stay if account is not None])
        self._stamp(
            HOME, home.epoch if home is not None else 0, ready(Draft(event_id, actor, fact), event_id), event_id
        )
        self.removed, self.closed = tuple(paths), gone.closed

    def is_quiet(self, row: SessionRow, live: Callable[[str], bool]) -> bool:
        """Return True if the session is as in that row and no live process holds it."""
        now = self.row(row.session_id)
        return now is not None and now.head == row.head and not (now.holder and live(now.holder))

    def row(self, session_id: str) -> SessionRow | None:
        """Return a session's row, with the changes of this transaction."""
        if session_id not in self.before:
            self.before[session_id] = self._view.row(session_id)
        return self.rows.get(session_id) or self.before[session_id]

    def _need(self, session_id: str) -> SessionRow:
        row = self.row(session_id)
        if row is None:
            raise unknown(session_id)
        return row

    def _posted(self, post: Post) -> int | None:
        key = (post.session_id, post.key)
        return self.posts[key] if key in self.posts else self._view.posted(*key)

    def _check_vocabulary(self, session_id: str) -> None:
        """Refuse a session that a newer version of Holdfast wrote to (S19)."""
        found = self._view.vocabulary(session_id)
        if found is not None and found > SCHEMA:
            raise SchemaTooNew(
                f"session {session_id} holds events of schema {found}, this Holdfast supports {SCHEMA}; nothing was "
                "written: upgrade Holdfast and try again",
                session_id=session_id,
            )

    def _check_stop(self) -> None:
        """Raise `EmergencyStop` while the home is stopped."""
        home = self.row(HOME)
        stop = stop_in(home.detail) if home is not None else None
        if stop is not None:
            raise emergency(stop)

    def _open(self, post: Post) -> PostReceipt:
        fact = post.draft.fact
        if not isinstance(fact, FIRST):
            raise UsageError(f"a session begins with session.created or session.forked, not with {type_of(fact)}")
        if len(set(fact.accounts)) != len(fact.accounts):
            raise UsageError("duplicate account in the budget path of the new session")
        known = None
        if fact.key:
            mine = (row.session_id for row in self.rows.values() if row.key == fact.key)
            known = next(mine, None) or self._view.keyed(fact.key)
        there = self.row(known or post.session_id)
        if there is not None:
            return PostReceipt(there.session_id, there.origin_seq + 1, True)
        if post.session_id == HOME:
            raise UsageError(f"{HOME} is the log of the home itself; give the new session another id")
        self._check_stop()
        event = self._stamp(post.session_id, 0, ready(post.draft, post.key), post.key)
        return PostReceipt(post.session_id, event.seq, False)

    def _forked_at(self, fact: SessionForked) -> tuple[bytes, int]:
        """Return the hash and epoch that a fork continues, after a check against its origin (S22)."""
        origin = self._need(fact.origin)
        if origin.session_id == HOME:
            raise UsageError(f"{HOME} is the log of the home itself and cannot be forked")
        if not 1 <= fact.origin_seq <= origin.head:
            raise UsageError(
                f"session {origin.session_id} has the events 1 to {origin.head} and cannot be forked at "
                f"{fact.origin_seq}; nothing was written"
            )
        link = self._view.link_at(holder(origin, self.row, fact.origin_seq), fact.origin_seq)
        if link is None or link[0].hex() != fact.origin_hash:
            raise UsageError(
                f"event {fact.origin_seq} of session {origin.session_id} is not the one that the fork names; nothing "
                "was written: read it again"
            )
        if fact.accounts[1:] != origin.accounts[1:]:
            raise UsageError(
                f"a fork of session {origin.session_id} must have the same shared accounts "
                f"({', '.join(origin.accounts[1:]) or 'none'}); nothing was written"
            )
        return link

    def _stamp(self, session_id: str, epoch: int, given: Ready, key: str = "") -> Event:  # S1
        row = self.row(session_id)
        draft, fact = given.draft, given.fact
        if isinstance(fact, FIRST) != (row is None):
            raise UsageError("session.created or session.forked is the first event of a session, and only that")
        _check_place(session_id, fact, key)
        seq, prev = (row.head + 1, row.head_hash) if row else (1, genesis(session_id))
        if isinstance(fact, SessionForked):
            seq, (prev, epoch) = fact.origin_seq + 1, self._forked_at(fact)
        kind = type_of(fact)
        at_us = self._now_us if type(fact) not in CAP_FACTS else self._cap_time(session_id, fact, row)
        link = chain(prev, session_id, seq, epoch, at_us, kind, given.digest)
        event = Event(session_id, seq, epoch, at_us, link, draft.id, draft.actor, kind, fact)
        after = next_row(row, event) if row else first_row(event)
        if isinstance(fact, ModelRequestStart):
            home = self.row(HOME)
            if home is not None and home.marks:
                count_request(self._view, after, home, fact.model, self.used_us, self._now_us)
        for move in money.move(fact, seq, after.accounts, at_us):
            self.ledger.apply(session_id, move)
        self._item(event)
        self.rows[session_id] = after
        self.sealed.append(Sealed(event, given.body, given.digest))
        if key:
            self.posts[session_id, key] = seq
        return event

    def _cap_time(self, session_id: str, fact: Fact, row: SessionRow | None) -> int:
        if row is not None:
            path = row.accounts
        else:
            path = path_of(fact, session_id) if isinstance(fact, FIRST) else ()
        return self.ledger.cap_time(money.move(fact, 0, path, self._now_us))

    def _item(self, event: Event) -> None:
        item_id = item_of(event)
        if item_id is None:
            return
        item = self.items.get(item_id) or self._view.item(item_id)
        if item is not None and isinstance(event.fact, ApprovalRequested):
            raise UsageError(f"item {item_id!r} already exists; give the new one an id of its own")
        after = next_item(item, event)
        if after is not None and after is not item:
            self.items[item_id] = after


def _check_place(session_id: str, fact: Fact, key: str) -> None:
    """Refuse events in the wrong log, and answers whose key is not that of their item (S21)."""
    if session_id == HOME:
        if not isinstance(fact, (*HOME_FACTS, SessionCreated)):
            raise UsageError(f"{HOME} is the home's own log and takes no {type_of(fact)}")
    elif isinstance(fact, EmergencyStopped | EmergencyReleased | LimitSet):
        raise UsageError(f"{type_of(fact)} applies to every session: post it to {HOME}")
    if isinstance(fact, ANSWERS) and key != item_key(fact.item_id):
        raise UsageError(
            f"a {type_of(fact)} is posted under the key {item_key(fact.item_id)!r}, so that the first wins"
        )


def _check_head(row: SessionRow, head: int | None) -> None:
    """Refuse a decision that was made on another head (S2)."""
    if head is not None and head != row.head:
        raise HeadMoved(
            f"session {row.session_id} moved from {head} to {row.head} since it was folded: fold and decide again",
            folded=head,
            head=row.head,
        )


def fenced(row: SessionRow, epoch: int) -> Fenced:
    """Return the error for a writer whose epoch is not the session's."""
    return Fenced(
        f"session {row.session_id} is at epoch {row.epoch} and this process holds epoch {epoch}: another process took "
        "the session over, so this one must stop",
        mine=epoch,
        current=row.epoch,
    )


def held(row: SessionRow) -> LeaseHeld:
    """Return the error for a session that a live process holds."""
    return LeaseHeld(
        f"session {row.session_id} is running under {row.holder}; follow it with `holdfast logs {row.session_id} -f`, "
        "or take it over with `holdfast wake --steal`",
        worker_id=row.holder,
    )


def emergency(stop: Stop) -> EmergencyStop:
    """Return the error for the emergency stop in force."""
    when = datetime.fromtimestamp(stop.at_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    who = stop.by.removeprefix("user:")
    why = f" ({stop.reason})" if stop.reason else ""
    return EmergencyStop(
        f"{who} stopped everything at {when}{why}; nothing was started or written: `holdfast stop --release` lifts it"
    )
