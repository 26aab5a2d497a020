"""The stores under test, each with the machine around it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from holdfast.clock import Clock, SystemClock
from holdfast.facts.codec import body_digest
from holdfast.log.memory import MemoryStore
from holdfast.log.sqlite import SqliteStore
from holdfast.log.worker_locks import Worker
from holdfast.testing.log import JumpingClock, Rig


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


RIGS: dict[str, Callable[[Path], AbstractAsyncContextManager[Rig]]] = {"memory": memory_rig, "sqlite": sqlite_rig}
