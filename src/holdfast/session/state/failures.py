"""The fold of wakes that fail: where the work stood, and what failed there last."""

from __future__ import annotations

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.egress import EgressFailed, EgressRecorded
from holdfast.facts.environment import EnvironmentRecorded
from holdfast.facts.hands import HandsLost, HandsProvisioned, HandsReleased, HandsRestored
from holdfast.facts.model import ModelRequestEnd, ModelRequestStart
from holdfast.facts.people import ApprovalSeen, NoticeSent
from holdfast.facts.session import SessionError
from holdfast.facts.shift import LeaseStolen, ShiftEnded, ShiftStarted
from holdfast.facts.workspace import WorkspaceSnapshotted

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
