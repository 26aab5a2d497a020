"""A served home: what routes need, provided by the composition root, and who may see which session."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Protocol

import anyio
import msgspec

from holdfast.brain.doors import no_secret
from holdfast.clock import Clock
from holdfast.errors import UnknownItem, UnknownSession
from holdfast.facts.session import SessionCreated
from holdfast.ids import Entropy
from holdfast.log.base import Index, Leases, Log, Snapshots, WorkerRow
from holdfast.log.search.index import SearchIndex
from holdfast.log.verify import Source
from holdfast.repo.base import Shelf
from holdfast.serve.access import Access, Visitor
from holdfast.serve.folds import Ahead, Folds
from holdfast.serve.pulse import Pulse
from holdfast.service.forks import Ground
from holdfast.service.intake import Intake
from holdfast.session.rows import ItemRow, SessionRow
from holdfast.session.state import Kinds


class Store(Log, Index, Leases, Snapshots, Source, Protocol):
    """The log of a served home."""

    async def fleet(self) -> list[WorkerRow]:
        """Return the workers of all homes that share the log; empty where only one home can."""
        ...


class SessionWanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A session to open: its goal, and choices beside the settings of the server.

    A workspace outside the project of the caller's key, and a model, are for admins. Without a workspace it is a new
    folder in the home.
    """

    goal: Annotated[str, msgspec.Meta(min_length=1)]
    key: str = ""
    workspace: str = ""
    model: str = ""
    budget_usd: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    max_turns: Annotated[int, msgspec.Meta(ge=1, le=2**31)] | None = None


class MissionWanted(msgspec.Struct, frozen=True, kw_only=True):
    """A mission to open on a repository and a contract file in it, by default the one that the repository names."""

    repo: str
    contract: str = ""
    key: str = ""
    budget_usd: float | None = None


PROJECTS_MAX = 10_000
"""Number of trees whose project is cached in memory."""


@dataclass(frozen=True)
class Site:
    """A served home.

    `url` is the address that users type, without a slash at the end. `index` is the search index, which the worker in
    the same process keeps filled. `opening` and `opening_mission` open a session for a caller, and `ahead` folds a long
    session in another process. `shelf` is the store of workspace snapshots, None without git; `ground` is where forks
    get their folders. `push` names the notification targets that send to browsers. `closing` is set when the server is
    about to end, for responses that would go on.
    """

    store: Store
    intake: Intake
    kinds: Kinds
    clock: Clock
    entropy: Entropy
    home: Path
    access: Access
    index: SearchIndex
    url: str
    opening: Callable[[Visitor, SessionWanted], Awaitable[SessionRow]]
    opening_mission: Callable[[Visitor, MissionWanted], Awaitable[SessionRow]]
    ahead: Ahead
    shelf: Shelf | None = None
    push: tuple[str, ...] = ()
    ground: Ground | None = None
    secret: Callable[[str], str] = no_secret
    closing: anyio.Event = field(default_factory=anyio.Event)
    _projects: dict[str, Path] = field(default_factory=dict)

    @cached_property
    def pulse(self) -> Pulse:
        """The status of the home, for streams."""
        return Pulse(self.store)

    @cached_property
    def folds(self) -> Folds:
        """The states of sessions."""
        return Folds(self.store, self.kinds, self.ahead)

    def acting_as(self, visitor: Visitor) -> Intake:
        """Return the use cases that change sessions, for this caller: their events carry its name and proof."""
        return self.intake.acting_as(visitor.caller)

    async def find(self, visitor: Visitor, name: str) -> SessionRow:
        """Return a session by id, key, or unique part, if the caller may see it. Raises `UnknownSession`."""
        if not visitor.credential.project:
            return await self.store.find(name)
        with contextlib.suppress(UnknownSession):  # whose message may name sessions of other projects
            row = await self.store.find(name)
            if await self.sees(visitor, row):
                return row
        raise UnknownSession(f"there is no session {name!r} in the project of your key")

    async def find_item(self, visitor: Visitor, name: str) -> tuple[ItemRow, SessionRow]:
        """Return an inbox item and its session, if the caller may see it. Raises `UnknownItem`."""
        if not visitor.credential.project:
            item = await self.store.item(name)
            return item, await self.store.find(item.session_id)
        with contextlib.suppress(UnknownItem, UnknownSession):
            item = await self.store.item(name)
            return item, await self.find(visitor, item.session_id)
        raise UnknownItem(f"there is no inbox item {name!r} in the project of your key")

    async def sees(self, visitor: Visitor, row: SessionRow) -> bool:
        """True if a session belongs to the project that the caller is limited to, or the caller has no limit."""
        project = visitor.credential.project
        return not project or (await self._project(row)).is_relative_to(project)

    async def _project(self, row: SessionRow) -> Path:
        """The folder that a session's tree works on: a mission's repository, or the workspace of its top session.

        A fork works in a folder of the home, and belongs to the project of its origin.
        """
        while row.origin:
            try:
                row = await self.store.find(row.origin)
            except UnknownSession:
                break
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

    def keeps(self, visitor: Visitor) -> Callable[[SessionRow], Awaitable[bool]] | None:
        """Return a test for sessions that the caller may see, None for a caller who may see all."""
        return partial(self.sees, visitor) if visitor.credential.project else None
