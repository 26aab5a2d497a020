"""Plain sessions with checks: done only after the checks passed on the latest work; failures go back to the model."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.people import UserMessage
from holdfast.facts.session import SessionCreated
from holdfast.facts.shift import BreakerClosed
from holdfast.facts.task import RepoCommitted, Run
from holdfast.facts.tool import UNTIL, HookRan
from holdfast.session.actions import Action, Escalate, Verify
from holdfast.session.state import Apply, State
from holdfast.session.tenant import Kind

CHECKS = "checks"
"""Breaker that opens when the checks fail again after the last permitted message about them."""


class RunState(msgspec.Struct):
    """State of a run.

    `passed` are the checks that passed after the response `checked`; `failing` are those that failed then. `sent_back`
    counts consecutive rounds with failures since the latest message of a user or answer to the question about them.
    `commit` is the latest commit of the workspace.
    """

    checked: int = 0
    passed: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()
    sent_back: int = 0
    commit: str = ""


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
            own.checked = own.sent_back = 0


class RunKind(Kind[State]):
    """Kind of sessions with checks or commits."""

    name = "run"
    state_type = RunState
    sources = ("holdfast.kinds.run.kind",)
    fold: Mapping[type[Fact], Apply] = {
        HookRan: _checked,
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
        passed = own.checked == state.responses and set(run.until) <= set(own.passed)
        return None if passed or not run.until else Verify()


KIND = RunKind()
