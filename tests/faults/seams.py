"""Places in a brain's own process where it kills or stops itself, exact to the append.

The doors are the product's; each is wrapped by something that counts what goes through it and, at the
place that was ordered, sends a signal to this very process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

import msgspec

from holdfast.facts.base import Usage
from holdfast.facts.codec import Draft, Event
from holdfast.facts.union import type_of
from holdfast.log.base import Lease, Post, PostReceipt
from holdfast.log.sql.store import SqlStore
from holdfast.model.base import Model, ModelRequest, StreamPart

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class Seam(msgspec.Struct, frozen=True):
    """The `nth` time (from 1) that this process comes to `where`, right before or after, it does `do`.

    `append` counts transactions that write events, taking a lease among them; with `type` only those
    that hold an event of it. `part` counts streamed parts of the model. `begin` is the start of the
    process, before it opens anything.
    """

    where: Literal["append", "part", "begin"]
    nth: int = 1
    side: Literal["before", "after"] = "after"
    do: Literal["kill", "stop"] = "kill"
    type: str = ""


class Striker:
    """Counts, and strikes. What was acknowledged is written to `acks` at once, a line a transaction."""

    def __init__(self, seams: Sequence[Seam], acks: str) -> None:
        self._seams = seams
        self._counts = dict.fromkeys(seams, 0)
        self._acks = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def before(self, where: str, types: Sequence[str] = ()) -> None:
        """Something is about to go through."""
        for seam in self._counts:
            if seam.where == where and (not seam.type or seam.type in types):
                self._counts[seam] += 1
        self._strike(where, types, "before")

    def after(self, where: str, types: Sequence[str] = ()) -> None:
        """It went through."""
        self._strike(where, types, "after")

    def acknowledged(self, events: Sequence[Event]) -> None:
        """These events are promised to be there for good."""
        os.write(self._acks, (" ".join(f"{event.seq} {event.id}" for event in events) + "\n").encode())

    def _strike(self, where: str, types: Sequence[str], side: str) -> None:
        for seam, count in self._counts.items():
            here = seam.where == where and (not seam.type or seam.type in types)
            if here and seam.side == side and seam.nth == count:
                os.kill(os.getpid(), SIGNALS[seam.do])


class StruckStore:
    """Log and leases of the product, with a seam around each append."""

    def __init__(self, store: SqlStore[Any], striker: Striker) -> None:
        self._store = store
        self._striker = striker
        self.read = store.read
        self.at = store.at
        self.wait = store.wait
        self.changed = store.changed
        self.confirm = store.confirm
        self.renew = store.renew
        self.release = store.release
        self.holders = store.holders

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
        """Append, with a seam on each side."""
        types = [type_of(draft.fact) for draft in drafts]
        self._striker.before("append", types)
        events = await self._store.append(session_id, epoch, drafts, head=head, posts=posts, holder=holder)
        self._striker.acknowledged(events)
        self._striker.after("append", types)
        return events

    async def post(self, post: Post, *, create: bool = False) -> PostReceipt:
        """Post."""
        return await self._store.post(post, create=create)

    async def acquire(self, session_id: str, draft: Draft, *, steal: bool = False, head: int | None = None) -> Lease:
        """Take the lease, with a seam on each side."""
        types = [type_of(draft.fact)]
        self._striker.before("append", types)
        lease = await self._store.acquire(session_id, draft, steal=steal, head=head)
        self._striker.acknowledged(lease.events)
        self._striker.after("append", types)
        return lease


class StruckModel:
    """A model with a seam around each part that it streams."""

    def __init__(self, inner: Model, striker: Striker) -> None:
        self.name = inner.name
        self._inner = inner
        self._striker = striker

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        """As the model says."""
        return self._inner.worst_case_pico(request)

    def cost_pico(self, usage: Usage) -> int | None:
        """As the model says."""
        return self._inner.cost_pico(usage)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """The model's parts."""
        async for part in self._inner.stream(request):
            self._striker.before("part")
            yield part
            self._striker.after("part")
