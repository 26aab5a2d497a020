"""Threads of a store: those that own connections, and one that watches for changes by other processes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Generic, Protocol, TypeVar, cast

import anyio
import anyio.lowlevel

from holdfast.errors import LogUnavailable

T = TypeVar("T")


class Closable(Protocol):
    """A connection, or another object that can be closed."""

    def close(self) -> object:
        """Close it."""
        ...


C = TypeVar("C", bound=Closable)

Soon = Callable[[Callable[[], object]], object]
"""A function that runs a callback in an event loop, from any thread."""


def soon_here() -> Soon:
    """Return the function that runs a callback in the current event loop, asyncio's or trio's."""
    native: Any = anyio.lowlevel.current_token().native_token
    return cast(Soon, getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon)


def hand_over(soon: Soon, callback: Callable[[], object]) -> None:
    """Run a callback in that loop, unless the loop has ended."""
    with suppress(RuntimeError):
        soon(callback)


class _Call(Generic[T]):
    __slots__ = ("done", "error", "job", "result", "soon")

    def __init__(self, job: Callable[[], T], soon: Soon, done: anyio.Event) -> None:
        self.job = job
        self.soon = soon
        self.done = done
        self.result: T | None = None
        self.error: BaseException | None = None


class ConnectionThread(Generic[C]):
    """Threads that own a connection each, opened by `connect` before the first job that needs it and after `drop`.

    By default it is one thread, and jobs run in order. With `most`, another one starts when a job finds all busy.
    """

    def __init__(self, name: str, connect: Callable[[], C], most: int = 1) -> None:
        self._name = name
        self._connect = connect
        self._most = most
        self._mine = threading.local()
        self._calls: queue.SimpleQueue[_Call[Any] | None] = queue.SimpleQueue()
        self._closed = False
        self._lock = threading.Lock()
        self._open = 0
        self._threads: list[threading.Thread] = []

    async def run(self, job: Callable[[], T]) -> T:
        """Run `job` in a thread and return what it returns.

        A job that was started is awaited even if the caller is cancelled, so its outcome is known.
        """
        self.check_open()
        await anyio.lowlevel.checkpoint_if_cancelled()
        return await self.run_now(job)

    def check_open(self) -> None:
        """Raise `LogUnavailable` if the threads were closed."""
        if self._closed:
            raise LogUnavailable("the log was closed; open it again")

    async def run_now(self, job: Callable[[], T]) -> T:
        """Run `job` without checking if the threads are open or the caller is cancelled."""
        done = anyio.Event()
        call = _Call(job, soon_here(), done)
        with self._lock:
            self._open += 1
            if self._open > len(self._threads) < self._most:
                name = f"{self._name}-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
                self._threads[-1].start()
        self._calls.put(call)
        with anyio.CancelScope(shield=True):
            await done.wait()
        if call.error is not None:
            raise call.error
        return cast(T, call.result)

    def connection(self) -> C:
        """The connection of this thread; for use inside a job only."""
        found: C | None = getattr(self._mine, "connection", None)
        if found is None:
            found = self._mine.connection = self._connect()
        return found

    async def close(self) -> None:
        """Close the connections and end the threads, after the jobs that wait. Safe to repeat."""
        if self._closed:
            return
        self._closed = True
        for _ in self._threads:
            self._calls.put(None)
        with anyio.CancelScope(shield=True):
            for thread in self._threads:
                await anyio.to_thread.run_sync(thread.join)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call.result = call.job()
            except BaseException as error:
                call.error = error
            with self._lock:
                self._open -= 1
            hand_over(call.soon, call.done.set)
            del call
        self.drop()

    def drop(self) -> None:
        """Close the connection of this thread; for use inside a job only. The next use opens another one."""
        found: C | None = getattr(self._mine, "connection", None)
        self._mine.connection = None
        if found is not None:
            with suppress(Exception):
                found.close()


ANYTHING = ""
"""The session id for moves anywhere in the log; its head is the watch's `token`."""


