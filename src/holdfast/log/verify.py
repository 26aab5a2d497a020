"""Verification of the log: the hash chain, the rows beside the events, and money (S1, S20).

Verification writes nothing. An unkeyed chain reveals edits, but not that the newest events were removed together
with their rows; the watermark reveals that (see `sqlite.watermark`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.errors import LogDamaged
from holdfast.facts.base import Erased
from holdfast.facts.codec import Event, genesis, stored_envelope
from holdfast.facts.shift import CarriedAccount, Period
from holdfast.log.chain import Blob, StoredBlob, StoredEvent, check_head, damaged, events_of
from holdfast.log.ledger import with_cap
from holdfast.session import money
from holdfast.session.money import AccountRow, add_buckets, add_spend
from holdfast.session.rows import ANSWERS, FIRST, ItemRow, SessionRow, first_row, item_of, next_item, next_row

T = TypeVar("T")

_PART = 2_000
"""Number of events read into memory at a time."""


class Beside(msgspec.Struct, frozen=True):
    """The rows beside the events: sessions by id, posts by (session, key), accounts by id, reservations by
    (session, event), the highest schema version of a session's bodies, and items by id.
    """

    rows: dict[str, SessionRow] = {}
    posts: dict[tuple[str, str], int] = {}
    accounts: dict[str, AccountRow] = {}
    reservations: dict[tuple[str, int], int] = {}
    vocabularies: dict[str, int] = {}
    items: dict[str, ItemRow] = {}


class Look(Protocol):
    """A consistent view of a store, valid until the function that received it returns."""

    def session_ids(self) -> list[str]:
        """Return the ids of all sessions that have a row or an event."""
        ...

    def stored(self, session_id: str) -> Iterator[StoredEvent]:
        """Return one session's stored events, in order."""
        ...

    def tail(self, after: int, count: int) -> Iterator[tuple[int, str, StoredEvent]]:
        """Return `(position, session, stored event)` of the next events of all sessions, in the order of their storage.

        Positions grow, but are given again once the latest events were removed.
        """
        ...

    def tail_end(self) -> int:
        """Return the position of the latest event, 0 without one."""
        ...

    def blob(self, digest: bytes) -> StoredBlob:
        """Return the blob with that digest."""
        ...

    def known(self, session_id: str) -> SessionRow | None:
        """Return one session's row, if it has one."""
        ...

    def hash_at(self, session_id: str, seq: int) -> bytes | None:
        """Return the chain hash of a session's event, own or shared with its origin."""
        ...

    def beside(self) -> Beside:
        """Return all rows beside the events."""
        ...


class Source(Protocol):
    """A store that can be verified."""

    async def look(self, work: Callable[[Look], T]) -> T:
        """Run `work` on a consistent view and return its result; other verbs continue meanwhile."""
        ...


class Finding(msgspec.Struct, frozen=True):
    """One inconsistency. `seq` is the first bad sequence number, 0 for a row beside the events."""

    session_id: str
    seq: int
    message: str


class Verified(msgspec.Struct, frozen=True):
    """The result of a verification: the number of sessions and events, and the findings."""

    sessions: int
    events: int
    findings: tuple[Finding, ...]


async def verify(source: Source, session_id: str | None = None) -> Verified:
    """Verify one session or all. Accounts are compared only if all sessions are, since sessions share them."""
    return await source.look(lambda look: _verify(look, session_id))


async def rebuild(source: Source) -> Beside:
    """Rebuild the rows beside the events from the events alone (S20). Raises `LogDamaged`."""
    return await source.look(_rebuild)


def _verify(look: Look, session_id: str | None) -> Verified:
    beside = look.beside()
    chosen = _lineage(look, session_id) if session_id is not None else look.session_ids()
    findings: list[Finding] = []
    rebuilt = Rebuilt()
    count = 0
    for each in chosen:
        try:
            count += rebuilt.session(each, look.stored(each), look.blob, look)
            _check_session(each, beside, rebuilt)
        except LogDamaged as error:
            findings.append(Finding(each, error.seq, str(error)))
    whole = set(chosen) - rebuilt.partly - {finding.session_id for finding in findings}
    findings += _compare_keyed(whole, "posts", beside.posts, rebuilt.posts)
    findings += _compare_keyed(whole, "reservations", beside.reservations, rebuilt.books.held)
    findings += _compare_keyed(whole, "items", _by_session(beside.items), _by_session(rebuilt.items))
    if session_id is None and not findings:
        findings += _compare_money(beside, rebuilt)
    return Verified(len(chosen), count, tuple(findings))


