"""The fold: from events to state. Pure; the same events give the same state, always."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.facts.base import Erased, Fact, Usage, text_of
from holdfast.facts.codec import Event, genesis
from holdfast.facts.hands import HandsLost, HandsProvisioned, HandsReleased
from holdfast.facts.model import AgentMessage, AgentThinking, AgentToolUse, ModelRequestEnd, ModelRequestStart
from holdfast.facts.session import SessionCreated, SessionError, SessionUpdated
from holdfast.facts.shift import LeaseStolen, ShiftEnded, ShiftStarted
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.facts.union import AnyFact
from holdfast.facts.user import UserCancel, UserInterrupt, UserMessage
from holdfast.session.state import Call, Failure, Item, OpenRequest, ResponseItem, State, UserItem
from holdfast.session.tokens import estimate, estimate_input
from holdfast.session.tools import TOOLS, check_input


def empty(session_id: str) -> State:
    """The state before the first event."""
    return State(session_id=session_id, hash=genesis(session_id))


def fold(state: State, events: Iterable[Event]) -> State:
    """The state after `events`. The state handed in is used up: go on with the returned one."""
    for event in events:
        if event.seq != state.seq + 1:
            raise ValueError(f"event {event.seq} does not follow {state.seq} in session {state.session_id}")
        state.seq, state.hash, state.epoch = event.seq, event.hash, event.epoch
        if not isinstance(event.fact, Erased):
            _apply(state, event.fact, event)
    return state


def _apply(state: State, fact: Fact, event: Event) -> None:
    known: AnyFact = fact  # type: ignore[assignment]  # the codec yields no other
    match known:
        case ModelRequestStart() | ModelRequestEnd():
            _request(state, known, event)
        case AgentThinking() | AgentMessage() | AgentToolUse():
            _response_part(state, known, event.seq)
        case ToolDispatched() | ToolResult() | ToolOutcomeUnknown():
            _tool(state, known, event.seq)
        case UserMessage() | UserInterrupt() | UserCancel():
            _user(state, known, event.seq)
        case HandsProvisioned() | HandsLost() | HandsReleased():
            _hands(state, known)
        case ShiftStarted() | LeaseStolen() | ShiftEnded():
            _shift(state, known)
        case SessionCreated() | SessionUpdated() | SessionError():
            _session(state, known)
        case _:
            return


def _session(state: State, fact: SessionCreated | SessionUpdated | SessionError) -> None:
    match fact:
        case SessionCreated():
            state.created, state.limits = fact, fact.limits
            state.window_tokens = estimate(fact.goal) + estimate(fact.rules) + estimate(fact.agent.system)
        case SessionUpdated():
            changed = {
                name: value
                for name in ("budget_pico", "max_turns", "context_tokens")
                if (value := getattr(fact, name)) is not None
            }
            state.limits = msgspec.structs.replace(state.limits, **changed)
            state.ended = None
        case SessionError():
            pass


def _user(state: State, fact: UserMessage | UserInterrupt | UserCancel, seq: int) -> None:
    state.ended = None
    match fact:
        case UserMessage():
            state.pending.append(UserItem(seq, estimate(text_of(fact.content))))
        case UserInterrupt():
            state.interrupted = seq
        case UserCancel():
            state.cancelled = seq


def _shift(state: State, fact: ShiftStarted | LeaseStolen | ShiftEnded) -> None:
    match fact:
        case ShiftStarted():
            state.in_shift, state.ended, state.tries = True, None, 0
        case ShiftEnded(status="released"):
            state.in_shift, state.ended = False, None
        case ShiftEnded():
            state.in_shift, state.ended, state.hands_known = False, fact, {}
        case LeaseStolen():
            pass


def _request(state: State, fact: ModelRequestStart | ModelRequestEnd, event: Event) -> None:
    if isinstance(fact, ModelRequestStart):
        state.request = OpenRequest(event.seq, event.epoch, fact.attempt, fact.model, fact.reserved_pico)
        state.interrupted = 0
        taken = [item for item in state.pending if item.seq <= fact.inputs_through]
        state.pending = [item for item in state.pending if item.seq > fact.inputs_through]
        for message in taken:
            _place(state, message)
        return
    state.usage = state.usage + (fact.usage or Usage())
    state.cost_pico += fact.cost_pico or 0
    state.unpriced = state.unpriced or fact.cost_pico is None
    attempt = state.request.attempt if state.request else 1
    state.request = None
    if fact.outcome == "ok":
        state.responses += 1
        state.failure, state.tries = None, 0
        item = _response(state, fact.request_seq)
        item.stop_reason = fact.stop_reason
        state.unseen = False
    elif fact.outcome == "error":
        state.tries += 1
        state.failure = Failure(event.at_us, attempt, fact.error_kind, fact.message, fact.retry_after_s)


def _response(state: State, request_seq: int) -> ResponseItem:
    last = state.window[-1] if state.window else None
    if isinstance(last, ResponseItem) and last.request_seq == request_seq:
        return last
    item = ResponseItem(request_seq, 0, [], [])
    state.calls = []
    _place(state, item)
    return item


def _place(state: State, item: Item) -> None:
    state.window.append(item)
    state.window_tokens += item.tokens


def _response_part(state: State, fact: AgentThinking | AgentMessage | AgentToolUse, seq: int) -> None:
    item = _response(state, fact.request_seq)
    item.parts.append(seq)
    match fact:
        case AgentThinking():
            tokens = estimate(fact.text)
        case AgentMessage():
            tokens = estimate(text_of(fact.content))
        case _:
            tokens = estimate_input(fact.input)
            item.results.append(0)
            state.calls.append(_call(state, fact, seq))
    item.tokens += tokens
    state.window_tokens += tokens


def _call(state: State, fact: AgentToolUse, seq: int) -> Call:
    offered = state.created.agent.tools if state.created else ()
    tool = TOOLS.get(fact.name) if fact.name in offered else None
    if tool is None:
        problem = f"there is no tool named {fact.name!r}; the tools are {', '.join(offered)}"
        return Call(fact.call_id, seq, fact.name, problem)
    if fact.malformed:
        problem = f"the arguments of {fact.name} are not a JSON object: {fact.malformed[:200]}"
    else:
        problem = check_input(fact.name, fact.input)
    return Call(fact.call_id, seq, fact.name, problem, tool.read_only, tool.on_unknown)


def _tool(state: State, fact: ToolDispatched | ToolResult | ToolOutcomeUnknown, seq: int) -> None:
    call = state.call(fact.call_id)
    if isinstance(fact, ToolDispatched):
        call.attempt, call.hands_id = fact.attempt, fact.hands_id
        return
    if call.end is not None:
        raise ValueError(f"call {fact.call_id} of session {state.session_id} ended twice, at {seq}")
    call.end = fact.outcome if isinstance(fact, ToolResult) else "unknown"
    if isinstance(fact, ToolResult):
        for file in fact.files:
            state.seen[file.path] = file.digest
    item = state.window[-1]
    assert isinstance(item, ResponseItem)
    item.results[state.calls.index(call)] = seq
    tokens = estimate(fact.content)
    item.tokens += tokens
    state.window_tokens += tokens
    state.unseen = True


def _hands(state: State, fact: HandsProvisioned | HandsLost | HandsReleased) -> None:
    if isinstance(fact, HandsProvisioned):
        state.hands = fact
        state.hands_known[fact.hands_id] = fact
        return
    if state.hands is not None and state.hands.hands_id == fact.hands_id:
        state.hands = None
    if isinstance(fact, HandsReleased):
        state.hands_known.pop(fact.hands_id, None)
