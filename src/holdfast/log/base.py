"""The log's interfaces: four Protocols and the types that cross them.

One store implements them all, because an append, its posts, its wakes, and its money are one
transaction (S4). Rows beside the events (sessions, wakes, accounts, reservations) follow from the
events alone and can be rebuilt from them (S20) by `holdfast.session` (`rows`, `items`, `accounts`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeVar

import msgspec

from holdfast.facts.codec import Draft, Event
from holdfast.session.home import Stop
from holdfast.session.money import AccountRow
from holdfast.session.rows import ItemRow, RowStatus, SessionRow, Uptime

T = TypeVar("T")


class Post(msgspec.Struct, frozen=True):
    """An event from outside a session's shift. `key` is unique per session: a second post with it is dropped.

    A post makes the session due at once.
    """

    session_id: str
    key: str
    draft: Draft


class PostReceipt(msgspec.Struct, frozen=True):
    """The position of a post. With `duplicate`, its key was already used, and `seq` is the first post's."""

    session_id: str
    seq: int
    duplicate: bool


class Snapshot(msgspec.Struct, frozen=True):
    """A folded state, valid for exactly one position, chain hash, and fold digest (S19)."""

    session_id: str
    seq: int
    hash: bytes
    fold_digest: str
    state: bytes


class Lease(msgspec.Struct, frozen=True):
    """The right to act for a session under one epoch. `events` were appended when it was taken."""

    session_id: str
    epoch: int
    worker_id: str
    events: tuple[Event, ...]


class Log(Protocol):
    """The append-only event log."""

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
        """Stamp and store drafts, all or none (S1, S4). Returns them stamped.

        `holder` is the worker that has the epoch: a database that lost commits may give one twice. With `head`, the
        append is a decision: raises `HeadMoved` unless that is the session's head (S2). Raises `Fenced` when `epoch`
        is not the current one, or not the holder's, `BudgetRefused` when a reservation among
        the drafts does not fit, `EmergencyStop` when a post among `posts` would open a session and the home
        is stopped, `UsageError` when a post would open a session under the key of another one, and
        `StorageFull`. After any of these errors, nothing was written in any session.
        """
        ...

    async def post(self, post: Post, *, create: bool = False) -> PostReceipt:
        """Append an event from outside a shift: ordered, without an epoch, once per key (S3).

        `create` opens a new session with this event, a `session.created`. If the event's `key` is not empty, at most
        one session has it, and an existing one is returned as a duplicate. Raises
        `EmergencyStop` while the home is stopped.

        A post to `HOME` opens the home's log first if it does not exist. An answer to an item, or its
        expiry, uses the key from `item_key`, so the first one wins (S21).
        """
        ...

    async def read(
        self, session_id: str, *, after: int = 0, prev: bytes | None = None, limit: int | None = None
    ) -> list[Event]:
        """Return the events after `after`, in order.

        With `prev`, the chain hash at `after` (the genesis hash for 0), each is verified as stored.
        Raises `LogDamaged` with the first bad sequence number.
        """
        ...

    async def at(self, places: Sequence[tuple[str, int]]) -> list[Event]:
        """Return the events at these positions, each a session and a sequence number, in their order.

        Raises `UnknownSession`, and `UsageError` for a position beyond the head.
        """
        ...

    async def wait(self, session_id: str, after: int) -> int:
        """Return the head once it is beyond `after`; any process may move it."""
        ...

    async def changed(self, after: int) -> int:
        """Return a new token once any process has moved a head since the token `after`.

        Start with 0, which returns at once. Check your condition after each return, then wait again with the new
        token, so that no move is missed. It may return without a change. Tokens are valid for this object only.
        """
        ...


class Snapshots(Protocol):
    """A cache of folded states."""

    async def save(self, snapshot: Snapshot) -> None:
        """Save a snapshot in place of the session's earlier one."""
        ...

    async def load(self, session_id: str, fold_digest: str) -> Snapshot | None:
        """Return the saved snapshot if it has this fold digest and the hash of the stored event."""
        ...


