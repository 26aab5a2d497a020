"""Log of one session, parsed for the invariants: requests with their parts, calls with their ends.

Written independently of the fold, so that it does not share the fold's bugs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from holdfast.facts.codec import Event
from holdfast.facts.model import (
    AgentMessage,
    AgentThinking,
    AgentToolUse,
    ModelRequestEnd,
    ModelRequestStart,
    RuleBreached,
)
from holdfast.facts.people import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalSeen,
    ApprovalSuperseded,
    UserMessage,
)
from holdfast.facts.session import SessionCreated
from holdfast.facts.shift import ChildFinished
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.sim.record import Commit, Effect
from holdfast.sim.script import SaidCall, Turn
from holdfast.sim.world import Session, World

READ_ONLY = ("read", "glob", "grep")
"""Tools that may run concurrently and be repeated."""

HARNESS = ("spawn", "message_child", "wait_for_children", "cancel_child", "sleep", "ask_person", "end_phase")
"""Tools that the harness answers itself, without a door."""

MAIN = {
    "bash": "command",
    "read": "file_path",
    "write": "file_path",
    "edit": "file_path",
    "glob": "pattern",
    "grep": "pattern",
    "spawn": "goal",
    "message_child": "text",
    "cancel_child": "child_id",
    "ask_person": "question",
    "end_phase": "name",
}
"""Argument of each tool that permission rules match."""


@dataclass
class CallHistory:
    """Tool call: its request, dispatches, ends, and real effects."""

    use: Event
    fact: AgentToolUse
    said: SaidCall | None
    dispatches: list[tuple[Event, ToolDispatched]] = field(default_factory=list)
    ends: list[tuple[Event, ToolResult | ToolOutcomeUnknown]] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)

    @property
    def end(self) -> str:
        """First outcome, `unknown`, or empty without an end."""
        if not self.ends:
            return ""
        fact = self.ends[0][1]
        return fact.outcome if isinstance(fact, ToolResult) else "unknown"

    @property
    def end_seq(self) -> int:
        """Position of the first end; without an end, larger than every position."""
        return self.ends[0][0].seq if self.ends else 2**62


@dataclass
class RequestHistory:
    """Attempt at a response. `number` counts the earlier responses of its purpose."""

    start: Event
    fact: ModelRequestStart
    number: int
    ends: list[tuple[Event, ModelRequestEnd]] = field(default_factory=list)
    parts: list[Event] = field(default_factory=list)
    calls: list[CallHistory] = field(default_factory=list)

    @property
    def end(self) -> ModelRequestEnd | None:
        """First end of the request, if any."""
        return self.ends[0][1] if self.ends else None

    @property
    def brought(self) -> bool:
        """True if the request returned a response."""
        return self.end is not None and self.end.outcome == "ok"


@dataclass
class ItemHistory:
    """Inbox item: the request, its views, its answers, and its superseding events."""

    event: Event
    fact: ApprovalRequested
    seen: list[Event] = field(default_factory=list)
    answers: list[tuple[Event, ApprovalDecided | ApprovalExpired]] = field(default_factory=list)
    over: list[Event] = field(default_factory=list)

    def answered_by(self, seq: int) -> ApprovalDecided | ApprovalExpired | None:
        """Return the answer in effect before that position; None without one, or if superseded."""
        if any(event.seq < seq for event in self.over):
            return None
        return next((fact for event, fact in self.answers if event.seq < seq), None)

    def open_at(self, seq: int) -> bool:
        """True if the item was open right before that position."""
        closed = [event.seq for event, _ in self.answers] + [event.seq for event in self.over]
        return self.event.seq < seq and not any(at < seq for at in closed)


class History:
    """Parsed log of one session."""

    def __init__(self, world: World, session: Session) -> None:
        self.world = world
        self.session = session
        self.events = world.events[session.session_id]
        self.created = session.created
        self.requests: list[RequestHistory] = []
        self.calls: dict[str, CallHistory] = {}
        self.messages: list[Event] = []
        self.oddities: list[str] = []
        self.posted: list[Event] = []
        self.items: dict[str, ItemHistory] = {}
        self.commits: list[Commit] = [each for each in world.record.commits if each.session_id == session.session_id]
        self._by_seq: dict[int, RequestHistory] = {}
        for event in self.events:
            self._take(event)
        by_key = {call.said.key: call for call in self.calls.values() if call.said and call.said.key}
        self.strays: list[Effect] = []
        for effect in world.record.effects:
            if effect.session_id == session.session_id:
                call = by_key.get(effect.key)
                (call.effects if call else self.strays).append(effect)

    def _take(self, event: Event) -> None:
        match event.fact:
            case SessionCreated() if event.seq != 1:
                self.oddities.append(f"session.created at {event.seq}")
            case ModelRequestStart() as start:
                done = [each for each in self.requests if each.fact.purpose == start.purpose and each.brought]
                self.requests.append(RequestHistory(event, start, len(done)))
                self._by_seq[event.seq] = self.requests[-1]
            case ModelRequestEnd() as end:
                self._request(event, end.request_seq).ends.append((event, end))
            case AgentThinking() | AgentMessage():
                self._request(event, event.fact.request_seq).parts.append(event)
            case AgentToolUse() as use:
                request = self._request(event, use.request_seq)
                said = self.said(request).calls
                index = len(request.calls)
                call = CallHistory(event, use, said[index] if index < len(said) else None)
                request.parts.append(event)
                request.calls.append(call)
                if use.call_id in self.calls:
                    self.oddities.append(f"two calls have the id {use.call_id}")
                self.calls[use.call_id] = call
            case ToolDispatched() as dispatched:
                self._call(event, dispatched.call_id).dispatches.append((event, dispatched))
            case ToolResult() | ToolOutcomeUnknown() as end:
                self._call(event, end.call_id).ends.append((event, end))
            case UserMessage():
                self.messages.append(event)
                self.posted.append(event)
            case ChildFinished() | RuleBreached():
                self.posted.append(event)
            case _:
                self._people(event)

    def _people(self, event: Event) -> None:
        match event.fact:
            case ApprovalRequested() as asked:
                if asked.item_id in self.items:
                    self.oddities.append(f"{asked.item_id} is asked twice, again at {event.seq}")
                self.items[asked.item_id] = ItemHistory(event, asked)
            case ApprovalSeen(item_id=item_id) if item_id in self.items:
                self.items[item_id].seen.append(event)
            case ApprovalDecided(item_id=item_id) | ApprovalExpired(item_id=item_id) if item_id in self.items:
                self.items[item_id].answers.append((event, event.fact))
            case ApprovalSuperseded(item_id=item_id) if item_id in self.items:
                self.items[item_id].over.append(event)

    def _request(self, event: Event, request_seq: int) -> RequestHistory:
        found = self._by_seq.get(request_seq)
        if found is None:
            self.oddities.append(f"event {event.seq} names a request {request_seq} that never started")
            found = self._by_seq[request_seq] = RequestHistory(event, _NO_START, 0)
        return found

    def _call(self, event: Event, call_id: str) -> CallHistory:
        found = self.calls.get(call_id)
        if found is None:
            self.oddities.append(f"event {event.seq} names a call {call_id} that no response has")
            found = self.calls[call_id] = CallHistory(event, _NO_USE, None)
        return found

    def ok(self) -> list[RequestHistory]:
        """Return requests of turns that returned a response."""
        return [each for each in self.requests if each.fact.purpose == "turn" and each.brought]

    def said(self, request: RequestHistory) -> Turn:
        """Return the scripted response to a request."""
        return self.session.script.turn(request.number, request.fact.purpose)

    def ruling(self, call: CallHistory) -> str:
        """Return the decision of the last matching rule for a call."""
        argument = str(call.fact.input.get(MAIN.get(call.fact.name, ""), ""))
        for rule in reversed(self.created.agent.rules):
            if fnmatchcase(call.fact.name, rule.tool) and (not rule.match or fnmatchcase(argument, rule.match)):
                return rule.decision
        return "allow"

    def items_of(self, call_id: str) -> list[ItemHistory]:
        """Return inbox items about a call."""
        return [item for item in self.items.values() if item.fact.call_id == call_id]


_NO_START = ModelRequestStart(purpose="turn", model="", attempt=0, inputs_through=0, max_output_tokens=0)
_NO_USE = AgentToolUse(request_seq=0, call_id="", name="", input={})
