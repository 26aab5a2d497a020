"""Jobs as a user meets them: real processes, real hands, brains that are killed, and nobody who waits."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from subprocess import DEVNULL, Popen, TimeoutExpired
from typing import Any

import anyio
import pytest

from holdfast.app import news
from holdfast.app.compose import open_runtime
from holdfast.app.screen.panel import Panel
from holdfast.app.settings.config import load_settings
from holdfast.clock import SystemClock
from holdfast.facts.codec import Draft
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import ShiftEnded, ShiftStarted
from holdfast.facts.tool import JobStarted
from holdfast.facts.union import AnyFact
from holdfast.ids import new_event_id, system_entropy
from holdfast.session.tools.jobs import JOB_TOOLS
from tests.app.families import stands, until, working
from tests.app.terminal import Type, ended, rows, script, spawn, turn, typed
from tests.app.test_painter import said
from tests.session.story import Story
from tests.support.waiting import PATIENCE_S

JOB = "echo begin; echo x >> ran; until [ -e finish ]; do sleep 0.02; done; echo the very end"
"""It counts that it began, and runs until it is told to end."""

HOLD = {"command": "until [ -e go ]; do sleep 0.02; done", "timeout_ms": 600_000}


def says(text: str, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """A turn."""
    return turn(text=text, tool_calls=[{"name": name, "input": value} for name, value in calls])


def start(command: str = JOB, **more: Any) -> tuple[str, dict[str, Any]]:
    """The call that starts a job."""
    return "job_start", {"name": "long", "command": command, "timeout_s": 3_000, **more}


def agent(folder: Path, *turns: dict[str, Any]) -> list[str]:
    """What is typed to have an agent with these tools and turns."""
    model = script(folder / "m.json", *turns)
    file = folder / "agent.toml"
    named = ", ".join(f'"{name}"' for name in ("bash", *JOB_TOOLS))
    file.write_text(f'name = "a"\nmodel = "{model}"\ntools = [{named}]\n')
    return ["--agent", str(file)]


def comes(condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
    """Look again and again until it is so."""
    for _ in range(int(timeout_s / 0.01)):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it does not come to that")


def count(home: Path, kind: str) -> int:
    """How many events of a type there are."""
    try:
        return int(rows(home / "holdfast.db", "select count(*) from events where type = ?", kind)[0][0])
    except sqlite3.OperationalError:  # it is not there yet
        return 0


def standing(home: Path) -> str:
    """How the session `k` stands, with its reason."""
    try:
        found = rows(home / "holdfast.db", "select status, reason from sessions where key = 'k'")
    except sqlite3.OperationalError:  # it is not there yet
        return ""
    return " ".join(found[0]).strip() if found else ""


def workspace(home: Path) -> Path:
    """Its folder."""
    ((found,),) = rows(home / "holdfast.db", "select session_id from sessions where key = 'k'")
    return home / "workspaces" / str(found)  # a process that was killed before it opened one leaves a folder, too


def brains(home: Path) -> list[int]:
    """Processes of ours that run a brain on this home, or are about to: anything of `-m holdfast`."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"-m" in words and b"holdfast" in words and os.fsencode(home) in words:
            found.append(int(entry.name))
    return found


def holder(home: Path) -> int:
    """The process of the latest shift."""
    events = [json.loads(line) for line in typed("export", "k").went().out.splitlines()]
    return int([event["pid"] for event in events if event["type"] == "shift.started"][-1])


def killed_meanwhile(tmp_path: Path, home: Path, times: int, lasts_s: float = 0.0) -> None:
    """A job runs once while its brains are killed, costs no process while it runs, and its end goes on with it."""
    words = agent(tmp_path, says("I start it.", start(), ("bash", HOLD)), says("I wait."), says("It is done."))
    typed("run", "x", "--session-id", "k", "--detach", *words).went()
    woken: list[Popen[str]] = []
    for number in range(1, times + 1):
        comes(lambda: count(home, "job.started") and count(home, "tool.dispatched") == 2)
        comes(lambda: count(home, "shift.started") == number)  # noqa: B023 - looked at within the round
        os.kill(holder(home), signal.SIGKILL)
        woken.append(spawn("wake", "k", "--leave-jobs", stdout=DEVNULL, stderr=DEVNULL))
        comes(lambda: count(home, "shift.started") == number + 1)  # noqa: B023
    (workspace(home) / "go").touch()
    comes(lambda: standing(home) == "parked job")
    for process in woken:
        process.wait(60)
    comes(lambda: not brains(home))
    threading.Event().wait(lasts_s)
    assert not brains(home)
    assert standing(home) == "parked job"
    (workspace(home) / "finish").touch()
    comes(lambda: standing(home) == "done")
    assert (workspace(home) / "ran").read_text() == "x\n"
    assert [count(home, kind) for kind in ("job.started", "job.ended", "hands.provisioned")] == [1, 1, 1]
    assert count(home, "shift.started") == times + 2
    said = typed("show", "k", "--json").went().lines[0]
    assert said["last_message"] == "It is done."
    assert next(iter(said["jobs"].values()))["outcome"] == "ok"
    typed("verify").went()


