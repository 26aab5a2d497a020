"""The search index: an FTS5 table in a file beside the log, filled from the log's tail.

It is derived data. No append writes to it, and a file that is damaged or of another version is replaced by an empty
one, which the next fills complete. Each fill is one transaction that also moves the position, so a crash leaves the
index at an earlier position and nothing else.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError, LogUnavailable, StorageFull
from holdfast.facts.base import Fact
from holdfast.facts.codec import SCHEMA, decode_body
from holdfast.facts.shift import SessionsRemoved
from holdfast.facts.union import FACT_TYPES
from holdfast.locks import locked
from holdfast.log.chain import StoredEvent
from holdfast.log.search.words import END, START, WORDS, words_of
from holdfast.log.sql.statements import queries, schema
from holdfast.log.sqlite.connect import code_of
from holdfast.log.verify import Look
from holdfast.session.home import HOME

T = TypeVar("T")

VERSION = 1_000 + SCHEMA
"""Version of the file: its tables in thousands, and the schema of the events that its program can read."""

BATCH = 2_000
"""Maximum number of events in one fill."""

BATCH_S = 0.05
"""Time after which a fill commits, in seconds: it keeps a read transaction of the log open."""

EXCERPT_TOKENS = 24
"""Words in an excerpt."""

_BUSY_TIMEOUT_S = 10.0
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)
_MISSING = (*_DAMAGE, sqlite3.SQLITE_ERROR)
"""Also a missing table. For a search, that code can mean the expression."""
_SQL = queries("search.sql")
_READ = {name for name, kind in FACT_TYPES.items() if kind in WORDS}


class Lag(msgspec.Struct, frozen=True):
    """The distance of the index from the log: events that it lacks, and the time of the first of them (0: none)."""

    events: int
    since_us: int = 0


class Match(NamedTuple):
    """A matching event. `score` is its rank, lower is better; `document` finds its excerpt."""

    document: int
    session_id: str
    seq: int
    kind: str
    at_us: int
    score: float


class Excerpt(msgspec.Struct, frozen=True):
    """Text around matching words. `marks` are the positions of the words in it, as start and end."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()


def search_path(database: Path) -> Path:
    """Return the path of a database's search index."""
    real = Path(os.path.realpath(database))
    return real.with_name(f"{real.name}-search")