class Waiter:
    """A task that waits in an event loop until a session's head is beyond `after`."""

    __slots__ = ("_soon", "after", "event", "session_id")

    def __init__(self, session_id: str, after: int, soon: Soon) -> None:
        self.session_id = session_id
        self.after = after
        self.event = anyio.Event()
        self._soon = soon

    def wake(self) -> None:
        """Wake the task, from any thread."""
        hand_over(self._soon, self.event.set)


class Probe(Closable, Protocol):
    """A connection that can tell if anything moved in the log."""

    def moved(self) -> bool:
        """Return True if any process may have moved a head since the last call, and for the first one."""
        ...

    def head(self, session_id: str) -> int | None:
        """Return a session's head."""
        ...

    def wait(self, stop: threading.Event, seconds: float) -> list[str]:
        """Block for that time; less if `stop` is set, or if other processes ring: then return what they say."""
        ...


class Watch:
    """The waiters of one store. `connect` opens a probe for the thread; it may raise `HoldfastError`. `heard` receives,
    in the thread, what other processes ring.

    Appends of this process are signaled at once. For other processes a thread asks the probe every `poll_s` seconds
    while a task waits. `token` counts noticed moves from 1. A move while no task waits is noticed at the next wait; the
    first poll, which has nothing to compare with, counts as a move.
    """

    def __init__(
        self, connect: Callable[[], Probe], poll_s: float, heard: Callable[[list[str]], object] = bool
    ) -> None:
        self._connect = connect
        self._poll_s = poll_s
        self._heard = heard
        self.token = 1
        self._waiters: set[Waiter] = set()
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def waiting(self, session_id: str, after: int) -> Iterator[Waiter]:
        """Register a waiter. Read the head after this, so that no move is missed. Raises `LogUnavailable` if closed."""
        if self._stop.is_set():
            raise LogUnavailable("the log was closed while a task waited on it; open it again")
        waiter = Waiter(session_id, after, soon_here())
        with self._lock:
            self._waiters.add(waiter)
            self._wanted.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="holdfast-log-watch", daemon=True)
                self._thread.start()
        try:
            yield waiter
        finally:
            with self._lock:
                self._waiters.discard(waiter)
                if not self._waiters:
                    self._wanted.clear()

    def moved(self, session_id: str, head: int) -> None:
        """Wake the waiters of a session whose head this process moved; from any thread."""
        if not self._waiters:
            return
        with self._lock:
            woken = [waiter for waiter in self._waiters if waiter.session_id == session_id and waiter.after < head]
        for waiter in woken:
            waiter.wake()

    def close(self) -> None:
        """End the thread and wake all waiters. Blocks for at most one poll."""
        self._stop.set()
        self._wanted.set()
        self._wake_all()
        if self._thread is not None:
            self._thread.join()

    def _wake_all(self) -> None:
        with self._lock:
            woken = list(self._waiters)
        for waiter in woken:
            waiter.wake()

    def _work(self) -> None:
        probe: Probe | None = None
        rung: list[str] = []
        while not self._stop.is_set():
            self._wanted.wait()
            try:
                probe = probe or self._connect()
                if probe.moved() or rung:
                    self._notice(probe)
                if rung := probe.wait(self._stop, self._poll_s):
                    self._heard(rung)
            except Exception:
                # A woken waiter reads the head and gets the same error, translated.
                self._wake_all()
                _close(probe)
                probe = None
                self._stop.wait(self._poll_s)
        _close(probe)

    def _notice(self, probe: Probe) -> None:
        self.token += 1
        self.moved(ANYTHING, self.token)
        with self._lock:
            sessions = {waiter.session_id for waiter in self._waiters}
        for session_id in sessions - {ANYTHING}:
            head = probe.head(session_id)
            if head is not None:
                self.moved(session_id, head)


def _close(probe: Probe | None) -> None:
    if probe is not None:
        probe.close()
