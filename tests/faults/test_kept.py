"""SIGKILL while a context is renewed and while a person is asked: nothing lost, nothing twice, the work is done."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from holdfast.facts.codec import Event
from holdfast.facts.model import AgentToolUse, ContextCompacted, ContextReset, ModelRequestStart
from holdfast.facts.people import ApprovalDecided
from holdfast.facts.shift import ShiftEnded
from tests.faults import kept, oracle
from tests.faults.brains import Nursery
from tests.faults.cli import finished, holdfast
from tests.faults.deaths import pass_time
from tests.faults.kept import APPROVING, COMPACTING, RESETTING, Kept
from tests.faults.lanes import none_broken, verdict
from tests.faults.seams import Seam

FEW, MANY = 2, 100
AFTER_S = 0.1
"""Moments shortly after are drawn, too."""


def renewed_under_fire(base: Path, brains: Nursery, what: Kept, purpose: str, times: int, seed: int) -> None:
    """Die `times` times while a summary or a handoff is made."""
    golden = kept.undisturbed(base / "calm", brains, what)
    starts = [fact for fact in golden.facts(ModelRequestStart)]
    nths = [nth for nth, fact in enumerate(starts, 1) if fact.purpose == purpose]
    assert nths, f"no {purpose} in an undisturbed run"
    span_s = AFTER_S + kept.span_of(
        golden,
        lambda event: isinstance(event.fact, ModelRequestStart) and event.fact.purpose == purpose,
        lambda event: isinstance(event.fact, ContextCompacted | ContextReset),
    )
    hits = []

    def run(number: int) -> list[str]:
        chance = random.Random(f"{purpose} {seed} {number}")
        session = kept.open_kept(base / str(number), what)
        seam = Seam(
            "append", chance.choice(nths), chance.choice(("before", "after")), "stop", "span.model_request_start"
        )
        brain, alive = kept.killed_after(session, brains, chance, seam, span_s)
        hits.append(alive)
        acknowledged = brain.acknowledged() + kept.run_to_end(session, brains)
        record = oracle.look(session)
        out = kept.broken(record, what, acknowledged) + kept.same_notes(record, golden)
        return out + oracle.same_as(record, golden)

    none_broken(verdict(run, range(times)), f"{purpose}, seed {seed}")
    assert sum(hits) >= times * 0.8


RENEWALS = [pytest.param(COMPACTING, "compaction", id="compaction"), pytest.param(RESETTING, "handoff", id="reset")]


@pytest.mark.parametrize(("what", "purpose"), RENEWALS)
def test_killed_while_a_context_is_renewed(tmp_path: Path, brains: Nursery, what: Kept, purpose: str) -> None:
    renewed_under_fire(tmp_path, brains, what, purpose, FEW, seed=1)


@pytest.mark.faults
@pytest.mark.parametrize(("what", "purpose"), RENEWALS)
def test_killed_often_while_a_context_is_renewed(tmp_path: Path, brains: Nursery, what: Kept, purpose: str) -> None:
    renewed_under_fire(tmp_path, brains, what, purpose, MANY, seed=2)


def _uses(event: Event) -> bool:
    return isinstance(event.fact, AgentToolUse) and kept.ASKED in str(event.fact.input)


def _parks(event: Event) -> bool:
    return isinstance(event.fact, ShiftEnded)


def asked_under_fire(base: Path, brains: Nursery, way: str, times: int, seed: int) -> None:
    """Die `times` times while a person is asked, or after they answered."""
    golden = kept.undisturbed(base / "calm", brains, APPROVING)
    asking_s = AFTER_S + kept.span_of(golden, _uses, _parks)
    resuming_s = AFTER_S + kept.span_of(golden, lambda event: isinstance(event.fact, ApprovalDecided), _results)

    def run(number: int) -> list[str]:
        chance = random.Random(f"{way} {seed} {number}")
        session = kept.open_kept(base / str(number), APPROVING)
        acknowledged = []
        if way == "asking":
            seam = Seam("append", 2, chance.choice(("before", "after")), "stop", "agent.tool_use")
            brain, _ = kept.killed_after(session, brains, chance, seam, asking_s)
        else:
            first = brains.wake(session.home, session.session_id)
            first.wait()
            acknowledged = first.acknowledged()
            assert kept.answer(session)
            seam = Seam("append", 1, chance.choice(("before", "after")), "stop", "shift.started")
            brain, _ = kept.killed_after(session, brains, chance, seam, resuming_s)
        acknowledged += brain.acknowledged() + kept.run_to_end(session, brains)
        record = oracle.look(session)
        return kept.broken(record, APPROVING, acknowledged) + oracle.same_as(record, golden)

    none_broken(verdict(run, range(times)), f"{way}, seed {seed}")


def _results(event: Event) -> bool:
    return event.type == "agent.tool_result"


def answered_under_fire(base: Path, brains: Nursery, times: int, seed: int) -> None:
    """Kill the `approve` command itself `times` times; whoever answers again is told how it stands."""
    golden = kept.undisturbed(base / "calm", brains, APPROVING)

    def run(number: int) -> list[str]:
        chance = random.Random(f"answering {seed} {number}")
        session = kept.open_kept(base / str(number), APPROVING)
        first = brains.wake(session.home, session.session_id)
        first.wait()
        (item,) = [each for each in oracle.events(session) if each.type == "approval.requested"]
        item_id = str(getattr(item.fact, "item_id", ""))
        command = holdfast(session.home, "approve", item_id, "--note", "go on")
        pass_time(chance.uniform(0.1, 1.2))
        command.send_signal(signal.SIGKILL)
        finished(command)
        status, _, said = finished(holdfast(session.home, "approve", item_id, "--note", "go on"))
        out = [] if status in (0, 2) and "Traceback" not in said else [f"a second answer: {status} {said}"]
        acknowledged = first.acknowledged() + kept.run_to_end(session, brains)
        record = oracle.look(session)
        return out + kept.broken(record, APPROVING, acknowledged) + oracle.same_as(record, golden)

    none_broken(verdict(run, range(times)), f"answering, seed {seed}")


@pytest.mark.parametrize("way", ["asking", "resuming"])
def test_killed_while_a_person_is_asked(tmp_path: Path, brains: Nursery, way: str) -> None:
    asked_under_fire(tmp_path, brains, way, FEW, seed=3)


def test_an_answer_is_killed(tmp_path: Path, brains: Nursery) -> None:
    answered_under_fire(tmp_path, brains, FEW, seed=4)


@pytest.mark.faults
@pytest.mark.parametrize("way", ["asking", "resuming"])
def test_killed_often_while_a_person_is_asked(tmp_path: Path, brains: Nursery, way: str) -> None:
    asked_under_fire(tmp_path, brains, way, MANY, seed=5)


@pytest.mark.faults
def test_many_answers_are_killed(tmp_path: Path, brains: Nursery) -> None:
    answered_under_fire(tmp_path, brains, MANY, seed=6)
