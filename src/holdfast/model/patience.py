"""How long a provider may take. The limits are ours: what a client library would wait is not in our log."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

import anyio
import msgspec

from holdfast.clock import Clock
from holdfast.errors import ModelError

T = TypeVar("T")


class Patience(msgspec.Struct, frozen=True):
    """Seconds. `connect_s` until there is a connection, `first_s` from the start until the first part of an
    answer, `between_s` of silence on the wire after that. A model that reasons may say nothing for minutes.
    """

    connect_s: float = 10.0
    first_s: float = 600.0
    between_s: float = 300.0


class Watch:
    """One answer against the clock. Whatever comes over the wire is a sign of life."""

    def __init__(self, patience: Patience, clock: Clock) -> None:
        self.patience = patience
        self._clock = clock
        self._began_s = clock.monotonic_s()
        self._alive_s = self._began_s
        self._answered = False

    def alive(self) -> None:
        """Something came."""
        self._alive_s = self._clock.monotonic_s()

    def answered(self) -> None:
        """A part of the answer came: from now on silence counts."""
        self._answered = True
        self.alive()

    def _left_s(self) -> float:
        if self._answered:
            return self._alive_s + self.patience.between_s - self._clock.monotonic_s()
        return self._began_s + self.patience.first_s - self._clock.monotonic_s()

    def _complaint(self) -> ModelError:
        if self._answered:
            return ModelError("timeout", f"the provider fell silent for {self.patience.between_s:g} s in its answer")
        return ModelError("timeout", f"the provider did not begin to answer within {self.patience.first_s:g} s")

    async def within(self, work: Awaitable[T]) -> T:
        """What `work` gives. Raises `ModelError` of kind `timeout` when it takes too long; `work` is cancelled."""
        results: list[T] = []
        error: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._expire, group.cancel_scope)
            try:
                results.append(await work)
            except Exception as raised:
                error = raised
            group.cancel_scope.cancel()
        if results:
            return results[0]
        try:
            raise error or self._complaint()
        finally:
            error = None  # else the traceback would hold this frame, and the frame the traceback

    async def _expire(self, scope: anyio.CancelScope) -> None:
        while (left_s := self._left_s()) > 0:
            await self._clock.sleep(left_s)
        scope.cancel()
