"""A model that all sessions of a home share: during an outage of it, one of them asks at a time.

A file of the model exists while it is out, and says when the next request is due. A session that is due then locks
the file and asks; the others wait for its result. The first part of a response ends the outage for all. The lock ends
with its process, so a killed one holds nobody up. Homes on one log keep the outage in the log's database and only the
lock in the file, so one session of each home asks.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Protocol, cast

import msgspec

from holdfast.clock import Clock
from holdfast.errors import ModelError, ModelErrorKind
from holdfast.facts.base import Usage
from holdfast.ids import Entropy
from holdfast.locks import is_at, try_lock
from holdfast.model.base import Model, ModelRequest, StreamPart

OUTAGES: frozenset[ModelErrorKind] = frozenset({"rate_limited", "overloaded", "unavailable"})
"""Failures that every other session of the home would meet, too.

`timeout` and `bad_stream` are not among them. A response may be late or cut because of the one request, such as a long
context or a long answer, so they do not show that the provider is out, and must not hold up the other sessions.
"""

LONGEST_S = 300.0
"""Longest time between two requests of an outage, unless the provider names a longer one."""

FARTHEST_US = 86_400 * 1_000_000
"""A due time that is farther away was stamped before the clock was set back."""

_LOOK_S = 0.05


class Outage(msgspec.Struct, frozen=True):
    """An outage of a model: its latest failure, and the number of failures."""

    kind: ModelErrorKind
    message: str
    failures: int


class Outages(Protocol):
    """The outages that sessions share, as texts by the name of the model's file."""

    async def outage(self, model: str) -> tuple[str, int] | None:
        """Return the text of an outage, and the microseconds until the next request is due; None without an outage."""
        ...

    async def tell_outage(self, model: str, says: str, wait_us: int) -> None:
        """Tell the others of an outage, or with an empty text that it is over."""
        ...


class HomeOutages:
    """The outages of one home, each in the file of its model. A file that a killed process left unfinished is due."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    async def outage(self, model: str) -> tuple[str, int] | None:
        """See `Outages.outage`."""
        try:
            due_us, _, says = (self._folder / model).read_text("utf-8", "replace").partition(" ")
        except OSError:
            return None
        return (says, int(due_us) - self._clock.now_us()) if due_us.isdecimal() else ("", 0)

    async def tell_outage(self, model: str, says: str, wait_us: int) -> None:
        """See `Outages.tell_outage`."""
        with contextlib.suppress(OSError):
            if says:
                (self._folder / model).write_text(f"{self._clock.now_us() + wait_us} {says}", "utf-8")
            else:
                (self._folder / model).unlink()


class SharedModel:
    """A model that is asked by turns with the other sessions of the home while it is out.

    `file` is that of the model, which the session that asks locks. A session that is not due gets the latest failure,
    with the time until the next request as its `retry_after_s`.
    """

    def __init__(
        self, model: Model, file: Path, clock: Clock, entropy: Entropy, outages: Outages | None = None
    ) -> None:
        self.name = model.name
        self._model = model
        self._file = file
        self._clock = clock
        self._entropy = entropy
        self._outages = outages or HomeOutages(file.parent, clock)

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        """See `Model.worst_case_pico`."""
        return self._model.worst_case_pico(request)

    def cost_pico(self, usage: Usage) -> int | None:
        """See `Model.cost_pico`."""
        return self._model.cost_pico(usage)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """See `Model.stream`."""
        probe = await self._turn()
        answered = False
        try:
            async with aclosing(cast(AsyncGenerator[StreamPart], self._model.stream(request))) as parts:
                async for part in parts:
                    if probe is not None and not answered:
                        await self._end()
                    answered = True
                    yield part
        except ModelError as error:
            if error.kind in OUTAGES and not answered:
                await self._failed(error, probe)
            elif probe is not None:
                await self._end()  # it answers, though not with a response
            raise
        finally:
            if probe is not None:
                os.close(probe)

    async def _turn(self) -> int | None:
        """Wait while another session asks. Return the locked file if this one is to ask, None without an outage.

        Raises `ModelError` if the next request is not due.
        """
        while await self._outages.outage(self._file.name) is not None:
            fd = self._open()
            if fd is None:
                return None
            try:
                if try_lock(fd) and is_at(fd, self._file):
                    outage, wait_us = await self._known()
                    if outage is not None and 0 < wait_us <= FARTHEST_US:
                        message = f"{outage.message} (asked by another session)"
                        raise ModelError(outage.kind, message, retry_after_s=wait_us / 1e6)
                    fd, probe = None, fd
                    return probe
            finally:
                if fd is not None:
                    os.close(fd)
            await self._clock.sleep(_LOOK_S)
        return None

    def _open(self) -> int | None:
        """Open the file of the model, or create it. None if it cannot be used."""
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(mode=0o700, exist_ok=True)
            return os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        return None

    async def _known(self) -> tuple[Outage | None, int]:
        """Return the outage, None if there is none or its text is unfinished, and the microseconds until it is due."""
        says, wait_us = await self._outages.outage(self._file.name) or ("", 0)
        try:
            return msgspec.json.decode(says, type=Outage), wait_us
        except msgspec.DecodeError:
            return None, 0

    async def _failed(self, error: ModelError, probe: int | None) -> None:
        """Record a failure, unless the outage is known and not due again: that request began before it."""
        fd = probe if probe is not None else self._open()
        if fd is None:
            return
        try:
            if probe is None and not try_lock(fd):
                return
            before, _ = await self._known()
            if probe is None and before is not None:
                return
            failures = before.failures + 1 if before is not None else 1
            wait_us = int(self._delay_s(error, failures) * 1e6)
            says = msgspec.json.encode(Outage(error.kind, str(error), failures)).decode()
            await self._outages.tell_outage(self._file.name, says, wait_us)
        except OSError:
            return
        finally:
            if probe is None:
                os.close(fd)

    async def _end(self) -> None:
        await self._outages.tell_outage(self._file.name, "", 0)
        self._file.unlink(missing_ok=True)

    def _delay_s(self, error: ModelError, failures: int) -> float:
        """Return the provider's own time, or a backoff with full jitter from 1 s to a bound that doubles."""
        if error.retry_after_s is not None:
            return max(0.0, error.retry_after_s)
        bound_s = min(LONGEST_S, 2.0 ** min(failures - 1, 20))
        share = int.from_bytes(self._entropy(4), "big") / (1 << 32)
        return 1.0 + share * (bound_s - 1.0)
