"""The hands of a simulated process: every verb passes its seams, and what is accepted is observed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import BinaryIO, TypeVar

from holdfast.errors import HandsLost
from holdfast.facts.hands import HandsProvisioned
from holdfast.hands.base import CallStatus, Capabilities, ExecRequest, ExecResult, Hands, HandsSpec, Output
from holdfast.sim.world_process import NoHands, NoSandbox, Process, StuckHands
from holdfast.sim.world_record import Asked, Heard

T = TypeVar("T")


class ProviderDoor:
    """Makes and finds hands for a process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world

    async def probe(self) -> Capabilities:
        """See `holdfast.hands.base.Provider`."""
        return await self._world.hands.probe()

    async def provision(self, spec: HandsSpec, epoch: int) -> Hands:
        """See `holdfast.hands.base.Provider`."""
        world, process = self._world, self._process
        await process.seam("provision")
        if world.happens(world.weather.no_hands):
            world.note(process.name, "provision fails")
            raise world.chance.choice((NoHands, NoSandbox))("no hands can be made in this world now")
        await asyncio.sleep(world.chance.choice((0.0, 0.05, 1.0)))
        made = await world.hands.provision(spec, epoch)
        world.provisioned[spec.hands_id] = made.identity
        world.shown[spec.hands_id] = epoch
        world.owners[spec.hands_id] = spec.session_id
        world.claims[spec.hands_id] = {process.name}
        world.note(process.name, f"made hands {spec.hands_id[-4:]}")
        if not process.alive:
            world.unclaim(process.name)
        await process.seam("provision, done")
        return HandsDoor(process, made, spec.session_id)

    async def attach(self, identity: HandsProvisioned) -> Hands:
        """See `holdfast.hands.base.Provider`."""
        hands = await self._process.through("attach", lambda: self._world.hands.attach(identity))
        return HandsDoor(self._process, hands, self._world.owners[identity.hands_id])


class HandsDoor:
    """One incarnation of hands, as a process reaches it. Every verb that it accepts is observed."""

    def __init__(self, process: Process, hands: Hands, session_id: str) -> None:
        self.identity = hands.identity
        self._process = process
        self._world = process.world
        self._hands = hands
        self._session_id = session_id

    async def _ask(
        self, verb: str, epoch: int, ask: Callable[[], Awaitable[T]], call_id: str = "", **more: ExecRequest
    ) -> T:
        world, hands_id = self._world, self.identity.hands_id
        label = f"{verb} {call_id}"
        await self._process.seam(label)
        if world.happens(world.weather.stuck):
            world.stuck_until[hands_id] = world.loop.time() + world.chance.choice((1.0, 20.0))
        if world.loop.time() < world.stuck_until.get(hands_id, 0.0):
            world.note(self._process.name, f"{hands_id[-4:]} {label}: no answer")
            raise StuckHands("the supervisor of these hands lives and does not answer")
        world.claims.setdefault(hands_id, set()).add(self._process.name)
        shown = world.shown.get(hands_id, 0)
        head = world.sessions[self._session_id].head
        alive = hands_id in world.hands.alive()
        answer = await ask()
        record = world.record
        record.asked.append(
            Asked(
                record.tick(),
                self._process.name,
                verb,
                self._session_id,
                hands_id,
                epoch,
                shown,
                alive,
                head,
                call_id,
                **more,
            )
        )
        if alive:
            world.shown[hands_id] = max(epoch, world.shown.get(hands_id, 0))
        world.note(self._process.name, f"{hands_id[-4:]} {label}")
        return answer

    async def fence(self, epoch: int) -> None:
        """See `holdfast.hands.base.Hands`."""
        await self._ask("fence", epoch, lambda: self._hands.fence(epoch))
        await self._process.seam("fence, done")

    async def start(self, epoch: int, call_id: str, request: ExecRequest) -> None:
        """See `holdfast.hands.base.Hands`."""
        world, hands_id = self._world, self.identity.hands_id
        if world.happens(world.weather.worn):
            world.worn.add(hands_id)
        if hands_id in world.worn:
            await self._process.seam("start, worn")
            raise HandsLost("these hands reached their longest life; make new ones")
        await self._ask("start", epoch, lambda: self._hands.start(epoch, call_id, request), call_id, request=request)
        world.tempt(hands_id)
        if world.happens(world.weather.echo):
            world.note(self._process.name, f"{hands_id[-4:]} start {call_id} again: the answer was lost on the way")
            await self._hands.start(epoch, call_id, request)
        await self._process.seam("start, done")

    async def wait(self, epoch: int, call_id: str) -> ExecResult:
        """See `holdfast.hands.base.Hands`."""
        result = await self._ask("wait", epoch, lambda: self._hands.wait(epoch, call_id), call_id)
        self._heard(call_id, result)
        await self._process.seam("wait, done")
        return result

    async def kill(self, epoch: int, call_id: str) -> None:
        """See `holdfast.hands.base.Hands`."""
        await self._ask("kill", epoch, lambda: self._hands.kill(epoch, call_id), call_id)
        await self._process.seam("kill, done")

    async def status(self, epoch: int, call_id: str, *, wait_s: float = 0.0) -> CallStatus:
        """See `holdfast.hands.base.Hands`."""
        status = await self._ask("status", epoch, lambda: self._hands.status(epoch, call_id, wait_s=wait_s), call_id)
        if status.result is not None:
            self._heard(call_id, status.result)
        await self._process.seam(f"status {status.state}")
        return status

    def _heard(self, call_id: str, result: ExecResult) -> None:
        record = self._world.record
        record.heard.append(Heard(record.tick(), self._session_id, self.identity.hands_id, call_id, result))

    async def release(self, epoch: int) -> None:
        """See `holdfast.hands.base.Hands`."""
        await self._ask("release", epoch, lambda: self._hands.release(epoch))
        await self._process.seam("release, done")

    async def read(
        self, epoch: int, call_id: str, after: int = 0, *, wait_s: float = 0.0, max_bytes: int = 65_536
    ) -> Output:
        """See `holdfast.hands.base.Hands`."""
        ask = partial(self._hands.read, epoch, call_id, after, wait_s=wait_s, max_bytes=max_bytes)
        return await self._ask("read", epoch, ask, call_id)

    async def write(self, epoch: int, call_id: str, data: bytes, *, offset: int, close: bool = False) -> None:
        """See `holdfast.hands.base.Hands`."""
        ask = partial(self._hands.write, epoch, call_id, data, offset=offset, close=close)
        await self._ask("write", epoch, ask, call_id)

    async def pause(self, epoch: int) -> None:
        """See `holdfast.hands.base.Hands`."""
        await self._ask("pause", epoch, lambda: self._hands.pause(epoch))

    async def resume(self, epoch: int) -> None:
        """See `holdfast.hands.base.Hands`."""
        await self._ask("resume", epoch, lambda: self._hands.resume(epoch))

    async def pack(self, epoch: int, path: str, target: BinaryIO) -> int:
        """See `holdfast.hands.base.Hands`."""
        return await self._ask("pack", epoch, lambda: self._hands.pack(epoch, path, target))

    async def unpack(self, epoch: int, path: str, source: BinaryIO) -> int:
        """See `holdfast.hands.base.Hands`."""
        return await self._ask("unpack", epoch, lambda: self._hands.unpack(epoch, path, source))
