"""What a state knows of commands that outlive shifts, and of servers."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.hands import (
    EgressFailed,
    EgressRecorded,
    EnvironmentRecorded,
    HandsLost,
    HandsProvisioned,
    HandsReleased,
    HandsRestored,
    WorkspaceSnapshotted,
)
from holdfast.facts.model import Handoff, ModelRequestEnd, ModelRequestStart, SignKind
from holdfast.facts.people import ApprovalSeen, NoticeSent
from holdfast.facts.session import SessionError
from holdfast.facts.shift import LeaseStolen, ShiftEnded, ShiftStarted

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


_BEGINS: tuple[type[Fact], ...] = (ShiftStarted, ShiftEnded, LeaseStolen, SessionError, ModelRequestStart, NoticeSent)
_PREPARES: tuple[type[Fact], ...] = (HandsProvisioned, HandsLost, HandsReleased, HandsRestored, EnvironmentRecorded)
_NOTES: tuple[type[Fact], ...] = (EgressRecorded, EgressFailed, WorkspaceSnapshotted, ApprovalSeen)
_NO_PROGRESS = frozenset((*_BEGINS, *_PREPARES, *_NOTES))
"""What a wake writes before it gets anywhere. Everything else moves the work on, or comes from outside."""


FAILURES_MAX = 3
"""So many wakes may fail at one event, each in another way."""


class Failing(msgspec.Struct):
    """Where the work stands: the latest event that moved it on, and whether a model was asked since. `kind` and
    `at_seq` are of the latest wake that failed, `count` is how many failed there in a row.
    """

    progress_seq: int = 0
    asked: bool = False
    kind: str = ""
    at_seq: int = 0
    count: int = 0

    def observe(self, fact: Fact, event: Event) -> None:
        """Note one more event of any kind."""
        if isinstance(fact, SessionError) and fact.at_seq:
            self.count = self.count + 1 if fact.at_seq == self.at_seq else 1
            self.kind, self.at_seq = fact.kind, fact.at_seq
        elif isinstance(fact, ModelRequestStart):
            self.asked = True
        elif type(fact) not in _NO_PROGRESS and not (isinstance(fact, ModelRequestEnd) and fact.outcome != "ok"):
            self.progress_seq, self.asked = event.seq, False

    def repeated(self, kind: str = "") -> bool:
        """Whether a wake that fails now in that way fails again as the latest did, with nothing done in between.

        Without a kind: as the latest did. Wakes that fail in turns differently are not tried for ever either.
        """
        same = kind in ("", self.kind) or self.count >= FAILURES_MAX
        return bool(self.kind) and self.at_seq == self.progress_seq and same


class ContextState(msgspec.Struct):
    """The life of the context so far (S16).

    `through_seq` is the last event that a summary or handoff covers. `failures` and `handoff_failures` count
    failed compactions and handoffs since the window was last renewed. `phase_seq` is a phase's end that no
    reset has answered yet. `handoff` is the latest, `resets` and `compactions` count. `sign_seq` is the latest
    sign that nothing has answered, with its kind, its words and its evidence; `signs_reset_seq` the last reset for a
    sign since a person spoke, 0 for none, and `sign_resets` counts those for a loop or for no progress.
    `did_seq` is the latest call that went well and was no mere look; `idle_resets` counts resets in a row before
    which there was none.
    `checked_seq` and `checked_turns` are where rules were last held against what was done. `tool_tokens` is
    the share of tool output in the window. `scale_milli` is how many real tokens a thousand estimated ones are,
    `learned_tokens` a line that a model's own refusal taught, 0 for none.
    """

    through_seq: int = 0
    failures: int = 0
    handoff_failures: int = 0
    phase_seq: int = 0
    handoff: Handoff | None = None
    resets: int = 0
    compactions: int = 0
    sign_seq: int = 0
    sign_kind: SignKind | None = None
    sign_detail: str = ""
    sign_evidence: tuple[int, ...] = ()
    signs_reset_seq: int = 0
    sign_resets: int = 0
    did_seq: int = 0
    reset_seq: int = 0
    idle_resets: int = 0
    checked_seq: int = 0
    checked_turns: int = 0
    tool_tokens: int = 0
    scale_milli: int = 1000
    learned_tokens: int = 0
