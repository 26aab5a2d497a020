"""A worker of a fleet, as a process: `python -m tests.log.fleet ADDRESS FOLDER HOME LIMIT HOLD_S`.

It serves due sessions: it takes each, holds it for a time, and parks it. It says `took SESSION EPOCH TIME` with the
time since the start of the machine, `held` for one that another worker took first, and `left` at its end. With a limit
of 0 it serves none: it takes each session that the notification `bare` names, which is the least that any bell costs.
"""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.from_thread
import anyio.to_thread

from holdfast.brain.shift import alongside
from holdfast.clock import SystemClock, boot_s
from holdfast.errors import Fenced, HeadMoved, HoldfastError, LeaseHeld, TooMany
from holdfast.fleet.dispatch import Handler
from holdfast.fleet.serve import SHARED_LOOK_S, Service, Share
from holdfast.ids import new_worker_id, system_entropy
from holdfast.log.postgres.beats import TTL_S
from holdfast.log.postgres.connect import connect
from holdfast.log.worker_locks import Worker
from holdfast.session.rows import is_due
from tests.log.child import say
from tests.log.elsewhere import There, opened
from tests.log.processes import ROOT, line
from tests.log.rigs import PostgresRig
from tests.support.waiting import PATIENCE_S


async def main(address: str, folder: str, home: Path, limit: int, hold_s: float) -> None:
    clock = SystemClock()
    async with opened(address, folder, home, TTL_S) as store:
        case = There(PostgresRig(address, folder, home, store))
        mine = Worker.start(home / "workers", new_worker_id(clock.now_us(), system_entropy))
        await store.enroll(mine.worker_id, limit)

        async def handle(session_id: str) -> None:
            try:
                row = await store.find(session_id)
                if not is_due(row, clock.now_us()):
                    return
                lease = await store.acquire(session_id, case.shift(mine.worker_id), head=row.head)
            except HeadMoved:
                return  # as a brain, which would look again
            except (LeaseHeld, TooMany) as error:
                say("held" if isinstance(error, LeaseHeld) else "limited", session_id, 0, 0)
                raise
            say("took", session_id, lease.epoch, f"{boot_s():.6f}")
            try:
                await anyio.sleep(hold_s)
                await case.append(lease, case.result())
                await case.append(lease, case.parked("person"))
            except Fenced:
                say("fenced", session_id, lease.epoch, 0)
            finally:
                with anyio.CancelScope(shield=True):
                    await store.release(lease)

        async def names() -> tuple[list[str], list[str]]:
            rows = [row for row in await store.fleet() if row.capacity]
            return [row.worker_id for row in rows if row.place == store.place_id], [row.worker_id for row in rows]

        def failed(session_id: str, error: HoldfastError, again_s: float | None) -> None:
            say("error", session_id or "-", 0, type(error).__name__)

        service = Service(
            store,
            clock,
            boot_id="",
            limit=limit,
            on_error=failed,
            share=Share(mine.worker_id, names, clock, lambda: store.free),
            look_s=SHARED_LOOK_S,
        )
        store.listen(service.ring)

        bare = partial(anyio.to_thread.run_sync, _hear, address, folder, handle, abandon_on_cancel=True)
        say("ready", "-", 0, 0)

        async def until_terminated() -> None:
            with anyio.open_signal_receiver(signal.SIGTERM) as signals:
                async for _ in signals:
                    return

        await alongside(until_terminated, (lambda: service.run(handle)) if limit else bare)
        mine.close()
    say("left", "-", 0, f"{boot_s():.6f}")


def _hear(address: str, folder: str, handle: Handler) -> None:
    """Handle each session that a bare notification names."""

    async def take(session_id: str) -> None:
        await handle(session_id)

    with connect(address, folder) as listens:
        listens.execute("listen bare")
        for note in listens.notifies():
            anyio.from_thread.run(take, note.payload)


class Said(NamedTuple):
    """A line of a worker: what it did with which session, under which epoch, and when."""

    what: str
    session: str
    epoch: int
    at_s: float


class Ears:
    """Reads what all workers say."""

    def __init__(self, children: list[subprocess.Popen[str]]) -> None:
        self.lines: queue.SimpleQueue[Said] = queue.SimpleQueue()
        self.counts: Counter[str] = Counter()
        for child in children:
            threading.Thread(target=self._listen, args=(child,), daemon=True).start()

    def _listen(self, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        for text in child.stdout:
            what, session, epoch, rest = text.split()
            self.counts[what] += 1
            at_s = float(rest) if rest.replace(".", "").isdigit() else 0.0
            self.lines.put(Said(what, session, int(epoch), at_s))

    def next(self, what: str) -> Said:
        """The next line of that kind."""
        while True:
            said = self.lines.get(timeout=PATIENCE_S)
            if said.what == what:
                return said

    def several(self, what: str, count: int) -> list[Said]:
        """The next lines of that kind."""
        return [self.next(what) for _ in range(count)]


@contextmanager
def fleet(
    address: str, folder: str, homes: list[Path], *, limit: int, hold_s: float = 0.0
) -> Iterator[list[subprocess.Popen[str]]]:
    """Workers, one at each home, that are ready."""
    with ExitStack() as stack:
        children = []
        for home in homes:
            command = [sys.executable, "-m", "tests.log.fleet", address, folder, str(home), str(limit), str(hold_s)]
            child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            stack.callback(child.communicate)
            stack.callback(child.kill)
            children.append(child)
        for child in children:
            assert line(child)[0] == "ready"
        yield children


if __name__ == "__main__":
    address, folder, home, limit, hold_s = sys.argv[1:]
    anyio.run(main, address, folder, Path(home), int(limit), float(hold_s))
