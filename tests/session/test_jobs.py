"""From state to action: what a session does about its jobs and services."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.facts.base import Text
from holdfast.facts.people import UserCancel, UserInterrupt, UserMessage, UserPause
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.tool import JobEnded, JobLine, JobStarted, ServiceEnded, ServiceStarted
from holdfast.session.actions import AskModel, Dispatch, End, EndCalls, Provision, Record, RunHarness
from holdfast.session.context.notes import running
from holdfast.session.decide import decide, is_idle
from holdfast.session.decide.calls import LATE_US
from holdfast.session.tools import DEFAULT_TOOLS, TOOLS, check_input, timeout_s
from holdfast.session.tools.jobs import JOB_TOOLS
from tests.session.story import SECOND_US, Story

START = ("job_start", {"name": "train", "command": "make train", "timeout_s": 3_600.0})
HOUR_US = 3_600 * SECOND_US


def started(*, deadline_s: int | None = None, line: str = "") -> tuple[Story, str]:
    """A session whose job is at work; with the job's id."""
    story = Story(tools=("bash", "sleep", *JOB_TOOLS)).shift()
    (call_id,) = story.answer("", START)
    story.hands().dispatch(call_id)
    deadline_us = None if deadline_s is None else story.now_us + deadline_s * SECOND_US
    job = JobStarted(
        job_id=f"job_{call_id}",
        call_id=call_id,
        hands_id="hnd_1",
        name="train",
        command="make train",
        line=line,
        deadline_us=deadline_us,
        until_us=story.now_us + HOUR_US,
    )
    story.tell(job).result(call_id)
    return story, job.job_id


def ended(job_id: str, outcome: Any = "ok") -> JobEnded:
    """Its end."""
    return JobEnded(job_id=job_id, outcome=outcome, content="[it is over]")


def parked(story: Story) -> ShiftEnded:
    """How it parks now."""
    action = decide(story.state(), story.now_us)
    assert isinstance(action, End), action
    return action.fact


def test_a_start_goes_through_the_hands_with_its_own_timeout() -> None:
    story = Story(tools=JOB_TOOLS).shift()
    (call_id,) = story.answer("", START)
    assert decide(story.state(), story.now_us) == Provision()
    assert decide(story.hands().state(), story.now_us) == Dispatch((call_id,))
    assert timeout_s(TOOLS["job_start"], START[1]) == 3_600.0
    assert TOOLS["job_start"].on_unknown == "tell"


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"timeout_s": 0}, "timeout_s"),
        ({"timeout_s": 2_592_001}, "timeout_s"),
        ({"line": "("}, "not a regular expression"),
        ({"command": ""}, "command"),
        ({"timeout_s": 60}, ""),
        ({"line": "epoch [0-9]+"}, ""),
    ],
)
def test_what_cannot_be_meant_is_refused(change: dict[str, Any], wrong: str) -> None:
    said = check_input(TOOLS["job_start"], {**START[1], **change})
    assert (wrong in said) if wrong else not said, said


def test_nobody_is_offered_them_unless_asked_for() -> None:
    assert not set(JOB_TOOLS) & set(DEFAULT_TOOLS)


def test_a_response_that_asks_for_nothing_parks_while_a_job_runs() -> None:
    story, job_id = started()
    story.answer("I wait.")
    fact = parked(story)
    assert (fact.status, fact.reason) == ("parked", "job")
    assert job_id in fact.detail
    job = story.state().jobs[job_id]
    assert job.until_us is not None
    assert fact.due_us == job.until_us + LATE_US
    assert is_idle(story.tell(fact).state(), story.now_us)
    story.tell(ended(job_id))
    assert not is_idle(story.state(), story.now_us)
    assert isinstance(decide(story.shift().state(), story.now_us), AskModel)
    story.answer("Done.")
    assert parked(story).status == "done"


def test_a_job_that_nobody_told_of_is_looked_after_again_and_again() -> None:
    """It may run longer than anybody thought: the time to look never lies in the past."""
    story, _ = started()
    story.answer("I wait.")
    late_us = story.now_us + 10 * HOUR_US
    action = decide(story.state(), late_us)
    assert isinstance(action, End)
    assert action.fact.due_us == late_us + LATE_US


def test_a_wait_ends_with_the_first_of_its_jobs() -> None:
    story, job_id = started()
    (call_id,) = story.answer("", ("job_wait", {}))
    assert parked(story).reason == "job"
    story.tell(parked(story), ended(job_id)).shift()
    assert decide(story.state(), story.now_us) == RunHarness(call_id)
    story.result(call_id, "[it is over]")
    assert story.state().pending == []  # the result says it already


