"""Expected context of each request, built from the log independently of the fold (S3, S16)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.facts.base import text_of
from holdfast.facts.codec import Event
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
from holdfast.facts.session import SessionCreated
from holdfast.facts.shift import ChildCancelled, ChildFinished, ChildMessaged, ChildOpened
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.session.context.conversation import Message, Part, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from holdfast.session.context.notes import left_out, note_of
from holdfast.session.context.text import estimate
from holdfast.session.context.window import CUT_SHORT
from holdfast.sim.invariants.history import CallHistory, History, RequestHistory

AFTER_RESET_TOKENS = 6_000
"""Tokens of summaries kept after a reset."""


@dataclass
class _Entry:
    """Entry of the context. `kind` is said, response, summary, or handoff; `through` is the end of a summary's range,
    and `dropped` that of older summaries omitted before it.
    """

    kind: str
    seq: int
    texts: list[str] = field(default_factory=list)
    request: RequestHistory | None = None
    through: int = 0
    dropped: int = 0
    tokens: int = 0


def goal_of(created: SessionCreated) -> str:
    """Return the first text of every context."""
    if not created.criteria:
        return created.goal
    listed = "\n".join(f"{number}. {text}" for number, text in enumerate(created.criteria, 1))
    return f"{created.goal}\n\n# It is done when\n\n{listed}"


class _Window:
    """Context while the log is read."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.line = history.created.limits.context.line_tokens // 4
        self.entries: list[_Entry] = []
        self.pending: list[Event] = []
        self.working: dict[str, bool] = {}
        self.cancelled: set[str] = set()
        self.reports: dict[str, int] = {}
        self.waits: dict[str, tuple[str, ...]] = {}
        self._of = {request.start.seq: request for request in history.requests}
        self._posted = {event.seq for event in history.posted}

    def take(self, event: Event) -> None:
        """Take in one event."""
        if event.seq in self._posted:
            if not (isinstance(event.fact, ChildFinished) and event.fact.child_id in self.cancelled):
                self.pending.append(event)
        match event.fact:
            case ModelRequestStart(purpose="turn", inputs_through=through):
                taken = [each for each in self.pending if each.seq <= through]
                self.entries += [_Entry("said", each.seq, [_words(each)]) for each in taken]
                self.pending = [each for each in self.pending if each.seq > through]
            case AgentThinking() | AgentMessage() | AgentToolUse():
                self._response(event.fact.request_seq)
                use = event.fact
                if isinstance(use, AgentToolUse) and use.name == "wait_for_children" and not use.malformed:
                    if use.name in self.history.created.agent.tools:
                        named = use.input.get("child_ids") or [name for name, works in self.working.items() if works]
                        self.waits[use.call_id] = tuple(named)
            case ModelRequestEnd(outcome="ok", request_seq=seq) if self._of[seq].fact.purpose == "turn":
                self._response(seq)
            case ToolResult(call_id=call_id) | ToolOutcomeUnknown(call_id=call_id):
                waits = self.waits.pop(call_id, ())
                if not isinstance(event.fact, ToolResult) or event.fact.outcome != "ok":
                    return  # an interrupted wait returned nothing, so the reports must still be shown
                told = {self.reports.get(name, 0) for name in waits}
                self.pending = [each for each in self.pending if each.seq not in told]
            case ContextCompacted() as fact:
                self._compacted(event, fact)
            case ContextReset() as fact:
                self._reset(event, fact)
            case _:
                self._child(event)

    def _child(self, event: Event) -> None:
        match event.fact:
            case ChildOpened(child_id=name) | ChildMessaged(child_id=name):
                self.working[name] = True
            case ChildCancelled(child_id=name):
                self.cancelled.add(name)
            case ChildFinished(child_id=name):
                self.working[name] = False
                self.reports[name] = event.seq

    def _response(self, request_seq: int) -> None:
        if not any(each.kind == "response" and each.seq == request_seq for each in self.entries[-1:]):
            self.entries.append(_Entry("response", request_seq, request=self._of[request_seq]))

    def _cut(self, through: int) -> tuple[list[_Entry], list[_Entry]]:
        """Split the entries into those replaced by a note through that position, and the rest."""
        last = [at for at, each in enumerate(self.entries) if each.kind == "response" and each.seq <= through]
        at = last[-1] + 1 if last else 0
        return self.entries[:at], self.entries[at:]

    def _compacted(self, event: Event, fact: ContextCompacted) -> None:
        before, after = self._cut(fact.through_seq)
        handoffs = [each for each in before if each.kind == "handoff"]
        summaries = [each for each in before if each.kind == "summary"]
        text = note_of(fact)
        summaries.append(_Entry("summary", event.seq, [text], through=fact.through_seq, tokens=estimate(text)))
        self.entries = [*handoffs, *_newest(summaries, self.line), *after]

    def _reset(self, event: Event, fact: ContextReset) -> None:
        before, after = self._cut(fact.through_seq)
        summaries = [each for each in before if each.kind == "summary"]
        after = [each for each in after if each.kind == "response" or each.seq > fact.through_seq]
        after = [each for each in after if each.kind in ("said", "response")]
        self.entries = [_Entry("handoff", event.seq, [note_of(fact)]), *_newest(summaries, AFTER_RESET_TOKENS), *after]

    def messages(self, start_seq: int) -> list[Message]:
        """Return the expected messages of a request."""
        out: list[tuple[str, list[Part]]] = [("user", [TextPart(goal_of(self.history.created))])]

        def add(role: str, parts: list[Part]) -> None:
            if parts and out[-1][0] == role:
                out[-1][1].extend(parts)
            elif parts:
                out.append((role, parts))

        for entry in self.entries:
            if entry.request is not None:
                add("assistant", [_part(event) for event in entry.request.parts])
                add("user", _answers(entry.request))
                continue
            if entry.dropped:
                add("user", [TextPart(left_out(entry.dropped))])
            add("user", [TextPart(text) for text in entry.texts])
        return [Message(role, tuple(parts)) for role, parts in out]  # type: ignore[arg-type]


