"""`holdfast worker`: real processes on a real log."""

from __future__ import annotations

import json
import signal
import sqlite3
import threading
import time
from pathlib import Path

import anyio
import pytest

from holdfast.app.compose import OPENED_MAX, open_runtime
from holdfast.app.home import is_served, open_home
from holdfast.app.settings.config import load_settings
from holdfast.clock import SystemClock
from holdfast.facts.codec import SCHEMA, Draft
from holdfast.facts.session import Agent, CustomTool, SessionCreated, Workspace
from holdfast.log.base import Post
from holdfast.log.sqlite.store import SqliteStore
from holdfast.log.worker_locks import Worker
from tests.app.families import stands, until, working
from tests.app.terminal import Type, bash, ended, rows, script, spawn, turn, typed


@pytest.fixture
def quick(tmp_path: Path) -> str:
    """A model that answers at once, twice."""
    return script(tmp_path / "quick.json", turn(text="first"), turn(text="second"))


def test_a_worker_runs_what_is_opened_and_what_is_sent(type: Type, quick: str, holdfast_home: Path) -> None:
    with working(home=holdfast_home) as worker:
        opened = type("run", "x", "--model", quick, "--session-id", "k", "--detach").went()
        assert opened.out.startswith("k continues in the worker of this home")
        until(lambda: stands(holdfast_home) == {"done": 1}, worker)
        sent = type("send", "k", "more").went()
        assert sent.err == "a worker serves this home, and goes on with k\n"
        until(lambda: json.loads(type("ps", "--json").out)["turns"] == 2, worker)
        shifts = rows(holdfast_home / "holdfast.db", "select count(*) from events where type = 'shift.started'")
        assert shifts == [(2,)]
        worker.terminate()
        said = ended(worker).went(0)
    lines = said.err.splitlines()
    assert lines[0].endswith(f"serving {holdfast_home}, up to 8 sessions at a time; Ctrl-C stops it, and loses nothing")
    assert lines[1].endswith("  k is done")
    assert "stopped" in lines[-1]
    assert said.out == ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_stopped_worker_lets_go_and_the_next_one_goes_on(
    type: Type, tmp_path: Path, holdfast_home: Path, number: signal.Signals, code: int
) -> None:
    slow = script(tmp_path / "slow.json", turn(text="late", delay_s=600.0))
    with working(home=holdfast_home) as worker:
        type("run", "x", "--model", slow, "--session-id", "k", "--detach").went()
        until(lambda: json.loads(type("ps", "--json").out)["state"] == "running", worker)
        head, row = type("ps", "--workers").went().out.splitlines()
        assert (head.split()[:4], row.split()[1:2], row.split()[3]) == (
            ["WORKER", "HOME", "HOST", "SESSIONS"],
            ["this"],
            "1",
        )
        worker.send_signal(number)
        ended(worker).went(code)
    row = json.loads(type("ps", "--json").out)
    assert (row["state"], row["detail"]) == ("runnable", "the process was asked to stop")
    assert not is_served(open_home(holdfast_home))
    assert type("ps", "--workers").went().out == "no worker serves this log; start one: holdfast worker\n"
    assert "lists no sessions" in type("ps", "--workers", "--all").went(2).err
    script(tmp_path / "slow.json", turn(text="late"))
    with working(home=holdfast_home) as worker:
        assert is_served(open_home(holdfast_home))
        until(lambda: stands(holdfast_home) == {"done": 1}, worker)
    assert type("verify").went().code == 0


