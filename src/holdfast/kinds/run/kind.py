"""Plain sessions with checks: done only after the checks passed on the latest work; failures go back to the model.

Before the checks, the project's hooks for a stop run, and may send the work back too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.model import AgentToolUse
from holdfast.facts.people import UserMessage
from holdfast.facts.session import SessionCreated
from holdfast.facts.shift import BreakerClosed
from holdfast.facts.task import RepoCommitted, Run
from holdfast.facts.tool import NOT_HANDED_IN, UNTIL, HookRan, ToolResult
from holdfast.kinds.hooks.settings import AT_STOP, Settings, read
from holdfast.session.actions import Action, Escalate, Record, Verify
from holdfast.session.state import Apply, State
from holdfast.session.tenant import Kind
from holdfast.session.tools.output import OUTPUT, SUBMIT_OUTPUT, has_output

NO_OUTPUT = (
    f"[You stopped, but the work is not done: no output is submitted. Call `{SUBMIT_OUTPUT}` with your output; "
    "text that you write here does not count.]"
)

CHECKS = "checks"
"""Breaker that opens when the checks fail again after the last permitted message about them."""


class RunState(msgspec.Struct):
    """State of a run.

    `passed` are the checks that passed after the response `checked`; `failing` are those that failed then. `sent_back`
    counts consecutive rounds with failures since the latest message of a user or answer to the question about them.
    `commit` is the latest commit of the workspace. `submitting` are the values of calls that submit an output, by call;
    `output` is the latest valid one, if it was `submitted` after the latest message of a user. `hooked` names the hands
    in which the project's hooks were started. `let_go` is the response after which its hooks let the agent stop,
    `objected` the latest one after which they did not, and `objections` counts those since the latest message.
    """

    checked: int = 0
    passed: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()
    sent_back: int = 0
    commit: str = ""
    submitting: dict[str, Any] = {}
    submitted: bool = False
    output: Any = None
    hooked: str = ""
    let_go: int = 0
    objected: int = 0
    objections: int = 0


def run_of(state: State) -> Run:
    """Return the checks and commits of a run."""
    assert state.created is not None
    assert state.created.run is not None
    return state.created.run


def hooks_of(run: Run) -> Settings:
    """Return the hooks of a run's project."""
    return read({each.path: each.content.encode() for each in run.hooks})


def run_state(state: State) -> RunState:
    """Return the state of a run."""
    own = state.tenant.own
    assert isinstance(own, RunState)
    return own


def _checked(state: State, fact: HookRan, event: Event) -> None:
    own = run_state(state)
    if fact.event == NOT_HANDED_IN:
        own.sent_back += 1
        own.failing = (SUBMIT_OUTPUT,)
    elif fact.event == "SessionStart" and state.hands is not None:
        own.hooked = state.hands.hands_id
    elif fact.event in AT_STOP and fact.blocked:
        own.objections += own.objected != state.responses
        own.objected, own.let_go = state.responses, 0
    elif fact.event in AT_STOP and own.objected != state.responses:
        own.let_go = state.responses
    if fact.event != UNTIL:
        return
    if own.checked != state.responses:
        own.checked, own.passed, own.failing = state.responses, (), ()
    if fact.blocked:
        own.sent_back += not own.failing
        own.failing += (fact.command,)
    else:
        own.passed += (fact.command,)


def _followed(state: State, fact: UserMessage | BreakerClosed | RepoCommitted, event: Event) -> None:
    own = run_state(state)
    match fact:
        case RepoCommitted(commit=commit):
            own.commit = commit
        case BreakerClosed(breaker=breaker) if breaker != CHECKS:
            return
        case _:
            own.submitted = own.submitted and not isinstance(fact, UserMessage)
            own.checked = own.sent_back = own.objected = own.objections = 0


def _submitting(state: State, fact: AgentToolUse, event: Event) -> None:
    if fact.name == SUBMIT_OUTPUT:
        own = run_state(state)
        own.submitting = {**own.submitting, fact.call_id: fact.input.get(OUTPUT)}


def _submitted(state: State, fact: ToolResult, event: Event) -> None:
    own = run_state(state)
    if fact.call_id not in own.submitting:
        return
    value = own.submitting[fact.call_id]
    own.submitting = {call_id: each for call_id, each in own.submitting.items() if call_id != fact.call_id}
    if fact.outcome == "ok":
        own.submitted, own.output = True, value
    else:
        own.sent_back += 1
        own.failing = (SUBMIT_OUTPUT,)


class RunKind(Kind[State]):
    """Kind of sessions with checks, commits, or hooks."""

    name = "run"
    state_type = RunState
    sources = ("holdfast.kinds.run.kind", "holdfast.kinds.hooks.settings")
    fold: Mapping[type[Fact], Apply] = {
        HookRan: _checked,
        AgentToolUse: _submitting,
        ToolResult: _submitted,
        UserMessage: _followed,
        BreakerClosed: _followed,
        RepoCommitted: _followed,
    }

    def began(self, created: SessionCreated) -> msgspec.Struct:
        """Return the state of a run whose work was never checked."""
        return RunState()

    def instead(self, state: State, action: Action | None) -> Action | None:
        """Ask a user instead of the model once failures were sent back often enough."""
        own, run = run_state(state), run_of(state)
        if action is not None or own.sent_back <= run.sent_back_max:
            return action
        names = ", ".join(f"`{command}`" for command in own.failing[:3])
        return Escalate(
            CHECKS, f"the work is not done: after {run.sent_back_max} tries by the model, a check still fails ({names})"
        )

    def stopped(self, state: State) -> Action | None:
        """Check the work; None once the hooks let the agent stop and every check passed after the latest response."""
        own, run = run_state(state), run_of(state)
        assert state.created is not None
        if has_output(state.created.agent) and not own.submitted:
            return Record((HookRan(event=NOT_HANDED_IN, command="", blocked=True, content=NO_OUTPUT),))
        if own.let_go != state.responses and any(hook.event in AT_STOP for hook in hooks_of(run).hooks):
            return Verify()
        passed = own.checked == state.responses and set(run.until) <= set(own.passed)
        return None if passed or not run.until else Verify()


KIND = RunKind()
