"""Event loop of the simulator: time is virtual, and a seed draws the next task.

Nothing really waits and no input comes from outside: when no task is ready, time jumps to the next timer. Two runs of
one seed take the same steps in the same order.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextvars import ContextVar
from random import Random
from typing import Any

import anyio.lowlevel
import anyio.to_thread
from anyio._backends._asyncio import CancelScope

OWNED_TASKS: ContextVar[list[asyncio.Task[Any]] | None] = ContextVar("OWNED_TASKS", default=None)
"""Tasks started in this context: a simulated process owns its tasks."""


TICK_S = 1e-9
"""Shortest wait: one below float resolution would never end."""

STEPS_TO_END = 10_000
"""Rounds in which leftover tasks must end."""


class Stuck(Exception):
    """The simulation does not end: no task can ever run, or it took too many steps."""


class _Drawn(deque[Any]):
    """Ready queue: the next callback is drawn at random, not taken in order."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._draw = chance.random

    def popleft(self) -> Any:
        waiting = len(self)
        if waiting > 1:
            self.rotate(-int(self._draw() * waiting))
        return super().popleft()


class _Jump:
    """Selector of the loop: waiting makes the time jump."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        self._loop.jump(timeout)
        return []


class _Task(asyncio.Task[Any]):
    """Task hashed by its number, so that sets of tasks have the same order in every run."""

    def __init__(self, coro: Any, *, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """Event loop of one seed. `steps_max` bounds its rounds, so that a livelock is an error."""

    def __init__(self, chance: Random, *, steps_max: int = 100_000) -> None:
        super().__init__()
        self._now_s = 0.0
        self._clock_resolution = 0.0  # a timer that fired early would be rescheduled forever
        self._steps = 0
        self._steps_max = steps_max
        self._tasks = 0
        self._ready = _Drawn(chance)
        self._selector = _Jump(self)
        self.set_task_factory(_new_task)

    def time(self) -> float:
        """Return virtual seconds since the loop was created."""
        return self._now_s

    def allow(self, steps: int) -> None:
        """Allow that many more rounds."""
        self._steps_max = self._steps + steps

    def number(self) -> int:
        """Return the number of the next task."""
        self._tasks += 1
        return self._tasks

    def jump(self, timeout: float | None) -> None:
        """Advance the time. Raises `Stuck` if nothing could end the wait."""
        if timeout is None:
            raise Stuck("no task can go on and no timer is set")
        self._steps += 1
        if self._steps > self._steps_max:
            raise Stuck(f"no end after {self._steps_max} rounds, at {self._now_s:.3f} s")
        if not self._ready:
            self._now_s += max(timeout, TICK_S)

    def _process_events(self, event_list: Any) -> None:
        """No I/O events exist."""

    def _write_to_self(self) -> None:
        """The selector never sleeps."""


def _new_task(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any], **options: Any
) -> asyncio.Task[Any]:
    assert isinstance(loop, VirtualLoop)
    task = _Task(coro, loop=loop, number=loop.number(), **options)
    context = options.get("context")
    owned = OWNED_TASKS.get() if context is None else context.get(OWNED_TASKS)
    if owned is not None:
        owned.append(task)
    return task


def is_under_way(task: asyncio.Task[Any]) -> bool:
    """Return True if a task has begun and not ended. Tasks that have not begun are not cancelled."""
    coroutine = task.get_coro()
    return not task.done() and inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) != "CORO_CREATED"


def run(loop: VirtualLoop, main: Coroutine[Any, Any, Any]) -> Any:
    """Run `main` to its end on this loop and close it."""
    with _ordered_scopes(), _no_threads():
        try:
            return loop.run_until_complete(main)
        finally:
            _end_tasks(loop)
            loop.close()


@contextlib.contextmanager
def _ordered_scopes() -> Iterator[None]:
    """Hash cancel scopes of the simulator's tasks by task number instead of memory address.

    anyio keeps them in sets and cancels in set order. Scopes of other loops keep their hash.
    """

    def hashed(scope: CancelScope) -> int:
        host = scope._host_task
        return host._number if isinstance(host, _Task) else object.__hash__(scope)

    before = CancelScope.__hash__
    CancelScope.__hash__ = hashed  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        CancelScope.__hash__ = before  # type: ignore[method-assign]


@contextlib.contextmanager
def _no_threads() -> Iterator[None]:
    """Run thread jobs of a virtual loop immediately, in the loop. Other loops keep their threads."""
    before = anyio.to_thread.run_sync

    async def at_once(func: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if not isinstance(asyncio.get_running_loop(), VirtualLoop):
            return await before(func, *args, **options)
        await anyio.lowlevel.checkpoint()
        return func(*args)

    anyio.to_thread.run_sync = at_once  # type: ignore[assignment]
    try:
        yield
    finally:
        anyio.to_thread.run_sync = before


def _end_tasks(loop: VirtualLoop) -> None:
    left = sorted(asyncio.all_tasks(loop), key=hash)
    for task in left:
        if is_under_way(task):
            task.cancel()
    if left:
        loop.allow(STEPS_TO_END)
        with contextlib.suppress(Stuck):
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
