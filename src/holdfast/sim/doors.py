"""The doors of a simulated process: to the log, the hands, the model and the clock.

Behind them stand the log in memory, the hands in memory and a scripted model. Every door call passes
the seams of its process, where the weather strikes, and is observed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from holdfast.brain.doors import Doors
from holdfast.errors import ModelError
from holdfast.facts.base import Usage
from holdfast.facts.codec import Draft, Event
from holdfast.facts.model import ModelRequestStart
from holdfast.facts.session import Workspace
from holdfast.facts.union import type_of
from holdfast.kinds import KINDS
from holdfast.log.base import EVERY, Lease, Post, PostReceipt, Snapshot, Which
from holdfast.model.base import ModelRequest, StreamPart
from holdfast.session.accounts import AccountRow
from holdfast.session.home import Stop
from holdfast.session.items import ItemRow
from holdfast.session.rows import SessionRow, Uptime
from holdfast.sim.doors_hands import ProviderDoor
from holdfast.sim.world_model import PRICE
from holdfast.sim.world_process import FullDisk, Process
from holdfast.sim.world_record import Served

PROMPT = "You are an agent in a simulated world."


PROMPTS = {"compaction": "Summarise.", "handoff": "Leave a note."}

SPARE = "spare"
"""The model that is asked when the first one fails."""


def doors_of(process: Process, session_id: str) -> Doors:
    """What a brain of that process is given for a session."""
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
    """The clock, as a process has it."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now_us(self) -> int:
        """Wall time."""
        return self._process.world.clock.now_us()

    def monotonic_s(self) -> float:
        """Virtual seconds."""
        return self._process.world.clock.monotonic_s()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._process.world.clock.sleep(seconds)
        await self._process.seam("sleep")


class StoreDoor:
    """Log, Leases, Snapshots and Index of a process. Every commit is observed where it happens."""

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
    ) -> list[Event]:
        """See `holdfast.log.base.Log`."""
        label = "append " + " ".join(type_of(draft.fact) for draft in drafts)
        await self._process.seam(label)
        if self._world.happens(self._world.weather.full):
            self._world.note(self._process.name, f"{label}: disk full")
            raise FullDisk("the disk of this world is full")
        events = await self._store.append(session_id, epoch, drafts, head=head, posts=posts)
        self._world.committed(self._process.name, "append", epoch, head)
        for event in events:
            if isinstance(event.fact, ModelRequestStart):
                self._process.requests[session_id] = event.seq
        await self._process.seam(f"{label}, done")
        return events

    async def post(self, post: Post, *, create: bool = False) -> PostReceipt:
        """See `holdfast.log.base.Log`."""
        receipt = await self._store.post(post, create=create)
        self._world.committed(self._process.name, "post", 0, None)
        return receipt

    async def read(
        self, session_id: str, *, after: int = 0, prev: bytes | None = None, limit: int | None = None
    ) -> list[Event]:
        """See `holdfast.log.base.Log`."""
        return await self._process.through(
            "read", lambda: self._store.read(session_id, after=after, prev=prev, limit=limit)
        )

    async def wait(self, session_id: str, after: int) -> int:
        """See `holdfast.log.base.Log`."""
        return await self._process.through("wait", lambda: self._store.wait(session_id, after))

    async def changed(self, after: int) -> int:
        """See `holdfast.log.base.Log`."""
        return await self._process.through("changed", lambda: self._store.changed(after))

    async def save(self, snapshot: Snapshot) -> None:
        """See `holdfast.log.base.Snapshots`."""
        await self._process.through("save", lambda: self._store.save(snapshot))

    async def load(self, session_id: str, fold_digest: str) -> Snapshot | None:
        """See `holdfast.log.base.Snapshots`."""
        return await self._process.through("load", lambda: self._store.load(session_id, fold_digest))

    async def acquire(self, session_id: str, draft: Draft, *, steal: bool = False, head: int | None = None) -> Lease:
        """See `holdfast.log.base.Leases`."""
        await self._process.seam("acquire")
        lease = await self._store.acquire(session_id, draft, steal=steal, head=head)
        self._world.committed(self._process.name, "acquire", lease.epoch, head, steal=steal)
        self._world.live.add(lease.worker_id)
        await self._process.seam("acquire, done")
        return lease

    async def renew(self, lease: Lease) -> None:
        """See `holdfast.log.base.Leases`."""
        await self._process.through("renew", lambda: self._store.renew(lease))

    async def release(self, lease: Lease) -> None:
        """See `holdfast.log.base.Leases`."""
        await self._process.seam("release")
        await self._store.release(lease)
        self._world.committed(self._process.name, "release", lease.epoch, None)
        await self._process.seam("release, done")

    async def holders(self) -> dict[str, str]:
        """See `holdfast.log.base.Leases`."""
        return await self._process.through("holders", self._store.holders)

    async def find(self, name: str) -> SessionRow:
        """See `holdfast.log.base.Index`."""
        return await self._process.through("find", lambda: self._store.find(name))

    async def sessions(
        self, which: Which = EVERY, *, home: bool = False, before: SessionRow | None = None, limit: int | None = None
    ) -> list[SessionRow]:
        """See `holdfast.log.base.Index`."""
        return await self._process.through(
            "sessions", lambda: self._store.sessions(which, home=home, before=before, limit=limit)
        )

    async def count(self, which: Which = EVERY) -> int:
        """See `holdfast.log.base.Index`."""
        return await self._process.through("count", lambda: self._store.count(which))

    async def due(self, now_us: int, up: Uptime | None = None) -> list[str]:
        """See `holdfast.log.base.Index`. Whoever dies here has not begun: no weather."""
        return await self._store.due(now_us, up)

    async def accounts(self) -> list[AccountRow]:
        """See `holdfast.log.base.Index`."""
        return await self._process.through("accounts", self._store.accounts)

    async def next_due(self, now_us: int, up: Uptime | None = None) -> int | None:
        """See `holdfast.log.base.Index`."""
        return await self._process.through("next_due", lambda: self._store.next_due(now_us, up))

    async def account(self, account_id: str) -> AccountRow | None:
        """See `holdfast.log.base.Index`."""
        return await self._process.through("account", lambda: self._store.account(account_id))

    async def items(self, *, open_only: bool = True, limit: int | None = None) -> list[ItemRow]:
        """See `holdfast.log.base.Index`."""
        return await self._process.through("items", lambda: self._store.items(open_only=open_only, limit=limit))

    async def item(self, name: str) -> ItemRow:
        """See `holdfast.log.base.Index`."""
        return await self._process.through("item", lambda: self._store.item(name))

    async def stopped(self) -> Stop | None:
        """See `holdfast.log.base.Index`."""
        return await self._process.through("stopped", self._store.stopped)


class ModelDoor:
    """The model of one session, as a process reaches it."""

    def __init__(self, process: Process, name: str, session_id: str) -> None:
        self.name = name
        self._process = process
        self._world = process.world
        self._session = process.world.sessions[session_id]

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        """See `holdfast.model.base.Model`."""
        return self.cost_pico(Usage(request.input_tokens_estimate, request.max_output_tokens))

    def cost_pico(self, usage: Usage) -> int | None:
        """See `holdfast.model.base.Model`."""
        return PRICE.cost(usage) if self._session.script.priced else None

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """See `holdfast.model.base.Model`."""
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
