"""The doors to the log: five Protocols of few verbs, and the shapes that cross them.

One store implements them all, because an append, its posts, its wakes and its money are one
transaction (S4). Rows beside the events (sessions, wakes, accounts, reservations) follow from the
events alone and can be rebuilt from them (S20); `holdfast.session` says how (`rows`, `items`, `accounts`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Literal, Protocol

import msgspec

from holdfast.facts.codec import Draft, Event
from holdfast.session.accounts import AccountRow
from holdfast.session.home import Stop
from holdfast.session.items import ItemRow
from holdfast.session.rows import RowStatus, SessionRow, Uptime


class Post(msgspec.Struct, frozen=True):
    """Something from outside for a session. `key` is unique per session: a second one is dropped.

    It makes the session due at once.
    """

    session_id: str
    key: str
    draft: Draft


class PostReceipt(msgspec.Struct, frozen=True):
    """Where a post stands. `duplicate` when its key was there before; `seq` is then the first one's."""

    session_id: str
    seq: int
    duplicate: bool


class Snapshot(msgspec.Struct, frozen=True):
    """A folded state, valid for exactly that position, chain hash and fold program (S19)."""

    session_id: str
    seq: int
    hash: bytes
    fold_digest: str
    state: bytes


class Lease(msgspec.Struct, frozen=True):
    """The right to act for a session under one epoch. `events` are those of its own transaction."""

    session_id: str
    epoch: int
    worker_id: str
    events: tuple[Event, ...]


class Log(Protocol):
    """The append-only truth."""

    async def append(
        self,
        session_id: str,
        epoch: int,
        drafts: Sequence[Draft],
        *,
        head: int | None = None,
        posts: Sequence[Post] = (),
    ) -> list[Event]:
        """Stamp and store drafts, all or none (S1, S4). Returns them stamped.

        `head` makes it a decision: refused with `HeadMoved` unless it is the session's head (S2).
        Raises `Fenced` when `epoch` is not the current one, `BudgetRefused` when a reservation among
        the drafts does not fit, `EmergencyStop` when a post among `posts` would open a session and the home
        is stopped, `UsageError` when a post would open a session under a key that another one has,
        `StorageFull`. After any of them nothing was written, in no session.
        """
        ...

    async def post(self, post: Post, *, create: bool = False) -> PostReceipt:
        """Append what comes from outside: ordered, under no epoch, once per key (S3).

        `create` opens a new session with this, a `session.created`; its `key`, when not empty, names
        the session one to one, and an existing one is returned as a duplicate. Refused with
        `EmergencyStop` while the home is stopped.

        A post to `HOME` opens the home's log first when there is none. An answer to an item, or its
        expiry, takes the key `item_key` gives: the first one wins (S21).
        """
        ...

    async def read(
        self, session_id: str, *, after: int = 0, prev: bytes | None = None, limit: int | None = None
    ) -> list[Event]:
        """Events after `after`, in order.

        With `prev`, the chain hash at `after` (the genesis hash for 0), each is verified as stored;
        raises `LogDamaged` with the first bad sequence number.
        """
        ...

    async def wait(self, session_id: str, after: int) -> int:
        """Return the head once it is beyond `after`, whoever moved it, in whichever process."""
        ...

    async def changed(self, after: int) -> int:
        """Return a token once anything in the whole log moved since the token `after`, whoever moved it.

        0 begins: it returns at once. Look at what you wait for after each return, then wait with its
        token: nothing is missed between. It may return without a change. A token is of this object alone.
        """
        ...


class Snapshots(Protocol):
    """The cache of folded states."""

    async def save(self, snapshot: Snapshot) -> None:
        """Keep this one; it replaces the session's earlier one."""
        ...

    async def load(self, session_id: str, fold_digest: str) -> Snapshot | None:
        """The kept one, if that fold program made it and its hash is that of the stored event."""
        ...


