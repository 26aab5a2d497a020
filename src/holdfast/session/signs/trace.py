"""Trace of the latest responses and their calls: a few small numbers each, as input for the signs. Pure.

The fold feeds every fact to `note`. Only digests are kept (`holdfast.session.signs.features`), so a state with a trace
stays small. The trace depends on the last `STEPS_MAX` responses alone: a fold of a long log may skip everything before
`first_that_counts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import msgspec

from holdfast.facts.base import Fact, text_of
from holdfast.facts.model import (
    AgentMessage,
    AgentThinking,
    AgentToolUse,
    ContextCompacted,
    ContextReset,
    ModelRequestEnd,
    ModelRequestStart,
)
from holdfast.facts.people import UserMessage
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.session.signs.features import (
    MUTATES,
    PROSE,
    READS,
    WAITS,
    about,
    alike,
    call_digest,
    flags_of,
    result_digests,
    stub_marks,
    text_marks,
)

STEPS_MAX = 60
"""Maximum number of steps to keep: a context has about forty (100,000 tokens at 2,500 a step)."""

CALLS_MAX = 8
"""Number of calls of one response that are traced; more are only counted."""

OPEN, OK, ERROR, NOT_RUN, UNKNOWN = range(5)
"""Outcome of a call. `NOT_RUN` covers denied, skipped, and cancelled calls."""

_OUTCOMES = {"ok": OK, "error": ERROR}


class CallNote(msgspec.Struct, array_like=True, gc=False):
    """A call. `id` and `call` are digests of its id and of its name with its input.

    `words` are digests of the names in its input, `kind` its flags (`READS` and its neighbors). Of the result, `value`
    is a digest without times, `shape` one without numbers, `sketch` a sample of its lines, `length` its size in bytes.
    `files` are digests of paths with their content.
    """

    id: int
    name: str
    call: int
    words: tuple[int, ...] = ()
    kind: int = 0
    outcome: int = OPEN
    value: int = 0
    shape: int = 0
    sketch: tuple[int, ...] = ()
    length: int = 0
    files: tuple[int, ...] = ()


class Step(msgspec.Struct, array_like=True):
    """A response and the ends of its calls.

    `seq` is the position of its request. `count` is the number of calls, of which `calls` has the first few. `text` and
    `thinking` are character counts, `marks` the phrases found in the text. A step with a `boundary` is not a response:
    a user wrote, or older turns became a summary.
    """

    seq: int
    calls: list[CallNote] = []
    count: int = 0
    text: int = 0
    thinking: int = 0
    marks: int = 0
    whole: bool = False
    boundary: str = ""

    def ended(self) -> bool:
        """Return True if the response is complete and all its calls have ended."""
        return self.whole and all(call.outcome != OPEN for call in self.calls)

    def has(self, kind: int) -> bool:
        """Return True if one of its calls has that flag."""
        return any(call.kind & kind for call in self.calls)


def note(steps: list[Step], fact: Fact, seq: int) -> None:
    """Add the fact at position `seq` to the trace. Irrelevant facts change nothing."""
    match fact:
        case ToolResult() | ToolOutcomeUnknown():
            _end_call(steps, fact)
        case AgentToolUse() | AgentMessage() | AgentThinking():
            step = _of_request(steps, fact.request_seq)
            if step is not None:
                _part(step, fact)
        case ModelRequestStart(purpose="turn"):
            steps.append(Step(seq))
        case ModelRequestEnd():
            _end_request(steps, fact)
        case UserMessage():
            _bound(steps, seq, "person")
        case ContextCompacted():
            _bound(steps, seq, "compacted")
        case ContextReset():
            steps.clear()
        case _:
            return


def first_that_counts(facts: Sequence[tuple[int, Fact]]) -> int:
    """Return the index in `facts`, with their positions, from which `note` gives the same trace as from the start."""
    whole: set[int] = set()
    found = 0
    for index in range(len(facts) - 1, -1, -1):
        seq, fact = facts[index]
        match fact:
            case ContextReset():
                return index
            case ModelRequestEnd(outcome="ok"):
                whole.add(fact.request_seq)
            case ModelRequestStart(purpose="turn"):
                found += seq in whole
            case UserMessage() | ContextCompacted():
                found += 1
        if found >= STEPS_MAX:
            return index
    return 0


def _trim(steps: list[Step]) -> None:
    """Keep the latest complete steps, and the open ones after them."""
    over = sum(1 for step in steps if step.whole) - STEPS_MAX
    while over > 0:
        over -= steps[0].whole
        del steps[0]


def _bound(steps: list[Step], seq: int, boundary: str) -> None:
    steps.append(Step(seq, whole=True, boundary=boundary))
    _trim(steps)


def _of_request(steps: list[Step], request_seq: int) -> Step | None:
    for step in reversed(steps[-4:]):
        if step.seq == request_seq and not step.boundary:
            return step
    return None


def _part(step: Step, fact: AgentMessage | AgentThinking | AgentToolUse) -> None:
    match fact:
        case AgentMessage():
            text = text_of(fact.content)
            step.text += len(text)
            step.marks |= text_marks(text)
        case AgentThinking():
            step.thinking += len(fact.text)
        case AgentToolUse():
            step.count += 1
            if len(step.calls) >= CALLS_MAX:
                return
            digest = call_digest(fact.name, fact.input, fact.malformed)
            words = about(fact.name, fact.input)
            flags = flags_of(fact.name, fact.input)
            if not flags & PROSE:
                step.marks |= stub_marks(fact.name, fact.input)
            step.calls.append(CallNote(_id(fact.call_id), fact.name, digest, words, flags))


def _id(call_id: str) -> int:
    return crc32(call_id.encode())


def _end_request(steps: list[Step], fact: ModelRequestEnd) -> None:
    step = _of_request(steps, fact.request_seq)
    if step is None:
        return
    if fact.outcome == "ok" or step.text or step.count:
        step.whole = True
        _trim(steps)
    else:
        steps.remove(step)


def _end_call(steps: list[Step], fact: ToolResult | ToolOutcomeUnknown) -> None:
    call = _find(steps, _id(fact.call_id))
    if call is None:
        return
    call.value, call.shape, call.sketch = result_digests(fact.content)
    call.length = len(fact.content)
    if isinstance(fact, ToolOutcomeUnknown):
        call.outcome = UNKNOWN
        return
    call.outcome = _OUTCOMES.get(fact.outcome, NOT_RUN)
    call.length = max(call.length, fact.bytes_total)
    call.files = tuple(crc32(f"{file.path}\0{file.digest}".encode()) for file in fact.files[:4])


def _find(steps: list[Step], id: int) -> CallNote | None:
    for step in reversed(steps[-8:]):
        for call in step.calls:
            if call.id == id and call.outcome == OPEN:
                return call
    return None


NOTHING, INFORMATION, CHANGE = range(3)
"""Result of a call or a step: nothing new, information, or a change."""

SHORT_RESULT = 24
"""Minimum bytes of a result that is meaningful without its call."""


class Turn(msgspec.Struct, frozen=True, gc=False):
    """A completed step with its result. `waits` is set when one of its calls waited."""

    step: Step
    brought: int
    waits: bool


class _Known(msgspec.Struct):
    """Results and changes seen in the steps so far."""

    files: set[int]
    alterations: list[CallNote]
    by_value: dict[int, list[CallNote]]
    by_call: dict[int, list[CallNote]]


def turns(steps: list[Step]) -> tuple[list[Turn], int]:
    """Return the completed steps with their results, and the index of the first after the last boundary."""
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
