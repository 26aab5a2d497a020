"""The fold of responses and of their calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.facts import nesting
from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.model import AgentMessage, AgentThinking, AgentToolUse
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.session.context.notes import result_text
from holdfast.session.context.tokens import estimate, estimate_content, estimate_input
from holdfast.session.fold import egress as fold_egress
from holdfast.session.fold.money import spend
from holdfast.session.state import Call, ResponseItem, State
from holdfast.session.tools import check_input, main_argument
from holdfast.session.tools.effects import effects_of
from holdfast.session.tools.jobs import JOB_STOP, JOB_WAIT
from holdfast.session.tools.policy import GRANT, evaluate


def response_at(state: State, request_seq: int) -> ResponseItem:
    """The response to that request at the end of the window; begun when it is not there."""
    last = state.window[-1] if state.window else None
    if isinstance(last, ResponseItem) and last.request_seq == request_seq:
        return last
    item = ResponseItem(request_seq, 0, [], [])
    state.calls = []
    state.place(item)
    return item


def _part(state: State, fact: AgentThinking | AgentMessage | AgentToolUse, event: Event) -> None:
    item = response_at(state, fact.request_seq)
    item.parts.append(event.seq)
    match fact:
        case AgentThinking():
            tokens = estimate(fact.text)
        case AgentMessage():
            tokens = estimate_content(fact.content)
        case _:
            tokens = estimate_input(fact.input)
            item.results.append(0)
            state.calls.append(_call(state, fact, event))
    item.tokens += tokens
    state.window_tokens += tokens


def _call(state: State, fact: AgentToolUse, event: Event) -> Call:
    assert state.created is not None
    agent = state.created.agent
    call = Call(fact.call_id, event.seq, fact.name, at_us=event.at_us)
    tool = state.tool(fact.name)
    if tool is None:
        names = [*agent.tools, *(custom.name for custom in agent.custom)]
        call.problem = f"there is no tool named {fact.name!r}; the tools are {', '.join(names)}"
        return call
    if fact.malformed:
        call.problem = f"the arguments of {fact.name} {_why_malformed(fact.malformed)}: {fact.malformed[:200]}"
        return call
    call.problem = check_input(tool, fact.input)
    call.read_only, call.on_unknown, call.where = tool.read_only, tool.on_unknown, tool.where
    call.argument = main_argument(tool, fact.input)
    if agent.rules and not call.problem:
        call.parts = effects_of(tool.name, fact.input, main=tool.main, folder=state.created.workspace.path).parts
    call.price_pico = tool.custom.price_pico if tool.custom else 0
    if tool.where == "harness" and not call.problem:
        _timing(state, call, fact.input)
    if call.name == JOB_STOP and not call.problem:
        call.waits_for = (str(fact.input["job_id"]),)
    return call


def _why_malformed(text: str) -> str:
    try:
        nesting.decode(text)
    except msgspec.DecodeError as error:
        if str(error) == nesting.TOO_DEEP:
            return f"are JSON, but {nesting.TOO_DEEP}; send them flatter"
    return "are not a JSON object"


def _timing(state: State, call: Call, value: dict[str, Any]) -> None:
    """What a call of the harness waits for."""
    seconds = value.get("seconds") if call.name == "sleep" else value.get("timeout_s")
    if seconds is not None:
        call.until_us = call.at_us + int(seconds * 1_000_000)
    if call.name == "wait_for_children":
        named = value.get("child_ids") or [child.child_id for child in state.live_children()]
        call.waits_for = tuple(named)
    elif call.name == JOB_WAIT:
        call.waits_for = tuple(value.get("job_ids") or [job.job_id for job in state.live_jobs()])


def _dispatched(state: State, fact: ToolDispatched, event: Event) -> None:
    call = state.call(fact.call_id)
    if fact.approval_id and not fact.approval_id.startswith(GRANT):
        _use_up(state, call, fact, event)
    if fact.attempt == 1:
        _count_uses(state, call, fact, event)
    spend(state, fact.settled_pico, event.at_us)
    call.attempt, call.hands_id = fact.attempt, fact.hands_id
    call.dispatch_seq, call.reserved_pico = event.seq, fact.reserved_pico
    if not call.read_only and not fact.place:
        state.mutated_seq = event.seq


def _use_up(state: State, call: Call, fact: ToolDispatched, event: Event) -> None:
    """An approval is for one dispatch of its call; a second use is refused (S21)."""
    ask = state.asks.pop(fact.approval_id, None)
    if ask is None or ask.verdict != "approve" or ask.call_id != call.call_id:
        raise ValueError(
            f"dispatch {event.seq} of session {state.session_id} cites the approval {fact.approval_id}, which does "
            "not allow it"
        )
    for held in state.grants:
        held.ran_seq = event.seq if held.seq == ask.decided_seq else held.ran_seq
    call.approval_seq = ask.seq if ask.kind == "tool" else 0


def _count_uses(state: State, call: Call, fact: ToolDispatched, event: Event) -> None:
    """What let the call through is used up by as much."""
    if fact.approval_id.startswith(GRANT):
        for held in state.grants:
            if held.seq == int(fact.approval_id.removeprefix(GRANT)):
                held.used, held.ran_seq = held.used + 1, event.seq
        return
    _count_rule(state, call, event)


def _count_rule(state: State, call: Call, event: Event) -> None:
    created = state.created
    if created is None:
        return
    age_s = (event.at_us - state.created_us) / 1e6
    ruling = evaluate(
        created.agent.rules, call.name, call.parts, whole=call.argument, age_s=age_s, uses=state.rule_uses
    )
    for place in ruling.bounded:
        state.rule_uses[place] = state.rule_uses.get(place, 0) + 1


def _ended(state: State, fact: ToolResult | ToolOutcomeUnknown, event: Event) -> None:
    call = state.call(fact.call_id)
    if call.end is not None:
        raise ValueError(f"call {fact.call_id} of session {state.session_id} ended twice, at {event.seq}")
    call.end = fact.outcome if isinstance(fact, ToolResult) else "unknown"
    spend(state, fact.cost_pico or 0, event.at_us)
    if call.where == "harness" and call.end in ("ok", "error") and not call.problem:
        _count_rule(state, call, event)
    if call.end == "ok" and not call.read_only and call.where != "harness":
        state.context.did_seq = event.seq
    if isinstance(fact, ToolResult):
        if fact.untrusted:
            fold_egress.read(state, event.seq, f"the result of {call.name} is from outside")
        for file in fact.files:
            state.seen[file.path] = file.digest
        if call.attempt or call.where == "harness":
            state.failed_calls = state.failed_calls + 1 if fact.outcome == "error" else 0
    item = state.window[-1]
    assert isinstance(item, ResponseItem)
    item.results[state.calls.index(call)] = event.seq
    tokens = estimate(result_text(fact))
    item.tokens += tokens
    item.tool_tokens += tokens
    state.window_tokens += tokens
    state.context.tool_tokens += tokens
    state.unseen = True
    for item_id in [ask.item_id for ask in state.asks.values() if ask.call_id == call.call_id]:
        del state.asks[item_id]
    if call.waits_for and call.end == "ok":  # one that was cut short has reported nothing
        reported = {state.children[name].finished_seq for name in call.waits_for if name in state.children}
        for job in (state.jobs[name] for name in call.waits_for if name in state.jobs):
            reported |= {job.line_seq, job.late_seq, job.ended_seq}
        state.pending = [posted for posted in state.pending if posted.seq not in reported]


APPLY: dict[type[Fact], Callable[[State, Any, Event], None]] = {
    AgentThinking: _part,
    AgentMessage: _part,
    AgentToolUse: _part,
    ToolDispatched: _dispatched,
    ToolResult: _ended,
    ToolOutcomeUnknown: _ended,
}
