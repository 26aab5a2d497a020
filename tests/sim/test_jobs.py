"""Commands that outlive their shifts, simulated: the code holds, and each invariant notices planted bugs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.app.cli import main
from holdfast.brain.acts import jobs as jobs_act
from holdfast.brain.acts import results as news_act
from holdfast.brain.acts import tool as tool_act
from holdfast.brain.shift import Shift
from holdfast.facts.base import Fact
from holdfast.facts.model import AgentToolUse
from holdfast.facts.tool import JobEnded, JobLine
from holdfast.hands.base import CallStatus, Hands
from holdfast.session import fold
from holdfast.session.actions import Action, WaitUntil
from holdfast.session.decide import calls
from holdfast.session.fold import calls as fold_calls
from holdfast.session.state import Call, State
from holdfast.session.state.parts import Job
from holdfast.sim.invariants import OF_JOBS
from holdfast.sim.run import run_jobs, run_seeds
from tests.sim.planted.kit import Bed, Plant, hunt

CLEAN = 50
WITHIN = 400

BED = Bed()
plant = partial(BED.plant, "")


def test_no_invariant_is_violated() -> None:
    totals = run_seeds(range(CLEAN), run_jobs)
    if totals.failing is not None:
        pytest.fail(totals.failing.report())
    assert totals.seeds == CLEAN
    assert min(totals.crashes, totals.effects) >= CLEAN


@pytest.mark.faults
def test_no_invariant_is_violated_in_many_worlds() -> None:
    totals = run_seeds(range(100_000, 105_000), run_jobs)
    if totals.failing is not None:
        pytest.fail(totals.failing.report())


def test_a_seed_is_one_world() -> None:
    assert run_jobs(7) == run_jobs(7)


def test_the_command_runs_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--jobs", "--seeds", "3"]) == 0
    assert "3 seeds" in capsys.readouterr().out


@plant("jobs_run_once", first=23)
def an_unknown_job_is_started_again(patch: pytest.MonkeyPatch) -> None:
    async def unknown(shift: Shift, call: Call, status: CallStatus) -> None:
        await tool_act._again(shift, call)

    patch.setattr(tool_act, "_unknown", unknown)


@plant("jobs_run_once", first=92)
def hands_know_a_job_by_its_shift(patch: pytest.MonkeyPatch) -> None:
    async def run(shift: Shift, hands: Hands, use: AgentToolUse) -> None:
        if use.name in jobs_act.STOPS:
            await jobs_act.stop(shift, use)
            return
        await hands.start(shift.fence, f"{use.call_id}.{shift.epoch}", jobs_act._request(use))
        await jobs_act.adopt(shift, hands, use)

    patch.setattr(jobs_act, "run", run)


@plant("jobs_are_told_once")
def news_have_no_key(patch: pytest.MonkeyPatch) -> None:
    count = iter(range(10**9))
    patch.setattr(news_act, "ended_key", lambda job: f"job:{next(count)}")


@plant("jobs_are_told_once")
def a_wait_tells_what_it_told_before(patch: pytest.MonkeyPatch) -> None:
    async def told(shift: Shift, job: Job) -> str:
        fact = await shift.body(job.ended_seq) if job.ended_seq else None
        return fact.content if isinstance(fact, JobEnded) else "[still runs]"

    patch.setattr(jobs_act, "_told", told)


@plant("job_ends_are_true")
def a_job_that_runs_is_taken_for_gone(patch: pytest.MonkeyPatch) -> None:
    whole = news_act._of_job

    def of_job(job: Job, status: CallStatus) -> Any:
        return whole(job, CallStatus("unknown") if status.state == "running" else status)

    patch.setattr(news_act, "_of_job", of_job)


@plant("job_ends_are_true")
def a_job_is_recorded_and_never_started(patch: pytest.MonkeyPatch) -> None:
    async def run(shift: Shift, hands: Hands, use: AgentToolUse) -> None:
        if use.name in jobs_act.STOPS:
            await jobs_act.stop(shift, use)
            return
        await jobs_act.adopt(shift, hands, use)

    patch.setattr(jobs_act, "run", run)


@plant("no_brain_waits_for_a_job", first=40)
def a_wait_is_spent_in_the_shift(patch: pytest.MonkeyPatch) -> None:
    whole = calls.wait_for_jobs

    def wait_for(state: State, call: Call, now_us: int) -> Action:
        action = whole(state, call, now_us)
        return WaitUntil(now_us + 2_000_000_000) if type(action).__name__ == "End" else action

    patch.setattr(calls, "wait_for_jobs", wait_for)


@plant("no_brain_waits_for_a_job")
def a_start_waits_for_the_end(patch: pytest.MonkeyPatch) -> None:
    whole = jobs_act.adopt

    async def adopt(shift: Shift, hands: Hands, use: AgentToolUse, **more: Any) -> None:
        await hands.wait(shift.fence, use.call_id)
        await whole(shift, hands, use, **more)

    patch.setattr(jobs_act, "adopt", adopt)


@plant("news_wake_at_once")
def the_end_of_a_job_makes_nothing_due(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JobEnded, "wakes", False)


@plant("news_wake_at_once")
def a_line_makes_nothing_due(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JobLine, "wakes", False)


@plant("deadlines_are_told_once")
def a_deadline_is_not_taken_down(patch: pytest.MonkeyPatch) -> None:
    whole = fold_calls.APPLY[JobLine]

    def line(state: State, fact: JobLine, event: Any) -> None:
        before = state.jobs[fact.job_id].deadline_us
        whole(state, fact, event)
        if fact.deadline and event.seq % 5:  # now and then it is, or nothing would ever end
            state.jobs[fact.job_id].deadline_us = before

    applies: dict[type[Fact], Callable[..., None]] = {**fold._APPLY, JobLine: line}
    patch.setattr(fold, "_APPLY", applies)


@plant("deadlines_are_told_once")
def a_line_has_no_key(patch: pytest.MonkeyPatch) -> None:
    count = iter(range(10**9))
    whole = news_act._of_job

    def of_job(job: Job, status: CallStatus) -> Any:
        job.line_seq = 0
        return [
            msgspec.structs.replace(each, key=f"{each.key}:{next(count)}") if isinstance(each.fact, JobLine) else each
            for each in whole(job, status)
        ]

    patch.setattr(news_act, "_of_job", of_job)


def test_every_invariant_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
    for each in OF_JOBS:
        assert f"| `{each.__name__}` | {' '.join((each.__doc__ or '').split())} |" in page


def test_every_invariant_has_two_planted_bugs() -> None:
    assert Counter(plant.invariant for plant in BED.plants) == {each.__name__: 2 for each in OF_JOBS}


@pytest.mark.parametrize("plant", BED.plants, ids=lambda plant: plant.name)
def test_a_planted_bug_is_found(plant: Plant) -> None:
    assert hunt(plant, range(WITHIN), run_jobs) is not None, f"{plant.invariant} notices nothing"
