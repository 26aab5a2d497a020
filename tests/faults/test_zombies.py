"""SIGSTOP, `holdfast wake --steal`, SIGCONT: the zombie writes nothing, does nothing, and leaves (S5, S9)."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.facts.codec import Event
from holdfast.facts.shift import LeaseStolen, ShiftStarted
from holdfast.facts.tool import ToolResult
from tests.faults import deaths, oracle
from tests.faults.brains import Brain, Nursery, wait_for
from tests.faults.cli import finished, holdfast
from tests.faults.lanes import none_broken, verdict
from tests.faults.seams import Seam
from tests.faults.story import EFFECTS, SHORT, Session, effect, open_session, story, turn
from tests.faults.victims import supervisors


@dataclass(frozen=True)
class Zombie:
    """Where a brain is stopped, and when it goes on: while the thief works (`early`) or when it is done."""

    place: str
    early: bool


SEAMS: dict[str, Seam] = {
    "before a request": Seam("append", 3, "before", "stop", "span.model_request_start"),
    "mid-stream": Seam("part", 30, "before", "stop"),
    "making hands": Seam("append", 1, "before", "stop", "hands.provisioned"),
    "between response and dispatch": Seam("append", 3, "before", "stop", "tool.dispatched"),
    "between dispatch and start": Seam("append", 3, "after", "stop", "tool.dispatched"),
    "between a write's dispatch and its start": Seam("append", 5, "after", "stop", "tool.dispatched"),
    "between end and result": Seam("append", 3, "before", "stop", "agent.tool_result"),
    "giving hands back": Seam("append", 1, "before", "stop", "hands.released"),
}

TRIES = 5
"""A brain that is stopped in the middle of a commit of another of its threads is stopped anew, in another session."""

IN_A_CALL = "in the middle of a call"


def stopped(session: Session, brains: Nursery, place: str) -> Brain:
    """A brain that is stopped there."""
    if place != IN_A_CALL:
        brain = brains.wake(session.home, session.session_id, SEAMS[place])
    else:
        brain = brains.wake(session.home, session.session_id)
        wait_for(lambda: _slow_call_runs(session) or brain.dead.is_set(), "the slow call runs")
        brain.send(signal.SIGSTOP)
    assert brain.until_stopped(), brain.errors()
    return brain


def _slow_call_runs(session: Session) -> bool:
    effects = session.workspace / EFFECTS
    return effects.exists() and "three" in effects.read_text().splitlines()


def commits(session: Session) -> bool:
    """Whether somebody is in the middle of a commit: SQLite then lets nobody else write, whoever is stopped."""
    there = f"file:{session.home}/holdfast.db?mode=rw"
    with contextlib.closing(sqlite3.connect(there, timeout=0.5, isolation_level=None, uri=True)) as db:
        try:
            db.execute("BEGIN IMMEDIATE")
            db.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return True
    return False


def robbed(session: Session, brain: Brain, golden: oracle.Record, zombie: Zombie) -> list[str]:
    """Take a stopped brain's session over, let it go on; then say what does not hold."""
    head = len(brain.acknowledged())
    thief = holdfast(session.home, "wake", session.session_id, "--steal", "--json")
    if zombie.early:
        wait_for(lambda: _taken(session) or thief.poll() is not None, "the session is taken over")
        brain.send(signal.SIGCONT)
    status, _, said = finished(thief)
    brain.send(signal.SIGCONT)
    mine = brain.wait()
    out = [f"the thief ended with {status}: {said}"] if status != 0 else []
    out += [] if mine == 0 else [f"the zombie ended with {mine}: {brain.errors()}"]
    if "taken over by another process" not in brain.errors() or "Traceback" in brain.errors():
        out.append(f"the zombie says {brain.errors()!r}")
    if len(brain.acknowledged()) > head:
        out.append(f"the zombie appended {brain.acknowledged()[head:]}")
    record = oracle.look(session)
    thefts = [event for event in record.events if isinstance(event.fact, LeaseStolen)]
    if len(thefts) != 1:
        return [*out, f"{len(thefts)} thefts"]
    theft = thefts[0]
    out += [f"{event.seq} {event.type} of epoch 1 after the theft" for event in _late(record, theft.seq)]
    if len(record.facts(ShiftStarted)) != 2:
        out.append(f"{len(record.facts(ShiftStarted))} shifts")
    out += [f"{folder.name} still lives" for folder in supervisors(session.home)]
    return out + oracle.broken(record, SHORT) + oracle.same_as(record, golden)


