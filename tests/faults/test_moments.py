"""SIGKILL at random moments: brain, supervisor, both, inside a journal write, inside a commit."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults import deaths, oracle
from tests.faults.brains import Nursery
from tests.faults.deaths import Death, Undisturbed, Way
from tests.faults.lanes import none_broken, verdict
from tests.faults.story import SHORT, Session, open_session
from tests.log.processes import needs_strace

WAYS: dict[str, Way] = {
    "brain": deaths.kill_brain,
    "supervisor": deaths.kill_supervisor,
    "both": deaths.kill_both,
    "journal": deaths.kill_in_journal,
    "commit": deaths.kill_in_commit,
}

TRIES = 8
"""Moments drawn for one death: one that comes after the end of the run kills nobody."""


def one_death(base: Path, brains: Nursery, way: Way, calm: Undisturbed, seed: str, *, sandbox: bool) -> list[str]:
    """Die, go on, and say what does not hold."""
    chance = random.Random(seed)
    for number in range(TRIES):
        session = open_session(base / f"{seed}-{number}", SHORT, sandbox=sandbox)
        death = way(session, brains, chance, calm)
        if death is not None:
            broken = after(death, brains, calm, session)
            for witness in death.witnesses:
                witness.close()
            return [f"{death.how}: {each}" for each in broken]
    return [f"{TRIES} moments in a row came after the end of the run"]


def after(death: Death, brains: Nursery, calm: Undisturbed, session: Session) -> list[str]:
    """The session goes on, in another brain when its own is dead."""
    status = death.brain.wait()
    acknowledged = death.brain.acknowledged()
    out = []
    if status == -9:
        second = brains.wake(session.home, session.session_id)
        status = second.wait()
        acknowledged += second.acknowledged()
        out += [second.errors()] if status != 0 or "Traceback" in second.errors() else []
    out += [death.brain.errors()] if "Traceback" in death.brain.errors() else []
    if status != 0:
        out.append(f"the last brain ended with {status}: {death.brain.errors()}")
    record = oracle.look(session)
    out += oracle.broken(record, SHORT, acknowledged)
    if death.witnesses:
        out += oracle.torn(record, death.testimonies()) + oracle.settled(record, calm.record)
    else:
        out += oracle.same_as(record, calm.record)
    return out


def many_deaths(base: Path, brains: Nursery, way: str, seed: int, times: int, *, sandbox: bool = True) -> None:
    """Die `times` times; every promise must hold each time."""
    calm = deaths.undisturbed(base / "calm", brains, sandbox=sandbox)
    if way == "commit":
        calm.calls = deaths.count_calls(base / "count", brains, sandbox=sandbox)
    print(f"{way}: {times} deaths, seed {seed}, {calm.span_s:.2f} s undisturbed {calm.calls or ''}")

    def run(number: int) -> list[str]:
        return one_death(base, brains, WAYS[way], calm, f"{seed}-{number}", sandbox=sandbox)

    none_broken(verdict(run, range(times)), f"{way}, seed {seed}")


@needs_strace
@pytest.mark.parametrize("way", WAYS)
def test_killed_at_random_moments(tmp_path: Path, brains: Nursery, way: str) -> None:
    many_deaths(tmp_path, brains, way, seed=1, times=20)


@pytest.mark.parametrize("way", ["brain", "both"])
def test_killed_at_random_moments_without_a_sandbox(tmp_path: Path, brains: Nursery, way: str) -> None:
    many_deaths(tmp_path, brains, way, seed=2, times=5, sandbox=False)


@needs_strace
@pytest.mark.faults
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_killed_at_many_random_moments(tmp_path: Path, brains: Nursery, way: str, seed: int) -> None:
    many_deaths(tmp_path, brains, way, seed, times=20)


@needs_strace
@pytest.mark.faults
@pytest.mark.parametrize("way", WAYS)
def test_killed_at_many_random_moments_without_a_sandbox(tmp_path: Path, brains: Nursery, way: str) -> None:
    many_deaths(tmp_path, brains, way, seed=6, times=20, sandbox=False)