def test_a_job_outlives_three_brains_that_are_killed(tmp_path: Path, holdfast_home: Path) -> None:
    killed_meanwhile(tmp_path, holdfast_home, 3)


@pytest.mark.faults
def test_a_job_of_ten_minutes_outlives_three_brains(tmp_path: Path, holdfast_home: Path) -> None:
    killed_meanwhile(tmp_path, holdfast_home, 3, lasts_s=600.0)


def killed_at_random(tmp_path: Path, home: Path, seed: int, times: int = 6) -> None:
    """Brains are killed at random moments while a job is started: it is started once, and its end is told once."""
    chance = Random(seed)
    words = agent(tmp_path, says("I start it.", start("echo x >> ran; sleep 0.2")), says("I wait."), says("Done."))
    for _ in range(times):
        process = spawn("run", "x", "--session-id", "k", *words)
        with suppress(TimeoutExpired):
            process.wait(chance.uniform(0.3, 1.2))
        process.kill()
        ended(process)
    ended(spawn("run", "x", "--session-id", "k", *words)).went()
    comes(lambda: standing(home) == "done" and not brains(home))
    assert (workspace(home) / "ran").read_text() == "x\n"
    assert [count(home, kind) for kind in ("job.started", "job.ended")] == [1, 1]
    typed("verify").went()


def test_a_brain_killed_while_it_starts_a_job_starts_it_once(tmp_path: Path, holdfast_home: Path) -> None:
    killed_at_random(tmp_path, holdfast_home, 7, times=3)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(100))
def test_a_hundred_brains_killed_while_they_start_a_job(tmp_path: Path, holdfast_home: Path, seed: int) -> None:
    killed_at_random(tmp_path, holdfast_home, seed)


