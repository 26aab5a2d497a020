"""Reading: each verb reads one consistent state of the database."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from typing import Any, ClassVar, TypeVar, get_args

from msgspec.structs import asdict

from holdfast.facts.codec import Event
from holdfast.log import chain
from holdfast.log.base import EVERY, Snapshot, Which
from holdfast.log.chain import ALL, StoredBlob, StoredEvent, check_head, events_of, the_one
from holdfast.log.limiter import Held
from holdfast.log.names import LAST, pick, pick_item, tail_of, unknown
from holdfast.log.sql.statements import Database, Rows
from holdfast.log.sql.tables import SqlView, account_row, item_row, number, session_row
from holdfast.log.verify import Beside, Look
from holdfast.session.home import HOME, Stop, stop_in
from holdfast.session.limits import Limits, decode
from holdfast.session.money import AccountRow
from holdfast.session.rows import ItemRow, RowStatus, SessionRow, Uptime, in_turns
from holdfast.session.state import CLOCK_STEP_US

T = TypeVar("T")


def _of_boot(up: Uptime | None) -> dict[str, object]:
    return {"boot_id": up.boot_id, "up_us": up.us} if up is not None else {"boot_id": "", "up_us": 0}


FILTERS = {
    "root": "root = :root",
    "parent": "parent = :parent and parent <> ''",
    "top": "parent = ''",
    **{f"status:{status}": f"status = '{status}'" for status in get_args(RowStatus)},
    "reason": "reason = :reason and reason <> ''",
    "updated_us": "updated_us >= :updated_us",
    "before_us": "updated_us <= :before_us",
    "over_pico": "(select sum(tree.cost_pico) from sessions tree where tree.root = sessions.root) > :over_pico",
}
"""Map from a field of `Which` to its condition. A status is a literal, so that the database uses its index."""


class Reader(ABC):
    """A reader on one connection, for one verb."""

    __slots__ = ("_db", "_view")

    filters: ClassVar[Mapping[str, str]]
    """`FILTERS`, and the conditions of `ids`, `roots`, and `words`, whose values are JSON arrays."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._view = SqlView(db, {})

    @abstractmethod
    def _consistent(self) -> AbstractContextManager[None]:
        """Let all statements of the block see one state of the database."""

    def events(self, session_id: str, after: int, prev: bytes | None, limit: int | None) -> list[Event]:
        """Return the events after `after`. With `prev`, verify them and, if read to the end, compare the row."""
        count = ALL if limit is None else limit
        with self._consistent():
            row = self.row(session_id)
            events = chain.read(row, self._view.row, self._own, after, prev, count)
        if prev is not None and len(events) < count:
            at, hash_ = (events[-1].seq, events[-1].hash) if events else (after, prev)
            check_head(row, at, hash_)
        return events

    def _own(self, session_id: str, after: int, count: int, prev: bytes | None) -> list[Event]:
        # Close it explicitly: otherwise an error keeps the cursor and its read transaction open.
        with closing(self._rows("events", session_id=session_id, after=after, count=count)) as stored:
            return events_of(session_id, stored, self._view.blob, after=after, prev=prev)

    def at(self, places: Sequence[tuple[str, int]]) -> list[Event]:
        """Return the events at these positions; see `Log.at`."""
        with self._consistent():
            return [the_one(self.events(name, seq - 1, None, 1), name, seq) for name, seq in places]

    def row(self, session_id: str) -> SessionRow:
        """Return a session's row. Raises `UnknownSession`."""
        row = self._view.row(session_id)
        if row is None:
            raise unknown(session_id)
        return row

    def head(self, session_id: str) -> int:
        """Return a session's head. Raises `UnknownSession`."""
        found = self._rows("session_head", session_id=session_id).fetchone()
        if found is None:
            raise unknown(session_id)
        return number(found[0], session_id)

    def snapshot(self, session_id: str, fold_digest: str) -> Snapshot | None:
        """Return the saved snapshot, if it is valid."""
        found = self._rows("snapshot", session_id=session_id, fold_digest=fold_digest).fetchone()
        if found is None:
            return None
        seq, hash_, fold, digest, state = found
        whole = isinstance(state, bytes) and hashlib.sha256(state).digest() == digest
        return Snapshot(session_id, seq, hash_, fold, state) if whole else None

    def find(self, name: str) -> SessionRow:
        """Return the session with that name; see `Index.find`."""
        with self._consistent():
            exact = self._view.row(name)
            if exact is not None:
                return exact
            keyed = self._view.keyed(name)
            if keyed is None and name == LAST and (newest := self.sessions(Which(top=True), home=False, limit=1)):
                return newest[0]
            if keyed is None:
                like = self._rows("sessions_like", prefix=name, tail=tail_of(name), home=HOME)
                keyed = pick(name, [found for (found,) in like] if name else [])
            return self.row(keyed)

    def sessions(
        self, which: Which = EVERY, *, home: bool = True, before: SessionRow | None = None, limit: int | None = None
    ) -> list[SessionRow]:
        """Return a page of rows, newest first."""
        conditions, values = self._conditions(which, home, before)
        found = self._db.run("sessions", {**values, "count": ALL if limit is None else limit}, conditions)
        return [session_row(each) for each in found]

    def count(self, which: Which) -> int:
        """Return the number of sessions that pass the filter, without the home."""
        conditions, values = self._conditions(which, False, None)
        ((found,),) = self._db.run("sessions_count", values, conditions)
        return int(found)

    def counts(self) -> dict[RowStatus, int]:
        """Return the number of sessions of each status, without the home."""
        found: Counter[RowStatus] = Counter()
        for status, count in self._rows("counts", home=HOME):
            found[status] += count
        return dict(found)

    def due(self, now_us: int, up: Uptime | None) -> list[tuple[str, str, str, str]]:
        """Due sessions as in `held`, longest due first, payers in turns."""
        found = self._rows("due", now_us=now_us, future_us=now_us + CLOCK_STEP_US, **_of_boot(up)).fetchall()
        # `shared_accounts` of the stored text.
        return in_turns(
            (path.partition(f'"{root}"')[2], (name, holder, path, model))
            for name, holder, root, path, model, _ in found
        )

    def due_later(self, now_us: int, up: Uptime | None) -> int | None:
        """Return the earliest due time after now of a parked session."""
        ((due_us, due_boot_us),) = self._rows("due_later", now_us=now_us, **_of_boot(up)).fetchall()
        times = [] if due_us is None else [int(due_us)]
        if up is not None and due_boot_us is not None:
            times.append(now_us + int(due_boot_us) - up.us)
        return min(times, default=None)

    def account(self, account_id: str) -> AccountRow | None:
        """Return one account."""
        return self._view.account(account_id)

    def items(self, open_only: bool, limit: int | None = None) -> list[ItemRow]:
        """Items, oldest first."""
        found = self._rows("items_open" if open_only else "items", count=ALL if limit is None else limit)
        return [item_row(values) for values in found]

    def item(self, name: str) -> ItemRow:
        """Return the item with that id, or a unique beginning or end of it."""
        found = self._rows("items_like", prefix=name, tail=tail_of(name))
        return pick_item(name, [item_row(values) for values in found])

    def stopped(self) -> Stop | None:
        """Return the emergency stop in force."""
        home = self._view.row(HOME)
        return stop_in(home.detail) if home is not None else None

    def works(self) -> None:
        """Check that the database can be read. Raises its error."""
        self._rows("schema_version").fetchone()

    def held(self) -> list[Held]:
        """Return all held sessions, whether or not their holders live."""
        return self._view.held()

    def limits(self) -> Limits:
        """Return the limits in force."""
        home = self._view.row(HOME)
        return decode(home.marks) if home is not None else {}

    def accounts(self) -> list[AccountRow]:
        """Return all accounts."""
        return [account_row(values) for values in self._rows("accounts")]

    def session_ids(self) -> list[str]:
        """Return the ids of all sessions that have a row or an event."""
        return [name for (name,) in self._rows("session_ids")]

    def stored(self, session_id: str) -> Iterator[StoredEvent]:
        """Return one session's stored events."""
        return iter(self._rows("events", session_id=session_id, after=0, count=ALL))

    def tail(self, after: int, count: int) -> Iterator[tuple[int, str, StoredEvent]]:
        """Return the next events of all sessions after a position, without rows that are no events."""
        for position, session_id, seq, *rest in self._rows("tail", after=after, count=count):
            if isinstance(session_id, str) and isinstance(seq, int):
                yield position, session_id, (seq, *rest)

    def tail_end(self) -> int:
        """Return the position of the latest event."""
        return int(self._rows("tail_end").fetchone()[0])

    def blob(self, digest: bytes) -> StoredBlob:
        """Return the blob with that digest."""
        return self._view.blob(digest)

    def known(self, session_id: str) -> SessionRow | None:
        """Return a session's row, if it exists."""
        return self._view.row(session_id)

    def hash_at(self, session_id: str, seq: int) -> bytes | None:
        """Return the chain hash of a session's event, its own or shared with its origin."""
        row = self._view.row(session_id)
        if row is None:
            return None
        found = self._view.link_at(chain.holder(row, self._view.row, seq), seq)
        return found[0] if found else None

    def look(self, work: Callable[[Look], T]) -> T:
        """Run `work` on one consistent state of the database."""
        with self._consistent():
            return work(self)

    def beside(self) -> Beside:
        """Return all rows beside the events."""
        with self._consistent():
            return Beside(
                {row.session_id: row for row in self.sessions()},
                {(session_id, key): seq for session_id, key, seq in self._rows("posts")},
                {account.account_id: account for account in self.accounts()},
                {(session_id, seq): amount for session_id, seq, amount in self._rows("reservations")},
                dict(self._rows("vocabularies").fetchall()),
                {item.item_id: item for item in self.items(open_only=False)},
            )

    def _rows(self, name: str, **values: Any) -> Rows:
        return self._db.run(name, values)

    def _conditions(self, which: Which, home: bool, before: SessionRow | None) -> tuple[str, dict[str, object]]:
        """Return the SQL condition of a filter and a page, and its values. Empty fields add no condition."""
        values: dict[str, object] = {
            name: json.dumps(sorted(value)) if isinstance(value, (frozenset, tuple)) else value
            for name, value in asdict(which).items()
            if value
        }
        conditions = [self.filters[f"status:{value}" if name == "status" else name] for name, value in values.items()]
        if not home:
            conditions.append("session_id <> :home")
            values["home"] = HOME
        if before is not None:
            conditions.append("(created_us, session_id) < (:created_us, :session_id)")
            values |= {"created_us": before.created_us, "session_id": before.session_id}
        return " and ".join(conditions) or "true", values
