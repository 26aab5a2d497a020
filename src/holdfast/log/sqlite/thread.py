"""One thread for one connection: everything SQLite does for it happens there, in order.

The event loop never waits for a disk, and a connection never sees two threads.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import anyio
import anyio.lowlevel

from holdfast.errors import LogUnavailable

T = TypeVar("T")

Soon = Callable[[Callable[[], object]], object]
"""Runs a function in an event loop, from any thread."""


def soon_here() -> Soon:
    """How another thread reaches the event loop that runs now, be it asyncio's or trio's."""
    native: Any = anyio.lowlevel.current_token().native_token
    return cast(Soon, getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon)


def signal(soon: Soon, event: anyio.Event) -> None:
    """Set an event of that loop; a loop that has ended no longer waits for it."""
    try:
        soon(event.set)
    except RuntimeError:
        return


class _Call(Generic[T]):
    __slots__ = ("done", "error", "job", "result", "soon")

    def __init__(self, job: Callable[[], T], soon: Soon, done: anyio.Event) -> None:
        self.job = job
        self.soon = soon
        self.done = done
        self.result: T | None = None
        self.error: BaseException | None = None


class ConnectionThread:
    """A thread that owns a connection. `connect` runs in it, before the first job that needs one and after `drop`."""

    def __init__(self, name: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._calls: queue.SimpleQueue[_Call[Any] | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def run(self, job: Callable[[], T]) -> T:
        """Run `job` in the thread and return what it returns.

        Once handed over it is waited for, even when the caller is cancelled: what it writes is known.
        """
        self.check_open()
        await anyio.lowlevel.checkpoint_if_cancelled()
        return await self.run_now(job)

    def check_open(self) -> None:
        """Raise `LogUnavailable` when the thread was closed."""
        if self._closed:
            raise LogUnavailable("the log was closed; open it again")

    async def run_now(self, job: Callable[[], T]) -> T:
        """`run` for a caller that has just looked at both itself."""
        done = anyio.Event()
        call = _Call(job, soon_here(), done)
        self._calls.put(call)
        with anyio.CancelScope(shield=True):
            await done.wait()
        if call.error is not None:
            raise call.error
        return cast(T, call.result)

    def connection(self) -> sqlite3.Connection:
        """The connection; inside a job only."""
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    async def close(self) -> None:
        """Close the connection and end the thread. Safe to repeat."""
        if self._closed:
            return
        self._closed = True
        done = anyio.Event()
        self._calls.put(_Call(lambda: None, soon_here(), done))
        self._calls.put(None)
        with anyio.CancelScope(shield=True):
            await done.wait()
            await anyio.to_thread.run_sync(self._thread.join)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call.result = call.job()
            except BaseException as error:
                call.error = error
            signal(call.soon, call.done)
            del call
        self.drop()

    def drop(self) -> None:
        """Close the connection; inside a job only. The next use opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                return
