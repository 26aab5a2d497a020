"""Processes around a shelf, to be killed: `python -m tests.repo.child BASE`.

For each seed that comes, a line each, it forks a child and says its number; the child says what was
kept, when it has been, a line each; its parent says when it is gone. Forking saves the start.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from pathlib import Path

import anyio

from holdfast.repo.snapshot_store import ShadowShelf


def say(*words: object) -> None:
    """One line by one write: a kill leaves it out or leaves it whole."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def change(work: Path, chance: random.Random) -> None:
    """Write some files of all sizes, remove some."""
    for _ in range(chance.randrange(1, 30)):
        folder = work / f"d{chance.randrange(8)}"
        folder.mkdir(exist_ok=True)
        size = chance.choice((0, 10, 3_000, 20_000, 1_100_000 if chance.random() < 0.05 else 5_000))
        (folder / f"f{chance.randrange(40)}").write_bytes(chance.randbytes(size))
    if chance.random() < 0.2:
        shutil.rmtree(work / f"d{chance.randrange(8)}", ignore_errors=True)


async def keep(base: Path, seed: int) -> None:
    """Change the workspace and keep it, for ever; each snapshot is told with its place."""
    chance = random.Random(seed)
    shelf, work = ShadowShelf(base / "snapshots"), base / f"work{seed}"
    work.mkdir()
    for seq in range(1, 100_000):
        change(work, chance)
        kept = await shelf.keep(f"ses_{seed}", work, seq)
        say(f"ses_{seed}", seq, kept.snapshot, kept.files, kept.bytes)
        if chance.random() < 0.3:
            await shelf.keep("ses_fleeting", work, seq)
        if chance.random() < 0.3:
            if chance.random() < 0.3:
                await shelf.forget("ses_fleeting")
            await shelf.tidy()


def nursery(base: Path) -> None:
    """Have children, one after the other."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            anyio.run(keep, base, int(line))
        say("born", pid)
        os.waitpid(pid, 0)
        say("gone")


if __name__ == "__main__":
    nursery(Path(sys.argv[1]))
