"""Doors of a simulated process: log, hands, model, and clock.

They lead to the in-memory log and hands and to a scripted model. Every door call passes the seams of its process, where
the weather strikes, and is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import BinaryIO, TypeVar

from holdfast.brain.doors import Doors
from holdfast.errors import HandsLost, ModelError
from holdfast.facts.base import Usage
from holdfast.facts.codec import Draft, Event
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.model import ModelRequestStart
from holdfast.facts.session import Workspace
from holdfast.facts.union import type_of
from holdfast.hands.base import CallStatus, Capabilities, ExecRequest, ExecResult, Hands, HandsSpec, Output
from holdfast.kinds import KINDS
from holdfast.log.base import EVERY, Lease, Post, PostReceipt, Snapshot, View, Which
from holdfast.model.base import ModelRequest, StreamPart
from holdfast.session.home import Stop
from holdfast.session.money import AccountRow
from holdfast.session.rows import ItemRow, RowStatus, SessionRow, Uptime
from holdfast.sim.process import FullDisk, NoHands, NoSandbox, Process, StuckHands
from holdfast.sim.record import Asked, Heard, Served
from holdfast.sim.script import PRICE

PROMPT = "You are an agent in a simulated world."

PROMPTS = {"compaction": "Summarise.", "handoff": "Leave a note."}

SPARE = "spare"
"""Name of the fallback model."""


def doors_of(process: Process, session_id: str) -> Doors:
    """Return the doors of a process's brain for a session."""
    store = StoreDoor(process)
    world = process.world
    return Doors(
        kinds=KINDS,
        log=store,
        leases=store,
        snapshots=store,
        hands=ProviderDoor(process),
        model=lambda name: ModelDoor(process, name, session_id),
        clock=ClockDoor(process),
        entropy=world.entropy,
        worker=process.worker,
        prompt=PROMPT,
        prompts=PROMPTS,
        provisioning="eager" if world.eager else "lazy",
        workspace=lambda child_id, near: Workspace(path=world.workspace(child_id), disposable=True),
    )


