"""Several processes and one session: one runs it, the others watch it (S5)."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from holdfast.facts.shift import LeaseStolen, ShiftStarted
from tests.faults import deaths, oracle
from tests.faults.brains import Nursery, wait_for
from tests.faults.cli import finished, holdfast
from tests.faults.seams import Seam
from tests.faults.story import SHORT, open_session
from tests.support.waiting import PATIENCE_S


def test_a_second_wake_attaches_to_a_stopped_brain(tmp_path: Path, brains: Nursery) -> None:
    golden = deaths.undisturbed(tmp_path / "calm", brains, sandbox=True).record
    session = open_session(tmp_path / "home", SHORT)
    brain = brains.wake(session.home, session.session_id, Seam("append", 3, "after", "stop", "tool.dispatched"))
    assert brain.until_stopped(), brain.errors()
    before = len(oracle.events(session))
    second = holdfast(session.home, "wake", session.session_id)
    assert second.stderr is not None
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.append(second.stderr.readline()), daemon=True)  # type: ignore[union-attr]
    reader.start()
    reader.join(PATIENCE_S)
    assert "is running in another process" in said[0]
    assert "watching it" in said[0]
    assert len(oracle.events(session)) == before
    brain.send(signal.SIGCONT)
    assert brain.wait() == 0, brain.errors()
    status, _, errors = finished(second)
    assert status == 0, errors
    record = oracle.look(session)
    assert len(record.facts(ShiftStarted)) == 1
    assert record.facts(LeaseStolen) == []
    assert oracle.broken(record, SHORT, brain.acknowledged()) == []
    assert oracle.same_as(record, golden) == []


def test_ten_processes_wake_one_session(tmp_path: Path, brains: Nursery) -> None:
    golden = deaths.undisturbed(tmp_path / "calm", brains, sandbox=True).record
    session = open_session(tmp_path / "home", SHORT)
    born = [brains.wake(session.home, session.session_id) for _ in range(10)]
    assert [brain.wait() for brain in born] == [0] * 10, "\n".join(brain.errors() for brain in born)
    record = oracle.look(session)
    assert oracle.broken(record, SHORT, [each for brain in born for each in brain.acknowledged()]) == []
    assert oracle.same_as(record, golden) == []
    assert sorted(len(brain.acknowledged()) > 0 for brain in born) == [False] * 9 + [True]
    assert len(record.facts(ShiftStarted)) == 1


def test_the_killed_one_of_ten_is_replaced_by_one(tmp_path: Path, brains: Nursery) -> None:
    golden = deaths.undisturbed(tmp_path / "calm", brains, sandbox=True).record
    session = open_session(tmp_path / "home", SHORT)
    first = brains.wake(session.home, session.session_id, Seam("append", 3, "after", "kill", "tool.dispatched"))
    wait_for(lambda: len(oracle.events(session)) > 1, "the first brain holds the session")
    others = [brains.wake(session.home, session.session_id) for _ in range(9)]
    assert first.wait() == -9
    assert [brain.wait() for brain in others] == [0] * 9, "\n".join(brain.errors() for brain in others)
    record = oracle.look(session)
    assert oracle.broken(record, SHORT, first.acknowledged()) == []
    assert oracle.same_as(record, golden) == []
    assert len(record.facts(ShiftStarted)) == 2


def test_a_wake_that_comes_too_late_appends_nothing(tmp_path: Path, brains: Nursery) -> None:
    session = open_session(tmp_path / "home", SHORT)
    late = brains.wake(session.home, session.session_id, Seam("append", 1, "before", "stop"))
    assert late.until_stopped(), late.errors()
    assert brains.wake(session.home, session.session_id).wait() == 0
    before = oracle.events(session)
    late.send(signal.SIGCONT)
    assert late.wait() == 0, late.errors()
    assert oracle.events(session) == before
