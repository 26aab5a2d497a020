"""Git is asked once for what cannot change, and again for what can."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from holdfast.errors import RepositoryUnfit
from holdfast.repo.git_repository import GitRepository
from holdfast.repo.plumbing import objects
from holdfast.repo.plumbing.objects import read_tree
from tests.repo.repositories import git, made

COUNTED = ("version", "config", "ls-tree")


@pytest.fixture
def counting(tmp_path: Path) -> Path:
    """A git that writes each of its command lines to `asked`."""
    program = tmp_path / "git"
    program.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    return program


def asked(tmp_path: Path) -> Counter[str]:
    """Count the calls of each counted command, and forget them."""
    file = tmp_path / "asked"
    words = [set(line.split()) for line in file.read_text().splitlines()] if file.exists() else []
    file.unlink(missing_ok=True)
    return Counter(name for name in COUNTED for line in words if name in line)


async def test_what_cannot_change_is_asked_once(tmp_path: Path, counting: Path) -> None:
    path = made(tmp_path / "repository")
    head = git(path, "rev-parse", "HEAD")
    for turn in range(3):
        found = await GitRepository(path, tmp_path / "state", git=counting).files(head)
        assert found
        assert asked(tmp_path) == (Counter() if turn else Counter(COUNTED))


async def test_settings_that_change_are_read_again(tmp_path: Path, counting: Path) -> None:
    path = made(tmp_path / "repository")
    await GitRepository(path, tmp_path / "state", git=counting).look()
    (path / ".git" / "config").write_text("[core\n")
    with pytest.raises(RepositoryUnfit):
        await GitRepository(path, tmp_path / "state", git=counting).look()


async def test_the_cache_of_trees_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_TREES", {})
    monkeypatch.setattr(objects, "TREES_KEPT_FILES", 3)
    for count in (1, 2, 3, 4):
        path = made(tmp_path / f"r{count}", {f"f{index}": b"x" for index in range(count)})
        tree = git(path, "rev-parse", "HEAD^{tree}")
        door = GitRepository(path, tmp_path / "state")
        known = read_tree(door._git, tree)
        assert read_tree(door._git, tree) == known
        assert len(known) == count
        known.clear()  # a caller's copy
        assert len(read_tree(door._git, tree)) == count
        assert sum(map(len, objects._TREES.values())) <= 3
