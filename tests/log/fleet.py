"""A worker of a fleet, as a process: `python -m tests.log.fleet ADDRESS FOLDER HOME LIMIT HOLD_S`.

It serves due sessions: it takes each, holds it for a time, and parks it. It says `took SESSION EPOCH TIME` with the
time since the start of the machine, `held` for one that another worker took first, and `left` at its end. With a limit
of 0 it serves none: it takes each session that the notification `bare` names, which is the least that any bell costs.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.to_thread

from holdfast.brain.shift import alongside
from holdfast.clock import SystemClock, boot_s
from holdfast.errors import Fenced, HoldfastError, LeaseHeld
from holdfast.fleet.serve import SHARED_LOOK_S, Service, Share
from holdfast.ids import new_worker_id, system_entropy
from holdfast.log.postgres.beats import TTL_S
from holdfast.log.postgres.connect import connect
from holdfast.log.worker_locks import Worker
from tests.log.child import say
from tests.log.elsewhere import There, opened
from tests.log.processes import ROOT, line
from tests.log.rigs import PostgresRig


async def main(address: str, folder: str, home: Path, limit: int, hold_s: float) -> None:
    clock = SystemClock()
    async with opened(address, folder, home, TTL_S) as store:
        case = There(PostgresRig(address, folder, home, store))
        mine = Worker.start(home / "workers", new_worker_id(clock.now_us(), system_entropy))
        await store.enroll(mine.worker_id, limit)

        async def handle(session_id: str) -> None:
            try:
                lease = await store.acquire(session_id, case.shift(mine.worker_id))
            except LeaseHeld:
                say("held", session_id, 0, 0)
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

        async def names() -> list[str]:
            return [row.worker_id for row in await store.fleet() if row.capacity and row.place == store.place_id]

        def failed(session_id: str, error: HoldfastError, again_s: float | None) -> None:
            say("error", session_id or "-", 0, type(error).__name__)

        service = Service(
            store,
            clock,
            boot_id="",
            limit=limit,
            on_error=failed,
            share=Share(mine.worker_id, names, clock),
            look_s=SHARED_LOOK_S,
        )
        store.listen(service.ring)

        def listen() -> None:
            with connect(address, folder) as listens:
                listens.execute("listen bare")
                for note in listens.notifies():
                    anyio.from_thread.run(handle, note.payload)

        async def bare() -> None:
            await anyio.to_thread.run_sync(listen, abandon_on_cancel=True)

        say("ready", "-", 0, 0)

        async def until_terminated() -> None:
            with anyio.open_signal_receiver(signal.SIGTERM) as signals:
                async for _ in signals:
                    return

        await alongside(until_terminated, (lambda: service.run(handle)) if limit else bare)
        mine.close()
    say("left", "-", 0, f"{boot_s():.6f}")


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