def contexts(history: History, wanted: set[int]) -> Iterator[tuple[int, list[Message]]]:
    """Return the expected context of each wanted request."""
    window = _Window(history)
    for event in history.events:
        window.take(event)
        if event.seq in wanted:
            yield event.seq, window.messages(event.seq)


def _newest(summaries: list[_Entry], tokens: int) -> list[_Entry]:
    kept = list(summaries)
    while len(kept) > 1 and sum(each.tokens for each in kept) > tokens:
        gone = kept.pop(0)
        kept[0].dropped = max(gone.through, gone.dropped, kept[0].dropped)
    return kept


def _words(event: Event) -> str:
    if isinstance(event.fact, UserMessage):
        return text_of(event.fact.content)
    return note_of(event.fact)


def _part(event: Event) -> Part:
    match event.fact:
        case AgentThinking() as fact:
            return ThinkingPart(fact.text, fact.signature)
        case AgentMessage() as fact:
            return TextPart(text_of(fact.content))
        case AgentToolUse() as fact:
            return ToolCallPart(fact.call_id, fact.name, fact.input, fact.provider_id)
        case _:
            raise AssertionError(event.type)


def _answers(request: RequestHistory) -> list[Part]:
    parts: list[Part] = [_answer(call) for call in request.calls if call.ends]
    if request.brought and request.end is not None and request.end.stop_reason == "max_tokens":
        parts = parts or [TextPart(CUT_SHORT)]
    return parts


def _answer(call: CallHistory) -> Part:
    _, end = call.ends[0]
    wrong = not (isinstance(end, ToolResult) and end.outcome == "ok")
    fact = call.fact
    return ToolResultPart(fact.call_id, fact.name, end.content, wrong, fact.provider_id)