def _lineage(look: Look, session_id: str) -> list[str]:
    """Return a session and its fork ancestors, as far as they exist."""
    found: list[str] = []
    while session_id and session_id not in found:
        found.append(session_id)
        row = look.known(session_id)
        session_id = row.origin if row else ""
    return found


def _rebuild(look: Look) -> Beside:
    rebuilt = Rebuilt()
    for each in look.session_ids():
        rebuilt.session(each, look.stored(each), look.blob, look)
    books = rebuilt.books
    return Beside(rebuilt.rows, rebuilt.posts, books.accounts(), dict(books.held), rebuilt.vocabularies, rebuilt.items)


class Books:
    """Accounts rebuilt from moves, with sessions in any order. Caps are not enforced: refused moves were never
    written.
    """

    def __init__(self) -> None:
        self._accounts: dict[str, AccountRow] = {}
        self._caps_at: dict[tuple[str, Period], int] = {}
        self.held: dict[tuple[str, int], int] = {}

    def apply(self, session_id: str, move: money.Move) -> None:
        """Apply a session's next move."""
        match move:
            case money.OpenAccount():
                self._cap(move.account_id, "total", move.cap_pico, move.at_us)
            case money.SetCap():
                self._cap(move.account_id, move.period, move.cap_pico, move.at_us)
            case money.NameAccount():
                self._account(move.account_id)
            case money.Reserve():
                self.held[session_id, move.seq] = move.amount_pico
                self._move(move.path, 0, move.amount_pico, 0)
            case money.Settle():
                held = self.held.pop((session_id, move.seq), 0)
                self._move(move.path, move.at_us, -held, move.cost_pico)
            case money.Carry():
                self._carry(move.account)

    def accounts(self) -> dict[str, AccountRow]:
        """Return all accounts that were opened or named."""
        return dict(self._accounts)

    def _account(self, name: str) -> AccountRow:
        return self._accounts.setdefault(name, AccountRow(name, None, 0, 0))

    def _cap(self, name: str, period: Period, cap_pico: int | None, at_us: int) -> None:
        """Set a cap. The latest one counts; no two caps of an account have the same time."""
        account = self._account(name)
        if at_us > self._caps_at.get((name, period), -(2**63)):
            self._caps_at[name, period] = at_us
            after = with_cap(account, period, cap_pico, at_us)
            self._accounts[name] = replace(after, caps_us=max(account.caps_us, at_us))

    def _carry(self, gone: CarriedAccount) -> None:
        """Add what removed sessions spent. Their caps count until a later one."""
        caps: dict[Period, int | None]
        caps = {"total": gone.cap_pico, "day": gone.cap_day_pico, "week": gone.cap_week_pico}
        for period, cap_pico in caps.items():
            self._cap(gone.account_id, period, cap_pico, gone.caps_us)
        account = self._account(gone.account_id)
        self._accounts[gone.account_id] = replace(
            account,
            spent_pico=account.spent_pico + gone.spent_pico,
            spend=add_buckets(account.spend, gone),
        )

    def _move(self, path: tuple[str, ...], at_us: int, held_pico: int, cost_pico: int) -> None:
        for name in path:
            account = self._account(name)
            self._accounts[name] = replace(
                account,
                reserved_pico=account.reserved_pico + held_pico,
                spent_pico=account.spent_pico + cost_pico,
                spend=add_spend(account.spend, at_us, cost_pico),
            )


