"""Changes of protected files that may be right: when a person is asked about them, and what their answer covers. Pure.

An answer is bound to a digest of paths and contents. Approved content stays allowed for the whole mission, wherever it
comes up again; anything else, even one byte off, is asked about anew or refused. A refusal is final for that content.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from holdfast.facts.base import Fact
from holdfast.facts.people import ApprovalSuperseded
from holdfast.facts.task import Violation
from holdfast.session.decide.people import unanswered
from holdfast.session.state import Ask, State

KIND = "change"

HINT = "if it is right nevertheless, hand in again and name the path among your deviations: then a person is asked"
"""What a worker is told once about a way that there is."""


def asking(state: State, effect: str) -> bool:
    """Whether an inspection waits for a person's answer."""
    return any(ask.kind == KIND and ask.call_id == effect for ask in unanswered(state))


def waiting(state: State) -> list[Ask]:
    """Questions about changes that nobody has answered."""
    return [ask for ask in unanswered(state) if ask.kind == KIND]


def answered(state: State, digest: str) -> Ask | None:
    """The latest answer about this very content, whichever task it came up in."""
    found = [ask for ask in state.asks.values() if ask.kind == KIND and ask.action_digest == digest and ask.verdict]
    return found[-1] if found else None


def stale(state: State, wanted: Collection[str]) -> tuple[Fact, ...]:
    """The facts that end questions about trees whose inspection is not among the `wanted` effects any more."""
    reason = "its task went on without this change"
    return tuple(
        ApprovalSuperseded(item_id=ask.item_id, reason=reason) for ask in waiting(state) if ask.call_id not in wanted
    )


def declared(violations: Sequence[Violation], deviations: Sequence[str]) -> bool:
    """Whether a worker named every path that its violations are about as a deviation."""
    words = {word for line in deviations for word in re.findall(r"[^\s,;:()'\"`]+", line)}
    words |= {word.rstrip(".") for word in words}
    return all(each.path in words for each in violations)