class WorkerRow(NamedTuple):
    """A worker that lives, on whichever machine.

    `place` is its home's id, `vocabulary` the newest schema of events that it knows, `capacity` how many sessions it
    runs at a time, 0 for a command, `holds` how many it has, and `beat_us` the age of its latest beat.
    """

    worker_id: str
    place: str
    host: str
    program: str
    vocabulary: int
    capacity: int
    holds: int
    beat_us: int


class Leases(Protocol):
    """Leases of sessions. A lease lives as long as its holder's process, or beats of it, and is no stored flag (S5)."""

    async def acquire(self, session_id: str, draft: Draft, *, steal: bool = False, head: int | None = None) -> Lease:
        """Take a session's lease and append `draft`, a `shift.started`, under the next epoch, in one transaction.

        With `head`, this is a decision: raises `HeadMoved` unless that is the session's head (S2).
        Raises `LeaseHeld` while a live process holds the lease. With `steal`, it is taken anyway, and a
        `lease.stolen` precedes the shift. Raises `EmergencyStop` while the home is stopped.
        """
        ...

    async def confirm(self, lease: Lease) -> None:
        """Return once no other process can have taken the lease; call it before an effect begins.

        It waits while this process cannot know. Raises `Fenced` if the lease was taken.
        """
        ...

    async def renew(self, lease: Lease) -> None:
        """Check that the lease is still valid. Raises `Fenced` if it is not."""
        ...

    async def release(self, lease: Lease) -> None:
        """Release the lease. Safe to repeat, and safe after the lease was lost."""
        ...

    async def holders(self) -> dict[str, str]:
        """Session id → worker id, for every session that a live process holds."""
        ...


class Removals(Protocol):
    """Removal of sessions, and work beside a session that must not begin meanwhile."""

    async def remove(self, rows: Sequence[SessionRow], actor: str) -> None:
        """Remove these sessions with everything of theirs in the log, all or none, and record that in the home's log.

        Shared accounts keep what they spent. Raises `LeaseHeld` while a live process holds one of them, `HeadMoved` if
        one has more events than in its row, and `LogDamaged`; then nothing was removed.
        """
        ...

    async def while_quiet(self, row: SessionRow, work: Callable[[], object]) -> bool:
        """Run `work` while no process can take the session's lease; it must be short.

        Returns False, and does nothing, if a live process holds the session or it moved on from that row.
        """
        ...


class Which(msgspec.Struct, frozen=True, kw_only=True):
    """A filter over sessions. Empty fields do not filter.

    `root` is the top session of a tree, `parent` the session that opened the session; `top` selects sessions without a
    parent. `status` and `reason` are those of the row, which does not reflect live processes; only a parked session
    has a reason. `updated_us` is the earliest time of the latest event. `ids` and `roots`, if not empty, are the
    sessions, or the top sessions of trees, to choose from. `before_us` is the latest time of the latest event.
    `words`, in lower case and ASCII, are all in the goal, key, id, name, or model. `over_pico` is exceeded by what the
    whole tree of the session cost.
    """

    root: str = ""
    parent: str = ""
    top: bool = False
    status: RowStatus | Literal[""] = ""
    reason: str = ""
    updated_us: int = 0
    ids: frozenset[str] = frozenset()
    roots: frozenset[str] = frozenset()
    before_us: int = 0
    words: tuple[str, ...] = ()
    over_pico: int = 0

    def has(self, row: SessionRow, tree_pico: int) -> bool:
        """Return True if a row passes the filter. `tree_pico` is what all sessions of its tree cost."""
        return (
            self.root in ("", row.root)
            and self.parent in ("", row.parent)
            and not (self.top and row.parent)
            and self.status in ("", row.status)
            and self.reason in ("", row.reason)
            and row.updated_us >= self.updated_us
            and (not self.ids or row.session_id in self.ids)
            and (not self.roots or row.root in self.roots)
            and (not self.before_us or row.updated_us <= self.before_us)
            and all(word in words_of(row) for word in self.words)
            and (not self.over_pico or tree_pico > self.over_pico)
        )


