"""Killed at any moment: what was kept is there, and the next keep works."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from holdfast.repo.snapshot_store import ShadowShelf
from tests.repo.rigs import fresh, picture
from tests.repo.test_shadow import git

ROOT = Path(__file__).parents[2]
Told = list[tuple[str, int, str, int, int]]


class Nursery:
    """A process that forks the children of one store, one after the other."""

    def __init__(self, base: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.repo.child", str(base)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._child = 0
        self._early: list[str] = []

    def line(self) -> str:
        """The next line that is said."""
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert said, "the nursery ended"
        return said

    def bear(self, seed: int) -> None:
        """Start a child."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seed}\n")
        self._process.stdin.flush()
        first = self.line()
        lines = []
        while not first.startswith("born"):  # the child may be faster than its parent
            lines.append(first)
            first = self.line()
        self._child, self._early = int(first.split()[1]), lines

    def next(self) -> str:
        """What the child says next."""
        said = self._early.pop(0) if self._early else self.line()
        assert said != "gone\n", "the child ended by itself"
        return said

    def kill(self) -> list[str]:
        """Kill the child; returns what else it had said."""
        os.kill(self._child, signal.SIGKILL)
        lines = [*self._early]
        while (said := self.line()) != "gone\n":
            lines.append(said)
        self._child, self._early = 0, []
        return lines

    def end(self) -> None:
        """End the child, then its parent."""
        if self._child:
            self.kill()
        self._process.communicate()


@contextmanager
def nursery(base: Path) -> Iterator[Nursery]:
    """A nursery that is empty at the end of the block."""
    made = Nursery(base)
    try:
        yield made
    finally:
        made.end()


def told(lines: list[str]) -> Told:
    """What the child said was kept; a line that was cut is not said."""
    words = [line.split() for line in lines if line.endswith("\n")]
    return [(name, int(seq), snapshot, int(files), int(size)) for name, seq, snapshot, files, size in words]


def killed(children: Nursery, seed: int, chance: random.Random) -> Told:
    """A child that is killed a random while after a random acknowledgement, anywhere in keep or tidy."""
    children.bear(seed)
    lines = [children.next() for _ in range(chance.randrange(1, 4))]
    end = time.monotonic() + chance.random() * 0.06
    while time.monotonic() < end:  # some way into the next one, wherever that is
        os.getpid()
    return told([*lines, *children.kill()])


async def check(base: Path, all_told: Told, work: Path, chance: random.Random) -> None:
    """A sample of what was told is restored whole, and the workspace of the dead is kept anew."""
    shelf = ShadowShelf(base / "snapshots")
    for _, _, snapshot, files, size in {all_told[-1], chance.choice(all_told)}:
        back = await shelf.restore(snapshot, fresh(base / "copy"))
        assert (back.files, back.bytes) == (files, size)
    name = all_told[-1][0]
    again = await shelf.keep(name, work, 100_000)
    await shelf.restore(again.snapshot, fresh(base / "copy"))
    assert picture(base / "copy") == picture(work)
    # Read without a cache, it is the same: nothing was noted that was not so.
    assert (await shelf.keep("ses_fleeting", work, 1)).snapshot == again.snapshot


async def kill_many_times(base: Path, times: int, seed: int) -> None:
    chance = random.Random(seed)
    all_told: Told = []
    with nursery(base) as children:
        for turn in range(times):
            work = base / f"work{seed * 1000 + turn}"
            all_told += killed(children, seed * 1000 + turn, chance)
            await check(base, all_told, work, chance)
            fresh(work)
    await ShadowShelf(base / "snapshots").tidy()
    assert "missing" not in git(base / "snapshots", "fsck", "--connectivity-only")
    refs = git(base / "snapshots", "for-each-ref", "--format=%(objectname)").split()
    assert {snapshot for _, _, snapshot, _, _ in all_told} <= set(refs)
    assert list((base / "snapshots" / "tmp").iterdir()) == []


async def test_killed_while_keeping(tmp_path: Path) -> None:
    await kill_many_times(tmp_path, 8, seed=1)


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(1, 8))
async def test_killed_while_keeping_many_times(tmp_path: Path, seed: int) -> None:
    await kill_many_times(tmp_path, 50, seed)


async def test_several_processes_at_once_and_some_die(tmp_path: Path) -> None:
    """Four keep and tidy in one store, two of them are killed: all that any of them told is there."""
    lines = []
    with ExitStack() as opened:
        children = [opened.enter_context(nursery(tmp_path)) for _ in range(4)]
        for seed, child in enumerate(children):
            child.bear(seed)
        for child, count in zip(children, (4, 4, 8, 8), strict=True):
            lines += [child.next() for _ in range(count)]
            if count == 4:
                child.kill()
    shelf = ShadowShelf(tmp_path / "snapshots")
    found = told(lines)
    assert len(found) == 24
    await shelf.tidy()
    for _, _, snapshot, files, size in found:
        back = await shelf.restore(snapshot, fresh(tmp_path / "copy"))
        assert (back.files, back.bytes) == (files, size)


async def test_two_that_create_the_store_at_once(tmp_path: Path) -> None:
    """The second one replaces the files of the first; a git that has one open reads it whole."""
    work, shelf = tmp_path / "work", ShadowShelf(tmp_path / "snapshots")
    work.mkdir()
    await shelf.keep("ses_a", work, 1)
    created = tmp_path / "snapshots" / "git"
    with (created / "HEAD").open() as head, (created / "config").open() as config:
        (created / "config").unlink()  # as the second one saw it
        await shelf.keep("ses_a", work, 2)
        assert not os.path.samestat(os.fstat(head.fileno()), (created / "HEAD").stat())
        assert (head.read(), config.read()) == ((created / "HEAD").read_text(), (created / "config").read_text())