class Rebuilt:
    """Rows rebuilt from events, session by session. `partly` are sessions with an erased body, whose effect on rows
    and money is lost.
    """

    def __init__(self) -> None:
        self.rows: dict[str, SessionRow] = {}
        self.posts: dict[tuple[str, str], int] = {}
        self.vocabularies: dict[str, int] = {}
        self.books = Books()
        self.items: dict[str, ItemRow] = {}
        self.partly: set[str] = set()
        self._answered: dict[tuple[str, str], int] = {}

    def session(self, session_id: str, stored: Iterable[StoredEvent], blob: Blob, look: Look | None = None) -> int:
        """Verify one session's own events and return their number. Raises `LogDamaged`.

        `look` finds the beginning of a fork; without it, the session must not be a fork.
        """
        rows = iter(stored)
        at, prev = 0, genesis(session_id)
        row = look.known(session_id) if look is not None else None
        if look is not None and row is not None and row.origin:
            at, found = row.origin_seq, look.hash_at(row.origin, row.origin_seq)
            if found is None:
                raise damaged(session_id, 0, f"it is a fork of session {row.origin}, which has no event {at}")
            prev = found
        before = at
        while part := list(islice(rows, _PART)):
            events = events_of(session_id, part, blob, after=at, prev=prev)
            for event, kept in zip(events, part, strict=True):
                self._event(event, kept, blob)
            at, prev = events[-1].seq, events[-1].hash
        return at - before

    def _event(self, event: Event, kept: StoredEvent, blob: Blob) -> None:
        session_id = event.session_id
        row = self.rows.get(session_id)
        if isinstance(event.fact, Erased):
            self.partly.add(session_id)
        elif row is None and not isinstance(event.fact, FIRST) and session_id not in self.partly:
            raise damaged(session_id, event.seq, "it does not begin with session.created or session.forked")
        else:
            body = kept[5] if kept[5] is not None else blob(kept[6] or b"").body
            version, key = stored_envelope(body or b"")
            self.vocabularies[session_id] = max(version, self.vocabularies.get(session_id, 0))
            if key:
                self.posts[session_id, key] = event.seq
        if row is not None:
            row = next_row(row, event)
        elif isinstance(event.fact, FIRST):
            row = first_row(event)
        if row is None:
            return
        self.rows[session_id] = row
        for move in money.move(event.fact, event.seq, row.accounts, event.at_us):
            self.books.apply(session_id, move)
        item_id = item_of(event)
        if item_id is not None:
            self._item(item_id, event)

    def _item(self, item_id: str, event: Event) -> None:
        if isinstance(event.fact, ANSWERS):  # S21
            seq = self._answered.setdefault((event.session_id, item_id), event.seq)
            if seq != event.seq:
                raise damaged(event.session_id, event.seq, f"item {item_id} already has an answer, at event {seq}")
        item = next_item(self.items.get(item_id), event)
        if item is not None:
            self.items[item_id] = item


def _check_session(session_id: str, beside: Beside, rebuilt: Rebuilt) -> None:
    """Raise `LogDamaged` if a session's rows differ from the rebuilt ones."""
    row, again = beside.rows.get(session_id), rebuilt.rows.get(session_id)
    if row is None:
        raise damaged(session_id, 0, "it has events but no row")
    if again is None and session_id not in rebuilt.partly:
        raise damaged(session_id, 1, "its row names events, but there are none")
    if again is not None:
        check_head(row, again.head, again.head_hash)
    if session_id in rebuilt.partly:
        return
    wrong = [name for name in row.__struct_fields__ if getattr(row, name) != getattr(again, name)]
    if wrong:
        raise damaged(session_id, 0, f"its row does not follow from its events: {', '.join(wrong)}")
    if beside.vocabularies.get(session_id) != rebuilt.vocabularies.get(session_id):
        raise damaged(session_id, 0, "the schema version of its row is not that of its events")


def _by_session(items: Mapping[str, ItemRow]) -> dict[tuple[str, str], ItemRow]:
    return {(item.session_id, item.item_id): item for item in items.values()}


def _compare_keyed(
    chosen: set[str], what: str, have: Mapping[tuple[str, Any], object], want: Mapping[tuple[str, Any], object]
) -> list[Finding]:
    """Return findings for rows keyed by session, of the chosen sessions."""
    keys = have.keys() | want.keys()
    wrong = {key[0] for key in keys if have.get(key) != want.get(key)} & chosen
    return [Finding(each, 0, f"the {what} of session {each} do not follow from its events") for each in sorted(wrong)]


def _compare_money(beside: Beside, rebuilt: Rebuilt) -> list[Finding]:
    """Return findings for accounts; none after an erased body, since sums are then unknown."""
    if rebuilt.partly:
        return []
    want = rebuilt.books.accounts()
    return [
        Finding("", 0, f"account {name} is {beside.accounts.get(name)}, its events make it {want.get(name)}")
        for name in sorted(beside.accounts.keys() | want.keys())
        if beside.accounts.get(name) != want.get(name)
    ]
