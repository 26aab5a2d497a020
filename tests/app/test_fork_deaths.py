"""SIGKILL at any moment of a fork: there is none or a whole one, and the same key makes it exactly one (S4, S22)."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from holdfast.log.worker_locks import Worker
from tests.app.terminal import PRICE, Type, bash, rows, script, turn

ROOT = Path(__file__).parents[2]
MANY = 40
"""So many files make the copying long enough to be hit."""


@contextmanager
def child(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A fork that is about to begin; it is killed at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.app.forking", "fork", *words],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.rglob("*") if path.is_file()}


def forks(home: Path) -> list[tuple[str, str, str]]:
    """`(session, key, workspace)` of every fork."""
    return rows(home / "holdfast.db", "select session_id, key, workspace from sessions where origin <> ''")


@pytest.fixture
def origin(type: Type, tmp_path: Path) -> tuple[str, ...]:
    """Words that fork a finished session where a request was open and money was reserved for it."""
    write = bash(f"for n in $(seq {MANY}); do echo $n > f$n; done")
    model = script(tmp_path / "m.json", write, turn(text="done"), price=PRICE)
    type("run", "mend it", "--model", model, "--session-id", "origin", "--budget", "5").went()
    asked = [line["seq"] for line in type("logs", "origin", "--type", "span.model_request_start", "--json").lines]
    return "origin", "--at", str(asked[1])


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def sessions(home: Path) -> set[str]:
    return {name for (name,) in rows(home / "holdfast.db", "select session_id from sessions")}


def test_two_at_once_with_one_key(type: Type, origin: tuple[str, ...], holdfast_home: Path) -> None:
    with ExitStack() as stack:
        both = [stack.enter_context(child(*origin, "--key", "one", "--json")) for _ in range(2)]
        for each in both:
            go(each)
        assert [each.wait(60) for each in both] == [0, 0]
    ((fork_id, _, workspace),) = forks(holdfast_home)
    assert len(files(Path(workspace))) == MANY
    assert names(holdfast_home / "workspaces") == sessions(holdfast_home)
    assert fork_id in sessions(holdfast_home)
    type("verify").went()


def test_only_what_the_dead_left_is_removed(type: Type, origin: tuple[str, ...], holdfast_home: Path) -> None:
    (holdfast_home / "workspaces" / "ses_mine").mkdir()
    for name, worker in (("ses_dead", "wrk_dead"), ("ses_gone", "wrk_none"), ("", "wrk_dead"), (".", "wrk_dead")):
        (holdfast_home / "workspaces" / f".forking-{name}").write_text(worker)
    for name in ("ses_dead", "ses_gone"):
        (holdfast_home / "workspaces" / name / "deep").mkdir(parents=True)
    first = type("fork", *origin, "--key", "a", "--json").went().lines[0]["session_id"]
    (holdfast_home / "workspaces" / f".forking-{first}").write_text("wrk_dead")  # it died when the fork was open
    (holdfast_home / "workspaces" / "ses_live").mkdir()
    live = Worker.start(holdfast_home / "workers", "wrk_live")
    (holdfast_home / "workspaces" / ".forking-ses_live").write_text("wrk_live")
    try:
        type("fork", *origin, "--key", "b").went()
        left = names(holdfast_home / "workspaces") - sessions(holdfast_home)
        assert left == {"ses_mine", "ses_live", ".forking-ses_live", ".forking-", ".forking-."}
        assert len(files(Path(forks(holdfast_home)[0][2]))) == MANY
    finally:
        live.close()


@pytest.mark.parametrize("deaths", [6, pytest.param(100, marks=pytest.mark.faults)])
def test_a_fork_that_is_killed(type: Type, origin: tuple[str, ...], holdfast_home: Path, deaths: int) -> None:
    before = type("export", "origin").out
    with child(*origin, "--key", "whole") as whole:
        began_s = time.monotonic()
        go(whole)
        assert whole.wait(60) == 0
        lasts_s = time.monotonic() - began_s
    ((_, _, folder),) = forks(holdfast_home)
    wanted = files(Path(folder))
    assert len(wanted) == MANY
    chance, killed, left, lost = random.Random(deaths), 0, 0, 0
    for number in range(deaths):
        key = f"k{number}"
        with child(*origin, "--key", key) as process:
            go(process)
            time.sleep(chance.uniform(0, lasts_s))  # the moment is the experiment; nothing is waited for
            killed += process.poll() is None
        there = [each for each in forks(holdfast_home) if each[1] == key]
        lost += not there
        left += bool(list((holdfast_home / "workspaces").glob(".forking-*")))
        for _, _, workspace in there:
            assert files(Path(workspace)) == wanted
        type("fork", *origin, "--key", key, "--json").went()
        (once,) = [each for each in forks(holdfast_home) if each[1] == key]
        assert there in ([], [once])
        assert files(Path(once[2])) == wanted
    type("fork", *origin, "--key", "last").went()
    type("verify").went()
    assert type("export", "origin").out == before
    assert names(holdfast_home / "workspaces") == sessions(holdfast_home)
    assert names(holdfast_home / "snapshots/git/refs/holdfast") == sessions(holdfast_home)
    accounts = rows(
        holdfast_home / "holdfast.db",
        "select account_id, cap_pico, spent_pico, reserved_pico from accounts where account_id like 'ses_%'",
    )
    assert {name for name, *_ in accounts} == sessions(holdfast_home)
    for name, cap, spent, reserved in accounts:
        assert (cap, reserved) == (5 * 10**12, 0)
        assert spent <= cap
        assert (spent == 0) == (name in {each[0] for each in forks(holdfast_home)})
    assert len(forks(holdfast_home)) == deaths + 2
    print(f"{deaths} forks, {killed} killed before their end, {lost} left no fork, {left} left a mark to sweep")
    assert killed > 0
