"""Fold of responses, calls, jobs, services, and children (S4, S6)."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.facts import bounded_json
from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.model import AgentMessage, AgentThinking, AgentToolUse
from holdfast.facts.shift import ChildCancelled, ChildFinished, ChildMessaged, ChildOpened
from holdfast.facts.tool import (
    JobEnded,
    JobLine,
    JobStarted,
    ServiceEnded,
    ServiceStarted,
    ToolDispatched,
    ToolOutcomeUnknown,
    ToolResult,
)
from holdfast.session.context.notes import result_text
from holdfast.session.context.text import estimate, estimate_content, estimate_input
from holdfast.session.fold.clock import spend
from holdfast.session.fold.hands import untrusted_read
from holdfast.session.state import Apply, Call, Child, ResponseItem, State
from holdfast.session.state.parts import Job, ServiceRun
from holdfast.session.tools import check_input, main_argument
from holdfast.session.tools.effects import effects_of
from holdfast.session.tools.jobs import JOB_STOP, JOB_WAIT
from holdfast.session.tools.policy import GRANT, evaluate


def response_at(state: State, request_seq: int) -> ResponseItem:
    """Return the response to that request at the end of the window; add it if it is missing."""
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
        bounded_json.decode(text)
    except msgspec.DecodeError as error:
        if str(error) == bounded_json.TOO_DEEP:
            return f"are JSON, but {bounded_json.TOO_DEEP}; send them flatter"
    return "are not a JSON object"


def _timing(state: State, call: Call, value: dict[str, Any]) -> None:
    """Set the deadline and the awaited children or jobs of a call of the harness."""
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
    """Use up an approval: it is for one dispatch of its call (S21)."""
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
    """Count a use of the grant or the rules that allowed the call."""
    if fact.approval_id.startswith(GRANT):
        for held in state.grants:
            if held.seq == int(fact.approval_id.removeprefix(GRANT)):
                held.used, held.ran_seq = held.used + 1, event.seq
        return
    _count_rule(state, call, event)


def _count_rule(state: State, call: Call, event: Event) -> None:
    created = state.created
    if created is None or not created.agent.rules:
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
            untrusted_read(state, event.seq, f"the result of {call.name} is from outside")
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
    if state.asks:
        state.asks = {item_id: ask for item_id, ask in state.asks.items() if ask.call_id != call.call_id}
    if call.waits_for and call.end == "ok":  # an interrupted wait has reported nothing
        reported = {state.children[name].finished_seq for name in call.waits_for if name in state.children}
        for job in (state.jobs[name] for name in call.waits_for if name in state.jobs):
            reported |= {job.line_seq, job.late_seq, job.ended_seq}
        state.pending = [posted for posted in state.pending if posted.seq not in reported]


COMMAND_MAX = 200
"""Maximum kept characters of a command, for lists and notes."""

ENDED_KEPT = 32
"""Number of ended jobs to keep: a later `job_wait` or `job_log` may name one."""


def _started(state: State, fact: JobStarted, event: Event) -> None:
    state.jobs[fact.job_id] = Job(
        fact.job_id,
        fact.call_id,
        fact.hands_id,
        fact.name,
        event.seq,
        event.at_us,
        command=fact.command[:COMMAND_MAX],
        line=bool(fact.line),
        deadline_us=fact.deadline_us,
        until_us=fact.until_us,
    )
    over = [job.job_id for job in state.jobs.values() if job.outcome is not None]
    for job_id in over[:-ENDED_KEPT]:
        del state.jobs[job_id]


def _line(state: State, fact: JobLine, event: Event) -> None:
    job = state.jobs.get(fact.job_id)
    if job is None or job.outcome is not None:  # its end says more than this event
        return
    if fact.deadline:
        job.deadline_us, job.late_seq = None, event.seq
    elif job.line_seq:
        return
    else:
        job.line_seq = event.seq
    state.stirred()
    state.posted(event.seq, estimate(fact.content))


def _job_ended(state: State, fact: JobEnded, event: Event) -> None:
    job = state.jobs.get(fact.job_id)
    if job is None or job.outcome is not None:
        return
    job.outcome, job.ended_seq = fact.outcome, event.seq
    state.mutated_seq = event.seq
    state.stirred()
    state.posted(event.seq, estimate(fact.content))


def _service_started(state: State, fact: ServiceStarted, event: Event) -> None:
    state.services[fact.name] = ServiceRun(
        fact.name, fact.call_id, fact.hands_id, event.seq, command=fact.command[:COMMAND_MAX]
    )


def _service_ended(state: State, fact: ServiceEnded, event: Event) -> None:
    run = state.services.get(fact.name)
    if run is None or run.hands_id != fact.hands_id:
        return
    del state.services[fact.name]
    if fact.content:
        state.posted(event.seq, estimate(fact.content))


def _opened(state: State, fact: ChildOpened, event: Event) -> None:
    state.children[fact.child_id] = Child(fact.child_id, fact.call_id, event.seq, fact.name)


def _messaged(state: State, fact: ChildMessaged, event: Event) -> None:
    child = state.children.get(fact.child_id)
    if child is not None:  # the message gives it work again
        child.status = None


def _cancelled(state: State, fact: ChildCancelled, event: Event) -> None:
    child = state.children.get(fact.child_id)
    if child is not None:
        child.cancelled = True


def _finished(state: State, fact: ChildFinished, event: Event) -> None:
    state.stirred()
    child = state.children.get(fact.child_id)
    if child is None:
        return
    child.status, child.finished_seq = fact.status, event.seq
    if fact.untrusted:
        untrusted_read(state, event.seq, "a child reported that had read what strangers may have written")
    if not child.cancelled:  # the canceller needs no report
        state.posted(event.seq, estimate(fact.summary) + estimate(fact.detail))


APPLY: dict[type[Fact], Apply] = {
    AgentThinking: _part,
    AgentMessage: _part,
    AgentToolUse: _part,
    ToolDispatched: _dispatched,
    ToolResult: _ended,
    ToolOutcomeUnknown: _ended,
    JobStarted: _started,
    JobLine: _line,
    JobEnded: _job_ended,
    ServiceStarted: _service_started,
    ServiceEnded: _service_ended,
    ChildOpened: _opened,
    ChildMessaged: _messaged,
    ChildCancelled: _cancelled,
    ChildFinished: _finished,
}
