"""The life of a context: what was put in place of older turns, and the signs that it goes wrong (S16, S17)."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.facts.base import Fact

ResetCause = Literal["line", "phase", "anxiety", "loop", "no_progress", "compaction_failed", "asked"]
"""Why a context was torn down: the token line, a phase that ended, signs, compaction that kept failing, a wish."""

SignKind = Literal["anxiety", "loop", "no_progress"]


class Handoff(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a context leaves to its successor. Entries are added, never rewritten: no note is made from a note."""

    done: tuple[str, ...] = ()
    workspace: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    dead_ends: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    next: tuple[str, ...] = ()


class ContextCompacted(Fact, frozen=True, tag="context.compacted"):
    """The turns after `from_seq` up to `through_seq` are shown as `summary` from here on.

    The summary was made from the raw log of exactly that stretch, never from another summary (S16).
    """

    request_seq: int
    from_seq: int
    through_seq: int
    summary: str
    tokens_before: int = 0
    tokens_after: int = 0


class ContextReset(Fact, frozen=True, tag="context.reset"):
    """The conversation was torn down up to `through_seq`; the next one starts from the handoff.

    `request_seq` is 0 when code wrote the note because no model would. `files` are the digests under which the
    outgoing context knew the files that the note speaks of (S18).
    """

    cause: ResetCause
    through_seq: int
    handoff: Handoff
    request_seq: int = 0
    detail: str = ""
    files: dict[str, str] = {}
    tokens_before: int = 0


class ContextSign(Fact, frozen=True, tag="context.sign"):
    """The log shows a sign of anxiety, of a loop, or of no progress; `evidence` are sequence numbers."""

    kind: SignKind
    detail: str
    evidence: tuple[int, ...] = ()


class ContextFailed(Fact, frozen=True, tag="context.failed"):
    """A compaction or a handoff answered, and the answer could not be used."""

    request_seq: int
    purpose: Literal["compaction", "handoff"]
    reason: str


class PhaseEnded(Fact, frozen=True, tag="context.phase_ended"):
    """The agent said that a phase of its work is over and another begins."""

    call_id: str
    name: str
    next: str = ""


class RuleChecked(Fact, frozen=True, tag="rule.checked"):
    """The rules that code can check were held against what was done after `from_seq` through `through_seq`."""

    from_seq: int
    through_seq: int
    rules: int


class RuleBreached(Fact, frozen=True, tag="rule.breached"):
    """What was done at `evidence` does not keep a pinned rule."""

    rule: str
    detail: str
    evidence: tuple[int, ...] = ()
