"""The life cycle of a home as typed: rm, prune, backup, restore, and SIGKILL at random moments of each."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from tests.app.asking import kill_all
from tests.app.families import until
from tests.app.terminal import Type, bash, ended, rows, script, spawn, turn, typed
from tests.service.finished import building, git, repository

SOON = ("--older-than", "0.001")
KILLS = 2
LATEST_S = 1.2
"""By then a killed command has begun to remove: it starts in about half a second."""


def snapshots(home: Path) -> set[str]:
    return {path.parent.name for path in home.glob("snapshots/git/refs/holdfast/*/*")}


def killed(chance: random.Random, *words: str | Path) -> None:
    """Run a command, and kill it at a random moment."""
    process = spawn(*words)
    with suppress(subprocess.TimeoutExpired):
        process.wait(chance.uniform(0.2, LATEST_S))
    process.kill()
    ended(process)


def test_a_session_is_removed_with_what_it_holds(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    model = script(tmp_path / "m.json", bash("echo a > a"), turn(text="done"))
    for key in ("fix", "keep"):
        type("run", "x", "--model", model, "--session-id", key).went()
    said = type("rm", "fix")
    assert (said.code, "--yes" in said.err) == (2, True)
    assert "workspace" in type("rm", "fix", "--dry-run").went().out
    assert len(list((holdfast_home / "workspaces").iterdir())) == 2
    (session,) = rows(holdfast_home / "holdfast.db", "select session_id from sessions where key = 'fix'")[0]
    assert "removed fix" in type("rm", "fix", "--yes").went().out
    type("show", "fix").refused(2, "no session")
    assert "all chains and rows verify" in type("verify").went().out
    assert len(list((holdfast_home / "workspaces").iterdir())) == 1
    assert len(snapshots(holdfast_home)) == 1
    type("rm", "fix", "--yes").refused(2, "no session")
    assert "removed before" in type("rm", session, "--yes").went().out
    assert "1 session removed by" in type("logs", "ses_home").went().out


def test_a_session_that_can_still_run_needs_force(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="late", delay_s=600.0))
    process = spawn("run", "x", "--model", model, "--session-id", "busy")
    database = holdfast_home / "holdfast.db"
    try:
        until(lambda: database.exists() and running(database), process)
        said = type("rm", "busy", "--yes")
        assert (said.code, "holdfast cancel" in said.err, "--force" in said.err) == (2, True, True)
        assert "removed busy" in type("rm", "busy", "--yes", "--force").went().out
    finally:
        process.kill()
        ended(process)
    assert "no sessions yet" in type("ps").out
    assert "all chains and rows verify" in type("verify").went().out


def running(database: Path) -> bool:
    with suppress(Exception):
        return bool(rows(database, "select 1 from events where type = 'span.model_request_start'"))
    return False


def test_a_pruned_session_goes_on_with_its_files(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    model = script(tmp_path / "m.json", bash("echo a > a"), turn(text="done"), bash("cat a >> b"), turn(text="again"))
    type("run", "x", "--model", model, "--session-id", "k").went()
    (workspace,) = (holdfast_home / "workspaces").iterdir()
    assert "would free" in type("prune", *SOON, "--dry-run").went().out
    assert workspace.is_dir()
    pruned = type("prune", *SOON).went()
    assert "workspaces made by Holdfast" in pruned.out
    assert "--yes" in pruned.err, "what exists only here was not named"
    assert not workspace.exists()
    type("prune", *SOON, "--yes").went()
    type("send", "k", "go on", "--no-wake").went()
    typed("wake", "k").went()
    assert (workspace / "b").read_text() == "a\n"
    assert [line["type"] for line in type("prune", *SOON, "--json").went().lines][-1] == "total"
    type("prune", "--older-than", "x").refused(2, "30m")


def test_an_empty_workspace_stays(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    model = script(tmp_path / "m.json", turn(text="nothing to do"), bash("echo b > b"), turn(text="done"))
    type("run", "x", "--model", model, "--session-id", "k").went()
    (workspace,) = (holdfast_home / "workspaces").iterdir()
    type("prune", *SOON).went()
    type("send", "k", "go on", "--no-wake").went()
    typed("wake", "k").went()
    assert (workspace / "b").read_text() == "b\n"


async def home_of_many(home: Path, repo: Path) -> set[str]:
    """12 finished sessions, a mission, and two that can go on; the ids of those that stay."""
    async with building(home) as made:
        for number in range(12):
            await made.session(f"ses_{number:02}", big=70_000)
        await made.mission("ses_mission", repo)
        for name in ("ses_live", "ses_wait"):
            await made.session(name, over=False)
    return {"ses_live", "ses_wait"}


def test_prune_killed_at_any_moment(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    live = anyio.run(home_of_many, holdfast_home, repository(tmp_path / "repo"))
    killed_often(type, holdfast_home, lambda: ("prune", *SOON, "--yes"))
    assert {path.name for path in (holdfast_home / "workspaces").iterdir()} == live
    assert len(snapshots(holdfast_home)) == 15, "a session lost its last snapshot"
    assert {path.name for path in (holdfast_home / "egress" / "doors").iterdir()} == live
    refs = git(tmp_path / "repo", "for-each-ref", "--format=%(refname)").splitlines()
    assert refs == ["refs/heads/holdfast/mission/main", "refs/heads/trunk"]


def test_rm_killed_at_any_moment(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    live = anyio.run(home_of_many, holdfast_home, repository(tmp_path / "repo"))
    database = holdfast_home / "holdfast.db"

    def left() -> tuple[str, ...]:
        found = rows(database, "select session_id from sessions where status = 'done' order by session_id")
        return ("rm", *(name for (name,) in found), "--yes")

    killed_often(type, holdfast_home, left)
    assert {path.name for path in (holdfast_home / "workspaces").iterdir()} == live == snapshots(holdfast_home)
    assert rows(database, "select count(*) from blobs") == [(0,)]
    assert rows(database, "select count(*) from sessions where session_id <> 'ses_home'") == [(2,)]


def killed_often(type: Type, home: Path, words: Callable[[], tuple[str, ...]]) -> None:
    chance = random.Random(f"{words()[0]}")
    for _ in range(KILLS):
        if len(words()) > 2:
            killed(chance, *words())
            assert "all chains and rows verify" in type("verify").went().out
    if len(words()) > 2:
        type(*words()).went()
    else:
        type("prune").went()
    assert "all chains and rows verify" in type("verify").went().out
    assert not list((home / "removing").glob("*"))


@pytest.fixture
def paid(tmp_path: Path, holdfast_home: Path) -> Iterator[Path]:
    """The folder of a session with a call at work, which has paid already."""
    work = tmp_path / "work"
    work.mkdir()
    work.chmod(0o777)
    model = script(tmp_path / "m.json", bash("echo PAY >> effects; sleep 60"), turn(text="done"))
    words = ("run", "x", "--model", model, "--session-id", "k", "--workspace", work, "--no-sandbox")
    process = spawn(*words)
    try:
        until(lambda: (work / "effects").exists(), process)
        yield work
    finally:
        process.kill()
        ended(process)
        kill_all(holdfast_home)


def test_a_call_in_flight_is_not_run_twice(type: Type, tmp_path: Path, holdfast_home: Path, paid: Path) -> None:
    file, then = tmp_path / "night.tar.gz", tmp_path / "then"
    assert "backed up 1 session" in type("backup", file).went().out
    type("restore", file).refused(2, "is not empty")
    assert "1 session" in type("restore", file, "--to", then).went().out
    script(tmp_path / "m.json", bash("echo PAY >> effects"), turn(text="done"))
    typed("wake", "k", "--home", then).went()  # while the first home still runs its call
    types = [kind for (kind,) in rows(then / "holdfast.db", "select type from events order by session_id, seq")]
    assert types.count("tool.outcome_unknown") == 1
    assert "all chains and rows verify" in type("verify", "--home", then).went().out
    assert (paid / "effects").read_text() == "PAY\n"


def test_backup_and_restore_killed_at_any_moment(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    anyio.run(home_of_many, holdfast_home, repository(tmp_path / "repo"))
    chance, file, then = random.Random(7), tmp_path / "b.tar", tmp_path / "then"
    for _ in range(KILLS):
        file.unlink(missing_ok=True)
        killed(chance, "backup", file)
        if file.exists():
            shutil.rmtree(then, ignore_errors=True)
            type("restore", file, "--to", then).went()
    file.unlink(missing_ok=True)
    type("backup", file).went()
    for _ in range(KILLS):
        shutil.rmtree(then, ignore_errors=True)
        killed(chance, "restore", file, "--to", then)
        if then.exists():
            assert "all chains and rows verify" in type("verify", "--home", then).went().out
    shutil.rmtree(then, ignore_errors=True)
    type("restore", file, "--to", then).went()
    assert not list(tmp_path.glob(".then*"))


def test_snapshots_count_toward_the_disk_limit(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    """A session that replaces its files again and again keeps its latest snapshots, not all."""
    turns = [bash("head -c 1500000 /dev/urandom > file") for _ in range(8)]
    model = script(tmp_path / "m.json", *turns, turn(text="done"))
    (tmp_path / "here" / "holdfast.toml").write_text('[hands]\ndisk_bytes = "4M"\n')
    type("run", "x", "--model", model, "--session-id", "k").went()
    store = holdfast_home / "snapshots"
    kept = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
    assert kept < 8_000_000, "8 snapshots of 1.5 MB take more than twice the limit"
    taken = rows(holdfast_home / "holdfast.db", "select count(*) from events where type = 'workspace.snapshotted'")
    assert taken[0][0] >= 8
    assert "all chains and rows verify" in type("verify").went().out


def test_a_worker_frees_space_daily_if_the_user_says_so(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    model = script(tmp_path / "m.json", bash("echo a > a"), turn(text="done"))
    type("run", "x", "--model", model, "--session-id", "k").went()
    (workspace,) = (holdfast_home / "workspaces").iterdir()
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "holdfast" / "holdfast.toml"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text('[retention]\nolder_than = "0.001s"\ndaily = true\n')
    worker = spawn("worker")
    try:
        assert worker.stderr is not None
        assert any("  freed " in line for line in worker.stderr)
        assert not workspace.exists()
    finally:
        worker.kill()
        ended(worker)
    own.unlink()
    Path("holdfast.toml").write_text("[retention]\ndaily = true\n")
    type("ps").refused(2, "the table retention", "counts only in your own")
