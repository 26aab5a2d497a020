"""Whose tool calls: started as root, and as an ordinary user. The same flows, with the refusals of each."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.uids import SANDBOXES
from tests.app.terminal import Said, Type, bash, in_scratch, kept, script, turn
from tests.support.as_user import PYTHON, UID, reachable_source, unable

NOBODY = 65_534


@pytest.fixture
def as_root() -> None:
    """Skips for an ordinary user."""
    if os.getuid() != 0:
        pytest.skip("only root can run tool calls as somebody else")


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model that writes who it is into a file, without an output that a person would have to trust."""
    return script(tmp_path / "m.json", bash("id -u > who; cat who"), turn(text="done"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder of whoever runs the tests, with something in it."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("print()\n")
    folder.chmod(0o755)
    return folder


def owners(folder: Path) -> set[int]:
    """The user ids that own a folder and what is in it."""
    return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


@pytest.mark.usefixtures("as_root")
def test_a_workspace_of_root_is_refused(type: Type, model: str, project: Path, holdfast_home: Path) -> None:
    type("ps").went()
    before = kept(holdfast_home)
    run = ("run", "x", "--model", model, "--workspace", project)
    type(*run).refused(5, str(project), "--user NAME", "--take-over", "nothing was started or changed")
    type(*run, "--user", "nobody").refused(5, "nobody may not write", "--take-over")
    type(*run, "--user", "root").refused(5, "never run as root")
    type(*run, "--user", "root", "--take-over").refused(5, "never run as root")
    type(*run, "--user", "no-such-login").refused(2, "no such user", "getent passwd")
    type(*run, "--user", "no-such-login", "--take-over").refused(2, "no such user")
    type("run", "x", "--model", model, "--user", "no-such-login").refused(2, "no such user")
    type("run", "x", "--model", model, "--workspace", "/usr", "--take-over").refused(
        5, "/usr is a folder of the system"
    )
    project.parent.chmod(0o700)
    type(*run, "--take-over").refused(5, "cannot enter", f"chmod o+x {project.parent}")
    project.parent.chmod(0o711)
    assert owners(project) == {0}
    assert kept(holdfast_home) == before


@pytest.mark.usefixtures("as_root")
def test_take_over_gives_the_folder_away_after_saying_so(type: Type, model: str, project: Path) -> None:
    went = type("run", "x", "--model", model, "--workspace", project, "--take-over", "--session-id", "k").went()
    first = went.err.splitlines()[0]
    (uid,) = re.findall(rf"^giving {re.escape(str(project))} and everything in it to uid ([678]\d{{4}}), ", first)
    assert owners(project) == {int(uid)}
    assert (project / "who").read_text() == f"{uid}\n"
    again = type("run", "more", "--session-id", "k", "--workspace", project).went()
    assert "giving" not in again.err
    named = type("run", "x", "--model", model, "--workspace", project, "--take-over", "--user", "nobody").went()
    assert named.err.splitlines()[0].endswith(" to nobody, the user that tool calls run as (--take-over)")
    assert owners(project) == {NOBODY}


@pytest.mark.usefixtures("as_root")
def test_tool_calls_run_as_the_owner_of_the_workspace(type: Type, model: str, project: Path) -> None:
    for path in (project, *project.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    for flags in ((), ("--user", "nobody"), ("--user", str(NOBODY))):
        type("run", "x", "--model", model, "--workspace", project, *flags).went()
        assert (project / "who").read_text() == f"{NOBODY}\n"
        assert owners(project) == {NOBODY}
        (project / "who").unlink()
    project.chmod(0o555)
    type("run", "x", "--model", model, "--workspace", project).refused(5, "may not write", "nothing was started")


@pytest.mark.usefixtures("as_root")
def test_a_workspace_of_holdfast_itself_is_given_to_its_user(type: Type, model: str, holdfast_home: Path) -> None:
    type("run", "x", "--model", model, "--session-id", "apart").went()
    type("run", "x", "--model", model, "--session-id", "named", "--user", "nobody").went()
    uids = sorted(int(path.read_text()) for path in (holdfast_home / "workspaces").glob("*/who"))
    assert (set(uids) - {NOBODY}).pop() in range(*SANDBOXES)
    assert NOBODY in uids
    assert (holdfast_home / "holdfast.db").stat().st_mode & 0o077 == 0
    assert (holdfast_home / "workers").stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("as_root")
def test_without_a_sandbox_root_has_to_be_asked_for_twice(type: Type, model: str, holdfast_home: Path) -> None:
    type("run", "x", "--model", model, "--no-sandbox").went()
    type("run", "x", "--model", model, "--no-sandbox", "--user", "root").went()
    uids = sorted(int(path.read_text()) for path in (holdfast_home / "workspaces").glob("*/who"))
    assert uids[0] == 0
    assert uids[1] in range(*SANDBOXES)


# --- as an ordinary user -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def importable() -> Iterator[Path | None]:
    """Where an ordinary user can import everything from; None when the tests run as one."""
    if os.getuid() != 0:
        yield None
        return
    if problem := unable():
        pytest.skip(problem)
    base = Path(tempfile.mkdtemp(prefix="holdfast-ordinary-"))
    base.chmod(0o711)
    yield reachable_source(base)
    shutil.rmtree(base)


@pytest.fixture
def user(importable: Path | None, tmp_path: Path) -> Callable[..., Said]:
    """Types a command as an ordinary user whose home folder is `tmp_path/mine`."""
    mine = tmp_path / "mine"
    mine.mkdir()
    drop: dict[str, object] = {}
    env = {"PATH": "/usr/bin:/bin", "HOME": str(mine), "LANG": "C.UTF-8"}
    if importable is None:
        python, env["PYTHONPATH"] = sys.executable, os.pathsep.join(sys.path)
    else:
        python, env["PYTHONPATH"] = PYTHON, str(importable)
        os.chown(mine, UID, UID)
        drop = {"user": UID, "group": UID, "extra_groups": []}

    def run(*words: str | Path, within: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> Said:
        given = {name: value for name, value in env.items() if name not in without}
        command = [*within, python, "-m", "holdfast", *in_scratch(words)]
        done = subprocess.run(  # type: ignore[call-overload]
            command, env=given, cwd=mine, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, **drop
        )
        return Said(done.returncode, done.stdout, done.stderr)

    return run


def test_an_ordinary_user_from_beginning_to_end(user: Callable[..., Said], model: str, tmp_path: Path) -> None:
    home = tmp_path / "mine" / ".local" / "share" / "holdfast"
    doctor = user("doctor").went()
    assert f"home {home}\n" in doctor.out
    assert f"tool calls run as uid {home.stat().st_uid}, inside the sandbox" in doctor.out
    user("run", "x", "--model", model, "--session-id", "k").went()
    (who,) = (home / "workspaces").glob("*/who")
    assert who.read_text() == f"{home.stat().st_uid}\n"
    assert home.stat().st_mode & 0o077 == 0
    work = tmp_path / "mine" / "project"
    work.mkdir()
    os.chown(work, home.stat().st_uid, home.stat().st_gid)
    detached = user("run", "x", "--model", model, "--workspace", work, "--session-id", "d", "--detach").went()
    assert detached.out.startswith("d continues in the background")
    assert user("logs", "d", "-f", "--json").went().lines[-1]["type"] == "shift.ended"
    assert user("wake", "d").went().out == "done\n"
    assert (work / "who").read_text() == who.read_text()
    assert user("send", "k", "more", "--no-wake").went().out.startswith("posted")
    assert user("wake", "k").went()
    assert user("verify").went().out.startswith("2 sessions, ")


def test_what_an_ordinary_user_may_not(user: Callable[..., Said], model: str, tmp_path: Path, project: Path) -> None:
    user("ps").went()
    home = tmp_path / "mine" / ".local" / "share" / "holdfast"
    before = kept(home)
    run = ("run", "x", "--model", model)
    if os.getuid() == 0:
        user(*run, "--workspace", project).refused(2, "not writable for you")
        user("ps", without=("HOME",)).refused(5, "set HOME", "nothing was started")
        user("ps", "--home", "/root/h").refused(5, "Permission denied", "--home DIR")
        user("ps", "--home", project).refused(5, "Permission denied", "--home DIR")
        user("ps", "--db", f"sqlite:///{project}/x.db").refused(5, "Permission denied")
    locked = tmp_path / "mine" / "locked"
    locked.mkdir()
    os.chown(locked, home.stat().st_uid, -1)
    locked.chmod(0o555)
    user(*run, "--workspace", locked).refused(2, "not writable for you")
    user(*run, "--user", "nobody").refused(5, "--user nobody", "only root", "leave --user out")
    locked.chmod(0o755)
    user(*run, "--workspace", locked, "--take-over").refused(5, "--take-over", "only root")
    closed = ("/usr/bin/bwrap", "--dev-bind", "/", "/", "--unshare-user", "--disable-userns")
    user(*run, within=closed).refused(5, "cannot isolate tool calls", "user namespaces", "max_user_namespaces")
    assert kept(home) == before


def test_a_log_of_somebody_else(user: Callable[..., Said], type: Type, model: str, holdfast_home: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs the log of another user, which only root can make")
    type("run", "x", "--model", model).went()
    before = kept(holdfast_home)
    user("ps", "--home", holdfast_home).refused(5, "Permission denied", "--home")
    user("ps", "--db", f"sqlite:///{holdfast_home}/holdfast.db").refused(5, "Permission denied", "--home")
    assert kept(holdfast_home) == before
