"""Who looks at which session when. A doorbell only: the lease excludes, the wake row remembers (S27).

The inline dispatcher serves one process on one machine straight from the wake rows.
"""

from __future__ import annotations

from typing import Protocol

import anyio

from holdfast.brain.alongside import first_error
from holdfast.brain.doors import uptime
from holdfast.clock import Clock
from holdfast.errors import HoldfastError, UnknownSession
from holdfast.fleet.crew import Crew, Handler, OnError
from holdfast.log.base import Index, Which

LOOK_S = 1.0
"""How often to look whether a process still lives that holds a session which is waited for."""

TRIES = 5
"""Beside a session in the foreground, one of its descendants is given up after so many failures in a row."""


class Board(Index, Protocol):
    """What a dispatcher looks at: the rows, who holds what, and whether anything moved."""

    async def changed(self, after: int) -> int:
        """See `holdfast.log.base.Log`."""
        ...

    async def holders(self) -> dict[str, str]:
        """See `holdfast.log.base.Leases`."""
        ...


class Dispatcher(Protocol):
    """Rings sessions, and runs a handler for those that are due."""

    async def ring(self, session_id: str) -> None:
        """Have that session looked at soon."""
        ...

    async def run(self, handler: Handler) -> None:
        """Call `handler` for each due session until nothing is due."""
        ...


class InlineDispatcher:
    """Runs due sessions side by side, each in a task of its own, up to `limit` at a time.

    With `only`, just that session and all below it: an error of it ends the run, one below it is told to
    `on_error` and tried again a few times; and what other processes hold of the tree is waited for. With `stays` the
    jobs of the tree are waited for too.
    """

    def __init__(
        self,
        board: Board,
        clock: Clock,
        *,
        boot_id: str,
        only: str = "",
        limit: int = 1,
        on_error: OnError | None = None,
        stays: bool = False,
    ) -> None:
        self._board = board
        self._clock = clock
        self._boot_id = boot_id
        self._only = only
        self._limit = limit
        self._on_error = on_error
        self._stays = stays
        self._rung: list[str] = []
        self._in_tree: dict[str, bool] = {"": False, only: True} if only else {}

    async def ring(self, session_id: str) -> None:
        """Have that session looked at first."""
        if session_id not in self._rung:
            self._rung.append(session_id)

    async def run(self, handler: Handler) -> None:
        """Call `handler` for each due session until nothing is due. One that is held is left to its holder."""
        try:
            async with anyio.create_task_group() as group:
                on_error = self._told if self._only else None
                crew = Crew(group, self._clock, handler, limit=self._limit, on_error=on_error, tries=TRIES)
                if self._only:
                    group.start_soon(watch, self._board, crew)
                await self._until_rest(crew)
                group.cancel_scope.cancel()
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None

    def _told(self, session_id: str, error: HoldfastError, again_s: float | None) -> None:
        if session_id == self._only or self._on_error is None:
            raise error
        self._on_error(session_id, error, again_s)

    async def _until_rest(self, crew: Crew) -> None:
        while True:
            crew.listen()
            due = await self._due(crew)
            crew.start(due)
            if not crew.running and not (self._only and await self._goes_on(crew, due)):
                if not self._only or not await self._became_due(due):
                    return
                continue
            await crew.stirred(LOOK_S if self._only else None)

    async def _due(self, crew: Crew) -> list[str]:
        rung, self._rung = self._rung, []
        for session_id in rung:
            crew.forget(session_id)
        due = await self._board.due(self._clock.now_us(), uptime(self._clock, self._boot_id))
        mine = [session_id for session_id in due if session_id not in rung and await self._is_mine(session_id)]
        return rung + mine

    async def _became_due(self, due: list[str]) -> bool:
        """Whether what another process held until now is due instead: it was held when due sessions were looked for."""
        now = await self._board.due(self._clock.now_us(), uptime(self._clock, self._boot_id))
        return any([each not in due and await self._is_mine(each) for each in now])

    async def _goes_on(self, crew: Crew, due: list[str]) -> bool:
        """Whether more will come of the tree: something rests after an error, or another process holds some of it."""
        if crew.waiting(due):
            return True
        if any([await self._is_mine(session_id) for session_id in await self._board.holders()]):
            return True
        return self._stays and any([await self._is_mine(each) for each in await self._with_jobs()])

    async def _with_jobs(self) -> list[str]:
        """Sessions of the tree that wait for a job."""
        root = (await self._board.find(self._only)).root
        return [row.session_id for row in await self._board.sessions(Which(root=root, reason="job"))]

    async def _is_mine(self, session_id: str) -> bool:
        """Whether a session is one of those to look at. Who is above whom never changes, so each is asked once."""
        if not self._only:
            return True
        chain = []
        while session_id not in self._in_tree:
            chain.append(session_id)
            try:
                session_id = (await self._board.find(session_id)).parent
            except UnknownSession:
                session_id = ""
        for name in chain:
            self._in_tree[name] = self._in_tree[session_id]
        return self._in_tree[session_id]


async def watch(board: Board, crew: Crew) -> None:
    """Stir the crew whenever anything moves in the log. Never returns."""
    token = 0
    while True:
        token = await board.changed(token)
        crew.stir()
