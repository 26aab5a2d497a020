"""The home of a root is root's alone: walked by another user while a sandbox, a job and a proxy live in it."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from holdfast.app.home import open_home
from holdfast.egress.control import is_locked
from holdfast.privileges import folder_mode
from tests.app.terminal import Type, script, turn
from tests.app.test_jobs import comes, standing, start
from tests.support.as_user import UID

WALK = """
find "$1" "$1"/workspaces/* "$1"/serving/* "$1"/hands/*/output "$1"/egress/doors/* -readable 2>/dev/null
cat "$1"/holdfast.db "$1"/workspaces/*/ran "$1"/hands/*/journal "$1"/egress/doors/*/ca.pem 2>/dev/null
cd "$2" && ls -a . 2>/dev/null
true
"""
"""Everything that another user may list or read, also by names that they cannot list."""

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root has a home that other users might reach")


def walk(home: Path, inside: Path) -> str:
    """What a user who is nobody here gets to see."""
    done = subprocess.run(
        ["/bin/sh", "-c", WALK, "sh", home, inside],
        user=UID,
        group=UID,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


@as_root
def test_another_user_finds_nothing_in_a_living_home(type: Type, holdfast_home: Path, tmp_path: Path) -> None:
    if folder_mode() != 0o700:
        pytest.skip("this root cannot mount, so its folders are passable (docs/hands.md)")
    calls = [{"name": name, "input": value} for name, value in (start(),)]
    model = script(tmp_path / "m.json", turn(tool_calls=calls), turn(text="done"))
    agent = tmp_path / "agent.toml"
    agent.write_text(f'name = "a"\nmodel = "{model}"\ntools = ["bash", "job_start"]\n')
    words = ("run", "x", "--agent", agent, "--session-id", "k", "--allow-host", "docs.example.com", "--detach")
    type(*words).went()
    comes(lambda: list(holdfast_home.glob("workspaces/*/ran")))
    (ran,) = holdfast_home.glob("workspaces/*/ran")
    try:
        assert list(holdfast_home.glob("egress/doors/*/ca.pem")), "a proxy lives"
        assert list(holdfast_home.glob("hands/*/journal")), "hands live"
        assert walk(holdfast_home, ran.parent) == ""
        closed = [holdfast_home, *holdfast_home.iterdir(), *holdfast_home.glob("workspaces/*")]
        assert {stat.S_IMODE(path.lstat().st_mode) & 0o077 for path in closed} == {0}
    finally:
        (ran.parent / "finish").touch()
        comes(lambda: not list(holdfast_home.glob("hands/*/journal")))
        comes(lambda: not any(is_locked(lock) for lock in holdfast_home.glob("egress/*/lock")))
        comes(lambda: standing(holdfast_home).startswith("done"))


LOOSE = {".": 0o711, "serving": 0o755, "workspaces": 0o777, "egress": 0o751, "holdfast.db": 0o644, "hands": 0o711}


@as_root
@pytest.mark.parametrize("name", LOOSE)
def test_an_old_home_is_closed_when_it_is_opened(name: str, tmp_path: Path) -> None:
    home = tmp_path / "old"
    home.mkdir(mode=0o700)
    for each, mode in LOOSE.items():
        path = home / each
        path.touch() if each.endswith(".db") else path.mkdir(exist_ok=True)
        path.chmod(mode if each in (name, ".") else 0o700)
    (home / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").touch(mode=0o644)
    open_home(home)
    assert [path.name for path in (home, *home.iterdir()) if path.stat().st_mode & 0o077 & ~folder_mode()] == ["link"]