def _late(record: oracle.Record, seq: int) -> list[Event]:
    return [event for event in record.events if event.seq > seq and event.epoch < 2]


def _taken(session: Session) -> bool:
    return any(isinstance(event.fact, LeaseStolen) for event in oracle.events(session))


def each(places: list[str], base: Path, brains: Nursery, *, sandbox: bool, both: bool = False) -> None:
    """Rob a brain at each of these places and let it go on: early and late in turn, or `both` at each place."""
    golden = deaths.undisturbed(base / "calm", brains, sandbox=sandbox).record

    def run(zombie: Zombie) -> list[str]:
        for attempt in range(TRIES):
            home = base / f"{'early' if zombie.early else 'late'}-{places.index(zombie.place)}-{attempt}"
            session = open_session(home, SHORT, sandbox=sandbox)
            brain = stopped(session, brains, zombie.place)
            if not commits(session):
                return robbed(session, brain, golden, zombie)
            brain.send(signal.SIGKILL)
        return [f"it was in the middle of a commit {TRIES} times"]

    zombies = [Zombie(place, early) for place in places for early in (True, False)]
    none_broken(verdict(run, zombies if both else [*zombies[::4], *zombies[3::4]]), "zombies")


def test_a_robbed_zombie_writes_and_does_nothing(tmp_path: Path, brains: Nursery) -> None:
    each([IN_A_CALL, *SEAMS][::2], tmp_path, brains, sandbox=True)


def test_a_robbed_zombie_writes_and_does_nothing_without_a_sandbox(tmp_path: Path, brains: Nursery) -> None:
    each(["between dispatch and start", IN_A_CALL], tmp_path, brains, sandbox=False)


@pytest.mark.faults
def test_a_zombie_does_nothing_early_or_late_at_any_place(tmp_path: Path, brains: Nursery) -> None:
    each([*SEAMS, IN_A_CALL], tmp_path, brains, sandbox=True, both=True)


def test_a_zombie_stops_at_what_it_reads(tmp_path: Path, brains: Nursery) -> None:
    """It does not wait for its model's answer first, which here would take ten minutes."""
    session = open_session(tmp_path / "home", story(turn("", effect("one"), delay_s=600.0), keys=("one",)))
    asked = "span.model_request_start"
    zombie = brains.wake(session.home, session.session_id, Seam("append", 1, "after", "stop", asked))
    assert zombie.until_stopped(), zombie.errors()
    thief = brains.wake(session.home, session.session_id, steal=True)
    wait_for(lambda: [event.type for event in oracle.events(session)].count(asked) == 2, "the thief asks")
    zombie.send(signal.SIGCONT)
    wait_for(lambda: "taken over" in zombie.errors(), "the zombie knows")
    assert not zombie.dead.is_set()
    for brain in (zombie, thief):
        brain.send(signal.SIGKILL)
        assert brain.wait() == -9


def test_a_zombie_cannot_start_what_was_ended_without_it(tmp_path: Path, brains: Nursery) -> None:
    """The hands themselves refuse it: the log cannot, since its intent is there already (S9)."""
    session = open_session(tmp_path / "home", SHORT)
    zombie = stopped(session, brains, "between dispatch and start")
    assert finished(holdfast(session.home, "interrupt", session.session_id))[0] == 0
    after_end = Seam("append", 1, "after", "stop", "agent.tool_result")
    thief = brains.wake(session.home, session.session_id, after_end, steal=True)
    assert thief.until_stopped(), thief.errors()
    zombie.send(signal.SIGCONT)
    wait_for(lambda: "taken over" in zombie.errors() or zombie.dead.is_set(), "the zombie knows")
    thief.send(signal.SIGCONT)
    assert (thief.wait(), zombie.wait()) == (3, 3), thief.errors() + zombie.errors()
    record = oracle.look(session)
    assert record.facts(ToolResult)[-1].outcome == "cancelled"
    assert record.damage == []
    assert record.row.reason == "person"
    assert list(record.effects) == ["one"]


@pytest.mark.faults
@pytest.mark.parametrize("type_", ["span.model_request_start", "span.model_request_end", "tool.dispatched"])
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_brain_robbed_anywhere(tmp_path: Path, brains: Nursery, type_: str, side: str) -> None:
    places = [f"{side} {type_} {nth}" for nth in range(1, 8)]
    SEAMS.update({place: Seam("append", int(place[-1]), side, "stop", type_) for place in places})  # type: ignore[arg-type]
    each(places, tmp_path, brains, sandbox=True)
