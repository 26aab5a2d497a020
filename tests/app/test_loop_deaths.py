"""A loop whose processes are killed: no iteration is lost, and none is repeated without saying so."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Event

import anyio.to_thread
import pytest

from holdfast.app.compose import open_runtime
from holdfast.app.settings.config import load_settings
from holdfast.facts.session import SessionCreated
from holdfast.facts.tool import ToolResult
from holdfast.kinds.loop.agent import LoopTool, spec_of
from holdfast.kinds.loop.outcome import read_story
from holdfast.kinds.loop.plan import Means
from tests.app.looping import MINE, passes, project, story
from tests.app.terminal import Type, ended, rows, spawn

WAITS = 'id=$(grep -o "US-00[0-9]" | head -1); echo "$id" >> begun; until [ -e go ]; do sleep 0.02; done; touch "$id"'
COUNTS = 'id=$(grep -o "US-00[0-9]" | head -1); echo "$id" >> begun; touch "$id"'


@pytest.fixture(autouse=True)
def _nothing_goes_on(type: Type) -> Iterator[None]:
    """Commands that a test left running in their hands end with their sessions."""
    yield
    for row in type("ps", "--json").lines:
        if row["state"] == "runnable":
            type("cancel", row["session_id"]).went()


def begin(folder: Path, command: str) -> subprocess.Popen[str]:
    """A loop in a process of its own."""
    words = ("loop", "--workspace", folder, *MINE, "--session-id", "k", "--", "bash", "-c", command)
    return spawn(*words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def until(condition: Callable[[], object], process: subprocess.Popen[str]) -> bool:
    """Look again and again, as long as the process lives; whether it came to be."""
    while not condition():
        if process.poll() is not None:
            return bool(condition())
        Event().wait(0.002)
    return True


def entries(folder: Path) -> list[str]:
    """The headings of the iterations in progress.txt."""
    return re.findall(r"^## Iteration (\d+) of", (folder / "progress.txt").read_text(), re.MULTILINE)


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL, and wait until it is gone."""
    process.kill()
    ended(process)


def test_a_brain_that_is_killed_takes_the_command_up_again(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    folder = project(tmp_path / "p", story(1), story(2))
    process = begin(folder, WAITS)
    assert until((folder / "begun").exists, process)
    kill(process)
    (folder / "go").touch()
    type("wake", "k").went()
    assert (folder / "begun").read_text() == "US-001\nUS-002\n", "nothing was run twice"
    assert entries(folder) == ["1", "2"]
    assert passes(folder) == {"US-001": True, "US-002": True}
    assert type("verify").went().code == 0


def test_when_the_hands_die_too_the_outcome_is_unknown_and_said_so(
    type: Type, tmp_path: Path, holdfast_home: Path
) -> None:
    folder = project(tmp_path / "p", story(1))
    process = begin(folder, WAITS)
    assert until((folder / "begun").exists, process)
    kill(process)
    os.kill(_supervisor(holdfast_home), signal.SIGKILL)
    (folder / "go").touch()
    type("wake", "k").went()
    progress = (folder / "progress.txt").read_text()
    assert entries(folder) == ["1", "2"]
    assert progress.count("its outcome is unknown") == 1
    assert progress.count("`test -e US-001` was not run") == 1
    assert (folder / "begun").read_text() == "US-001\nUS-001\n"
    assert passes(folder) == {"US-001": True}


def _supervisor(home: Path) -> int:
    (journal,) = (home / "hands").rglob("journal")
    return int(json.loads(journal.read_text().splitlines()[0])["pid"])


def test_an_interrupted_command_is_recorded_and_a_word_goes_on(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    folder = project(tmp_path / "p", story(1))
    process = begin(folder, WAITS)
    assert until((folder / "begun").exists, process)
    type("interrupt", "k").went()
    assert process.wait(60) == 3
    (folder / "go").touch()
    type("send", "k", "go on", "--no-wake").went()
    type("wake", "k").went()
    assert "the command: cancelled before it ended" in (folder / "progress.txt").read_text()
    assert entries(folder) == ["1", "2"]


async def test_a_record_that_was_written_before_its_brain_died_is_not_written_again(
    type: Type, tmp_path: Path, holdfast_home: Path
) -> None:
    """The log as it was then, and the folder as it is now: the last step's files are there, its result is not."""
    folder = project(tmp_path / "p", story(1), story(2))
    await anyio.to_thread.run_sync(lambda: ended(begin(folder, COUNTS)))
    texts = [(folder / name).read_text() for name in ("prd.json", "progress.txt")]
    async with open_runtime(load_settings(Path("/"), {"home": str(holdfast_home)})) as runtime:
        (row,) = await runtime.store.sessions()
        events = await runtime.store.read(row.session_id)
        created = events[0].fact
        assert isinstance(created, SessionCreated)
        spec = spec_of(created.agent)
        assert spec is not None
        steps = [number for number, event in enumerate(events) if isinstance(event.fact, ToolResult)]
        before = read_story(events[: steps[-1]])
        assert before.outcomes["work"].end == "ok"
        step = created.agent.custom[-1]
        tool = LoopTool(step, row.session_id, spec, folder, runtime.store, runtime.store)
    again = tool.recorded(before, Means(True, None, 0))
    assert (again.kind, again.say) == ("done", "The loop is done: all 2 items of prd.json pass after 2 iterations.")
    assert [(folder / name).read_text() for name in ("prd.json", "progress.txt")] == texts


def test_killed_again_and_again_it_loses_and_repeats_nothing(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    """At every eighth event, wherever that is: at a plan, in the middle of a record, before a check."""
    folder = project(tmp_path / "p", *(story(number) for number in range(1, 4)))

    def head() -> int:
        return int(
            rows(holdfast_home / "holdfast.db", "select count(*) from events where session_id != 'ses_home'")[0][0]
        )

    process = begin(folder, COUNTS)
    assert until((holdfast_home / "holdfast.db").exists, process)
    kills = 0
    while True:
        if not until(partial(_reaches, head, 8 * (kills + 2)), process):
            break
        kill(process)
        kills += 1
        process = spawn("wake", "k", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert process.wait(60) == 0
    assert kills >= 4, "it was killed on its way"
    assert passes(folder) == {f"US-00{number}": True for number in range(1, 4)}
    began = (folder / "begun").read_text().split()
    told = (folder / "progress.txt").read_text()
    assert entries(folder) == [str(number) for number in range(1, len(entries(folder)) + 1)]
    assert len(began) - 3 <= told.count("its outcome is unknown"), "whatever ran twice is said"
    assert type("verify").went().code == 0


def _reaches(head: Callable[[], int], line: int) -> bool:
    """Whether the log has so many events. There is a moment in which it has no table yet."""
    try:
        return head() >= line
    except sqlite3.OperationalError:
        return False
