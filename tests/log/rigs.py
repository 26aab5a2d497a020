"""The stores under test, each with the machine around it."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from holdfast.clock import Clock, SystemClock
from holdfast.facts.codec import body_digest
from holdfast.log.memory import MemoryStore
from holdfast.log.postgres.connect import Connection, connect
from holdfast.log.postgres.migrate import migrate
from holdfast.log.postgres.store import PostgresStore
from holdfast.log.sqlite import SqliteStore
from holdfast.log.worker_locks import Worker
from holdfast.testing.log import JumpingClock, Rig
from tests.support.waiting import PATIENCE_S


class MemoryRig:
    def __init__(self) -> None:
        clock = JumpingClock()
        self.store = MemoryStore(clock)
        self.advance = clock.advance
        self._count = 0

    def worker(self) -> str:
        self._count += 1
        return f"wrk_{self._count}"

    def kill(self, worker_id: str) -> None:
        self.store.worker_died(worker_id)

    async def rewrite(self, session_id: str, seq: int, body: bytes | None) -> None:
        self.store.rewrite(session_id, seq, body)


class SqliteRig:
    def __init__(self, home: Path, store: SqliteStore, clock: JumpingClock | None = None) -> None:
        self.advance = (clock or JumpingClock()).advance
        self.home = home
        self.store = store
        self._workers: dict[str, Worker] = {}

    @property
    def path(self) -> Path:
        return self.home / "holdfast.db"

    def worker(self) -> str:
        worker_id = f"wrk_{len(self._workers)}"
        self._workers[worker_id] = Worker.start(self.home / "workers", worker_id)
        return worker_id

    def kill(self, worker_id: str) -> None:
        self._workers[worker_id].close()

    async def rewrite(self, session_id: str, seq: int, body: bytes | None) -> None:
        with self.sql() as sql:
            where = "where session_id = ? and seq = ?"
            if body is not None:
                sql.execute(f"update events set body = ?, digest = null {where}", (body, session_id, seq))
                return
            ((old,),) = sql.execute(f"select body from events {where}", (session_id, seq)).fetchall()
            digest = body_digest(old)
            sql.execute(f"update events set body = null, digest = ? {where}", (digest, session_id, seq))
            sql.execute("insert into blobs (digest, bytes) values (?, null)", (digest,))

    def sql(self) -> sql_of:
        """A connection behind the store's back; committed at the end of the block."""
        return sql_of(self.path)

    def end(self) -> None:
        for worker in self._workers.values():
            worker.close()


class sql_of:
    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path)

    def __enter__(self) -> sqlite3.Connection:
        return self._connection

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._connection.commit()
        self._connection.close()


@asynccontextmanager
async def memory_rig(home: Path) -> AsyncIterator[Rig]:
    yield MemoryRig()


@asynccontextmanager
async def sqlite_rig(home: Path) -> AsyncIterator[SqliteRig]:
    """A store on a file under `home`, closed at the end."""
    clock = JumpingClock()
    async with await open_store(home, clock=clock) as store:
        rig = SqliteRig(home, store, clock)
        try:
            yield rig
        finally:
            rig.end()


async def open_store(
    home: Path,
    busy_timeout_s: float = 30.0,
    clock: Clock | None = None,
    patience_s: float = 5.0,
    accept_loss: bool = False,
) -> SqliteStore:
    return await SqliteStore.open(
        home / "holdfast.db",
        workers=home / "workers",
        clock=clock or SystemClock(),
        busy_timeout_s=busy_timeout_s,
        patience_s=patience_s,
        accept_loss=accept_loss,
    )


class PostgresRig:
    """A log in tables of its own, on a server that other rigs use too."""

    def __init__(self, address: str, folder: str, home: Path, store: PostgresStore) -> None:
        self.address = address
        self.folder = folder
        self.home = home
        self.store = store
        self._workers: dict[str, Worker] = {}
        self._off_us = 0

    def worker(self) -> str:
        worker_id = f"wrk_{self.home.name}_{len(self._workers)}"  # unique among the places that share a log
        self._workers[worker_id] = Worker.start(self.home / "workers", worker_id)
        return worker_id

    def kill(self, worker_id: str) -> None:
        self._workers[worker_id].close()

    def advance(self, seconds: float) -> None:
        self._off_us += round(seconds * 1e6)
        now = f"(extract(epoch from clock_timestamp()) * 1000000)::bigint + {self._off_us}"
        with self.sql() as sql:
            sql.execute(f"create or replace function now_us() returns bigint language sql volatile as 'select {now}'")

    async def rewrite(self, session_id: str, seq: int, body: bytes | None) -> None:
        where = "where session_id = %s and seq = %s"
        with self.sql() as sql:
            if body is not None:
                sql.execute(f"update events set body = %s, digest = null {where}", (body, session_id, seq))
                return
            ((old,),) = sql.execute(f"select body from events {where}", (session_id, seq)).fetchall()
            digest = body_digest(old)
            sql.execute(f"update events set body = null, digest = %s {where}", (digest, session_id, seq))
            sql.execute("insert into blobs (digest, bytes) values (%s, null)", (digest,))

    def sql(self) -> Connection:
        """A connection behind the store's back; closed at the end of the block."""
        return connect(self.address, self.folder)

    def kill_all(self) -> None:
        for worker in self._workers.values():
            worker.close()

    def end(self) -> None:
        self.kill_all()
        with self.sql() as sql:
            sql.execute(f"drop schema {self.folder} cascade")


_folders = itertools.count()


@asynccontextmanager
async def postgres_rig(home: Path, address: str) -> AsyncIterator[PostgresRig]:
    """A store on tables of its own, dropped at the end."""
    folder = f"log_{next(_folders)}"
    migrate(address, folder)
    async with await open_postgres(address, folder, home) as store:
        rig = PostgresRig(address, folder, home, store)
        try:
            yield rig
        finally:
            await store.close()
            rig.end()


def port_of(address: str) -> int:
    return int(address.rsplit(":", 1)[1].split("/")[0])


async def open_postgres(address: str, folder: str, home: Path) -> PostgresStore:
    return await PostgresStore.open(
        address, workers=home / "workers", clock=SystemClock(), folder=folder, patience_s=PATIENCE_S
    )


@asynccontextmanager
async def another_store(rig: PostgresRig) -> AsyncIterator[PostgresStore]:
    """A second store on the tables of a rig: it shares nothing else with the first."""
    async with await open_postgres(rig.address, rig.folder, rig.home) as store:
        yield store


RIGS: dict[str, Callable[[Path], AbstractAsyncContextManager[Rig]]] = {"memory": memory_rig, "sqlite": sqlite_rig}
