"""A served home: what routes need, provided by the composition root, and who may see which session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

import anyio
import anyio.to_thread

from holdfast.brain.recall import recall
from holdfast.clock import Clock
from holdfast.errors import UnknownSession
from holdfast.facts.session import SessionCreated
from holdfast.log.base import Index, Leases, Log, Snapshots
from holdfast.repo.base import Shelf
from holdfast.serve.access import Access, Visitor
from holdfast.service.forks import Ground
from holdfast.service.intake import Intake
from holdfast.session.rows import ItemRow, SessionRow
from holdfast.session.state import Kinds, State

P = ParamSpec("P")
T = TypeVar("T")


class Store(Log, Index, Leases, Snapshots, Protocol):
    """The log of a served home."""


PROJECTS_MAX = 10_000
"""Number of trees whose project is cached in memory."""


@dataclass(frozen=True)
class Site:
    """A served home.

    `url` is the address that users type, without a slash at the end. `shelf` is the store of workspace snapshots, None
    without git; `ground` is where forks get their folders. `closing` is set when the server is about to end, for
    responses that would go on.
    """

    store: Store
    intake: Intake
    kinds: Kinds
    clock: Clock
    home: Path
    access: Access
    url: str
    shelf: Shelf | None = None
    ground: Ground | None = None
    closing: anyio.Event = field(default_factory=anyio.Event)
    _projects: dict[str, Path] = field(default_factory=dict)

    def acting_as(self, visitor: Visitor) -> Intake:
        """Return the use cases that change sessions, for this caller: their events carry its name and proof."""
        return self.intake.acting_as(visitor.caller)

    async def find(self, visitor: Visitor, name: str) -> SessionRow:
        """Return a session by id, key, or unique part, if the caller may see it. Raises `UnknownSession`."""
        row = await self.store.find(name)
        if not await self.sees(visitor, row):
            raise UnknownSession(f"no session {name!r} in the project of this key")
        return row

    async def find_item(self, visitor: Visitor, name: str) -> tuple[ItemRow, SessionRow]:
        """Return an inbox item and its session, if the caller may see it. Raises `UnknownItem`, `UnknownSession`."""
        item = await self.store.item(name)
        return item, await self.find(visitor, item.session_id)

    async def sees(self, visitor: Visitor, row: SessionRow) -> bool:
        """True if a session belongs to the project that the caller is limited to, or the caller has no limit."""
        project = visitor.credential.project
        return not project or (await self._project(row)).is_relative_to(project)

    async def _project(self, row: SessionRow) -> Path:
        """The folder that a session's tree works on: a mission's repository, or the workspace of its top session."""
        top = row.root or row.session_id
        if top not in self._projects:
            (first,) = await self.store.read(top, limit=1)
            created = first.fact
            folder = (await self.store.find(top)).workspace
            if isinstance(created, SessionCreated) and created.mission is not None:
                folder = created.mission.repo
            while len(self._projects) >= PROJECTS_MAX:
                del self._projects[next(iter(self._projects))]
            self._projects[top] = Path(folder)
        return self._projects[top]

    async def state(self, session_id: str) -> State:
        """Return the folded state of a session. Folding a long log does not hold up other requests."""
        state, _ = await apart(recall, session_id, self.store, self.store, self.kinds)
        return state


async def apart(query: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a query that folds logs in a thread with an event loop of its own, and return its result."""
    return await anyio.to_thread.run_sync(anyio.run, partial(query, *args, **kwargs))
