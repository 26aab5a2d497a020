"""Runs with checks: which state is done, which one asks a user, and what a fork keeps."""

from __future__ import annotations

from holdfast.facts.people import UserMessage
from holdfast.facts.session import SessionForked, Workspace
from holdfast.facts.shift import BreakerClosed
from holdfast.facts.task import Run
from holdfast.facts.tool import UNTIL, HookRan
from holdfast.kinds import KINDS
from holdfast.kinds.run.kind import CHECKS, KIND, run_of, run_state
from holdfast.session.actions import Escalate, Verify
from holdfast.session.fold import empty, fold
from holdfast.session.state import State
from tests.kinds.test_kinds import created, story

RUN = Run(until=("one", "two"), sent_back_max=1)


def checked(*results: tuple[str, bool]) -> State:
    """The state after a response and a round of checks: each command, and whether it passed."""
    state = fold(empty("s", KINDS), story(created(run=RUN)))
    state.responses = 1
    return told(state, *(HookRan(event=UNTIL, command=name, blocked=not ok) for name, ok in results))


def told(state: State, *facts: HookRan | UserMessage | BreakerClosed | SessionForked) -> State:
    """The state after further facts."""
    return fold(state, story(*([created()] * state.seq), *facts)[state.seq :])


def test_only_checks_of_the_latest_response_count() -> None:
    state = checked(("one", True), ("two", True))
    assert KIND.stopped(state) is None
    state.responses += 1
    assert KIND.stopped(state) == Verify()


def test_every_check_has_to_pass() -> None:
    assert KIND.stopped(checked()) == Verify()
    assert KIND.stopped(checked(("one", True))) == Verify()
    assert KIND.stopped(checked(("one", True), ("two", False))) == Verify()


def test_a_round_with_two_failures_is_one_try() -> None:
    state = checked(("one", False), ("two", False))
    assert (run_state(state).sent_back, KIND.instead(state, None)) == (1, None)
    state.responses += 1
    state = told(state, HookRan(event=UNTIL, command="one", blocked=True))
    assert isinstance(KIND.instead(state, None), Escalate)


def test_a_word_of_a_user_begins_the_count_again() -> None:
    for said in (UserMessage(content=()), BreakerClosed(breaker=CHECKS, detail="")):
        state = told(checked(("one", False)), said)
        assert (run_state(state).sent_back, KIND.stopped(state)) == (0, Verify())
    other = told(checked(("one", False)), BreakerClosed(breaker="tool_failures", detail=""))
    assert run_state(other).sent_back == 1


def test_a_fork_keeps_its_checks() -> None:
    place = Workspace(path="/f")
    forked = SessionForked(
        origin="s", origin_seq=1, origin_hash="", goal="g", model="m", workspace=place, accounts=("f",)
    )
    state = told(checked(("one", True), ("two", True)), forked)
    assert run_of(state) == RUN
    assert KIND.stopped(state) == Verify()
