"""A folder in use goes back to an earlier state; no link is followed, and after any kill it can be repeated."""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import SnapshotFailed
from holdfast.repo import put_back as module
from holdfast.repo.put_back import put_back

NAMES = ("a", "b", "c")


class Killed(BaseException):
    """The process ends here."""


def plant(folder: Path, chance: random.Random, depth: int = 0) -> None:
    """Files, links, and folders by chance."""
    folder.mkdir(exist_ok=True)
    for name in NAMES:
        path = folder / name
        match chance.choice(("file", "file", "link", "folder", "none")):
            case "file":
                path.write_text(chance.choice(("x", "y", "longer")))
                path.chmod(chance.choice((0o644, 0o755)))
            case "link":
                path.symlink_to(chance.choice(("a", "/etc", "gone")))
            case "folder" if depth < 2:
                plant(path, chance, depth + 1)
                path.chmod(chance.choice((0o755, 0o700)))


def seen(folder: Path) -> dict[str, tuple[int, str]]:
    """Path → mode and content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        content = os.readlink(path) if stat.S_ISLNK(mode) else path.read_text() if stat.S_ISREG(mode) else ""
        found[str(path.relative_to(folder))] = (mode, content)
    return found


def copies(base: Path, seed: int) -> tuple[Path, Path, Path]:
    """A folder, a copy of it, and another state."""
    live, now, then = base / "live", base / "now", base / "then"
    for path in (live, now, then):
        shutil.rmtree(path, ignore_errors=True)
    plant(live, random.Random(seed))
    shutil.copytree(live, now, symlinks=True)
    plant(then, random.Random(seed + 1))
    return live, now, then


@pytest.mark.parametrize("across", [False, True], ids=["rename", "copy"])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 100_000))
def test_it_is_what_it_was(tmp_path_factory: pytest.TempPathFactory, across: bool, seed: int) -> None:
    live, now, then = copies(tmp_path_factory.getbasetemp(), seed)
    wanted = seen(then)
    with pytest.MonkeyPatch.context() as patch:
        if across:
            patch.setattr("os.rename", _only_here)
        put_back(live, now, then)
    assert seen(live) == wanted


_rename = os.rename


def _only_here(src: bytes, dst: bytes, *, src_dir_fd: int, dst_dir_fd: int) -> None:
    """Between two folders there is a border between file systems."""
    if os.fstat(src_dir_fd).st_ino != os.fstat(dst_dir_fd).st_ino:
        raise OSError(18, "Invalid cross-device link")
    _rename(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 100_000), steps=st.integers(0, 12))
def test_after_a_kill_it_can_be_repeated(tmp_path_factory: pytest.TempPathFactory, seed: int, steps: int) -> None:
    base = tmp_path_factory.getbasetemp()
    live, now, then = copies(base, seed)
    wanted, again = seen(then), base / "again"
    shutil.rmtree(again, ignore_errors=True)
    shutil.copytree(then, again, symlinks=True)
    left = iter(range(steps))

    with pytest.MonkeyPatch.context() as patch:
        for name in ("_place", "_remove"):
            patch.setattr(module, name, _killed_after(left, getattr(module, name)))
        with suppress(Killed):
            put_back(live, now, then)
    shutil.rmtree(now)
    shutil.copytree(live, now, symlinks=True)  # what the next try keeps
    put_back(live, now, again)
    assert seen(live) == wanted


def _killed_after(left: Iterator[int], work: Callable[..., None]) -> Callable[..., None]:
    def step(*given: object) -> None:
        if next(left, None) is None:
            raise Killed
        work(*given)

    return step


def test_what_no_snapshot_has_stays(tmp_path: Path) -> None:
    live, now, then = (tmp_path / name for name in ("live", "now", "then"))
    for path in (live, now):
        (path / "lib").mkdir(parents=True)
        (path / "lib/a").write_text("new")
        (path / "file").mkdir()
        (path / "file/b").write_text("b")
    then.mkdir()
    (then / "file").write_text("it was one")
    (live / "lib/.git").mkdir()
    (live / "file/.git").mkdir()
    with pytest.raises(SnapshotFailed, match="file was a file and is now a folder with files that no snapshot has"):
        put_back(live, now, then)
    (live / "file/.git").rmdir()
    put_back(live, now, then)
    assert seen(live).keys() == {"file", "lib", "lib/.git"}
    assert (live / "file").read_text() == "it was one"


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    live, now, then, outside = (tmp_path / name for name in ("live", "now", "then", "outside"))
    for path in (live, outside):
        path.mkdir()
    for path, text in ((now, "new"), (then, "old")):
        (path / "lib").mkdir(parents=True)
        (path / "lib/a").write_text(text)
    (outside / "a").write_text("not ours")
    (live / "lib").symlink_to(outside)  # since it was looked at
    with pytest.raises(SnapshotFailed, match="could not all be restored"):
        put_back(live, now, then)
    assert (outside / "a").read_text() == "not ours"
