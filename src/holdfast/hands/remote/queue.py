"""The queue between brains and workers: one SQLite file, which any process of this host finds, also after a restart.

A work item is a session that needs hands; one is live per session. A worker gets it with a token of that session alone,
whose hash is kept here. Heartbeats keep a lease, each naming the one before; a worker that lost it is refused. Requests
to the hands wait here for their answer, and the first answer counts.
"""

from __future__ import annotations

import base64
import hashlib
import sqlite3
from pathlib import Path
from typing import Any, Literal, NamedTuple

from holdfast.clock import Clock, rfc3339
from holdfast.ids import Entropy

RECLAIM_MS = 5_000
"""Milliseconds after which an item that was handed out and not acknowledged is handed out again."""

TTL_S = (5, 30, 300)
"""Seconds that a lease lasts after a heartbeat: the minimum, the default, the maximum."""

State = Literal["queued", "starting", "active", "stopping", "stopped"]

_TABLES = """
create table if not exists keys (hash blob primary key, name text not null, created_us integer not null);
create table if not exists work (
    id text primary key, session_id text not null, state text not null, created_us integer not null,
    handed_us integer, acknowledged_us integer, started_us integer, heartbeat text, lease_us integer,
    stop_us integer, stopped_us integer, token blob, worker text not null default ''
);
create index if not exists work_by_session on work (session_id, state);
create table if not exists asks (
    seq integer primary key autoincrement, session_id text not null, body blob not null, answer blob
);
create index if not exists asks_by_session on asks (session_id, seq);
create table if not exists hands (hands_id text primary key, session_id text not null);
create table if not exists polls (worker text primary key, at_us integer not null);
"""


