"""Hands, folders and homes that are taken away from under a session: a clear outcome each time, no hang."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Literal

import pytest

from holdfast.facts.hands import HandsLost, HandsProvisioned
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.hands.box import processes
from tests.faults import oracle
from tests.faults.brains import Brain, Nursery, wait_for
from tests.faults.cli import finished, holdfast
from tests.faults.seams import Seam
from tests.faults.story import EFFECTS, Session, effect, open_session, slow, story, turn
from tests.faults.victims import signal_process, supervisors, until_gone
from tests.support.waiting import remove

WAITS = story(
    turn("", effect("one")), turn("", slow("two", 30)), turn("", effect("three")), keys=("one", "two", "three")
)
"""Waits in its second command until somebody ends it."""


def in_second_call(session: Session, brains: Nursery, *seams: Seam) -> Brain:
    """A brain whose second command runs."""
    brain = brains.wake(session.home, session.session_id, *seams)
    wait_for(lambda: brain.dead.is_set() or "two" in effects(session), "the second command runs")
    return brain


def effects(session: Session) -> list[str]:
    """The keys so far."""
    path = session.workspace / EFFECTS
    return path.read_text().splitlines() if path.exists() else []


def told_unknown(session: Session, brain: Brain) -> None:
    """The second call is unknown, the hands are lost on record, others did the rest."""
    assert brain.wait() == 0, brain.errors()
    record = oracle.look(session)
    assert oracle.broken(record, WAITS, brain.acknowledged()) == []
    assert [type(end) for ends in record.ends().values() for end in ends] == [
        ToolResult,
        ToolOutcomeUnknown,
        ToolResult,
    ]
    assert sorted(record.effects) == ["one", "three", "two"]
    assert len(record.facts(HandsLost)) == 1
    assert len(record.facts(HandsProvisioned)) == 2


def kill_sandbox(session: Session) -> None:
    """SIGKILL to bubblewrap."""
    ((_, supervisor),) = supervisors(session.home).items()
    (bwrap,) = (
        entry
        for entry in processes.list_all().values()
        if entry.parent == supervisor and Path(f"/proc/{entry.pid}/comm").read_text() == "bwrap\n"
    )
    signal_process(bwrap.pid, signal.SIGKILL)


def test_the_sandbox_is_killed_from_outside(tmp_path: Path, brains: Nursery) -> None:
    session = open_session(tmp_path / "home", WAITS)
    brain = in_second_call(session, brains)
    kill_sandbox(session)
    told_unknown(session, brain)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("type_", ["hands.lost", "tool.outcome_unknown", "shift.ended"])
def test_a_brain_killed_while_it_takes_stock_of_lost_hands(
    tmp_path: Path, brains: Nursery, type_: str, side: Literal["before", "after"]
) -> None:
    """Whatever it got to, what the lost hands left is taken away in the end."""
    session = open_session(tmp_path / "home", WAITS)
    first = in_second_call(session, brains, Seam("append", 1, side, "kill", type_))
    kill_sandbox(session)
    assert first.wait() == -9
    told_unknown(session, brains.wake(session.home, session.session_id))


def test_the_agent_is_killed_by_a_command_without_a_sandbox(tmp_path: Path, brains: Nursery) -> None:
    kill = {"command": "echo two >> effects; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 30"}
    killer = story(turn("", effect("one")), turn("", ("bash", kill)), turn("", effect("three")), keys=WAITS.keys)
    session = open_session(tmp_path / "home", killer, sandbox=False)
    told_unknown(session, brains.wake(session.home, session.session_id))


def test_a_command_that_kills_all_it_can_in_the_sandbox(tmp_path: Path, brains: Nursery) -> None:
    kill = {"command": "kill -9 1; kill -9 -1; sleep 30"}
    killer = story(turn("", effect("one")), turn("", ("bash", kill)), turn("", effect("two")), keys=("one", "two"))
    session = open_session(tmp_path / "home", killer)
    brain = brains.wake(session.home, session.session_id)
    assert brain.wait() == 0, brain.errors()
    record = oracle.look(session)
    assert oracle.broken(record, killer, brain.acknowledged()) == []
    assert record.facts(HandsLost) == []
    assert [result.outcome for result in record.facts(ToolResult)] == ["ok", "error", "ok"]
    assert "ended from inside" in record.facts(ToolResult)[1].content


def test_the_journal_is_deleted(tmp_path: Path, brains: Nursery) -> None:
    session = open_session(tmp_path / "home", WAITS)
    first = in_second_call(session, brains)
    ((folder, supervisor),) = supervisors(session.home).items()
    first.send(signal.SIGKILL)
    signal_process(supervisor, signal.SIGKILL)
    until_gone(folder)
    shutil.rmtree(folder)
    assert first.wait() == -9
    told_unknown(session, brains.wake(session.home, session.session_id))


def test_the_workspace_is_deleted_while_nobody_works(tmp_path: Path, brains: Nursery) -> None:
    session = open_session(tmp_path / "home", WAITS)
    first = brains.wake(session.home, session.session_id, Seam("append", 1, "before", "kill", "agent.tool_use"))
    assert first.wait() == -9
    remove(session.workspace)
    status, _, said = finished(holdfast(session.home, "wake", session.session_id))
    assert status == 2
    assert str(session.workspace) in said
    assert "Traceback" not in said
    session.workspace.mkdir()
    record = oracle.look(session)
    assert record.damage == []
    assert record.row.status == "runnable"


def test_the_workspace_is_deleted_under_a_call(tmp_path: Path, brains: Nursery) -> None:
    short = story(turn("", effect("one")), turn("", slow("two", 1)), turn("", effect("three")), keys=WAITS.keys)
    session = open_session(tmp_path / "home", short)
    brain = in_second_call(session, brains)
    shutil.rmtree(session.workspace, ignore_errors=True)
    assert brain.wait() == 0, brain.errors()
    assert "Traceback" not in brain.errors()
    record = oracle.look(session)
    assert record.damage == []
    _, second, third = record.facts(ToolResult)
    assert "No such file or directory" in second.content
    assert "No such file or directory" in third.content


@pytest.mark.skipif(os.geteuid() != 0, reason="a read-only mount takes root")
def test_the_home_is_read_only(tmp_path: Path, brains: Nursery) -> None:
    session = open_session(tmp_path / "home", WAITS)
    first = brains.wake(session.home, session.session_id, Seam("append", 1, "before", "kill", "tool.dispatched"))
    assert first.wait() == -9
    before = oracle.events(session)
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    under = ("unshare", "-m", "sh", "-c", script, str(session.home))
    for words in (
        ("wake", session.session_id),
        ("send", session.session_id, "hello"),
        ("run", "x", "--model", "scripted:x"),
    ):
        status, _, said = finished(holdfast(session.home, *words, before=under))
        assert status == 5, said
        assert "Traceback" not in said
        assert str(session.home) in said
    assert oracle.events(session) == before


def test_asked_to_stop_while_hands_are_made(tmp_path: Path, brains: Nursery) -> None:
    session = open_session(tmp_path / "home", WAITS)
    brain = brains.wake(session.home, session.session_id, Seam("append", 1, "before", "stop", "hands.provisioned"))
    assert brain.until_stopped(), brain.errors()
    brain.send(signal.SIGINT)
    brain.send(signal.SIGCONT)
    assert brain.wait() == 130, brain.errors()
    recorded = {hands.hands_id for hands in oracle.look(session).facts(HandsProvisioned)}
    assert {folder.name for folder in supervisors(session.home)} <= recorded


@pytest.mark.faults
def test_a_stopped_supervisor_is_not_guessed_about(tmp_path: Path, brains: Nursery) -> None:
    """It takes the ten seconds that a living supervisor has for an answer."""
    short = story(turn("", effect("one")), turn("", slow("two", 1)), keys=("one", "two", "two-end"))
    session = open_session(tmp_path / "home", short)
    first = in_second_call(session, brains)
    ((_, supervisor),) = supervisors(session.home).items()
    first.send(signal.SIGKILL)
    assert first.wait() == -9
    signal_process(supervisor, signal.SIGSTOP)
    second = brains.wake(session.home, session.session_id)
    assert second.wait() == 1
    assert "wake the session again later" in second.errors()
    signal_process(supervisor, signal.SIGCONT)
    third = brains.wake(session.home, session.session_id)
    assert third.wait() == 0, third.errors()
    record = oracle.look(session)
    assert oracle.broken(record, short) == []
    assert record.unknown() == []
    assert set(record.effects) == set(short.keys)
