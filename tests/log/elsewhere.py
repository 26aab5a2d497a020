"""A worker of another place, as a process: `python -m tests.log.elsewhere ADDRESS FOLDER HOME TTL_S SESSION…`.

It takes the leases of the sessions, then reads lines: `act` confirms each lease and appends, `record` only appends,
`take` takes the leases again, `hang` stops the event loop for two lifetimes. It says what became of that, a line each.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import msgspec

from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError
from holdfast.facts.session import Parent, SessionCreated, Workspace
from holdfast.ids import new_event_id, new_worker_id, system_entropy
from holdfast.log.base import Lease, Post
from holdfast.log.postgres.places import Place
from holdfast.log.postgres.store import PostgresStore
from holdfast.log.worker_locks import Worker
from holdfast.testing.log import Scenario
from tests.log.child import say
from tests.log.processes import ROOT, line
from tests.log.rigs import PostgresRig

TTL_S = 2.0


class There(Scenario):
    """A scenario whose ids are unique among processes."""

    def next_id(self) -> str:
        return new_event_id(SystemClock().now_us(), system_entropy)

    async def begin(self, session_id: str, *, above: str = "", own: bool = True, project: str = "") -> None:
        """Open a session of a project, in a folder of Holdfast or of a user, and below another session."""
        accounts = (session_id, f"project:{project}") if project else ()
        draft = self.created(parent=Parent(above, "call_1", 1) if above else None, accounts=accounts)
        assert isinstance(draft.fact, SessionCreated)
        fact = msgspec.structs.replace(draft.fact, workspace=Workspace("/srv/work", disposable=own))
        await self.store.post(Post(session_id, "created", self.draft(fact)), create=True)


def opened(
    address: str, folder: str, home: Path, ttl_s: float, *, keeps: bool = True, settings: str = "{}"
) -> PostgresStore:
    """A store whose place is named after its home. With `keeps`, what works there can go on elsewhere."""
    workers = home / "workers"
    workers.mkdir(parents=True, exist_ok=True)
    place = Place(f"plc_{home.name}", f"boot {home}", keeps, "host", "test", settings)
    return PostgresStore(address, workers, SystemClock(), system_entropy, folder, 60.0, place, ttl_s)


@asynccontextmanager
async def at(rig: PostgresRig, home: Path, settings: str = "{}") -> AsyncIterator[There]:
    """A store at a place of its own, in this process."""
    async with opened(rig.address, rig.folder, home, TTL_S, settings=settings) as store:
        yield There(PostgresRig(rig.address, rig.folder, home, store))


def store_of(case: There) -> PostgresStore:
    """The store itself, with what only it has."""
    assert isinstance(case.store, PostgresStore)
    return case.store


@contextmanager
def holder(
    rig: PostgresRig, home: Path, ttl_s: float, address: str = "", sessions: Sequence[str] = ("ses_a",)
) -> Iterator[subprocess.Popen[str]]:
    """A process at a place of its own that took the sessions."""
    given = [address or rig.address, rig.folder, str(home), str(ttl_s), *sessions]
    command = [sys.executable, "-m", "tests.log.elsewhere", *given]
    child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        for _ in sessions:
            assert line(child)[0] == "took"
        yield child
    finally:
        child.kill()
        child.communicate()


async def main(address: str, folder: str, home: str, ttl_s: float, sessions: list[str]) -> None:
    async with opened(address, folder, Path(home), ttl_s) as store:
        case = There(PostgresRig(address, folder, Path(home), store))
        mine = Worker.start(Path(home) / "workers", new_worker_id(SystemClock().now_us(), system_entropy))
        leases: dict[str, Lease] = {}

        async def do(verb: str, session_id: str) -> None:
            try:
                if verb == "take":
                    leases[session_id] = await store.acquire(session_id, case.shift(mine.worker_id))
                    say("took", leases[session_id].epoch, mine.worker_id)
                    return
                if verb == "act":
                    await store.confirm(leases[session_id])
                (event,) = await case.append(leases[session_id], case.result())
                say(verb, event.seq)
            except HoldfastError as error:
                say(type(error).__name__)

        verb = "take"
        while verb:
            if verb == "hang":
                time.sleep(2 * ttl_s)  # noqa: ASYNC251
                say("hung")
            else:
                for session_id in sessions:
                    await do(verb, session_id)
            verb = (await anyio.to_thread.run_sync(sys.stdin.readline)).strip()


if __name__ == "__main__":
    address, folder, home, ttl_s, *sessions = sys.argv[1:]
    anyio.run(main, address, folder, home, float(ttl_s), sessions)
