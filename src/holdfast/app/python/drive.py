"""Running a session to its next stop, and watching it meanwhile, for the Python API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Generic, NamedTuple, NoReturn, TypeVar, cast

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream

from holdfast.app.compose import Runtime
from holdfast.app.news import look_after
from holdfast.app.python.agent import check_functions
from holdfast.app.python.tools import Runner
from holdfast.app.python.types import Delta, Result, result_of
from holdfast.app.running.drive import share_of
from holdfast.app.serving import serve
from holdfast.app.settings.config import database_path
from holdfast.brain.alongside import alongside
from holdfast.brain.custom import ToolRunner
from holdfast.brain.doors import NoObserver, Observer
from holdfast.brain.recall import recall
from holdfast.brain.wake import wake
from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError, NeedsProgram, UsageError
from holdfast.facts.codec import Event
from holdfast.fleet.dispatch import InlineDispatcher
from holdfast.fleet.serve import Service
from holdfast.model.base import StreamPart, TextDelta, ThinkingDelta, ToolCallStart

BACKLOG = 10_000
"""Pieces that wait for a slow reader. Deltas beyond that are lost; events are read from the log, so they never are."""

SIDE_BY_SIDE = 16
"""Sessions of one tree that are run at the same time."""

PAGE = 1_000

T = TypeVar("T", bound=Event | Delta)


async def to_rest(
    runtime: Runtime, session_id: str, tools: Mapping[str, ToolRunner], observer: Observer, *, steal: bool = False
) -> None:
    """Run a session, and those that it opens, until nothing is due; wait for what another process runs of it."""
    dispatcher = InlineDispatcher(
        runtime.store,
        SystemClock(),
        boot_id=runtime.worker.boot_id,
        only=session_id,
        limit=SIDE_BY_SIDE,
        on_error=_left_to_its_log,
    )
    taken = not steal

    async def handle(due_id: str) -> None:
        nonlocal taken
        root = due_id == session_id
        state, _ = await recall(due_id, runtime.store, runtime.store, runtime.kinds)
        assert state.created is not None
        doors = runtime.doors(state.created.workspace, observer=observer if root else NoObserver())
        now, taken = root and not taken, taken or root
        await wake(due_id, replace(doors, tools=tools), steal=now)

    await dispatcher.ring(session_id)
    await dispatcher.run(handle)


async def serve_all(
    runtime: Runtime,
    tools: Callable[[], Mapping[str, Runner]],
    limit: int,
    on_error: Callable[[str, HoldfastError], None] | None,
) -> NoReturn:
    """Run whatever is due in a home, but for sessions whose functions are not among these, until cancelled."""

    async def handle(session_id: str) -> None:
        state, _ = await recall(session_id, runtime.store, runtime.store, runtime.kinds)
        assert state.created is not None
        given = tools()
        try:
            check_functions(session_id, state.created.agent.custom, given)
        except UsageError as error:
            raise NeedsProgram(str(error)) from error
        await wake(session_id, replace(runtime.doors(state.created.workspace), tools=given))

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
        await alongside(lambda: service.run(handle), lambda: look_after(runtime))
    raise AssertionError("a service ends by being cancelled")


def _left_to_its_log(session_id: str, error: HoldfastError, again_s: float | None) -> None:
    """What went wrong with a child stands in its own log; the others go on."""


class Begun(NamedTuple):
    """A session that a stream is to run: news are from after `seen` on."""

    session_id: str
    seen: int
    tools: Mapping[str, ToolRunner]
    steal: bool


class _Reader:
    """An observer that passes on what happens, and never waits for a slow reader."""

    def __init__(self, send: MemoryObjectSendStream[int | Delta], session_id: str, *, deltas: bool) -> None:
        self._send = send
        self._session_id = session_id
        self._deltas = deltas

    def on_events(self, events: list[Event]) -> None:
        """Say how far the log goes."""
        mine = [event.seq for event in events if event.session_id == self._session_id]
        if mine:
            self.pass_on(mine[-1])

    def on_delta(self, part: StreamPart) -> None:
        """Pass on a piece, when those are wanted."""
        delta = _delta(part) if self._deltas else None
        if delta is not None:
            self.pass_on(delta)

    def pass_on(self, news: int | Delta) -> None:
        """Without waiting. What finds no room is read from the log later, but for deltas."""
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
    """Running a session in the background of a stream. It ends by itself, or when its scope is cancelled."""

    def __init__(self, runtime: Runtime, begun: Begun, send: MemoryObjectSendStream[int | Delta], deltas: bool) -> None:
        self._runtime = runtime
        self._begun = begun
        self._send = send
        self._reader = _Reader(send, begun.session_id, deltas=deltas)
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()
        self.error: Exception | None = None

    async def run(self) -> None:
        """Run it. An error is kept for whoever reads the stream."""
        begun = self._begun

        async def work() -> None:
            await to_rest(self._runtime, begun.session_id, begun.tools, self._reader, steal=begun.steal)

        try:
            with self.scope:
                await alongside(work, self._watch)
        except Exception as error:
            self.error = error
        finally:
            self._send.close()
            self.ended.set()

    async def _watch(self) -> None:
        """What is posted, and what another process does with the session, is news too."""
        seen = self._begun.seen
        while True:
            seen = await self._runtime.store.wait(self._begun.session_id, seen)
            self._reader.pass_on(seen)


class Stream(Generic[T]):
    """A session while it runs: `async for` gives its events in order, none left out, as they happen.

    The loop ends when the session comes to rest; `result` says how then. Whoever leaves earlier lets go of the session,
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
        """How the session came to rest. Raises `UsageError` while the stream has not ended."""
        if self._result is None:
            raise UsageError("the stream has not come to its end, so there is no result yet; read it to the end first")
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
        """Leave: a session that still runs here is let go, and stays runnable. Safe to repeat."""
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
        """What the log has from there on, through that position or to its end."""
        while through is None or after < through:
            limit = PAGE if through is None else min(PAGE, through - after)
            events = await self._runtime.store.read(self.session_id, after=after, limit=limit)
            for event in events:
                yield event
            if not events:
                return
            after = events[-1].seq