class ClockDoor:
    """Clock of a process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now_us(self) -> int:
        return self._process.world.clock.now_us()

    def monotonic_s(self) -> float:
        return self._process.world.clock.monotonic_s()

    async def sleep(self, seconds: float) -> None:
        await self._process.world.clock.sleep(seconds)
        await self._process.seam("sleep")


class StoreDoor:
    """Log, Leases, Snapshots, and Index of a process. Every commit is recorded when it happens."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world
        self._store = process.world.store

    async def append(
        self,
        session_id: str,
        epoch: int,
        drafts: Sequence[Draft],
        *,
        head: int | None = None,
        posts: Sequence[Post] = (),
        holder: str = "",
    ) -> list[Event]:
        label = "append " + " ".join(type_of(draft.fact) for draft in drafts)
        await self._process.seam(label)
        if self._world.happens(self._world.weather.full):
            self._world.note(self._process.name, f"{label}: disk full")
            raise FullDisk("the disk of this world is full")
        events = await self._store.append(session_id, epoch, drafts, head=head, posts=posts, holder=holder)
        self._world.committed(self._process.name, "append", epoch, head)
        for event in events:
            if isinstance(event.fact, ModelRequestStart):
                self._process.requests[session_id] = event.seq
        await self._process.seam(f"{label}, done")
        return events

    async def post(self, post: Post, *, create: bool = False) -> PostReceipt:
        receipt = await self._store.post(post, create=create)
        self._world.committed(self._process.name, "post", 0, None)
        return receipt

    async def read(
        self, session_id: str, *, after: int = 0, prev: bytes | None = None, limit: int | None = None
    ) -> list[Event]:
        return await self._process.through(
            "read", lambda: self._store.read(session_id, after=after, prev=prev, limit=limit)
        )

    async def at(self, places: Sequence[tuple[str, int]]) -> list[Event]:
        return await self._process.through("at", lambda: self._store.at(places))

    async def wait(self, session_id: str, after: int) -> int:
        return await self._process.through("wait", lambda: self._store.wait(session_id, after))

    async def changed(self, after: int) -> int:
        return await self._process.through("changed", lambda: self._store.changed(after))

    async def save(self, snapshot: Snapshot) -> None:
        await self._process.through("save", lambda: self._store.save(snapshot))

    async def load(self, session_id: str, fold_digest: str) -> Snapshot | None:
        return await self._process.through("load", lambda: self._store.load(session_id, fold_digest))

    async def acquire(self, session_id: str, draft: Draft, *, steal: bool = False, head: int | None = None) -> Lease:
        await self._process.seam("acquire")
        lease = await self._store.acquire(session_id, draft, steal=steal, head=head)
        self._world.committed(self._process.name, "acquire", lease.epoch, head, steal=steal)
        self._world.live.add(lease.worker_id)
        await self._process.seam("acquire, done")
        return lease

    async def confirm(self, lease: Lease) -> None:
        await self._store.confirm(lease)

    async def renew(self, lease: Lease) -> None:
        await self._process.through("renew", lambda: self._store.renew(lease))

    async def release(self, lease: Lease) -> None:
        await self._process.seam("release")
        await self._store.release(lease)
        self._world.committed(self._process.name, "release", lease.epoch, None)
        await self._process.seam("release, done")

    async def holders(self) -> dict[str, str]:
        return await self._process.through("holders", self._store.holders)

    async def view(self, work: Callable[[View], T]) -> T:
        return await self._process.through("view", lambda: self._store.view(work))

    async def find(self, name: str) -> SessionRow:
        return await self._process.through("find", lambda: self._store.find(name))

    async def sessions(
        self, which: Which = EVERY, *, home: bool = False, before: SessionRow | None = None, limit: int | None = None
    ) -> list[SessionRow]:
        return await self._process.through(
            "sessions", lambda: self._store.sessions(which, home=home, before=before, limit=limit)
        )

    async def count(self, which: Which = EVERY) -> int:
        return await self._process.through("count", lambda: self._store.count(which))

    async def counts(self) -> dict[RowStatus, int]:
        return await self._process.through("counts", self._store.counts)

    async def due(self, now_us: int, up: Uptime | None = None) -> list[str]:
        """Return due sessions. No weather strikes here: a process killed at this point has not begun."""
        return await self._store.due(now_us, up)

    async def accounts(self) -> list[AccountRow]:
        return await self._process.through("accounts", self._store.accounts)

    async def next_due(self, now_us: int, up: Uptime | None = None) -> int | None:
        return await self._process.through("next_due", lambda: self._store.next_due(now_us, up))

    async def account(self, account_id: str) -> AccountRow | None:
        return await self._process.through("account", lambda: self._store.account(account_id))

    async def items(self, *, open_only: bool = True, limit: int | None = None) -> list[ItemRow]:
        return await self._process.through("items", lambda: self._store.items(open_only=open_only, limit=limit))

    async def item(self, name: str) -> ItemRow:
        return await self._process.through("item", lambda: self._store.item(name))

    async def stopped(self) -> Stop | None:
        return await self._process.through("stopped", self._store.stopped)


class ModelDoor:
    """Model of one session, for one process."""

    def __init__(self, process: Process, name: str, session_id: str) -> None:
        self.name = name
        self._process = process
        self._world = process.world
        self._session = process.world.sessions[session_id]

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        return self.cost_pico(Usage(request.input_tokens_estimate, request.max_output_tokens))

    def cost_pico(self, usage: Usage) -> int | None:
        return PRICE.cost(usage) if self._session.script.priced else None

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        process, session, world = self._process, self._session, self._world
        await process.seam("model")
        start_seq = process.requests.get(session.session_id, 0)
        record = world.record
        record.served.append(Served(record.tick(), process.name, session.session_id, start_seq, session.head, request))
        world.note(process.name, f"{session.script.name} model {request.responses}/{request.attempt}")
        await asyncio.sleep(world.chance.choice((0.0, 0.1, 0.1, 3.0, 3.0, 15.0)))
        turn = session.script.turn(request.responses, request.purpose)
        parts = turn.parts(f"p{request.responses}", session.children_before(start_seq))
        trouble = turn.troubles[request.attempt - 1] if request.attempt <= len(turn.troubles) else None
        if self.name.endswith(SPARE) and request.attempt % 3:
            trouble = None
        for part in parts if trouble is None else parts[: trouble.after]:
            await process.seam("part")
            yield part
        if trouble is None:
            await process.seam("finish")
            yield turn.finish(request.input_tokens_estimate, request.max_output_tokens)
        elif trouble.kind is not None:
            raise ModelError(trouble.kind, "trouble in this world", retry_after_s=trouble.retry_after_s)


T = TypeVar("T")


