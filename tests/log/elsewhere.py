"""A worker of another place, as a process: `python -m tests.log.elsewhere ADDRESS FOLDER HOME TTL_S`.

It takes the lease of `ses_a`, then reads lines: `act` confirms the lease and appends, `record` only appends, `take`
takes the lease again, `hang` stops the event loop for two lifetimes. It says what became of that, a line each.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import anyio

from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError
from holdfast.ids import new_event_id, new_worker_id, system_entropy
from holdfast.log.base import Lease
from holdfast.log.postgres.store import PostgresStore
from holdfast.log.worker_locks import Worker
from holdfast.testing.log import Scenario
from tests.log.child import say
from tests.log.rigs import PostgresRig


class There(Scenario):
    """A scenario whose ids are unique among processes."""

    def next_id(self) -> str:
        return new_event_id(SystemClock().now_us(), system_entropy)


def opened(address: str, folder: str, home: Path, ttl_s: float) -> PostgresStore:
    """A store whose place is named after its home."""
    workers = home / "workers"
    workers.mkdir(parents=True, exist_ok=True)
    return PostgresStore(address, workers, SystemClock(), system_entropy, folder, 60.0, f"plc_{home.name}", ttl_s)


async def main(address: str, folder: str, home: str, ttl_s: str) -> None:
    async with opened(address, folder, Path(home), float(ttl_s)) as store:
        case = There(PostgresRig(address, folder, Path(home), store))
        mine = Worker.start(Path(home) / "workers", new_worker_id(SystemClock().now_us(), system_entropy))

        async def take() -> Lease:
            lease = await store.acquire("ses_a", case.shift(mine.worker_id))
            say("took", lease.epoch, mine.worker_id)
            return lease

        lease = await take()
        while verb := (await anyio.to_thread.run_sync(sys.stdin.readline)).strip():
            try:
                if verb == "take":
                    lease = await take()
                    continue
                if verb == "hang":
                    time.sleep(2 * float(ttl_s))  # noqa: ASYNC251
                    say("hung")
                    continue
                if verb == "act":
                    await store.confirm(lease)
                (event,) = await case.append(lease, case.result())
                say(verb, event.seq)
            except HoldfastError as error:
                say(type(error).__name__)


if __name__ == "__main__":
    address, folder, home, ttl_s = sys.argv[1:]
    anyio.run(main, address, folder, home, ttl_s)
