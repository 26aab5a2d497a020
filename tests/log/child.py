"""A process of its own around a store: `python -m tests.log.child VERB HOME [ARGUMENT]…`.

It says what it did on standard output, a line each, and nothing before it is true.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import anyio

from holdfast.clock import SystemClock
from holdfast.errors import BudgetRefused, HeadMoved, HoldfastError
from holdfast.ids import new_event_id, new_worker_id, system_entropy
from holdfast.log.base import Lease, Post
from holdfast.log.sqlite import SqliteStore
from holdfast.log.worker_locks import Worker
from holdfast.testing.log import Scenario
from holdfast.testing.log.rig import Rig
from tests.log.rigs import SqliteRig, open_store

WORST_PICO = 1_000
"""The worst case of a request; it costs a quarter of that or more."""

FLOOR_PICO = 50
"""Nobody asks for less."""


class Child(Scenario):
    """A scenario whose event ids are unique among processes."""

    def __init__(self, home: Path, store: SqliteStore) -> None:
        rig: Rig = SqliteRig(home, store)
        super().__init__(rig)
        self.mine = Worker.start(home / "workers", new_worker_id(SystemClock().now_us(), system_entropy))

    def next_id(self) -> str:
        return new_event_id(SystemClock().now_us(), system_entropy)


def say(*words: object) -> None:
    """One line by one write: a kill leaves it out or leaves it whole."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def append(child: Child, session_id: str, epoch: str, count: str) -> None:
    """Append facts under an epoch, telling each that is acknowledged."""
    for number in range(int(count)):
        (event,) = await child.store.append(session_id, int(epoch), [child.result(f"{os.getpid()}.{number}")])
        say(event.seq, event.id)


async def crowd(child: Child, session_id: str, epoch: str, writers: str, count: str) -> None:
    """Many tasks append at once, and some of them ask for what is refused."""

    async def writer() -> None:
        for _ in range(int(count)):
            (event,) = await child.store.append(session_id, int(epoch), [child.result()])
            say(event.seq, event.id)
            await child.refused(HeadMoved, child.store.append(session_id, int(epoch), [child.result()], head=1))

    async with anyio.create_task_group() as group:
        for _ in range(int(writers)):
            group.start_soon(writer)


async def post(child: Child, session_id: str, count: str) -> None:
    """Post messages, telling each that is taken."""
    for number in range(int(count)):
        receipt = await child.say(session_id, f"{os.getpid()}.{number}")
        say(receipt.seq, "posted")


async def create(child: Child, key: str) -> None:
    """Open a session by key, telling which it is."""
    receipt = await child.open(f"ses_{os.getpid()}", key=key)
    say(receipt.session_id, receipt.duplicate)


async def hold(child: Child, session_id: str) -> None:
    """Take the lease; append a fact for every line that comes, telling what became of it."""
    lease = await child.store.acquire(session_id, child.shift(child.mine.worker_id))
    say("held", lease.epoch, child.mine.worker_id)
    await told(child, lease)


async def told(child: Child, lease: Lease) -> None:
    while await anyio.to_thread.run_sync(sys.stdin.readline):
        try:
            (event,) = await child.append(lease, child.result())
            say("appended", event.seq)
        except HoldfastError as error:
            say(type(error).__name__)


async def parent(child: Child, session_id: str) -> None:
    """Take the lease and leave a process behind, as a supervisor is."""
    await child.store.acquire(session_id, child.shift(child.mine.worker_id))
    say("left", leave())
    await anyio.sleep_forever()


async def spend(child: Child, name: str) -> None:
    """Rounds of two lines: hold a request under the account that the first names, and with the second settle it
    and spend on until nothing fits any more.
    """
    token = await child.store.changed(0)
    while root := (await anyio.to_thread.run_sync(sys.stdin.readline)).strip():
        mine = f"{root}_{name}"
        await child.open(mine, accounts=(mine, root))
        lease = await child.store.acquire(mine, child.shift(child.mine.worker_id))
        wanted, spent, refused, chance = WORST_PICO, 0, 0, random.Random(mine)
        (start,) = await child.append(lease, child.request(wanted))
        say("holds")
        await anyio.to_thread.run_sync(sys.stdin.readline)
        while wanted >= FLOOR_PICO:
            cost = chance.randint(wanted // 4, wanted)
            await child.append(lease, child.response(start.seq, cost))
            spent += cost
            while wanted >= FLOOR_PICO:
                try:
                    (start,) = await child.append(lease, child.request(wanted))
                    break
                except BudgetRefused as error:
                    refused += 1
                    if error.held_pico:  # somebody is about to give something back
                        token = await child.store.changed(token)
                    else:
                        wanted = min(wanted, error.left_pico)
        await child.store.release(lease)
        say("spent", spent, refused)


async def scatter(child: Child, session_id: str, epoch: str, count: str) -> None:
    """Append with posts to two other sessions and a new one, telling each that is acknowledged."""
    for number in range(int(count)):
        key = f"{os.getpid()}.{number}"
        posts = [Post(other, key, child.message(key)) for other in ("ses_b", "ses_c")]
        posts.append(Post(f"ses_{key}", "created", child.created(accounts=(f"ses_{key}", session_id))))
        (event,) = await child.store.append(session_id, int(epoch), [child.result(key)], posts=posts)
        say(event.seq, event.id)


def leave() -> int:
    return subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL).pid


async def limited(child: Child, session_id: str, epoch: str, size: str) -> None:
    """Append under a limit of file size, until it is refused."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))
    await append(child, session_id, epoch, "100000")


async def main(verb: str, home: Path, *rest: str) -> int:
    try:
        async with await open_store(home) as store:
            await VERBS[verb](Child(home, store), *rest)
    except HoldfastError as error:
        say(type(error).__name__)
        return error.exit_code
    return 0


VERBS = {each.__name__: each for each in (append, crowd, post, create, hold, parent, spend, scatter, limited)}

if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
