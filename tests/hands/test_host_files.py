"""Files that make programs of the host run code: read-only where they stand, found and told where they are new."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.hands import host_files
from holdfast.hands.host_files import BARE_KIND, find, read_only
from tests.hands.host_files_attack import spoilt
from tests.support.as_user import run_as_user


async def test_what_stands_there_cannot_be_changed_inside(tmp_path: Path) -> None:
    assert await spoilt(tmp_path) == {}


def test_nor_by_the_hands_of_an_ordinary_user(tmp_path: Path) -> None:
    assert run_as_user(tmp_path, "tests.hands.host_files_driver") == {}


DEEP = "/".join("d" * 60)

PLANTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "settings": (lambda root: (root / "holdfast.toml").touch(), "holdfast.toml"),
    "another case": (lambda root: (root / "Holdfast.TOML").touch(), "Holdfast.TOML"),
    "a folder": (lambda root: (root / ".vscode").mkdir(), ".vscode"),
    "git of Windows": (lambda root: (root / "GIT~1").mkdir(), "GIT~1"),
    "git with a dot": (lambda root: (root / ".git. ").mkdir(), ".git. "),
    "git with an invisible character": (lambda root: (root / ".gi\u200ct").mkdir(), ".gi\u200ct"),
    "a stream": (lambda root: (root / ".git::$INDEX_ALLOCATION").mkdir(), ".git::$INDEX_ALLOCATION"),
    "a link": (lambda root: (root / ".envrc").symlink_to("/etc/passwd"), ".envrc"),
    "a broken link": (lambda root: (root / ".husky").symlink_to("nowhere"), ".husky"),
    "a pipe": (lambda root: os.mkfifo(root / ".mcp.json"), ".mcp.json"),
    "deep": (lambda root: (root / DEEP / ".claude").mkdir(parents=True), f"{DEEP}/.claude"),
    "a file of git": (lambda root: (root / ".git").write_text("gitdir: x"), ".git"),
    "behind a locked door": (lambda root: locked(root), "locked/.envrc"),
}  # fmt: skip


def locked(root: Path) -> None:
    """In a folder that takes no one in; only root gets to see it."""
    (root / "locked").mkdir()
    (root / "locked" / ".envrc").touch()
    (root / "locked").chmod(0o300 if os.getuid() == 0 else 0o700)


@pytest.mark.parametrize("name", PLANTS)
def test_what_is_planted_is_found(name: str, tmp_path: Path) -> None:
    plant, path = PLANTS[name]
    plant(tmp_path)
    found = find(str(tmp_path))
    assert list(found.kinds) == [path]
    assert found.whole


def bare(folder: Path, names: tuple[str, ...] = ("HEAD", "config", "objects", "refs")) -> Path:
    """What git takes for a repository, whose settings run a program."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "init", "-q", "--bare", folder / "tmp"], check=True)
    (folder / "tmp" / "HEAD").rename(folder / names[0])
    for name, old in zip(names[2:], ("objects", "refs"), strict=True):
        (folder / "tmp" / old).rename(folder / name)
    ran = folder / "ran"
    (folder / "run.sh").write_text(f"#!/bin/sh\ntouch {ran}\n")
    (folder / "run.sh").chmod(0o755)
    config = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
    config += f"\tworktree = {folder}\n\tfsmonitor = {folder / 'run.sh'}\n"
    (folder / names[1]).write_text(config)
    return ran


LAYOUTS = ("", "sub", "a/b/c", ".hidden", "x-y")


@pytest.mark.parametrize("below", LAYOUTS)
def test_a_bare_layout_would_have_run_a_program_and_is_found(below: str, tmp_path: Path) -> None:
    """`git status` of the owner, in the folder that the agent made: the program ran."""
    ran = bare(tmp_path / below)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "status"], cwd=tmp_path / below, env=env, capture_output=True, check=False)
    assert ran.exists()
    assert find(str(tmp_path)).kinds == {below or ".": BARE_KIND}


def test_a_nested_repository_would_have_run_a_program_and_is_found(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path / "sub"], check=True)
    ran = tmp_path / "ran"
    (tmp_path / "run.sh").write_text(f"#!/bin/sh\ntouch {ran}\n")
    (tmp_path / "run.sh").chmod(0o755)
    subprocess.run(["git", "-C", tmp_path / "sub", "config", "core.fsmonitor", tmp_path / "run.sh"], check=True)
    subprocess.run(["git", "-C", tmp_path / "sub", "status"], capture_output=True, check=False)
    assert ran.exists()
    assert find(str(tmp_path)).kinds == {"sub/.git": "repository"}


def test_links_are_not_followed_and_names_alone_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "other" / ".git").mkdir(parents=True)
    (tmp_path / "work" / "link").symlink_to(tmp_path / "other")
    (tmp_path / "work" / "loop").symlink_to(".")
    for name in ("gitignore", ".github", ".gitignore", "my.envrc", "vscode", "HEAD", "config"):
        (tmp_path / "work" / name).touch()
    assert find(str(tmp_path / "work")) == ({}, True)
    assert find(str(tmp_path / "absent")) == ({}, True)
    (tmp_path / "work" / ".claude").symlink_to(tmp_path / "other")
    assert read_only(str(tmp_path / "work")) == []


def test_the_search_is_bounded_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (tmp_path / f"f{number}").mkdir()
        (tmp_path / f"f{number}" / ".envrc").touch()
    monkeypatch.setattr(host_files, "LISTED_MAX", 5)
    assert (len(find(str(tmp_path)).kinds), find(str(tmp_path)).whole) == (5, False)
    monkeypatch.setattr(host_files, "ENTRIES_MAX", 10)
    assert not find(str(tmp_path)).whole


def test_a_bare_root_keeps_its_settings(tmp_path: Path) -> None:
    bare(tmp_path)
    assert sorted(read_only(str(tmp_path))) == ["HEAD", "config", "refs"]
