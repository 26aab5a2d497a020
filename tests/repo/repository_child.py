"""A process that commits, merges and moves refs for ever: `python -m tests.repo.repository_child BASE`.

Each step says what it is about to do and what it has done, a line each, so that it can be killed in between.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import anyio

from holdfast.repo.git_repository import GitRepository
from holdfast.repo.repository import Commit
from tests.repo.child import say
from tests.repo.repositories import put

MAIN = "refs/heads/holdfast/m/main"


def files(step: int) -> dict[str, bytes]:
    """What a step adds: more than goes into the store one by one, every third time."""
    count = 130 if step % 3 == 0 else 3
    return {f"step{step}/f{number}": b"%d %d\n" % (step, number) * 50 for number in range(count)}


async def steps(base: Path) -> None:
    """Each step: a commit on the main line, a merge of it, and the ref."""
    door = GitRepository(base / "repository", base / "state")
    start = await door.resolve("main")
    assert start is not None
    main = await door.resolve(MAIN)
    step = len(await door.history(main.commit, 10_000)) - 1 if main else 0
    while True:
        at = main or start
        folder = base / f"w{step}"
        if not folder.exists():
            shutil.rmtree(base / f"new{step}", ignore_errors=True)  # of one that was killed
            await door.checkout(start.commit, base / f"new{step}")
            put(base / f"new{step}", files(step))
            (base / f"new{step}").rename(folder)
        say("making", step)
        made = await door.commit(folder, (start.commit,), f"step {step}", 1_000_000 * step)
        both = await door.merge(at.commit, made.commit, f"merge {step}", 1_000_000 * step)
        assert isinstance(both, Commit), both
        say("made", step, both.commit)
        assert await door.point(MAIN, both.commit, main.commit if main else None)
        say("moved", step, both.commit)
        main, step = both, step + 1


if __name__ == "__main__":
    anyio.run(steps, Path(sys.argv[1]))
