"""The log in memory, with the same transactions as every store, for tests and the simulator.

Nothing is written to disk. A worker lives from its first lease until `worker_died`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar, get_args

import anyio
import anyio.lowlevel

from holdfast.clock import Clock
from holdfast.facts.codec import SCHEMA, Draft, Event, genesis
from holdfast.ids import Entropy, new_event_id, system_entropy
from holdfast.log import chain
from holdfast.log.base import EVERY, Lease, Post, PostReceipt, Snapshot, View, Which, is_older
from holdfast.log.chain import StoredBlob, StoredEvent, damaged, events_of
from holdfast.log.limiter import Held
from holdfast.log.names import LAST, is_like, pick, pick_item, unknown
from holdfast.log.transaction import Transaction, fenced, ready
from holdfast.log.verify import Beside, Look
from holdfast.session.home import HOME, Stop, stop_in
from holdfast.session.limits import admitted, covering, decode
from holdfast.session.money import AccountRow
from holdfast.session.rows import (
    ItemRow,
    RowStatus,
    SessionRow,
    Uptime,
    due_at,
    due_rank,
    in_turns,
    is_due,
    shared_accounts,
)

T = TypeVar("T")


class Tables:
    """All stored data, and the view of it that transactions read."""

    def __init__(self) -> None:
        self.events: dict[str, list[Event]] = {}
        self.lying: dict[str, list[StoredEvent]] = {}
        self.order: list[tuple[str, int]] = []
        self.rows: dict[str, SessionRow] = {}
        self.keys: dict[str, str] = {}
        self.posts: dict[tuple[str, str], int] = {}
        self.accounts: dict[str, AccountRow] = {}
        self.reservations: dict[tuple[str, int], int] = {}
        self.items: dict[str, ItemRow] = {}
        self.used: dict[str, int] = {}

    def row(self, session_id: str) -> SessionRow | None:
        return self.rows.get(session_id)

    def keyed(self, key: str) -> str | None:
        return self.keys.get(key)

    def posted(self, session_id: str, key: str) -> int | None:
        return self.posts.get((session_id, key))

    def vocabulary(self, session_id: str) -> int | None:
        return SCHEMA if session_id in self.rows else None

    def link_at(self, session_id: str, seq: int) -> tuple[bytes, int] | None:
        row = self.row(session_id)
        found = self.own(session_id, seq - 1, 1) if row and seq > row.origin_seq else []
        return (found[0].hash, found[0].epoch) if found else None

    def known(self, session_id: str) -> SessionRow | None:
        return self.rows.get(session_id)

    def hash_at(self, session_id: str, seq: int) -> bytes | None:
        row = self.row(session_id)
        found = self.link_at(chain.holder(row, self.row, seq), seq) if row else None
        return found[0] if found else None

    def own(self, session_id: str, after: int, count: int) -> list[Event]:
        first = max(0, after - self.rows[session_id].origin_seq)
        return self.events[session_id][first : first + count]

    def account(self, account_id: str) -> AccountRow | None:
        return self.accounts.get(account_id)

    def reservation(self, session_id: str, seq: int) -> int | None:
        return self.reservations.get((session_id, seq))

    def item(self, item_id: str) -> ItemRow | None:
        return self.items.get(item_id)

    def hold(self, limits: Sequence[str]) -> None:
        """Transactions run one after another here."""

    def held(self) -> list[Held]:
        rows = [row for row in self.rows.values() if row.holder]
        return [Held(row.session_id, row.holder, tuple(covering(row.accounts, row.model))) for row in rows]

    def used_us(self, limit: str) -> int:
        return self.used.get(limit, 0)

    def session_ids(self) -> list[str]:
        return sorted(self.events)

    def stored(self, session_id: str) -> Iterator[StoredEvent]:
        return iter(tuple(self.lying.get(session_id, ())))

    def tail(self, after: int, count: int) -> Iterator[tuple[int, str, StoredEvent]]:
        for position, (session_id, place) in enumerate(self.order[after : after + count], after + 1):
            yield position, session_id, self.lying[session_id][place]

    def tail_end(self) -> int:
        return len(self.order)

    def blob(self, digest: bytes) -> StoredBlob:
        return _erased(digest)

    def beside(self) -> Beside:
        versions = dict.fromkeys(self.rows, SCHEMA)
        return Beside(
            dict(self.rows), dict(self.posts), dict(self.accounts), dict(self.reservations), versions, dict(self.items)
        )

    def write(self, done: Transaction) -> None:
        for sealed in done.sealed:
            event = sealed.event
            stored = (event.seq, event.epoch, event.at_us, event.type, event.hash, sealed.body, sealed.digest)
            self.events.setdefault(event.session_id, []).append(event)
            self.lying.setdefault(event.session_id, []).append(stored)
            self.order.append((event.session_id, len(self.lying[event.session_id]) - 1))
        self.rows.update(done.rows)
        self.keys.update((row.key, row.session_id) for row in done.rows.values() if row.key)
        self.posts.update(done.posts)
        self.items.update(done.items)
        self.used.update(done.used_us)
        self.accounts.update(done.ledger.accounts)
        for key, amount in done.ledger.reservations.items():
            if amount is None:
                self.reservations.pop(key, None)
            else:
                self.reservations[key] = amount


class _View(NamedTuple):
    """The current state. Nothing changes while a function reads it."""

    tables: Tables
    live: set[str]
    events: Callable[[str, int, bytes | None, int], list[Event]]

    def at(self, places: Sequence[tuple[str, int]]) -> list[Event]:
        return [chain.the_one(self.events(name, seq - 1, None, 1), name, seq) for name, seq in places]

    def sessions(
        self, which: Which, *, home: bool, before: SessionRow | None = None, limit: int | None = None
    ) -> list[SessionRow]:
        spent: Counter[str] = Counter()
        for row in self.tables.rows.values():
            spent[row.root] += row.cost_pico
        rows = [row for row in self.tables.rows.values() if home or row.session_id != HOME]
        rows = [row for row in rows if which.has(row, spent[row.root]) and (before is None or is_older(row, before))]
        return sorted(rows, key=lambda row: (row.created_us, row.session_id), reverse=True)[:limit]

    def items(self, *, open_only: bool, limit: int | None = None) -> list[ItemRow]:
        items = [item for item in self.tables.items.values() if item.status == "open" or not open_only]
        return sorted(items, key=lambda item: (item.opened_us, item.item_id))[:limit]

    def holders(self) -> dict[str, str]:
        return {row.session_id: row.holder for row in self.tables.rows.values() if row.holder in self.live}


class MemoryStore:
    """Implements Log, Snapshots, Leases, and Index (`holdfast.log.base`). Each verb first yields to other tasks."""

    def __init__(self, clock: Clock, entropy: Entropy = system_entropy) -> None:
        self._clock = clock
        self._entropy = entropy
        self._tables = Tables()
        self._snapshots: dict[str, Snapshot] = {}
        self._live: set[str] = set()
        self._moved: dict[str, anyio.Event] = {}
        self._token = 1
        self._anything = anyio.Event()
        self._rewritten: set[str] = set()
        self._view = _View(self._tables, self._live, self._events)

    def worker_lives(self, worker_id: str) -> None:
        """Mark a worker as live. Acquiring a lease does this too."""
        self._live.add(worker_id)

    def worker_died(self, worker_id: str) -> None:
        """End a worker's leases, as the kernel does when the process exits."""
        self._live.discard(worker_id)

    def rewrite(self, session_id: str, seq: int, body: bytes | None) -> None:
        """Replace the stored body of an event, or erase it with None; hash and digest stay."""
        stored, place = self._tables.lying[session_id], seq - 1 - self._row(session_id).origin_seq
        stored[place] = (*stored[place][:5], body, stored[place][6])
        self._rewritten.add(session_id)

    async def append(
        self,
        session_id: str,
        epoch: int,
        drafts: Sequence[Draft],
        *,
        head: int | None = None,
        posts: Sequence[Post] = (),
        holder: str = "",
    ) -> list[Event]:
        transaction = await self._begin()
        events = transaction.append(session_id, epoch, [ready(draft) for draft in drafts], head, posts, holder)
        self._commit(transaction)
        return events

    async def post(self, post: Post, *, create: bool = False) -> PostReceipt:
        transaction = await self._begin()
        receipt = transaction.post(post, create=create)
        self._commit(transaction)
        return receipt

    async def read(
        self, session_id: str, *, after: int = 0, prev: bytes | None = None, limit: int | None = None
    ) -> list[Event]:
        """Read events. Only sessions with rewritten bodies are hashed again."""
        await anyio.lowlevel.checkpoint()
        return self._events(session_id, after, prev, chain.ALL if limit is None else limit)

    def _events(self, session_id: str, after: int, prev: bytes | None, count: int) -> list[Event]:
        return chain.read(self._row(session_id), self._tables.row, self._own, after, prev, count)

    def _own(self, session_id: str, after: int, count: int, prev: bytes | None) -> list[Event]:
        row = self._row(session_id)
        first = max(0, after - row.origin_seq)
        if session_id in self._rewritten:
            stored = self._tables.lying[session_id][first : first + count]
            return events_of(session_id, stored, _erased, after=after, prev=prev)
        if prev is not None:
            at = genesis(session_id) if after == 0 else self._tables.hash_at(session_id, min(after, row.head))
            if at != prev or after > row.head:
                raise damaged(session_id, after + 1, "its hash does not follow from what is stored")
        return self._tables.own(session_id, after, count)

    async def at(self, places: Sequence[tuple[str, int]]) -> list[Event]:
        return [chain.the_one(await self.read(name, after=seq - 1, limit=1), name, seq) for name, seq in places]

    async def wait(self, session_id: str, after: int) -> int:
        await anyio.lowlevel.checkpoint()
        while (head := self._row(session_id).head) <= after:
            await self._moved.setdefault(session_id, anyio.Event()).wait()
        return head

    async def changed(self, after: int) -> int:
        await anyio.lowlevel.checkpoint()
        while self._token <= after:
            await self._anything.wait()
        return self._token

    async def save(self, snapshot: Snapshot) -> None:
        await anyio.lowlevel.checkpoint()
        self._snapshots[snapshot.session_id] = snapshot

    async def load(self, session_id: str, fold_digest: str) -> Snapshot | None:
        await anyio.lowlevel.checkpoint()
        kept = self._snapshots.get(session_id)
        if kept is None or kept.fold_digest != fold_digest or kept.seq < 1:
            return None
        link = self._tables.link_at(session_id, kept.seq)
        return kept if link is not None and link[0] == kept.hash else None

    async def acquire(self, session_id: str, draft: Draft, *, steal: bool = False, head: int | None = None) -> Lease:
        transaction = await self._begin()
        lease = transaction.acquire(
            session_id, draft, self._event_id(), steal=steal, live=self._live.__contains__, head=head
        )
        self._commit(transaction)
        self._live.add(lease.worker_id)
        return lease

    async def confirm(self, lease: Lease) -> None:
        """See `Leases.confirm`. Workers end without a pause here."""

    async def renew(self, lease: Lease) -> None:
        await anyio.lowlevel.checkpoint()
        row = self._row(lease.session_id)
        if row.epoch != lease.epoch or row.holder != lease.worker_id or row.holder not in self._live:
            raise fenced(row, lease.epoch)

    async def release(self, lease: Lease) -> None:
        transaction = await self._begin()
        transaction.release(lease, self._event_id())
        self._commit(transaction)

    async def holders(self) -> dict[str, str]:
        return await self.view(lambda view: view.holders())

    async def view(self, work: Callable[[View], T]) -> T:
        await anyio.lowlevel.checkpoint()
        return work(self._view)

    async def find(self, name: str) -> SessionRow:
        await anyio.lowlevel.checkpoint()
        tables = self._tables
        exact = tables.rows.get(name) or tables.rows.get(tables.keys.get(name, ""))
        if exact is not None:
            return exact
        if name == LAST and (newest := await self.sessions(Which(top=True), limit=1)):
            return newest[0]
        rows = [row for row in tables.rows.values() if row.session_id != HOME]
        like = [row.session_id for row in rows if row.key.startswith(name) or is_like(name, row.session_id)]
        return tables.rows[pick(name, sorted(like))]

    async def sessions(
        self, which: Which = EVERY, *, home: bool = False, before: SessionRow | None = None, limit: int | None = None
    ) -> list[SessionRow]:
        return await self.view(lambda view: view.sessions(which, home=home, before=before, limit=limit))

    async def count(self, which: Which = EVERY) -> int:
        return len(await self.sessions(which))

    async def counts(self) -> dict[RowStatus, int]:
        return {status: len(await self.sessions(Which(status=status))) for status in get_args(RowStatus)}

    async def due(self, now_us: int, up: Uptime | None = None) -> list[str]:
        await anyio.lowlevel.checkpoint()
        rows = [row for row in self._tables.rows.values() if is_due(row, now_us, up)]
        rows.sort(key=lambda row: (due_rank(row, now_us), row.session_id))
        turns = in_turns((shared_accounts(row), row) for row in rows if row.holder not in self._live)
        running = [each.covers for each in self._tables.held() if each.holder in self._live]
        home = self._tables.row(HOME)
        due = ((tuple(covering(row.accounts, row.model)), row.session_id) for row in turns)
        return admitted(decode(home.marks if home is not None else ""), due, running)

    async def accounts(self) -> list[AccountRow]:
        await anyio.lowlevel.checkpoint()
        return sorted(self._tables.accounts.values(), key=lambda account: account.account_id)

    async def next_due(self, now_us: int, up: Uptime | None = None) -> int | None:
        await anyio.lowlevel.checkpoint()
        times = [due_at(row, now_us, up) for row in self._tables.rows.values() if row.status == "parked"]
        return min((at for at in times if at is not None and at > now_us), default=None)

    async def account(self, account_id: str) -> AccountRow | None:
        await anyio.lowlevel.checkpoint()
        return self._tables.account(account_id)

    async def items(self, *, open_only: bool = True, limit: int | None = None) -> list[ItemRow]:
        return await self.view(lambda view: view.items(open_only=open_only, limit=limit))

    async def item(self, name: str) -> ItemRow:
        await anyio.lowlevel.checkpoint()
        items = self._tables.items
        return pick_item(name, [items[item_id] for item_id in sorted(items) if is_like(name, item_id)])

    async def stopped(self) -> Stop | None:
        await anyio.lowlevel.checkpoint()
        home = self._tables.row(HOME)
        return stop_in(home.detail) if home is not None else None

    async def look(self, work: Callable[[Look], T]) -> T:
        await anyio.lowlevel.checkpoint()
        return work(self._tables)

    async def beside(self) -> Beside:
        """Return the rows beside the events."""
        await anyio.lowlevel.checkpoint()
        return self._tables.beside()

    async def _begin(self) -> Transaction:
        await anyio.lowlevel.checkpoint()
        return Transaction(self._tables, self._clock.now_us())

    def _commit(self, transaction: Transaction) -> None:
        self._tables.write(transaction)
        for session_id in transaction.rows:
            moved = self._moved.pop(session_id, None)
            if moved is not None:
                moved.set()
        if transaction.rows:
            self._token += 1
            anything, self._anything = self._anything, anyio.Event()
            anything.set()

    def _event_id(self) -> str:
        return new_event_id(self._clock.now_us(), self._entropy)

    def _row(self, session_id: str) -> SessionRow:
        row = self._tables.rows.get(session_id)
        if row is None:
            raise unknown(session_id)
        return row


def _erased(_: bytes) -> StoredBlob:
    """Report an erased body: this store keeps bodies in rows, so a missing one was erased."""
    return StoredBlob(found=True)