class SearchIndex:
    """The index of one log, at `path`. Any thread may call it; other processes may use the same file."""

    def __init__(self, path: Path) -> None:
        """Nothing is opened before the first use."""
        self.path = path
        self._lock = threading.Lock()
        self._open: sqlite3.Connection | None = None
        self._file: os.stat_result | None = None

    def close(self) -> None:
        """Close the file. Safe to repeat; the next use opens it again."""
        with self._lock:
            self._close()

    def fill(self, look: Look) -> bool:
        """Index the next events of the log. Returns True if there are more."""
        return self._run(lambda db: self._fill(db, look), _MISSING)

    def lag(self, look: Look) -> Lag:
        """Return the distance from the log."""
        position = self._run(lambda db: int(db.execute(_SQL["state"]).fetchone()[0]))
        for _, _, (_, _, at_us, *_) in look.tail(position, 1):
            return Lag(look.tail_end() - position, at_us)
        return Lag(0)

    def forget(self, session_ids: Collection[str]) -> None:
        """Remove sessions and all their words from the file. Does nothing if there is no index."""
        if not self.path.exists():
            return

        def work(db: sqlite3.Connection) -> None:
            with _transaction(db):
                known = {session_id for session_id, *_ in db.execute(_SQL["sessions"])}
                for session_id in known & set(session_ids):
                    _remove(db, session_id)
            _scrub(db)

        self._run(work)

    def clear(self) -> None:
        """Empty the index, so that it is built again from the log."""
        with self._lock:
            self._discard()

    def matches(self, expression: str, count: int) -> list[Match]:
        """Return the latest matching events, newest first. `expression` is one of `expression_of`.

        With `count` of them, the words are so frequent that a rank would say little and take long: all have the same.
        """
        values = {"expression": expression, "count": count}

        def look(db: sqlite3.Connection) -> list[Match]:
            found = db.execute(_SQL["latest"], values).fetchall()
            ranked = found if len(found) == count else db.execute(_SQL["matches"], values)
            return [Match(*row) for row in ranked]

        return self._run(look)

    def excerpts(self, expression: str, matches: Sequence[Match]) -> dict[int, Excerpt]:
        """Return the texts around the matching words of events, by document; without those that are gone."""
        ids = [match.document for match in matches]
        if not ids:
            return {}
        values = {
            "expression": expression,
            "first": min(ids),
            "last": max(ids),
            "ids": msgspec.json.encode(ids).decode(),
            "start": START,
            "end": END,
            "tokens": EXCERPT_TOKENS,
        }
        found = self._run(lambda db: db.execute(_SQL["excerpts"], values).fetchall())
        return {document: _parsed(text) for document, text in found}

    def _fill(self, db: sqlite3.Connection, look: Look) -> bool:
        clock = SystemClock()
        until_s = clock.monotonic_s() + BATCH_S
        heads: dict[str, tuple[int, int, bytes]] = {}
        with _transaction(db):
            position, session_id, seq, hash_, _ = db.execute(_SQL["state"]).fetchone()
            if position and not _is_there(look, position, session_id, seq, hash_):
                position = _reconcile(db, look)
            last: tuple[int, str, StoredEvent] | None = None
            for last in look.tail(position, BATCH):
                _index(db, look, last[1], last[2], heads)
                if clock.monotonic_s() > until_s:
                    break
            db.executemany(_SQL["move_session"], [(seq, hash_, number) for number, seq, hash_ in heads.values()])
            if last is not None:
                position, session_id, stored = last
                values = {"session_id": session_id, "seq": stored[0], "hash": stored[4]}
                db.execute(_SQL["set_position"], {"position": position, **values})
            more = last is not None and position < look.tail_end()
        _scrub(db)
        return more

    def _run(self, work: Callable[[sqlite3.Connection], T], damage: Collection[int] = _DAMAGE) -> T:
        """Run `work` on the open file. A damaged file is replaced by an empty one, and `work` then runs on that.

        Raises `StorageFull` and `LogUnavailable`; the log is never affected.
        """
        with self._lock:
            try:
                try:
                    return work(self._connection())
                except sqlite3.DatabaseError as error:
                    if code_of(error) not in damage:
                        raise
                    self._discard()
                    return work(self._connection())
            except (sqlite3.Error, OSError) as error:
                self._close()
                full = isinstance(error, sqlite3.Error) and code_of(error) == sqlite3.SQLITE_FULL
                raise (StorageFull if full else LogUnavailable)(
                    f"the search index {self.path} cannot be used ({error}); the log is not affected: make room for "
                    "it and check that the file belongs to this user, or delete it to have it built again"
                ) from error

    def _connection(self) -> sqlite3.Connection:
        """Return the connection; open the file if it is not open, or if another process replaced it."""
        if self._open is not None and not self._is_current():
            self._close()
        if self._open is None:
            with suppress(FileExistsError):
                os.mknod(self.path, stat.S_IFREG | 0o600)
            self._file = os.stat(self.path)
            self._open = sqlite3.connect(
                self.path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            self._prepare(self._open)
        return self._open

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Set up the connection, and the tables of a new file. Raises `DatabaseError` for a file of another version."""
        for setting in ("journal_mode = wal", "synchronous = normal", "secure_delete = on", "trusted_schema = off"):
            db.execute(f"pragma {setting}")
        if _version(db) == VERSION:
            return
        with _transaction(db):
            version = _version(db)  # another process may have made the tables
            if version == VERSION:
                return
            if version or db.execute("select 1 from sqlite_master").fetchone() is not None:
                error = sqlite3.DatabaseError(f"its version is {version}")
                error.sqlite_errorcode = sqlite3.SQLITE_FORMAT
                raise error
            for statement in schema("search_schema.sql"):
                db.execute(statement)
            db.execute(f"pragma user_version = {VERSION}")

    def _is_current(self) -> bool:
        try:
            return self._file is not None and os.path.samestat(self._file, os.stat(self.path))
        except FileNotFoundError:
            return False

    def _discard(self) -> None:
        """Delete the file, unless another process has done so since it was opened here."""
        with locked(self.path.with_name(f"{self.path.name}-lock")) as fd:
            if fd is not None and (self._file is None or self._is_current()):
                for end in ("-wal", "-shm", ""):
                    self.path.with_name(f"{self.path.name}{end}").unlink(missing_ok=True)
        self._close()

    def _close(self) -> None:
        connection, self._open, self._file = self._open, None, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def expression_of(phrases: Collection[tuple[str, bool]]) -> str:
    """Return the FTS5 expression for events with all of these phrases; a phrase with True is the start of a word.

    Each phrase is quoted, so nothing in it is syntax.
    """
    return " AND ".join(
        '"' + phrase.replace("\0", " ").replace('"', '""') + '"' + (" *" if start else "") for phrase, start in phrases
    )


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("begin immediate")
    try:
        yield
        db.execute("commit")
    except BaseException:
        if db.in_transaction:
            db.execute("rollback")
        raise


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("pragma user_version").fetchone()[0])


def _is_there(look: Look, position: int, session_id: str, seq: int, hash_: bytes) -> bool:
    """Return True if the log still has that event at that position."""
    for found, found_id, stored in look.tail(position - 1, 1):
        return (found, found_id, stored[0], stored[4]) == (position, session_id, seq, hash_)
    return False


def _reconcile(db: sqlite3.Connection, look: Look) -> int:
    """Remove sessions that the log does not have as they were indexed. Returns the position to continue from.

    That is the beginning: events that are indexed are skipped.
    """
    for session_id, seq, hash_ in db.execute(_SQL["sessions"]).fetchall():
        if look.hash_at(session_id, seq) != hash_:
            _remove(db, session_id)
    return 0


def _index(
    db: sqlite3.Connection, look: Look, session_id: str, stored: StoredEvent, heads: dict[str, tuple[int, int, bytes]]
) -> None:
    """Index one event. `heads` holds the number, and the last indexed event, of each session seen so far."""
    seq, _, at_us, type_, hash_, body, digest = stored
    if session_id == HOME:
        if type_ == "sessions.removed" and isinstance(removal := _fact(look, type_, body, digest), SessionsRemoved):
            for each in removal.sessions:
                heads.pop(each.session_id, None)
                _remove(db, each.session_id)
        return
    if session_id not in heads:
        known = db.execute(_SQL["session"], {"session_id": session_id}).fetchone()
        number = None if known else db.execute(_SQL["insert_session"], {"session_id": session_id}).lastrowid
        heads[session_id] = known or (number or 0, 0, b"")
    number, last, _ = heads[session_id]
    if seq <= last:
        return
    heads[session_id] = (number, seq, hash_)
    found = words_of(fact) if type_ in _READ and (fact := _fact(look, type_, body, digest)) is not None else None
    if found is not None:
        values = (number, seq, found.kind, at_us, found.text, found.files)
        document = db.execute(_SQL["insert_document"], values).lastrowid
        db.execute(_SQL["insert_words"], (document, found.text, found.files))


def _fact(look: Look, type_: str, body: bytes | None, digest: bytes | None) -> Fact | None:
    """Decode a stored body; None for one that is erased, damaged, or of a newer version."""
    try:
        whole = body if body is not None else look.blob(digest or b"").body
        return decode_body(whole, type_)[2] if whole is not None else None
    except (HoldfastError, TypeError, ValueError):
        return None


def _remove(db: sqlite3.Connection, session_id: str) -> None:
    known = db.execute(_SQL["session"], {"session_id": session_id}).fetchone()
    if known is not None:
        values = {"session": known[0]}
        for name in ("remove_words", "remove_documents", "remove_session"):
            db.execute(_SQL[name], values)
        db.execute(_SQL["set_scrub"], {"scrub": 1})


def _scrub(db: sqlite3.Connection) -> None:
    """Remove the last traces of removed sessions. While a reader is at work, this is left to the next fill."""
    if not db.execute(_SQL["state"]).fetchone()[4]:
        return
    db.execute(_SQL["optimize"])
    busy, *_ = db.execute("pragma wal_checkpoint(truncate)").fetchone()
    if not busy:
        db.execute(_SQL["set_scrub"], {"scrub": 0})


def _parsed(text: str) -> Excerpt:
    """Turn the marks in a snippet into positions."""
    plain, marks, start = "", [], 0
    for part in text.replace(END, f"{START}{END}").split(START):
        if part.startswith(END):
            marks.append((start, len(plain)))
            part = part[1:]
        start = len(plain)
        plain += part
    return Excerpt(plain, tuple(marks))