def words_of(row: SessionRow) -> str:
    """The text of a row that words of a filter are looked up in, in lower case."""
    return "\n".join((row.goal, row.key, row.session_id, row.name, row.model)).lower()


EVERY = Which()
"""No filter."""


def is_older(row: SessionRow, other: SessionRow) -> bool:
    """Return True if a row sorts after another one in lists, which are newest first."""
    return (row.created_us, row.session_id) < (other.created_us, other.session_id)


class View(Protocol):
    """One state of a store, for reads that belong together; valid until the function that received it returns."""

    def at(self, places: Sequence[tuple[str, int]]) -> list[Event]:
        """See `Log.at`."""
        ...

    def sessions(
        self, which: Which, *, home: bool, before: SessionRow | None = None, limit: int | None = None
    ) -> list[SessionRow]:
        """See `Index.sessions`."""
        ...

    def items(self, *, open_only: bool, limit: int | None = None) -> list[ItemRow]:
        """See `Index.items`."""
        ...

    def holders(self) -> dict[str, str]:
        """See `Leases.holders`."""
        ...


class Index(Protocol):
    """The rows beside the events."""

    async def view(self, work: Callable[[View], T]) -> T:
        """Run `work` on one state of the store and return its result. It must be short, and may run again."""
        ...

    async def find(self, name: str) -> SessionRow:
        """Return the session with that id or key, a unique beginning of either, or a unique end of the id.

        `last` is the session that was opened last, children aside. An end has at least 6 characters. Raises
        `UnknownSession`.
        """
        ...

    async def sessions(
        self, which: Which = EVERY, *, home: bool = False, before: SessionRow | None = None, limit: int | None = None
    ) -> list[SessionRow]:
        """Return the sessions that pass the filter, newest first; with `home`, also the home's own log.

        A page starts after the row `before`, the last row of the previous page, and has at most `limit` rows.
        """
        ...

    async def count(self, which: Which = EVERY) -> int:
        """Return the number of sessions that pass the filter, without the home's own log."""
        ...

    async def counts(self) -> dict[RowStatus, int]:
        """Return the number of sessions of each status, without the home's own log."""
        ...

    async def due(self, now_us: int, up: Uptime | None = None) -> list[str]:
        """Return due sessions (`holdfast.session.rows.due_at`) that no live process holds.

        The longest due come first, but those that share an account take turns with others.
        """
        ...

    async def next_due(self, now_us: int, up: Uptime | None = None) -> int | None:
        """Return the earliest time after `now_us` at which a parked session is due; None if there is none."""
        ...

    async def accounts(self) -> list[AccountRow]:
        """Return all money accounts."""
        ...

    async def account(self, account_id: str) -> AccountRow | None:
        """Return a money account, or None if no session and no budget names it."""
        ...

    async def items(self, *, open_only: bool = True, limit: int | None = None) -> list[ItemRow]:
        """Return at most `limit` inbox items, oldest first; without `open_only`, also the answered ones."""
        ...

    async def item(self, name: str) -> ItemRow:
        """Return the item with that id or unique id prefix. Raises `UnknownItem`."""
        ...

    async def stopped(self) -> Stop | None:
        """Return the emergency stop in force, if any."""
        ...


PAGE = 500
"""Number of rows that `each_session` reads at a time."""


async def each_session(index: Index, which: Which = EVERY, *, home: bool = False) -> AsyncIterator[SessionRow]:
    """Iterate over the sessions that pass the filter, newest first, page by page."""
    before = None
    while rows := await index.sessions(which, home=home, before=before, limit=PAGE):
        for row in rows:
            yield row
        before = rows[-1]
