"""Simulated process that is killed, frozen, and asked to stop at the seams of its door calls.

Once killed, each of its door calls raises `Killed` first, so that its `finally` blocks cannot change the world. A
frozen process (SIGSTOP) halts at its next door call until it is resumed, then continues with stale knowledge: a zombie.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from holdfast.brain.doors import Worker
from holdfast.errors import EmergencyStop, HandsError, LeaseHeld, SandboxUnavailable, StorageFull
from holdfast.sim.loop import OWNED_TASKS, is_under_way
from holdfast.sim.record import Mishap
from holdfast.sim.world import World

T = TypeVar("T")


class Weathered(Exception):
    """Marker of errors made by the weather, which callers of `wake` must tolerate."""


class FullDisk(Weathered, StorageFull):
    """The disk of the log is full."""


class NoHands(Weathered, HandsError):
    """Hands cannot be provisioned now."""


class StuckHands(Weathered, HandsError):
    """The supervisor of the hands does not answer."""


class NoSandbox(Weathered, SandboxUnavailable):
    """No sandbox is available now."""


class Killed(BaseException):
    """The process was killed."""


class Process:
    """Process of the world. Processes `outside` are users at a terminal, spared by the weather."""

    def __init__(self, world: World, name: str, *, outside: bool = False) -> None:
        self.world = world
        self.name = name
        self.outside = outside
        self.alive = True
        self.task: asyncio.Task[None] | None = None
        self.worker = Worker(f"wrk_{name}", "fake-host", world.hands.boot_id, 1, "sim")
        self.requests: dict[str, int] = {}
        self._tasks: list[asyncio.Task[Any]] = []
        self._frozen: asyncio.Event | None = None

    # --- life ---

    def begin(self, job: Callable[[Process], Awaitable[None]]) -> None:
        """Start the process with that job."""
        context = contextvars.copy_context()
        context.run(OWNED_TASKS.set, self._tasks)
        self.task = self.world.loop.create_task(self._live(job), context=context)

    async def _live(self, job: Callable[[Process], Awaitable[None]]) -> None:
        try:
            await job(self)
        except (LeaseHeld, Weathered, EmergencyStop) as error:
            self.world.note(self.name, f"ends: {type(error).__name__}")
        except asyncio.CancelledError:
            self.world.note(self.name, "stopped")
        except Killed:
            pass
        except BaseException as error:  # judged by the invariants
            if self.alive:
                self.world.record.mishaps.append(Mishap(self.world.record.tick(), self.name, error))
        if self.alive:
            self._leave()

    def _leave(self) -> None:
        self.alive = False
        self.world.died(self.worker.worker_id)
        self.world.unclaim(self.name)

    def kill(self) -> None:
        """SIGKILL."""
        if not self.alive:
            return
        self.world.note(self.name, "KILLED")
        self.world.record.kills += 1
        self.thaw()
        self._leave()
        current = asyncio.current_task()
        for task in (self.task, *self._tasks):
            if task is not None and task is not current and is_under_way(task):
                task.cancel()

    def stop(self) -> None:
        """SIGTERM: the process may still clean up."""
        if self.alive and self.task is not None and not self.task.done():
            self.world.note(self.name, "asked to stop")
            self.task.cancel()

    def freeze(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after that time."""
        if self.alive and self._frozen is None:
            self.world.note(self.name, f"frozen for {seconds:.0f} s")
            self.world.record.zombies += 1
            self.world.record.slept.add(self.name)
            self._frozen = asyncio.Event()
            self.world.loop.call_later(seconds, self.thaw)

    def thaw(self) -> None:
        """SIGCONT."""
        if self._frozen is not None:
            self._frozen.set()
            self._frozen = None

    @property
    def frozen(self) -> bool:
        """True while the process is frozen."""
        return self._frozen is not None

    # --- seams ---

    async def seam(self, label: str) -> None:
        """Pass a point before or after a door call, where the weather strikes."""
        if self.outside:
            return
        self._check()
        world, weather = self.world, self.world.weather
        if world.happens(weather.kill):
            world.note(self.name, f"at {label}")
            self.kill()
            raise Killed
        if world.happens(weather.freeze):
            world.note(self.name, f"at {label}")
            self.freeze(world.chance.choice((5.0, 60.0, 400.0)))
        if world.happens(weather.stop):
            self.stop()
        if world.happens(weather.delay):
            await asyncio.sleep(world.chance.choice((0.0, 0.001, 0.02, 0.02, 0.3)))
            self._check()
        while self._frozen is not None:
            await self._frozen.wait()
            self._check()

    def _check(self) -> None:
        if not self.alive:
            raise Killed

    async def through(self, label: str, verb: Callable[[], Awaitable[T]]) -> T:
        """Make one door call between two seams."""
        await self.seam(label)
        result = await verb()
        await self.seam(f"{label}, done")
        return result
