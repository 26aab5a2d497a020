"""One session's log, read for the invariants: requests with their parts, calls with their ends.

Written apart from the fold on purpose: what the fold gets wrong must not be wrong here too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.facts.codec import Event
from holdfast.facts.model import AgentMessage, AgentThinking, AgentToolUse, ModelRequestEnd, ModelRequestStart
from holdfast.facts.session import SessionCreated
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.facts.user import UserMessage
from holdfast.sim.world import Session, World
from holdfast.sim.world_model import SaidCall
from holdfast.sim.world_record import Commit, Effect

READ_ONLY = ("read", "glob", "grep")
"""Tools that may run side by side, and again."""


@dataclass
class CallHistory:
    """One tool call: the wish, its dispatches, its ends, and what really happened."""

    use: Event
    fact: AgentToolUse
    said: SaidCall | None
    dispatches: list[tuple[Event, ToolDispatched]] = field(default_factory=list)
    ends: list[tuple[Event, ToolResult | ToolOutcomeUnknown]] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)

    @property
    def end(self) -> str:
        """How it ended first: an outcome, `unknown`, or empty when it has no end."""
        if not self.ends:
            return ""
        fact = self.ends[0][1]
        return fact.outcome if isinstance(fact, ToolResult) else "unknown"

    @property
    def end_seq(self) -> int:
        """Where it ended, beyond every position when it has not."""
        return self.ends[0][0].seq if self.ends else 2**62


@dataclass
class RequestHistory:
    """One attempt at a response. `number` is how many responses were there before it."""

    start: Event
    fact: ModelRequestStart
    number: int
    ends: list[tuple[Event, ModelRequestEnd]] = field(default_factory=list)
    parts: list[Event] = field(default_factory=list)
    calls: list[CallHistory] = field(default_factory=list)

    @property
    def end(self) -> ModelRequestEnd | None:
        """How it ended."""
        return self.ends[0][1] if self.ends else None


class History:
    """What became of one session."""

    def __init__(self, world: World, session: Session) -> None:
        self.world = world
        self.session = session
        self.events = world.events[session.session_id]
        self.created = session.created
        self.requests: list[RequestHistory] = []
        self.calls: dict[str, CallHistory] = {}
        self.messages: list[Event] = []
        self.oddities: list[str] = []
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
                done = sum(1 for each in self.requests if each.end is not None and each.end.outcome == "ok")
                self.requests.append(RequestHistory(event, start, done))
                self._by_seq[event.seq] = self.requests[-1]
            case ModelRequestEnd() as end:
                self._request(event, end.request_seq).ends.append((event, end))
            case AgentThinking() | AgentMessage():
                self._request(event, event.fact.request_seq).parts.append(event)
            case AgentToolUse() as use:
                request = self._request(event, use.request_seq)
                said = self.session.script.turn(request.number).calls
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

    def _request(self, event: Event, request_seq: int) -> RequestHistory:
        found = self._by_seq.get(request_seq)
        if found is None:
            self.oddities.append(f"event {event.seq} names a request {request_seq} that never started")
            found = self._by_seq[request_seq] = RequestHistory(event, _NO_START, 0)
        return found

    def _call(self, event: Event, call_id: str) -> CallHistory:
        found = self.calls.get(call_id)
        if found is None:
            self.oddities.append(f"event {event.seq} names a call {call_id} that nobody wished")
            found = self.calls[call_id] = CallHistory(event, _NO_USE, None)
        return found

    def ok(self) -> list[RequestHistory]:
        """Requests that brought a response."""
        return [each for each in self.requests if each.end is not None and each.end.outcome == "ok"]


_NO_START = ModelRequestStart(purpose="turn", model="", attempt=0, inputs_through=0, max_output_tokens=0)
_NO_USE = AgentToolUse(request_seq=0, call_id="", name="", input={})
