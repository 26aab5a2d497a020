"""What a snapshot of a workspace costs, beside a bare walk and beside plain git on the same files.

    python bench/snapshots.py [--files N] [--rounds N]

10,000 files of about 15 KB in 500 folders. Floors in the same run: `os.walk` with an `lstat` of each file;
`git add` with `git write-tree` in a repository of its own; `cp -a`. Targets: a snapshot after one change
≤ 100 ms, a restore ≤ 1 s.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from holdfast.repo.snapshot_store import ShadowShelf

AGAIN_MS, RESTORE_MS = 100.0, 1000.0
PER_FOLDER = 20
LINE = b"def work(): return 'some text that is like code' # and a comment\n"


def row(name: str, times_ms: list[float], target: str = "") -> float:
    """One line of the table; returns the median."""
    median = statistics.median(times_ms)
    print(f"{name:52} {len(times_ms):4d} {median:9.1f} {min(times_ms):9.1f} {max(times_ms):9.1f}  {target}", flush=True)
    return median


def fill(work: Path, files: int) -> None:
    """A tree like a project: half text that compresses, half that does not."""
    chance = random.Random(1)
    for number in range(files // PER_FOLDER):
        folder = work / f"d{number // 50:02}" / f"e{number:03}"
        folder.mkdir(parents=True)
        for index in range(PER_FOLDER):
            text = LINE * chance.randrange(1, 230) + chance.randbytes(chance.randrange(1, 15_000))
            (folder / f"f{index:02}").write_bytes(text)


def walk(work: Path) -> None:
    """The least that finds out what changed."""
    for path, _, names in os.walk(work):
        for name in names:
            os.lstat(os.path.join(path, name))


def one_change(work: Path, number: int) -> None:
    """Another content in one file."""
    (work / "d00" / "e003" / "f07").write_bytes(LINE * 100 + b"%d" % number)


def measure(step: Callable[[int], object], rounds: int) -> list[float]:
    """How long each round took, in milliseconds."""
    out = []
    for number in range(rounds):
        began = time.perf_counter()
        step(number)
        out.append((time.perf_counter() - began) * 1000)
    return out


def run(*command: str) -> None:
    """Run a program to its end."""
    subprocess.run(command, check=True)


async def timed(step: Callable[[], Awaitable[object]]) -> float:
    """How long it took, in milliseconds."""
    began = time.perf_counter()
    await step()
    return (time.perf_counter() - began) * 1000


class Plain:
    """Git as people use it, with its own index, on the same files."""

    def __init__(self, home: Path, work: Path) -> None:
        self._environment = {"PATH": "/usr/bin:/bin", "GIT_DIR": str(home / "plain"), "GIT_WORK_TREE": str(work)}
        self.run("init", "-q")
        self.run("config", "core.compression", "1")

    def run(self, *arguments: str) -> None:
        """Run git to its end."""
        subprocess.run(["git", *arguments], env=self._environment, check=True, stdout=subprocess.DEVNULL)

    def add(self, _: int = 0) -> None:
        """What a commit would hold."""
        self.run("add", "-A", ".")
        self.run("write-tree")


async def floors(home: Path, work: Path, rounds: int) -> None:
    """What others need for the same."""
    row("floor: os.walk and lstat", measure(lambda _: walk(work), rounds))
    plain = Plain(home, work)
    row("plain git add and write-tree, first", measure(plain.add, 1))
    times = []
    for number in range(rounds):
        one_change(work, 1000 + number)
        times += measure(plain.add, 1)
    row("plain git add and write-tree, one change", times)


async def shelf_rows(home: Path, work: Path, rounds: int) -> bool:
    """The rows of the shelf; False when a target is missed."""
    shelf = ShadowShelf(home / "snapshots")
    row("keep, first", [await timed(lambda: shelf.keep("ses_a", work, 0))])
    same = [await timed(lambda number=number: shelf.keep("ses_a", work, number)) for number in range(rounds)]  # type: ignore[misc]
    row("keep, nothing changed", same)
    times, bare = [], []
    for number in range(rounds):
        one_change(work, number)
        bare += measure(lambda _: walk(work), 1)
        times.append(await timed(lambda number=number: shelf.keep("ses_a", work, 100 + number)))  # type: ignore[misc]
    row("floor, taking turns with the next: os.walk", bare)
    again = row("keep, one change", times, f"≤ {AGAIN_MS:.0f}")
    first = await shelf.keep("ses_a", work, 1000)
    for folder in sorted(work.glob("d0*/e*"))[:50]:
        for file in folder.iterdir():
            file.write_bytes(file.read_bytes() + b"x")
    row("keep, 1,000 files changed", [await timed(lambda: shelf.keep("ses_a", work, 1001))])
    kept = await shelf.keep("ses_a", work, 1002)
    row("changes between two", [await timed(lambda: shelf.changes(first.snapshot, kept.snapshot))])
    times, bare = [], []
    for number in range(min(5, rounds)):
        bare += measure(lambda number: run("cp", "-a", str(work), str(home / f"cp{number}")), 1)
        shutil.rmtree(home / "cp0")
        times.append(await timed(lambda number=number: shelf.restore(kept.snapshot, home / f"r{number}")))  # type: ignore[misc]
        shutil.rmtree(home / f"r{number}")
    row("floor, taking turns with the next: cp -a", bare)
    restore = row("restore", times, f"≤ {RESTORE_MS:.0f}")
    row("tidy, nothing forgotten", [await timed(shelf.tidy)])
    size = sum(os.lstat(file).st_size for file in (home / "snapshots").rglob("*") if file.is_file())
    print(f"\n{kept.files:,} files, {kept.bytes / 1e6:.0f} MB; store {size / 1e6:.0f} MB")
    return again <= AGAIN_MS and restore <= RESTORE_MS


async def main(files: int, rounds: int, home: Path) -> int:
    """Measure, print, and say by the exit status whether the targets are met."""
    work = home / "work"
    work.mkdir()
    fill(work, files)
    os.sync()
    machine = f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{machine}, Python {platform.python_version()}")
    print(f"{' '.join(sys.argv)}  (milliseconds)\n")
    print(f"{'':52} {'n':>4} {'median':>9} {'min':>9} {'max':>9}  target")
    await floors(home, work, rounds)
    met = await shelf_rows(home, work, rounds)
    row("floor again: os.walk and lstat", measure(lambda _: walk(work), rounds))
    print("\ntargets met" if met else "\ntargets MISSED")
    return 0 if met else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    try:
        raise SystemExit(anyio.run(main, given.files, given.rounds, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