def test_a_killed_worker_serves_no_more_and_loses_nothing(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    slow = script(tmp_path / "slow.json", turn(text="late", delay_s=600.0))
    with working(home=holdfast_home) as worker:
        type("run", "x", "--model", slow, "--session-id", "k", "--detach").went()
        until(lambda: json.loads(type("ps", "--json").out)["state"] == "running", worker)
        worker.kill()
        ended(worker)
    assert not is_served(open_home(holdfast_home)), "its file is there, and its lock is not"
    assert list((holdfast_home / "serving").glob("*.lock"))
    script(tmp_path / "slow.json", turn(text="late"))
    with working(home=holdfast_home) as worker:
        until(lambda: stands(holdfast_home) == {"done": 1}, worker)
    assert typed("verify").went().code == 0


def test_two_workers_run_each_session_once(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="ok", delay_s=0.05))
    with working(home=holdfast_home) as first, working("--concurrency", "3", home=holdfast_home) as second:
        for number in range(12):
            type("run", "x", "--model", model, "--session-id", f"k{number}", "--detach").went()
        until(lambda: stands(holdfast_home) == {"done": 12}, first)
        for process in (first, second):
            process.terminate()
            ended(process).went(0)
    assert rows(holdfast_home / "holdfast.db", "select distinct epoch from sessions where key != ''") == [(1,)]
    assert type("verify").went().code == 0