def test_a_wait_that_was_cut_short_has_reported_nothing() -> None:
    story, job_id = started()
    (call_id,) = story.answer("", ("job_wait", {}))
    story.tell(ended(job_id), UserInterrupt())
    assert isinstance(decide(story.state(), story.now_us), EndCalls)
    story.result(call_id, "Not run.", outcome="cancelled")
    assert [item.seq for item in story.state().pending] == [story.state().jobs[job_id].ended_seq]


def test_a_wait_is_over_after_its_time_or_when_a_person_writes() -> None:
    story, _ = started()
    (call_id,) = story.answer("", ("job_wait", {"timeout_s": 60}))
    asked_us = story.now_us - SECOND_US  # the call stands right before the end of its response
    fact = parked(story)
    assert fact.due_us == asked_us + 60 * SECOND_US
    assert decide(story.state(), asked_us + 60 * SECOND_US) == RunHarness(call_id)
    story.tell(UserMessage(content=(Text("how is it?"),)))
    assert decide(story.state(), story.now_us) == RunHarness(call_id)


@pytest.mark.parametrize("value", [{}, {"job_ids": ["job_9"]}])
def test_a_wait_for_nothing_is_over_at_once(value: dict[str, Any]) -> None:
    story = Story(tools=JOB_TOOLS).shift()
    (call_id,) = story.answer("", ("job_wait", value))
    assert decide(story.state(), story.now_us) == RunHarness(call_id)


def test_to_stop_what_runs_nowhere_no_hands_are_made() -> None:
    story = Story(tools=JOB_TOOLS).shift()
    (call_id,) = story.answer("", ("job_stop", {"job_id": "job_9"}))
    assert decide(story.state(), story.now_us) == RunHarness(call_id)


def test_a_deadline_is_told_once() -> None:
    story, job_id = started(deadline_s=60)
    story.answer("I wait.")
    job = story.state().jobs[job_id]
    assert job.deadline_us is not None
    assert parked(story).due_us == job.deadline_us
    action = decide(story.state(), job.deadline_us)
    assert isinstance(action, Record)
    (fact,) = action.facts
    assert isinstance(fact, JobLine)
    assert fact.deadline
    story.tell(fact)
    assert story.state().jobs[job_id].deadline_us is None
    assert isinstance(decide(story.state(), job.deadline_us + 1), AskModel)


def test_a_deadline_wakes_nobody_who_rests_or_could_not_go_on() -> None:
    story, _ = started(deadline_s=60)
    story.answer("I wait.")
    story.tell(UserPause())
    late_us = story.now_us + HOUR_US
    action = decide(story.state(), late_us)
    assert isinstance(action, End)
    assert action.fact.due_us is None


def test_an_interrupt_leaves_jobs_and_an_end_of_one_wakes_nobody_for_good() -> None:
    story, job_id = started()
    story.answer("I wait.")
    story.tell(UserInterrupt())
    assert parked(story).reason == "person"
    assert story.state().hands_at_work() == {"hnd_1"}
    story.tell(parked(story), ended(job_id)).shift()
    assert parked(story).reason == "person"


def test_a_cancel_ends_the_session_whatever_runs() -> None:
    """What runs is ended by the brain, before this end is written."""
    story, _ = started()
    story.tell(UserCancel())
    assert parked(story).status == "cancelled"


def test_a_second_end_changes_nothing() -> None:
    story, job_id = started()
    story.tell(ended(job_id), ended(job_id, "unknown"), JobLine(job_id=job_id, content="[late]"))
    state = story.state()
    assert state.jobs[job_id].outcome == "ok"
    assert [item.seq for item in state.pending] == [state.jobs[job_id].ended_seq]


def test_hands_stay_known_while_something_goes_on_in_them() -> None:
    story, _ = started()
    story.answer("I wait.").clear()
    story.tell(ShiftEnded(status="parked", reason="job"))
    assert set(story.state().hands_known) == {"hnd_1"}


def test_services_come_and_go() -> None:
    story, _ = started()
    own = ServiceStarted(name="web", call_id="9.0", hands_id="hnd_1")
    standing = ServiceStarted(name="db", call_id="env.db", hands_id="hnd_2")
    story.tell(own, standing)
    state = story.state()
    assert set(state.services) == {"web", "db"}
    assert state.hands_at_work() == {"hnd_1"}  # what stands ready with hands holds none
    story.tell(
        ServiceEnded(name="web", hands_id="hnd_0", reason="another one"),
        ServiceEnded(name="db", hands_id="hnd_2", reason="gone", content="[db is gone]"),
    )
    state = story.state()
    assert set(state.services) == {"web"}
    assert len(state.pending) == 1


def test_a_renewed_context_is_told_what_runs() -> None:
    story, job_id = started()
    state = story.state()
    (line,) = running(state.live_jobs(), state.services.values(), state.seq)
    assert job_id in line
    assert "make train" in line
