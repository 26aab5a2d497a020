"""What each step of a trace brought that was not there before. Pure.

A step brings a *change* when a `write` or `edit` left a file as it has not been before, or a command ran that
alters things and is no other wording of an earlier one. It brings *information* when a result shows what no
earlier one showed, times and durations left out. A short result ("", "ok") says nothing without its call, so
there the call has to be about something else. The same command whose output only repeats its lines more often
brings nothing. Information counts from the last boundary on (what a summary swallowed may be looked up
again, what a person asks for may be repeated), changes from the last reset on.
"""

from __future__ import annotations

import msgspec

from holdfast.session.trace import NOT_RUN, OK, OPEN, CallNote, Step
from holdfast.session.trace.digests import MUTATES, READS, WAITS, alike

NOTHING, INFORMATION, CHANGE = range(3)
"""What a call or a step brought."""

SHORT_RESULT = 24
"""A result of fewer bytes says nothing without the call that it answers."""


class Turn(msgspec.Struct, frozen=True, gc=False):
    """A step that ended, with what it brought. `waits` is set when one of its calls waited."""

    step: Step
    brought: int
    waits: bool


class _Known(msgspec.Struct):
    """What the steps so far have shown."""

    files: set[int]
    alterations: list[CallNote]
    by_value: dict[int, list[CallNote]]
    by_call: dict[int, list[CallNote]]


def turns(steps: list[Step]) -> tuple[list[Turn], int]:
    """The steps that have ended, each with what it brought, and the index of the first after the last boundary."""
    known = _Known(set(), [], {}, {})
    out: list[Turn] = []
    first = 0
    for step in steps:
        if step.boundary:
            first = len(out)
            known.by_value, known.by_call = {}, {}
            continue
        brought = NOTHING
        for call in step.calls:
            brought = max(brought, _brought(call, known))
            _learn(call, known)
        if step.ended():
            out.append(Turn(step, brought, any(call.kind & WAITS for call in step.calls)))
    return out, first


def _brought(call: CallNote, known: _Known) -> int:
    if call.outcome in (OPEN, NOT_RUN):
        return NOTHING
    if call.outcome == OK and not call.kind & READS:
        if call.files:
            return NOTHING if known.files.issuperset(call.files) else CHANGE
        if call.kind & MUTATES and not any(_reworded(call, each) for each in known.alterations):
            return CHANGE
    for each in known.by_call.get(call.call, ()):
        if each.shape == call.shape and (each.value == call.value or call.length > each.length > SHORT_RESULT):
            return NOTHING
    shown = known.by_value.get(call.value, ())
    if not shown:
        return INFORMATION
    if call.length >= SHORT_RESULT or any(alike(each.words, call.words) for each in shown):
        return NOTHING
    return INFORMATION


def _reworded(call: CallNote, other: CallNote) -> bool:
    if other.call == call.call:
        return True
    return other.outcome == call.outcome and other.shape == call.shape and alike(other.words, call.words, 0.8)


def _learn(call: CallNote, known: _Known) -> None:
    if call.outcome in (OPEN, NOT_RUN):
        return
    known.files.update(call.files)
    known.by_value.setdefault(call.value, []).append(call)
    known.by_call.setdefault(call.call, []).append(call)
    if call.kind & MUTATES:
        known.alterations.append(call)
