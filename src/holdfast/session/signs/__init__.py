"""Signs in the trace of a context that goes wrong: loops, anxiety, no progress. Pure.

A loop is the same effect again and again with nothing new in between. Healthy work differs in three ways:

- a change (`holdfast.session.signs.trace`) ends every repetition, so tests between edits are not a loop;
- waiting on purpose (`sleep 30`, `gh run watch`) is polling or backoff, which may take long;
- reading brings information; where most turns bring some, a repeated look in between is not a loop.

Anxiety is measured against the session's own earlier turns, never against a fixed length, and only above `ANXIOUS_FROM`
of the context limit. Each sign gives points, and one kind of sign alone is not enough unless the agent itself mentions
its limit repeatedly.
"""

from __future__ import annotations

import msgspec

from holdfast.facts.model import SignKind
from holdfast.facts.session import Breakers, ContextPolicy
from holdfast.session.signs.anxiety import ANXIOUS_FROM, anxiety
from holdfast.session.signs.loops import loop
from holdfast.session.signs.trace import NOTHING, STEPS_MAX, Step, Turn, turns

__all__ = ["ANXIOUS_FROM", "WAITING_WEIGHT", "Sign", "sign"]

WAITING_WEIGHT = 0.25
"""Weight, relative to an idle turn, of a turn that waits on purpose, or looks after a wait, and finds nothing new."""


class Sign(msgspec.Struct, frozen=True):
    """A sign: its kind, a description, and the positions of the responses that show it."""

    kind: SignKind
    detail: str
    evidence: tuple[int, ...]


def sign(steps: list[Step], fill: float, policy: ContextPolicy, breakers: Breakers) -> Sign | None:
    """Return the sign that the trace shows now, if any.

    `fill` is the size of the context as a share of its limit. Call it when all calls of the latest response have ended,
    before the next request and before the session is considered done.
    """
    if not policy.signs:
        return None
    every, first = turns(steps)
    recent = every[first:]
    if not recent:
        return None
    found = loop(recent)
    if found is not None:
        return Sign("loop", *found)
    pressed = anxiety(every, first) if fill >= ANXIOUS_FROM else None
    if pressed is not None:
        detail, evidence = pressed
        return Sign("anxiety", f"{detail} (the context is at {fill:.0%} of its line)", evidence)
    return _idle(recent, breakers.idle_turns)


def _idle(recent: list[Turn], idle_turns: int) -> Sign | None:
    weight = 0.0
    idle: list[int] = []
    for index in range(len(recent) - 1, -1, -1):
        turn = recent[index]
        if turn.brought != NOTHING:
            break
        waited = turn.waits or (index > 0 and recent[index - 1].waits)
        weight += WAITING_WEIGHT if waited else 1.0
        idle.append(turn.step.seq)
    if weight < idle_turns and len(idle) < STEPS_MAX - 1:
        return None
    detail = f"the last {len(idle)} turns changed nothing and showed nothing new"
    return Sign("no_progress", detail, tuple(reversed(idle)))
