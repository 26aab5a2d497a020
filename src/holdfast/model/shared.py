"""A model that all sessions of a home share: during an outage of it, one of them asks at a time.

A file of the model exists while it is out, and says when the next request is due. A session that is due then locks
the file and asks; the others wait for its result. The first part of a response ends the outage for all. The lock ends
with its process, so a killed one holds nobody up. Homes on one log tell each other when it is due; in each of them one
session asks then.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Protocol, cast

import msgspec
from msgspec.structs import replace

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
    """An outage of a model: its latest failure, the number of failures, and when the next request is due."""

    kind: ModelErrorKind
    message: str
    failures: int
    next_us: int


class OtherHomes(Protocol):
    """The homes on one log: they tell each other of models that are out, by the names of their files."""

    async def outage(self, model: str) -> tuple[str, int] | None:
        """Return what was told of a model, and the microseconds until its next request is due; None without an
        outage.
        """
        ...

    async def tell_outage(self, model: str, says: str, wait_us: int) -> None:
        """Tell the other homes of an outage, or with an empty text that it is over."""
        ...


class SharedModel:
    """A model that is asked by turns with the other sessions of the home while it is out.

    `file` is that of the model; with `others` it is a lock alone, and what they tell counts. A session that is not due
    gets the latest failure, with the time until the next request as its `retry_after_s`.
    """

    def __init__(
        self, model: Model, file: Path, clock: Clock, entropy: Entropy, others: OtherHomes | None = None
    ) -> None:
        self.name = model.name
        self._model = model
        self._file = file
        self._clock = clock
        self._entropy = entropy
        self._others = others

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
        while True:
            if self._others is not None and await self._others.outage(self._file.name) is None:
                return None
            fd = self._open(os.O_CREAT if self._others is not None else 0)
            if fd is None:
                return None
            try:
                if try_lock(fd) and is_at(fd, self._file):
                    outage = await self._known(fd)
                    wait_us = outage.next_us - self._clock.now_us() if outage is not None else 0
                    if outage is not None and 0 < wait_us <= FARTHEST_US:
                        message = f"{outage.message} (asked by another session)"
                        raise ModelError(outage.kind, message, retry_after_s=wait_us / 1e6)
                    fd, probe = None, fd
                    return probe
            finally:
                if fd is not None:
                    os.close(fd)
            await self._clock.sleep(_LOOK_S)

    def _open(self, flags: int) -> int | None:
        """Open the file of the model. None if it is not there, or cannot be used."""
        with contextlib.suppress(OSError):
            if flags:
                self._file.parent.mkdir(mode=0o700, exist_ok=True)
            return os.open(self._file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
        return None

    async def _known(self, fd: int) -> Outage | None:
        """Return the outage of a locked file. None in a new one, or one that a killed process left unfinished."""
        try:
            if self._others is None:
                return msgspec.json.decode(os.pread(fd, 1 << 16, 0), type=Outage)
            told = await self._others.outage(self._file.name)
            outage = msgspec.json.decode(told[0], type=Outage) if told is not None else None
            return replace(outage, next_us=self._clock.now_us() + told[1]) if outage and told else None
        except (OSError, msgspec.DecodeError):
            return None

    async def _failed(self, error: ModelError, probe: int | None) -> None:
        """Record a failure, unless the outage is known and not due again: that request began before it."""
        fd = probe if probe is not None else self._open(os.O_CREAT)
        if fd is None:
            return
        try:
            with contextlib.suppress(OSError):
                if probe is None and not try_lock(fd):
                    return
                before = await self._known(fd)
                if probe is None and before is not None:
                    return
                failures = before.failures + 1 if before is not None else 1
                wait_us = int(self._delay_s(error, failures) * 1e6)
                body = msgspec.json.encode(Outage(error.kind, str(error), failures, self._clock.now_us() + wait_us))
                if self._others is not None:
                    await self._others.tell_outage(self._file.name, body.decode(), wait_us)
                else:
                    os.ftruncate(fd, 0)
                    os.pwrite(fd, body, 0)
        finally:
            if probe is None:
                os.close(fd)

    async def _end(self) -> None:
        if self._others is not None:
            await self._others.tell_outage(self._file.name, "", 0)
        self._file.unlink(missing_ok=True)

    def _delay_s(self, error: ModelError, failures: int) -> float:
        """Return the provider's own time, or a backoff with full jitter from 1 s to a bound that doubles."""
        if error.retry_after_s is not None:
            return max(0.0, error.retry_after_s)
        bound_s = min(LONGEST_S, 2.0 ** min(failures - 1, 20))
        share = int.from_bytes(self._entropy(4), "big") / (1 << 32)
        return 1.0 + share * (bound_s - 1.0)