class Leases(Protocol):
    """Who may act. Never stored as a flag: a lease lives while its holder does (S5)."""

    async def acquire(self, session_id: str, draft: Draft, *, steal: bool = False, head: int | None = None) -> Lease:
        """Take the session and append `draft`, a `shift.started`, under the next epoch, in one transaction.

        With `head` it is a decision: refused with `HeadMoved` unless that is the session's head (S2).
        Raises `LeaseHeld` while a live process holds it; with `steal` it is taken all the same, and a
        `lease.stolen` stands before the shift. Raises `EmergencyStop` while the home is stopped.
        """
        ...

    async def renew(self, lease: Lease) -> None:
        """Prove that the lease is still ours. Raises `Fenced` when it is not."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give it back. Safe to repeat, and after it was lost."""
        ...

    async def holders(self) -> dict[str, str]:
        """Session id → worker id, for every session that a live process holds."""
        ...


class Which(msgspec.Struct, frozen=True, kw_only=True):
    """A filter over sessions. A field that is empty does not filter.

    `root` is the session at the top of a tree, `parent` the one that opened the session, `top` asks for sessions that
    no session opened. `status` and `reason`
    are those of the row, which says nothing of live processes; only a parked session has a reason. `updated_us` is
    the earliest time of the latest event.
    """

    root: str = ""
    parent: str = ""
    top: bool = False
    status: RowStatus | Literal[""] = ""
    reason: str = ""
    updated_us: int = 0

    def has(self, row: SessionRow) -> bool:
        """Return whether a row passes the filter."""
        return (
            self.root in ("", row.root)
            and self.parent in ("", row.parent)
            and not (self.top and row.parent)
            and self.status in ("", row.status)
            and self.reason in ("", row.reason)
            and row.updated_us >= self.updated_us
        )


EVERY = Which()
"""No filter."""


def is_older(row: SessionRow, other: SessionRow) -> bool:
    """Return whether a row comes after another in lists, which have the newest session first."""
    return (row.created_us, row.session_id) < (other.created_us, other.session_id)


class Index(Protocol):
    """The rows beside the events."""

    async def find(self, name: str) -> SessionRow:
        """The session with that id, key or unique prefix of either. Raises `UnknownSession`."""
        ...

    async def sessions(
        self, which: Which = EVERY, *, home: bool = False, before: SessionRow | None = None, limit: int | None = None
    ) -> list[SessionRow]:
        """Those that pass the filter, newest first; with `home` the home's own log too.

        A page begins behind the row `before`, the last one of the page before it, and has at most `limit` rows.
        """
        ...

    async def count(self, which: Which = EVERY) -> int:
        """The number of sessions that pass the filter, without the home's own log."""
        ...

    async def due(self, now_us: int, up: Uptime | None = None) -> list[str]:
        """Sessions that are due by `holdfast.session.rows.due_at` and that no live process holds, longest due first."""
        ...

    async def next_due(self, now_us: int, up: Uptime | None = None) -> int | None:
        """The earliest time after `now_us` at which a parked session is due; None when none waits for a time."""
        ...

    async def accounts(self) -> list[AccountRow]:
        """All money accounts."""
        ...

    async def account(self, account_id: str) -> AccountRow | None:
        """One money account, None when no session and no budget has named it."""
        ...

    async def items(self, *, open_only: bool = True, limit: int | None = None) -> list[ItemRow]:
        """What people are asked, oldest first, at most `limit`; without `open_only` also what was answered."""
        ...

    async def item(self, name: str) -> ItemRow:
        """The item with that id, or whose id alone begins so. Raises `UnknownItem`."""
        ...

    async def stopped(self) -> Stop | None:
        """The emergency stop in force, None when there is none."""
        ...


PAGE = 500
"""Rows that `each_session` reads at a time."""


async def each_session(index: Index, which: Which = EVERY, *, home: bool = False) -> AsyncIterator[SessionRow]:
    """Every session that passes the filter, newest first, read page by page."""
    before = None
    while rows := await index.sessions(which, home=home, before=before, limit=PAGE):
        for row in rows:
            yield row
        before = rows[-1]