class Turned(Exception):
    """A refused worker. `status` is the HTTP status, `code` a machine-readable reason, `now` the state of the item."""

    def __init__(self, status: int, message: str, code: str = "", now: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.now = status, code, now


class Handed(NamedTuple):
    """An item as it is handed out; only then does it include its token."""

    item: dict[str, Any]
    token: str


class Queue:
    """The queue in that file. Every verb is one short transaction."""

    def __init__(self, path: Path, clock: Clock, entropy: Entropy) -> None:
        self._clock, self._entropy = clock, entropy
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._db = sqlite3.connect(path, isolation_level=None, timeout=10)
        path.chmod(0o600)
        self._db.row_factory = sqlite3.Row
        self._db.executescript("pragma journal_mode=wal; pragma synchronous=normal;" + _TABLES)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _one(self, query: str, *values: object) -> sqlite3.Row | None:
        row: sqlite3.Row | None = self._db.execute(query, values).fetchone()
        return row

    def _secret(self, prefix: str) -> str:
        return prefix + base64.urlsafe_b64encode(self._entropy(32)).decode().rstrip("=")

    # --- keys of workers ---

    def new_key(self, name: str) -> str:
        """Create a key for workers to poll with; shown once, kept as its hash. Voids an earlier one of that name."""
        key = self._secret("hfk_")
        self._db.execute("begin immediate")
        self._db.execute("delete from keys where name = ?", (name,))
        self._db.execute("insert into keys values (?, ?, ?)", (_hash(key), name, self._clock.now_us()))
        self._db.execute("commit")
        return key

    def revoke(self, name: str) -> bool:
        """Void a key; False if there is none with that name."""
        return self._db.execute("delete from keys where name = ?", (name,)).rowcount > 0

    def is_key(self, key: str) -> bool:
        """Return True if a worker may poll with that key."""
        return self._one("select 1 from keys where hash = ?", _hash(key)) is not None

    # --- the brain's side ---

    def ask(self, session_id: str, body: bytes) -> int:
        """Add a request to a session's hands, and a work item for it if none is live; returns its number."""
        self._db.execute("begin immediate")
        cursor = self._db.execute("insert into asks (session_id, body) values (?, ?)", (session_id, body))
        self._enqueue(session_id)
        self._db.execute("commit")
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def _enqueue(self, session_id: str) -> None:
        live = "select 1 from work where session_id = ? and state in ('queued', 'starting', 'active')"
        if self._one(live, session_id) is None:
            named = f"work_{self._entropy(12).hex()}"
            made = (named, session_id, self._clock.now_us())
            self._db.execute("insert into work (id, session_id, state, created_us) values (?, ?, 'queued', ?)", made)

    def answer(self, seq: int) -> bytes | None:
        """Return the answer to a request, None while there is none."""
        row = self._one("select answer from asks where seq = ?", seq)
        return None if row is None else row["answer"]

    def drop(self, seq: int) -> None:
        """Delete a request that is answered or cancelled: a worker that has not seen it never runs it."""
        self._db.execute("delete from asks where seq = ?", (seq,))

    def belongs(self, hands_id: str, session_id: str) -> None:
        """Record the session of those hands."""
        self._db.execute("insert or replace into hands values (?, ?)", (hands_id, session_id))

    def session_of(self, hands_id: str) -> str | None:
        """Return the session of those hands."""
        row = self._one("select session_id from hands where hands_id = ?", hands_id)
        return None if row is None else row["session_id"]

    def end_session(self, session_id: str) -> None:
        """Tell the worker of released hands to stop, which voids its token."""
        live = (
            "update work set state = 'stopping', stop_us = ? where session_id = ? and state in ('starting', 'active')"
        )
        self._db.execute(live, (self._clock.now_us(), session_id))
        self._db.execute("delete from work where session_id = ? and state = 'queued'", (session_id,))

    # --- the worker's side ---

    def poll(self, worker: str, reclaim_ms: int) -> Handed | None:
        """Hand out the oldest free item: new, never acknowledged, or with an expired lease."""
        now = self._clock.now_us()
        self._db.execute("begin immediate")
        try:
            self._db.execute("insert or replace into polls values (?, ?)", (worker, now))
            row = self._one(
                "select * from work where (state = 'queued' and (handed_us is null or handed_us < ?))"
                " or (state in ('starting', 'active') and lease_us < ?) order by created_us limit 1",
                *(now - reclaim_ms * 1000, now),
            )
            if row is None:
                return None
            token = self._secret("hft_")
            self._db.execute(
                "update work set state = 'queued', handed_us = ?, token = ?, heartbeat = null, lease_us = null,"
                " worker = ? where id = ?",
                (now, _hash(token), worker, row["id"]),
            )
            return Handed(self.item(row["id"]), token)
        finally:
            self._db.execute("commit")

    def acknowledge(self, work_id: str) -> dict[str, Any]:
        """Claim an item that was handed out. Safe to repeat."""
        now = self._clock.now_us()
        claim = (
            "update work set state = 'starting', acknowledged_us = ?, lease_us = ? where id = ? and state = 'queued'"
        )
        self._db.execute(claim, (now, now + TTL_S[1] * 1_000_000, work_id))
        return self.item(work_id)

    def heartbeat(self, work_id: str, token: str, expected: str, ttl_s: int | None) -> dict[str, Any]:
        """Extend the lease. Raises `Turned` with 412 if another worker sent a heartbeat since, or has the item now."""
        now = self._clock.now_us()
        ttl_s = min(max(ttl_s or TTL_S[1], TTL_S[0]), TTL_S[2])
        self._db.execute("begin immediate")
        try:
            row = self._held(work_id, token)
            if (row["heartbeat"] or "NO_HEARTBEAT") != expected:
                raise self._lost(row)
            beat = rfc3339(now)
            state = "active" if row["state"] == "starting" else row["state"]
            extended = state == "active"
            self._db.execute(
                "update work set state = ?, heartbeat = ?, started_us = coalesce(started_us, ?), lease_us = ?"
                " where id = ?",
                (state, beat, now, now + ttl_s * 1_000_000, work_id),
            )
        finally:
            self._db.execute("commit")
        return {
            "type": "work_heartbeat",
            "last_heartbeat": beat,
            "lease_extended": extended,
            "state": state,
            "ttl_seconds": ttl_s,
        }

    def stop(self, work_id: str, token: str) -> dict[str, Any]:
        """End a worker's item. Requests made meanwhile create a new item. 409 if it is stopped already."""
        self._db.execute("begin immediate")
        try:
            row = self._held(work_id, token)
            if row["state"] == "stopped":
                raise Turned(409, "it is stopped already")
            now = self._clock.now_us()
            self._db.execute("update work set state = 'stopped', stopped_us = ? where id = ?", (now, work_id))
            if self._one("select 1 from asks where session_id = ? and answer is null", row["session_id"]):
                self._enqueue(row["session_id"])
        finally:
            self._db.execute("commit")
        return self.item(work_id)

    def asked(self, session_id: str, token: str, after: int) -> list[tuple[int, bytes]]:
        """Return unanswered requests to that session's hands, after a number. Raises `Turned`."""
        if self._holder(session_id, token)["state"] == "stopping":
            return []  # the next item of that session has them
        found = self._db.execute(
            "select seq, body from asks where session_id = ? and seq > ? and answer is null order by seq limit 64",
            (session_id, after),
        )
        return [(row["seq"], row["body"]) for row in found]

    def answered(self, session_id: str, token: str, seq: int, body: bytes) -> None:
        """Store the first answer. Refuses a later one, or one from a worker that lost the lease, with 400."""
        self._db.execute("begin immediate")
        try:
            self._holder(session_id, token)
            row = self._one("select answer from asks where seq = ? and session_id = ?", seq, session_id)
            if row is None or row["answer"] is not None:
                raise Turned(400, f"ask {seq} is answered already, or was dropped")
            self._db.execute("update asks set answer = ? where seq = ?", (body, seq))
        finally:
            self._db.execute("commit")

    def _holder(self, session_id: str, token: str) -> sqlite3.Row:
        row = self._one("select * from work where token = ?", _hash(token))
        if row is None or row["session_id"] != session_id or row["state"] == "stopped":
            raise Turned(400, "this token does not hold the session; another worker may have it")
        return row

    def _held(self, work_id: str, token: str) -> sqlite3.Row:
        row = self._one("select * from work where id = ?", work_id)
        if row is None:
            raise Turned(404, f"there is no work {work_id}")
        if row["token"] is None or row["token"] != _hash(token):
            raise self._lost(row)
        return row

    def _lost(self, row: sqlite3.Row) -> Turned:
        return Turned(412, "the lease is another one's", "heartbeat_precondition_failed", self.item(row["id"]))

    # --- queries ---

    def item(self, work_id: str) -> dict[str, Any]:
        """Return an item in the form of the protocol, without its token."""
        row = self._one("select * from work where id = ?", work_id)
        if row is None:
            raise Turned(404, f"there is no work {work_id}")
        out: dict[str, Any] = {
            "id": row["id"],
            "type": "work",
            "environment_id": "",
            "data": {"type": "session", "id": row["session_id"]},
            "state": row["state"],
            "metadata": {},
            "latest_heartbeat_at": row["heartbeat"],
        }
        for name, column in (
            ("created_at", "created_us"),
            ("acknowledged_at", "acknowledged_us"),
            ("started_at", "started_us"),
            ("stop_requested_at", "stop_us"),
            ("stopped_at", "stopped_us"),
        ):
            out[name] = None if row[column] is None else rfc3339(row[column])
        return out

    def stats(self) -> dict[str, Any]:
        """Count waiting items, items in progress, and polling workers."""
        now = self._clock.now_us()
        queued = self._one("select count(*) as n, min(created_us) as oldest from work where state = 'queued'")
        pending = self._one("select count(*) as n from work where state in ('starting', 'active', 'stopping')")
        polling = self._one("select count(*) as n from polls where at_us > ?", now - 30_000_000)
        assert queued is not None
        assert pending is not None
        assert polling is not None
        oldest = None if queued["oldest"] is None else rfc3339(queued["oldest"])
        return {
            "type": "work_queue_stats",
            "depth": queued["n"],
            "pending": pending["n"],
            "oldest_queued_at": oldest,
            "workers_polling": polling["n"],
        }


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