class ProviderDoor:
    """Hands provider of a process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world

    async def probe(self) -> Capabilities:
        return await self._world.hands.probe()

    async def provision(self, spec: HandsSpec, epoch: int) -> Hands:
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
        hands = await self._process.through("attach", lambda: self._world.hands.attach(identity))
        return HandsDoor(self._process, hands, self._world.owners[identity.hands_id])


class HandsDoor:
    """Incarnation of hands, for one process. Every accepted verb is recorded."""

    def __init__(self, process: Process, hands: Hands, session_id: str) -> None:
        self.identity = hands.identity
        self._process = process
        self._world = process.world
        self._hands = hands
        self._session_id = session_id

    async def _ask(
        self,
        verb: str,
        epoch: int,
        ask: Callable[[], Awaitable[T]],
        call_id: str = "",
        request: ExecRequest | None = None,
    ) -> T:
        world, hands_id = self._world, self.identity.hands_id
        label = f"{verb} {call_id}"
        await self._process.seam(label)
        if world.happens(world.weather.stuck):
            world.stuck_until[hands_id] = world.loop.time() + world.chance.choice((1.0, 20.0))
        if world.loop.time() < world.stuck_until.get(hands_id, 0.0):
            world.note(self._process.name, f"{hands_id[-4:]} {label}: no answer")
            raise StuckHands("the supervisor of these hands is alive but does not answer")
        world.claims.setdefault(hands_id, set()).add(self._process.name)
        shown = world.shown.get(hands_id, 0)
        head = world.sessions[self._session_id].head
        alive = hands_id in world.hands.alive()
        answer = await ask()
        record = world.record
        asked = Asked(record.tick(), self._process.name, verb, self._session_id, hands_id, epoch, shown, alive, head)
        record.asked.append(replace(asked, call_id=call_id, request=request))
        if alive:
            world.shown[hands_id] = max(epoch, world.shown.get(hands_id, 0))
        world.note(self._process.name, f"{hands_id[-4:]} {label}")
        return answer

    async def fence(self, epoch: int) -> None:
        await self._ask("fence", epoch, lambda: self._hands.fence(epoch))
        await self._process.seam("fence, done")

    async def start(self, epoch: int, call_id: str, request: ExecRequest) -> None:
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
        result = await self._ask("wait", epoch, lambda: self._hands.wait(epoch, call_id), call_id)
        self._heard(call_id, result)
        await self._process.seam("wait, done")
        return result

    async def kill(self, epoch: int, call_id: str) -> None:
        await self._ask("kill", epoch, lambda: self._hands.kill(epoch, call_id), call_id)
        await self._process.seam("kill, done")

    async def status(self, epoch: int, call_id: str, *, wait_s: float = 0.0) -> CallStatus:
        status = await self._ask("status", epoch, lambda: self._hands.status(epoch, call_id, wait_s=wait_s), call_id)
        if status.result is not None:
            self._heard(call_id, status.result)
        await self._process.seam(f"status {status.state}")
        return status

    def _heard(self, call_id: str, result: ExecResult) -> None:
        record = self._world.record
        record.heard.append(Heard(record.tick(), self._session_id, self.identity.hands_id, call_id, result))

    async def release(self, epoch: int) -> None:
        await self._ask("release", epoch, lambda: self._hands.release(epoch))
        await self._process.seam("release, done")

    async def read(
        self, epoch: int, call_id: str, after: int = 0, *, wait_s: float = 0.0, max_bytes: int = 65_536
    ) -> Output:
        ask = partial(self._hands.read, epoch, call_id, after, wait_s=wait_s, max_bytes=max_bytes)
        return await self._ask("read", epoch, ask, call_id)

    async def write(self, epoch: int, call_id: str, data: bytes, *, offset: int, close: bool = False) -> None:
        ask = partial(self._hands.write, epoch, call_id, data, offset=offset, close=close)
        await self._ask("write", epoch, ask, call_id)

    async def pause(self, epoch: int) -> None:
        await self._ask("pause", epoch, lambda: self._hands.pause(epoch))

    async def resume(self, epoch: int) -> None:
        await self._ask("resume", epoch, lambda: self._hands.resume(epoch))

    async def pack(self, epoch: int, path: str, target: BinaryIO) -> int:
        return await self._ask("pack", epoch, lambda: self._hands.pack(epoch, path, target))

    async def unpack(self, epoch: int, path: str, source: BinaryIO) -> int:
        return await self._ask("unpack", epoch, lambda: self._hands.unpack(epoch, path, source))
