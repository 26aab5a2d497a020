"""Plain sessions with checks: done only after the checks passed on the latest work; failures go back to the model."""

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
    `output` is the latest valid one, if it was `submitted` after the latest message of a user.
    """

    checked: int = 0
    passed: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()
    sent_back: int = 0
    commit: str = ""
    submitting: dict[str, Any] = {}
    submitted: bool = False
    output: Any = None


def run_of(state: State) -> Run:
    """Return the checks and commits of a run."""
    assert state.created is not None
    assert state.created.run is not None
    return state.created.run


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
            own.checked = own.sent_back = 0


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
    """Kind of sessions with checks or commits."""

    name = "run"
    state_type = RunState
    sources = ("holdfast.kinds.run.kind",)
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
        """Check the work; None once every check passed after the latest response."""
        own, run = run_state(state), run_of(state)
        assert state.created is not None
        if has_output(state.created.agent) and not own.submitted:
            return Record((HookRan(event=NOT_HANDED_IN, command="", blocked=True, content=NO_OUTPUT),))
        passed = own.checked == state.responses and set(run.until) <= set(own.passed)
        return None if passed or not run.until else Verify()


KIND = RunKind()
