"""Fold a long session in a process of its own, so that it takes no time from requests.

The process reads a checkpoint to begin from, or nothing, and writes the checkpoints on its way.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import msgspec

from holdfast.brain.points import Checkpoint, checkpoints
from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError
from holdfast.kinds import KINDS
from holdfast.log.sqlite.store import SqliteStore
from holdfast.serve.folds import NEAR
from holdfast.session.rows import SessionRow

NICE = 10
"""Priority of the process below that of the server and of sessions."""


async def fold_ahead(
    database: Path, workers: Path, row: SessionRow, seq: int, start: Checkpoint | None
) -> list[Checkpoint]:
    """Fold a session through an event in another process. Without its help the server folds, only slower."""
    words = (sys.executable, "-P", "-m", "holdfast.app.server.folding", database, workers, row.session_id, str(seq))
    sent = b"" if start is None else msgspec.msgpack.encode(start)
    done = await anyio.run_process(words, input=sent, stderr=None, check=False)
    return msgspec.msgpack.decode(done.stdout, type=list[Checkpoint]) if done.returncode == 0 else []


async def folded(database: Path, workers: Path, session_id: str, seq: int, start: Checkpoint | None) -> bytes:
    """Return the encoded checkpoints of a session through an event."""
    async with await SqliteStore.open(database, workers=workers, clock=SystemClock()) as store:
        row = await store.find(session_id)
        return msgspec.msgpack.encode(await checkpoints(store, row, seq, KINDS, every=NEAR, start=start))


def main() -> int:
    """Fold as the arguments say."""
    database, workers, session_id, seq = sys.argv[1:]
    os.setpriority(os.PRIO_PROCESS, 0, NICE)
    sent = sys.stdin.buffer.read()
    start = msgspec.msgpack.decode(sent, type=Checkpoint) if sent else None
    try:
        found = anyio.run(folded, Path(database), Path(workers), session_id, int(seq), start)
    except HoldfastError:
        return 1
    sys.stdout.buffer.write(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