def test_warm_hands_are_taken_up_again(
    type: Type, tmp_path: Path, holdfast_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    command = ("bash", {"command": "echo more >> said"})
    words = agent(tmp_path, says("", command, ("ask_person", {"question": "On?"})), says("", command), says("Done."))
    mine = tmp_path / "config" / "holdfast" / "holdfast.toml"
    mine.parent.mkdir(parents=True)
    mine.write_text("[hands]\nwarm = 1\nidle_s = 30\n")
    tools = (tmp_path / "agent.toml").read_text().replace('"bash"', '"bash", "ask_person"')
    (tmp_path / "agent.toml").write_text(tools)
    type("run", "x", "--session-id", "k", *words).went(3)
    assert count(holdfast_home, "hands.released") == 0
    type("send", "k", "--no-wake", "yes").went()
    type("wake", "k").went(0)
    assert (workspace(holdfast_home) / "said").read_text() == "more\nmore\n"
    assert [count(holdfast_home, kind) for kind in ("hands.provisioned", "hands.released")] == [1, 1]
    comes(lambda: not _of_hands(holdfast_home))


def test_a_terminal_stays_with_its_session_until_the_job_has_ended(tmp_path: Path, holdfast_home: Path) -> None:
    words = agent(tmp_path, says("", start()), says("", ("job_wait", {})), says("All is well."))
    process = spawn("run", "x", "--session-id", "k", *words)
    until(lambda: count(holdfast_home, "shift.ended"), process)
    assert standing(holdfast_home) == "parked job"
    (workspace(holdfast_home) / "finish").touch()
    said = ended(process).went(0)
    assert "waits for job long (job_" in said.err
    assert said.out == "All is well.\n"
    pids = rows(holdfast_home / "holdfast.db", "select count(*) from events where type = 'shift.started'")
    assert pids == [(2,)]
    assert "the very end" in typed("export", "k").out


def test_a_worker_takes_the_session_up_when_its_job_has_ended(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    words = agent(tmp_path, says("", start(line="^begin")), says("I wait."), says("On."), says("Done."))
    with working(home=holdfast_home) as worker:
        type("run", "x", "--session-id", "k", "--detach", *words).went()
        until(lambda: count(holdfast_home, "job.line") and standing(holdfast_home) == "parked job", worker)
        shown = type("show", "k").went()
        assert "job         long (job_" in shown.out
        (workspace(holdfast_home) / "finish").touch()
        until(lambda: stands(holdfast_home) == {"done": 1}, worker)
    assert count(holdfast_home, "job.ended") == 1
    assert (workspace(holdfast_home) / "ran").read_text() == "x\n"


def test_a_cancelled_session_takes_its_job_with_it(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    words = agent(tmp_path, says("", start()), says("I wait."))
    type("run", "x", "--session-id", "k", "--detach", *words).went()
    comes(lambda: standing(holdfast_home) == "parked job")
    type("cancel", "k").went()
    comes(lambda: standing(holdfast_home) == "cancelled")
    export = typed("export", "k").out
    assert '"outcome":"stopped"' in export
    comes(lambda: not _of_hands(holdfast_home))


def _of_hands(home: Path) -> list[Path]:
    return list((home / "hands").iterdir())


def test_the_emergency_stop_ends_what_runs_without_a_brain(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    words = agent(tmp_path, says("", start()), says("I wait."), says("It was stopped."))
    type("run", "x", "--session-id", "k", "--detach", *words).went()
    comes(lambda: standing(holdfast_home) == "parked job")
    said = type("stop", "--all").went()
    assert "1 command that k left running ended" in said.out
    assert '"outcome":"stopped"' in typed("export", "k").out
    type("stop", "--release").went()
    comes(lambda: standing(holdfast_home) == "done")


def test_a_supervisor_that_is_killed_leaves_word_and_the_session_goes_on(
    type: Type, tmp_path: Path, holdfast_home: Path
) -> None:
    words = agent(tmp_path, says("", start()), says("I wait."), says("I look."))
    type("run", "x", "--session-id", "k", "--detach", *words).went()
    comes(lambda: standing(holdfast_home) == "parked job")
    ran = workspace(holdfast_home) / "ran"
    comes(lambda: ran.exists() and ran.read_text())
    os.kill(_supervisor(holdfast_home), signal.SIGKILL)
    assert news.main(["--home", str(holdfast_home), _id(type)]) == 0  # what a worker does every minute
    comes(lambda: standing(holdfast_home) == "done")
    assert '"outcome":"unknown"' in typed("export", "k").out
    assert ran.read_text() == "x\n"


def _id(type: Type) -> str:
    return str(type("show", "k", "--json").went().lines[0]["session_id"])


def _supervisor(home: Path) -> int:
    (journal,) = (home / "hands").rglob("journal")
    opened = json.loads(journal.read_text().splitlines()[0])
    return int(opened["pid"])


async def _with_a_job(home: Path, model: str) -> str:
    """A session that waits for a job whose hands are gone, in a log that was written by hand."""
    async with open_runtime(load_settings(Path("/"), {"home": str(home)})) as runtime:
        intake, store, who = runtime.intake, runtime.store, runtime.worker
        session_id = intake.new_session_id()
        agent = Agent(model=model, tools=JOB_TOOLS)
        await intake.open(
            session_id, SessionCreated(goal="x", agent=agent, workspace=Workspace(str(home / "workspaces")))
        )
        began = ShiftStarted(
            worker_id=who.worker_id, host_id=who.host_id, boot_id=who.boot_id, pid=who.pid, program=who.program
        )
        lease = await store.acquire(session_id, _draft(began))
        job = JobStarted(job_id="job_1", call_id="1.0", hands_id="hnd_gone", name="long")
        await store.append(session_id, lease.epoch, [_draft(job), _draft(ShiftEnded(status="parked", reason="job"))])
        await store.release(lease)
        return session_id


def _draft(fact: AnyFact) -> Draft:
    return Draft(new_event_id(SystemClock().now_us(), system_entropy), "brain", fact)


def test_without_a_key_the_session_rests_and_says_what_to_type(
    type: Type, holdfast_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor has a clean environment: where nobody with a key serves, nothing is started and nothing lost."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    session_id = anyio.run(_with_a_job, holdfast_home, "anthropic:some-model")
    for _ in range(2):  # the second changes nothing
        assert news.main(["--home", str(holdfast_home), session_id]) == 0
    row = type("ps", "--json").went().lines[0]
    assert row["state"] == "runnable"
    events = type("logs", session_id).went().out.splitlines()
    assert "job.ended" in events[-2]
    assert "error: a job has news, and no process could be started for it here: there is no key" in events[-1]
    whole = type("logs", session_id, "--json").went().lines[-1]["message"]
    assert whole.endswith(f"Nothing is lost; go on with: holdfast wake {session_id}")


def test_news_that_cannot_be_taken_in_are_tried_again(
    tmp_path: Path, holdfast_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its status asks the supervisor for another try."""
    session_id = anyio.run(_with_a_job, holdfast_home, script(tmp_path / "m.json", turn(text="Seen.")))
    database = holdfast_home / "holdfast.db"
    database.rename(tmp := database.with_suffix(".away"))
    database.mkdir()
    assert news.main(["--home", str(holdfast_home), session_id]) == 1
    assert capsys.readouterr().err.startswith(f"news of {session_id}: ")
    database.rmdir()
    tmp.rename(database)
    assert news.main(["--home", str(holdfast_home), session_id]) == 0
    comes(lambda: stands(holdfast_home) == {"done": 1} and not brains(holdfast_home))
    assert count(holdfast_home, "job.ended") == 1


def test_the_panel_says_which_job_is_waited_for_and_since_when() -> None:
    story = Story().shift()
    story.answer("I wait.")
    waits = "waits for job long (job_3.0), at work since 2026-11-21T09:00:00Z"
    story.tell(ShiftEnded(status="parked", reason="job", detail=waits))
    panel = Panel(SystemClock(), len)
    panel.begin(story.state(), story.events, 100)
    assert f"waiting  {waits}" in said(panel, 120)
    story.shift()
    panel.begin(story.state(), story.events, 100)
    assert waits not in said(panel, 120)
