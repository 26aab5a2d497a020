"""Parts of a session's state: jobs, services, failures of wakes, and the context."""

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
"""Prefix of the call ids of services that the environment starts with any hands."""


class Job(msgspec.Struct):
    """A command that continues by itself. `outcome` is None while it runs.

    `line` means that a line of its output is awaited. `deadline_us` is when the model is notified although it still
    runs, None afterwards; `until_us` is when it is killed. `line_seq`, `late_seq`, and `ended_seq` are the events of
    the line, the deadline, and the end, 0 for not yet.
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
        """Return the position of its latest news, 0 for none."""
        return max(self.line_seq, self.late_seq, self.ended_seq)


class ServiceRun(msgspec.Struct):
    """A server that runs in these hands, which know it as `call_id`."""

    name: str
    call_id: str
    hands_id: str
    seq: int
    command: str = ""

    @property
    def standing(self) -> bool:
        """True if it belongs to the environment: it does not keep hands alive and is restarted with the next."""
        return self.call_id.startswith(STANDING)


_BEGINS: tuple[type[Fact], ...] = (ShiftStarted, ShiftEnded, LeaseStolen, SessionError, ModelRequestStart, NoticeSent)
_PREPARES: tuple[type[Fact], ...] = (HandsProvisioned, HandsLost, HandsReleased, HandsRestored, EnvironmentRecorded)
_NOTES: tuple[type[Fact], ...] = (EgressRecorded, EgressFailed, WorkspaceSnapshotted, ApprovalSeen)
_NO_PROGRESS = frozenset((*_BEGINS, *_PREPARES, *_NOTES))
"""Facts that a wake appends before it makes progress. All others advance the work, or come from outside."""


FAILURES_MAX = 3
"""Number of wakes that may fail at one event, each in another way."""


class Failing(msgspec.Struct):
    """Failures of wakes since the latest event that advanced the work. `kind` and `at_seq` are of the latest wake that
    failed, `count` is how many failed there in a row; `asked` means that a model request was made since.
    """

    progress_seq: int = 0
    asked: bool = False
    kind: str = ""
    at_seq: int = 0
    count: int = 0

    def observe(self, fact: Fact, event: Event) -> None:
        """Take one more event of any kind into account."""
        if type(fact) not in _NO_PROGRESS:
            if not isinstance(fact, ModelRequestEnd) or fact.outcome == "ok":
                self.progress_seq, self.asked = event.seq, False
        elif isinstance(fact, ModelRequestStart):
            self.asked = True
        elif isinstance(fact, SessionError) and fact.at_seq:
            self.count = self.count + 1 if fact.at_seq == self.at_seq else 1
            self.kind, self.at_seq = fact.kind, fact.at_seq

    def repeated(self, kind: str = "") -> bool:
        """Return True if a wake that fails now with that kind fails like the latest one, without progress in between.

        Without a kind, it compares with the latest. Wakes that alternate between different failures are bounded too.
        """
        same = kind in ("", self.kind) or self.count >= FAILURES_MAX
        return bool(self.kind) and self.at_seq == self.progress_seq and same


class ContextState(msgspec.Struct):
    """Compactions, resets, and signs of the context so far (S16).

    `through_seq` is the last event that a summary or handoff covers. `failures` and `handoff_failures` count failed
    compactions and handoffs since the window was last renewed. `phase_seq` is a phase's end that no reset has followed
    yet. `handoff` is the latest; `resets` and `compactions` are counts. `sign_seq` is the latest unanswered sign, with
    its kind, description, and evidence; `signs_reset_seq` the last reset for a sign since a user wrote, 0 for none, and
    `sign_resets` counts those for a loop or no progress. `did_seq` is the latest successful call that was not
    read-only; `idle_resets` counts resets in a row without one. `checked_seq` and `checked_turns` are where rules were
    last checked. `tool_tokens` is the tool output in the window. `scale_milli` is the number of real tokens per
    thousand estimated ones, `learned_tokens` a limit learned from a model's refusal, 0 for none.
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
