"""Links that come while the host looks: in the places for mounts, in output, in the rules of a project."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType

import pytest

from holdfast.app.settings import config
from holdfast.app.settings.config import pinned_rules
from holdfast.app.settings.trust import read_beneath
from holdfast.environment.layers import packages_laid
from holdfast.errors import EnvironmentFailed, UsageError
from holdfast.hands.box.agent.output import from_files
from holdfast.hands.box.supervisor import mounts

FLIPS = 2_000
SECRET = "canary of the host"

FLIP = """
import os, sys
mine, work, target, name, kind = os.getppid(), *sys.argv[1:]
os.chdir(work)
print("go", flush=True)
while os.getppid() == mine:
    for step in (
        lambda: (os.rmdir if kind == "folder" else os.unlink)(name),
        lambda: os.symlink(target, name),
        lambda: os.unlink(name),
        lambda: kind == "file" and os.link("plain", name),
    ):
        try:
            step()
        except OSError:
            pass
"""
"""Another process, as a command in older hands on the same workspace is one."""


@contextmanager
def flipping(work: Path, target: Path, name: str, kind: str) -> Iterator[None]:
    """In `work` that name is now a folder or file, now a link to `target`, and now nothing."""
    words = [str(work), str(target), name, kind]
    other = subprocess.Popen([sys.executable, "-c", FLIP, *words], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"go\n"
        yield
        assert other.poll() is None, "the other process ended by itself"
    finally:
        other.kill()
        other.communicate()


@contextmanager
def between(line: int, codes: Sequence[CodeType], step: Callable[[], None]) -> Iterator[None]:
    """Somebody else does `step` right before so many lines of those functions have begun."""
    left = line

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal left
        if frame.f_code not in codes:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                step()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        yield
    finally:
        sys.settrace(before)


def swapped(path: Path, target: Path) -> None:
    """A link to the target where that was."""
    with suppress(OSError):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        path.symlink_to(target)


@pytest.mark.parametrize("kind", ["folder", "file"])
@pytest.mark.parametrize("line", range(1, 24))
def test_a_place_that_becomes_a_link_at_any_moment(line: int, kind: str, tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    work.mkdir()
    if kind == "folder":
        outside.mkdir()
    else:
        outside.touch()
    outside.chmod(0o700)
    codes = (mounts.make_mount_point.__code__, mounts._make.__code__, mounts._parent.__code__)
    with between(line, codes, lambda: swapped(work / "place", outside)), suppress(OSError):
        os.close(mounts.make_mount_point((str(work), "place", kind)))
    mounts.remove_mount_point((str(work), "place", kind))
    assert outside.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("line", range(1, 12))
def test_rules_that_become_a_link_at_any_moment(line: int, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    rules = tmp_path / "AGENTS.md"
    rules.write_text("rules")
    read = ""
    codes = (pinned_rules.__code__, config.read_text.__code__, read_beneath.__code__)
    with between(line, codes, lambda: swapped(rules, secret)), suppress(UsageError):
        read = pinned_rules(tmp_path)
    assert read in ("", "rules")


def test_a_place_for_a_mount_is_never_made_through_a_link(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    work.mkdir()
    outside.mkdir(mode=0o750)
    held = 0
    with flipping(work, outside, "place", "folder"):
        for _ in range(FLIPS):
            with suppress(OSError):
                os.close(mounts.make_mount_point((str(work), "place", "folder")))
                held += 1
            mounts.remove_mount_point((str(work), "place", "folder"))
    assert held
    assert outside.stat().st_mode & 0o777 == 0o750
    assert os.listdir(outside) == []


def test_output_is_never_read_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("mine")
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    output = tmp_path / "output"
    output.mkdir()
    (output / "plain").write_text("mine")
    with flipping(output, secret, "1_0.txt", "file"):
        seen = {from_files(str(output), "1.0", 0, 1000, None).text for _ in range(FLIPS)}
    assert seen <= {"", "mine"}


def test_rules_of_a_project_are_never_read_through_a_link(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    work = tmp_path / "work"
    work.mkdir()
    (work / "plain").write_text("rules")
    seen = set()
    with flipping(work, secret, "AGENTS.md", "file"):
        for _ in range(FLIPS):
            with suppress(UsageError):
                seen.add(pinned_rules(work))
    assert seen <= {"", "rules"}


def test_no_link_that_packages_leave_is_laid(tmp_path: Path) -> None:
    """What is laid is mounted by its path outside, where a link would lead to the host's own."""
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    root = tmp_path / "packages" / "root"
    for name in ("usr", "etc/real.d", "opt/real"):
        (root / name).mkdir(parents=True)
    (root / "etc" / "link.d").symlink_to(tmp_path)
    (root / "opt" / "link").symlink_to(tmp_path)
    (root.parent / "ld.so.cache").symlink_to(secret)
    assert {each.inside for each in packages_laid(root)} == {"/usr", "/etc/real.d", "/opt/real"}
    (root / "usr").rmdir()
    (root / "usr").symlink_to(tmp_path)
    with pytest.raises(EnvironmentFailed, match="by a link"):
        packages_laid(root)
