"""What a state knows of commands that outlive shifts, and of servers."""

from __future__ import annotations

from typing import Literal

import msgspec

JobOutcome = Literal["ok", "error", "timeout", "stopped", "unknown"]


STANDING = "env."
"""How the call ids of services begin that stand ready whenever there are hands: those of the environment."""


class Job(msgspec.Struct):
    """A command that was started and goes on by itself. `outcome` is None while it runs.

    `line` says that a line of its output is waited for. `deadline_us` is when it is told of though it runs, None once
    it was; `until_us` when it ends at the latest. `line_seq`, `late_seq` and `ended_seq` are where the line, the
    deadline and the end were told, 0 for not yet.
    """

    job_id: str
    call_id: str
    hands_id: str
    name: str
    seq: int
    started_us: int
    command: str = ""
    line: bool = False
    deadline_us: int | None = None
    until_us: int | None = None
    outcome: JobOutcome | None = None
    line_seq: int = 0
    late_seq: int = 0
    ended_seq: int = 0

    def news_seq(self) -> int:
        """Where the latest of it was told, 0 for nothing yet."""
        return max(self.line_seq, self.late_seq, self.ended_seq)


class ServiceRun(msgspec.Struct):
    """A server that runs in these hands. `call_id` is what they know it by."""

    name: str
    call_id: str
    hands_id: str
    seq: int
    command: str = ""

    @property
    def standing(self) -> bool:
        """Whether it comes with the hands, and holds none: it is started again with the next."""
        return self.call_id.startswith(STANDING)