def test_one_session_in_trouble_does_not_stop_the_others(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    gone = script(tmp_path / "gone.json", turn(text="x"))
    good = script(tmp_path / "good.json", turn(text="x"))
    type("run", "x", "--model", gone, "--session-id", "bad", "--budget", "1").refused(2, "no price")
    opened = spawn("run", "x", "--model", gone, "--session-id", "bad", "--detach")
    ended(opened).went()
    until_done = spawn("wake", "bad")
    ended(until_done).went()
    (tmp_path / "gone.json").unlink()
    type("send", "bad", "again", "--no-wake").went()
    type("run", "x", "--model", good, "--session-id", "good", "--detach").went()
    with working("--json", home=holdfast_home) as worker:
        until(lambda: stands(holdfast_home)["done"] == 1, worker)
        type("send", "good", "again").went()
        until(lambda: stands(holdfast_home)["done"] == 1, worker)
        worker.terminate()
        said = ended(worker).went(0)
    errors = [line for line in said.lines if line["type"] == "error"]
    assert errors
    assert "gone.json cannot be read" in errors[0]["message"]
    assert errors[0]["again_s"] == 1.0
    assert len(errors) <= 5, "it is no hot loop"
    noted = rows(holdfast_home / "holdfast.db", "select count(*) from events where type = 'session.error'")
    assert noted == [(len(errors),)]


def test_a_session_that_needs_functions_of_a_program_is_left_to_it(type: Type, holdfast_home: Path) -> None:
    tool = CustomTool(name="weigh", description="weigh it", input_schema={"type": "object"})
    created = SessionCreated(
        goal="g",
        agent=Agent(model="scripted:/nowhere", custom=(tool,)),
        workspace=Workspace("/tmp"),
        key="theirs",
    )

    async def open_it() -> None:
        home = open_home(holdfast_home)
        async with await SqliteStore.open(home.database, workers=home.workers, clock=SystemClock()) as store:
            await store.post(Post("ses_theirs", "created", Draft("evt_1", "user:x", created)), create=True)

    anyio.run(open_it)
    with working(home=holdfast_home) as worker:
        assert worker.stderr is not None
        worker.stderr.readline()
        line = worker.stderr.readline()
        assert "theirs: it needs functions of the program that opened it (weigh)" in line
        assert line.endswith("(left to others)\n")
    assert json.loads(type("ps", "--json").out)["state"] == "runnable"
    type("wake", "theirs").refused(5, "needs functions of the program that opened it (weigh)")
    assert "goes on in the program that has its functions (weigh)" in type("send", "theirs", "hi").went().err
    assert rows(holdfast_home / "holdfast.db", "select head from sessions where key = 'theirs'") == [(2,)]


def test_an_emergency_stop_rests_the_sessions_and_the_worker_stays(
    type: Type, tmp_path: Path, holdfast_home: Path
) -> None:
    slow = script(tmp_path / "slow.json", bash("until [ -e go ]; do sleep 0.02; done"), turn(text="after"))
    with working(home=holdfast_home) as worker:
        type("run", "x", "--model", slow, "--session-id", "k", "--no-sandbox", "--detach").went()
        begun = "select count(*) from events where type = 'tool.dispatched'"
        until(lambda: stands(holdfast_home) and rows(holdfast_home / "holdfast.db", begun) == [(1,)], worker)
        type("stop", "--all").went()
        until(lambda: json.loads(type("ps", "--json").out)["state"] == "parked", worker)
        assert "stopped" in type("ps").out
        type("stop", "--release").went()
        until(lambda: stands(holdfast_home) == {"done": 1}, worker)


def test_a_home_with_another_log_is_served_on_its_own(
    type: Type, quick: str, tmp_path: Path, holdfast_home: Path
) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    with working(home=holdfast_home):
        home = open_home(holdfast_home)
        assert is_served(home)
        assert not is_served(home, tmp_path / "other.db")
        opened = type("run", "x", "--model", quick, "--session-id", "k", "--detach", "--db", other).went()
        assert "continues in the background" in opened.out


@pytest.mark.parametrize(
    ("says", "served"), [("", False), ("4", False), ("soon", False), (str(SCHEMA), True), (str(SCHEMA + 1), True)]
)
def test_a_worker_that_cannot_read_it_is_left_nothing(
    type: Type, quick: str, holdfast_home: Path, says: str, served: bool
) -> None:
    home = open_home(holdfast_home)
    with Worker.start(holdfast_home / "serving", "wrk_other", says=says):
        assert is_served(home) == served
        opened = type("run", "x", "--model", quick, "--session-id", "k", "--detach").went()
        assert ("in the worker of this home" in opened.out) == served
    if not served:
        until_done(holdfast_home)


def until_done(home: Path) -> None:
    """Wait for the process that was started instead."""
    deadline = time.monotonic() + 60
    while stands(home) != {"done": 1}:
        assert time.monotonic() < deadline, stands(home)
        threading.Event().wait(0.05)


def test_a_worker_leaves_a_session_of_a_newer_program_to_others(type: Type, quick: str, holdfast_home: Path) -> None:
    type("run", "x", "--model", quick, "--session-id", "new", "--detach").went()
    until_done(holdfast_home)
    type("send", "new", "more", "--no-wake").went()
    with sqlite3.connect(holdfast_home / "holdfast.db") as sql:
        sql.execute("update sessions set vocabulary = ? where key = 'new'", (SCHEMA + 1,))
    with working("--json", home=holdfast_home) as worker:
        type("run", "x", "--model", quick, "--session-id", "ours", "--detach").went()
        until(lambda: stands(holdfast_home) == {"done": 1, "runnable": 1}, worker)
        type("send", "ours", "once more").went()
        turns = "select turns from sessions where key = 'ours'"
        until(lambda: rows(holdfast_home / "holdfast.db", turns) == [(2,)], worker)
        worker.terminate()
        said = ended(worker).went(0)
    errors = [line for line in said.lines if line["type"] == "error"]
    assert [(line["kind"], line["again_s"]) for line in errors] == [("SchemaTooNew", None)], "once, and not again"


def test_what_a_worker_keeps_of_sessions_is_bounded(type: Type, quick: str, holdfast_home: Path) -> None:
    async def serve_them() -> tuple[int, int]:
        settings = load_settings(holdfast_home, {"home": str(holdfast_home)})
        async with open_runtime(settings) as runtime:
            for number in range(3 * OPENED_MAX):
                created = SessionCreated(goal="g", agent=Agent(model=quick), workspace=Workspace("/tmp"))
                draft = Draft(f"evt_{number}", "user:x", created)
                await runtime.store.post(Post(f"ses_{number}", "created", draft), create=True)
                await runtime.doors_for(f"ses_{number}")
            return len(runtime._opened), OPENED_MAX

    kept, most = anyio.run(serve_them)
    assert kept == most


def test_words(type: Type) -> None:
    type("worker", "--concurrency", "0").refused(2, "--concurrency", "whole number")
    type("worker", "--concurrency", "100000").refused(2, "--concurrency", "256")
