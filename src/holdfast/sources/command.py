"""A command as a source: it prints one JSON value a line, and gets the cursor in `HOLDFAST_CURSOR`.

A command that fails, runs too long, or ends in the middle of a line contributes nothing, and the cursor stays.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from holdfast.errors import SourceError
from holdfast.sources.base import Polled, excerpt
from holdfast.sources.records import RESPONSE_BYTES, read
from holdfast.sources.settings import CommandSettings

CURSOR = "HOLDFAST_CURSOR"
"""Environment variable with the cursor, empty at first."""


class Output(NamedTuple):
    """Result of a command. `cut` is True if it printed more than it may."""

    exit_code: int | None
    out: bytes
    err: str = ""
    cut: bool = False


class Run(Protocol):
    """The place where commands run: a sandbox, as for checks."""

    async def __call__(self, command: str, env: dict[str, str], timeout_s: float, out_bytes: int) -> Output:
        """Run a shell command and return its output; `exit_code` is None if it was killed."""
        ...


class CommandSource:
    """The output of a command, run with `run`."""

    def __init__(self, settings: CommandSettings, run: Run) -> None:
        self._settings = settings
        self._run = run

    async def poll(self, cursor: str, limit: int) -> Polled:
        """See `Source.poll`."""
        settings = self._settings
        sent = cursor if settings.cursor_field else ""
        ended = await self._run(settings.command, {CURSOR: sent}, settings.timeout_s, RESPONSE_BYTES)
        if ended.cut:
            raise SourceError(
                f"the command printed more than {RESPONSE_BYTES} bytes; nothing was taken. Let it print less at a time",
                retryable=False,
            )
        if ended.exit_code != 0:
            how = f"within {settings.timeout_s:g} s" if ended.exit_code is None else f"with status {ended.exit_code}"
            verb = "did not end" if ended.exit_code is None else "ended"
            why = f": {excerpt(ended.err)}" if ended.err.strip() else ""
            raise SourceError(f"the command {verb} {how}{why}; nothing was taken", retryable=True)
        return read(ended.out, settings, cursor, limit)
