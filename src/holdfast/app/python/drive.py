"""Run a session to its next stop and stream its events, for the Python API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar, cast

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream

from holdfast.app.compose import Runtime
from holdfast.app.home import serve
from holdfast.app.news import look_after
from holdfast.app.python.agent import check_functions
from holdfast.app.python.signatures import ToolContext
from holdfast.app.python.tools import Runner
from holdfast.app.python.types import Delta, Result, result_of
from holdfast.app.running.drive import share_of
from holdfast.app.settings.config import database_path
from holdfast.brain.doors import Attempt, NoObserver, Observer, ToolRunner
from holdfast.brain.recall import recall
from holdfast.brain.shift import alongside
from holdfast.brain.wake import wake
from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError, NeedsProgram, UsageError
from holdfast.facts.codec import Event
from holdfast.fleet.dispatch import InlineDispatcher
from holdfast.fleet.serve import Service
from holdfast.model.base import StreamPart, TextDelta, ThinkingDelta, ToolCallStart
from holdfast.session.tools.output import functions

BACKLOG = 10_000
"""Pieces queued for a slow reader. Further deltas are dropped; events are read from the log and never dropped."""

SIDE_BY_SIDE = 16
"""Sessions of one tree that run at the same time."""

PAGE = 1_000

T = TypeVar("T", bound=Event | Delta)


async def to_rest(
    runtime: Runtime, session_id: str, tools: Mapping[str, Runner], observer: Observer, *, steal: bool = False
) -> None:
    """Run a session and its descendants until none is due. Waits for those that another process runs."""
    dispatcher = InlineDispatcher(
        runtime.store,
        SystemClock(),
        boot_id=runtime.worker.boot_id,
        only=session_id,
        limit=SIDE_BY_SIDE,
        on_error=lambda session_id, error, again_s: None,  # the child's log records it
    )
    taken = not steal

    async def handle(due_id: str) -> None:
        nonlocal taken
        root = due_id == session_id
        state, _ = await recall(due_id, runtime.store, runtime.store, runtime.kinds)
        assert state.created is not None
        doors = runtime.doors(state.created.workspace, observer=observer if root else NoObserver())
        now, taken = root and not taken, taken or root
        await wake(due_id, replace(doors, tools=await _within(runtime, due_id, tools)), steal=now)

    await dispatcher.ring(session_id)
    await dispatcher.run(handle)


async def _within(runtime: Runtime, session_id: str, tools: Mapping[str, Runner]) -> dict[str, ToolRunner]:
    """Return the functions for the calls of one session."""
    row = await runtime.store.find(session_id)

    def context(call_id: str, key: str, attempt: Attempt) -> ToolContext:
        async def child(name: str, value: dict[str, Any]) -> Result:
            return await result_of(runtime, await attempt.child(name, value))

        return ToolContext(
            session_id=row.session_id,
            session_key=row.key,
            call_id=call_id,
            idempotency_key=key,
            workspace=Path(row.workspace),
            attempt=attempt.number,
            seq=attempt.seq,
            _child=child,
        )

    return {name: each.within(context) for name, each in tools.items()}


async def serve_all(
    runtime: Runtime,
    tools: Callable[[], Mapping[str, Runner]],
    limit: int,
    on_error: Callable[[str, HoldfastError], None] | None,
) -> NoReturn:
    """Run due sessions of a home until cancelled, except those that use functions not among `tools`."""

    async def handle(session_id: str) -> None:
        state, _ = await recall(session_id, runtime.store, runtime.store, runtime.kinds)
        assert state.created is not None
        given = tools()
        try:
            check_functions(session_id, functions(state.created.agent), given)
        except UsageError as error:
            raise NeedsProgram(str(error)) from error
        doors = runtime.doors(state.created.workspace)
        await wake(session_id, replace(doors, tools=await _within(runtime, session_id, given)))

    def failed(session_id: str, error: HoldfastError, again_s: float | None) -> None:
        if on_error is not None:
            on_error(session_id, error)

    with serve(runtime.home, runtime.worker.worker_id, database_path(runtime.settings)):
        service = Service(
            runtime.store,
            SystemClock(),
            boot_id=runtime.worker.boot_id,
            limit=limit,
            on_error=failed,
            share=share_of(runtime),
        )
        await runtime.store.enroll(runtime.worker.worker_id, limit)
        runtime.store.listen(service.ring)
        await alongside(lambda: service.run(handle), lambda: look_after(runtime))
    raise AssertionError("a service ends by being cancelled")


class Begun(NamedTuple):
    """A session for a stream to run. Events after `seen` are new."""

    session_id: str
    seen: int
    tools: Mapping[str, Runner]
    steal: bool


class _Reader:
    """An observer that forwards events and deltas without waiting for a slow reader."""

    def __init__(self, send: MemoryObjectSendStream[int | Delta], session_id: str, *, deltas: bool) -> None:
        self._send = send
        self._session_id = session_id
        self._deltas = deltas

    def on_events(self, events: list[Event]) -> None:
        """Forward the position of the latest event."""
        mine = [event.seq for event in events if event.session_id == self._session_id]
        if mine:
            self.pass_on(mine[-1])

    def on_delta(self, part: StreamPart) -> None:
        """Forward a delta, if deltas were requested."""
        delta = _delta(part) if self._deltas else None
        if delta is not None:
            self.pass_on(delta)

    def pass_on(self, news: int | Delta) -> None:
        """Forward without waiting. Events that do not fit are read from the log later; deltas are dropped."""
        with suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._send.send_nowait(news)


def _delta(part: StreamPart) -> Delta | None:
    match part:
        case TextDelta(text=text):
            return Delta("text", text)
        case ThinkingDelta(text=text):
            return Delta("thinking", text)
        case ToolCallStart(name=name):
            return Delta("tool", name)
        case _:
            return None


class _Work:
    """The task that runs a session for a stream. It ends by itself, or when its scope is cancelled."""

    def __init__(self, runtime: Runtime, begun: Begun, send: MemoryObjectSendStream[int | Delta], deltas: bool) -> None:
        self._runtime = runtime
        self._begun = begun
        self._send = send
        self._reader = _Reader(send, begun.session_id, deltas=deltas)
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()
        self.error: Exception | None = None

    async def run(self) -> None:
        """Run the session. An error is kept for the reader of the stream."""
        begun = self._begun

        async def work() -> None:
            await to_rest(self._runtime, begun.session_id, begun.tools, self._reader, steal=begun.steal)

        async def watch() -> None:  # posts, and events of another process that runs the session
            seen = begun.seen
            while True:
                seen = await self._runtime.store.wait(begun.session_id, seen)
                self._reader.pass_on(seen)

        try:
            with self.scope:
                await alongside(work, watch)
        except Exception as error:
            self.error = error
        finally:
            self._send.close()
            self.ended.set()


class Stream(Generic[T]):
    """A running session: `async for` yields all its events in order as they happen.

    The loop ends at the session's next stop, where `result` becomes available. Leaving earlier releases the session,
    which can be resumed: use `async with` around the loop, or call `aclose`. An error of the run is raised in the loop.
    """

    def __init__(
        self, runtime: Runtime, group: TaskGroup, begin: Callable[[], Awaitable[Begun]], *, deltas: bool
    ) -> None:
        self.session_id: str = ""
        """The session's id, empty before the first event."""
        self._result: Result | None = None
        self._runtime = runtime
        self._group = group
        self._begin = begin
        self._deltas = deltas
        self._things = self._run()

    @property
    def result(self) -> Result:
        """The result of the session at its stop. Raises `UsageError` before the stream has ended."""
        if self._result is None:
            raise UsageError("the stream has not ended, so there is no result yet; read it to the end first")
        return self._result

    def __aiter__(self) -> Stream[T]:
        return self

    async def __anext__(self) -> T:
        return await anext(self._things)

    async def __aenter__(self) -> Stream[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop: a session that still runs here is released and stays runnable. Safe to repeat."""
        await self._things.aclose()

    async def _run(self) -> AsyncGenerator[T, None]:
        begun = await self._begin()
        self.session_id, seen = begun.session_id, begun.seen
        send, receive = anyio.create_memory_object_stream[int | Delta](BACKLOG)
        work = _Work(self._runtime, begun, send, self._deltas)
        self._group.start_soon(work.run)
        try:
            async for news in receive:
                if isinstance(news, Delta):
                    yield cast(T, news)
                    continue
                async for event in self._events(seen, news):
                    seen = event.seq
                    yield cast(T, event)
            async for event in self._events(seen, None):
                yield cast(T, event)
            if work.error is not None:
                raise work.error
            self._result = await result_of(self._runtime, begun.session_id)
        finally:
            receive.close()
            work.scope.cancel()
            with anyio.CancelScope(shield=True):
                await work.ended.wait()

    async def _events(self, after: int, through: int | None) -> AsyncGenerator[Event, None]:
        """Yield the events after a position, through another one or to the end of the log."""
        while through is None or after < through:
            limit = PAGE if through is None else min(PAGE, through - after)
            events = await self._runtime.store.read(self.session_id, after=after, limit=limit)
            for event in events:
                yield event
            if not events:
                return
            after = events[-1].seq
