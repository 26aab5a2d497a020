"""A log that many machines share, on a PostgreSQL of its own that syncs to the disk.

python bench/many.py [append] [kill] [zombie] [partition] [restart] [cut] [missions] [wake] [burst] [drain] [storm]
    [fair] [rate] [rings] [lost] [promote] [parked] [soak] [--rounds N] [--parked N] [--minutes N]

append: an append begins a transaction, locks the session, checks the epoch, extends the chain, updates its rows, and
commits. A bare insert writes the same bytes to a table of the same database, in one statement that commits. The two
take turns, through the same hop from the event loop, with 1 and 16 writers. Target: p50 of an append by one writer
≤ 1.8 × that of a bare insert.

kill: the holder of 20 sessions is killed. Target: p95 until another worker has them ≤ 10 s elsewhere, ≤ 2 s in the same
place.
zombie: it is stopped for two lifetimes and runs again. Target: it appends nothing, p95 of the takeover ≤ 10 s.
partition: nothing passes between it and the database, both ways or one way. Target: as above, and it begins nothing.

restart: the database is killed, and away for 5 and 60 s, while a rival wants the sessions. Target: each append that was
acknowledged is there once, none fails, ≤ 10 % of the leases move (5 s), the first append ≤ 5 s after.
missions: as `restart`, while two workers run 20 missions. Target: all are done with each step once, without an error,
≤ 10 % of the leases move (5 s), the first append ≤ 5 s after.
cut: all connections are cut every 0.7 s for a minute. Target: as above, ≤ 15 % of the leases move.

wake: a post makes a session due, and one of four workers at homes of their own begins it, idle and beside 8 writers; in
turns with a bare notification to one process that takes the session. Target: p50 ≤ 2.5 × that.
burst: 2,000 timers are due at one instant. Target: all begun within 60 s.
drain: a worker with 14 sessions is asked to end. Target: gone within 10 s, p95 elsewhere ≤ 3 s.
storm: 50 processes want one session, 20 times. Target: one shift at a time, none fenced.
fair: 5,000 sessions of one project are due and 10 of another, and at most 10 of each may run. Target: those wait p95
≤ 2 shifts, and no sample finds more than 10 of one.
rate: sessions of four workers ask one model as fast as they may, at most 60 times a minute and 6 times at once. Target:
never more than 66 in a minute, ≥ 95 % used.
rings: 16 clients post to sessions that are due, with a ring after each commit and without one, in turns. Target: ≥ 45 %
of the rate without.

lost: a machine is lost with its processes and its home, with 100 MB in a session's workspace; another one continues
it. Target: the session has its sandbox there within 10 s and 50 MB/s, with the same bytes, and the model was told.

promote: 16 writers append while the primary is killed and its synchronous standby is promoted, 3 times; beside them,
one inserts into a table. Target: no acknowledged event is lost or doubled; `doctor` refuses an asynchronous standby.
parked: 100,000 sessions wait, 10,000 of them for an answer. Target: a look for due sessions ≤ 5 ms, an idle worker ≤
3 % of a core and the database ≤ 2 %, memory within 10 MB of that with 1,000 sessions, `ps` and `inbox` ≤ 0.6 s.
soak: 2 workers wake 200 sessions 10,000 times an hour, for 30 minutes. Target: each message begins a shift, no errors,
tables beside the log ≤ 20 MB, no shift older than 60 s, memory ± 5 % between a third of the time and the end.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import psycopg

from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError
from holdfast.facts.codec import Draft, Event, encode_body, genesis
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import ShiftStarted
from holdfast.facts.tool import ToolResult
from holdfast.log.base import Lease, Post
from holdfast.log.postgres.beats import TTL_S
from holdfast.log.postgres.connect import FOLDER, Connection, connect
from holdfast.log.postgres.migrate import migrate
from holdfast.log.postgres.store import PostgresStore
from holdfast.log.sql.threads import ConnectionThread
from holdfast.log.worker_locks import Worker

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench._fleet import CASES as FLEET
from bench._leases import CASES, Case
from bench._lost import lost
from bench._missions import missions
from bench._outages import CASES as OUTAGES
from bench._scale import Site, parked, soak
from tests.log.elsewhere import There, opened
from tests.log.rigs import PostgresRig
from tests.support.databases import demand_standby, free_port, postgres_server, standby_of
from tests.support.databases import promote as promote_standby
from tests.support.waiting import until

SEED = 1
WRITERS = 16
PER_ROUND = 10
SIZE = 1_024
RATIO_TARGET = 1.8
PASSWORD = "bench"
FAILOVERS, PHASE_S = 3, 5.0
BARE = "insert into bare (body) values (%s)"


class Appends:
    """A store, a shift on each of its sessions, and drafts."""

    def __init__(self, store: PostgresStore, workers: Path) -> None:
        self.store = store
        self._worker = Worker.start(workers, "wrk_bench")
        self._source = random.Random(SEED)
        self._count = 0

    def draft(self) -> Draft:
        """A tool result of about the size."""
        text = "".join(self._source.choices("abcdefghij ", k=SIZE - 200))
        return self._stamped(ToolResult(call_id="1.0", outcome="ok", content=text))

    async def lease(self, session_id: str) -> Lease:
        """A new session and a shift on it."""
        created = SessionCreated(
            goal="measure", agent=Agent(model="scripted:x"), workspace=Workspace(path="/srv"), accounts=(session_id,)
        )
        await self.store.post(Post(session_id, "created", self._stamped(created)), create=True)
        started = ShiftStarted(worker_id=self._worker.worker_id, host_id="h", boot_id="b", pid=1, program="bench")
        return await self.store.acquire(session_id, self._stamped(started))

    def _stamped(self, fact: ToolResult | SessionCreated | ShiftStarted) -> Draft:
        self._count += 1
        return Draft(f"evt_{self._count:026d}", "brain", fact)

    async def append(self, lease: Lease, drafts: list[Draft], took_ms: list[float]) -> None:
        """Append drafts one after the other."""
        for draft in drafts:
            start = time.perf_counter()
            await self.store.append(lease.session_id, lease.epoch, [draft])
            took_ms.append((time.perf_counter() - start) * 1e3)


async def insert(threads: ConnectionThread[Connection], bodies: list[bytes], took_ms: list[float]) -> None:
    """Insert bodies one after the other, each durable."""
    for body in bodies:
        start = time.perf_counter()
        await threads.run(lambda body=body: threads.connection().execute(BARE, (body,)))  # type: ignore[misc]
        took_ms.append((time.perf_counter() - start) * 1e3)


async def appends(address: str, home: Path, rounds: int) -> bool:
    """Print the table of appends; returns True if the target holds."""
    migrate(address)
    threads = ConnectionThread("bench-bare", lambda: connect(address), 8)
    await threads.run(lambda: threads.connection().execute("create table bare (id bigserial primary key, body bytea)"))
    good = True
    async with await PostgresStore.open(address, workers=home / "workers", clock=SystemClock()) as store:
        bench = Appends(store, home / "workers")
        leases = [await bench.lease(f"ses_{number:02d}") for number in range(WRITERS)]
        print("append, ms       n   ours p50    p99   bare p50    p99   ratio p50   ours/s  bare/s")
        for writers in (1, WRITERS):
            ours: list[float] = []
            bare: list[float] = []
            spent_s = [0.0, 0.0]
            for number in range(rounds + 2):
                work = [[bench.draft() for _ in range(PER_ROUND)] for _ in range(writers)]
                if number == 2:  # the statements are prepared
                    ours.clear()
                    bare.clear()
                    spent_s = [0.0, 0.0]
                start = time.perf_counter()
                async with anyio.create_task_group() as group:
                    for lease, drafts in zip(leases, work, strict=False):
                        group.start_soon(bench.append, lease, drafts, ours)
                between = time.perf_counter()
                async with anyio.create_task_group() as group:
                    for drafts in work:
                        group.start_soon(insert, threads, [encode_body(draft) for draft in drafts], bare)
                spent_s[0] += between - start
                spent_s[1] += time.perf_counter() - between
            ratio = statistics.median(ours) / statistics.median(bare)
            good &= writers > 1 or ratio <= RATIO_TARGET
            print(
                f"{writers:3d} writers {len(ours):6d} {statistics.median(ours):9.3f} {p99(ours):7.2f}"
                f" {statistics.median(bare):9.3f} {p99(bare):7.2f} {ratio:10.2f}"
                f" {len(ours) / spent_s[0]:9.0f} {len(bare) / spent_s[1]:7.0f}"
            )
    await threads.close()
    return good


class Writing:
    """Writers that append through one store until they are stopped, and a bare one as the floor.

    `heard` are the events that were acknowledged, `bare` the numbers of acknowledged inserts into a table.
    """

    def __init__(self, case: There, address: str) -> None:
        self.heard, self.bare, self.errors = list[Event](), list[int](), Counter[str]()
        self.ended = threading.Event()
        self._case, self._address = case, address

    async def write(self, session_id: str) -> None:
        """Append to a new session, one event after the other."""
        await self._case.begin(session_id, own=False)
        lease = await self._case.take(session_id)
        while not self.ended.is_set():
            try:
                self.heard += await self._case.append(lease, self._case.result())
            except HoldfastError as error:
                self.errors[type(error).__name__] += 1

    def insert(self) -> None:
        """Insert numbers into the table `bare`, on another connection after each failure."""
        number = 0
        while not self.ended.is_set():
            try:
                with psycopg.connect(self._address, autocommit=True) as sql:
                    while not self.ended.is_set():
                        number += 1
                        sql.execute("insert into bare (id, body) values (%s, '')", (number,))
                        self.bare.append(number)
            except psycopg.Error:
                self.ended.wait(0.05)

    async def check(self) -> bool:
        """Print how much of what was acknowledged is not there, or twice; True if nothing. Chains are verified."""
        heard, bare = list(self.heard), list(self.bare)
        sessions = sorted({event.session_id for event in heard})
        stored = [event for each in sessions for event in await self._case.store.read(each, prev=genesis(each))]
        lost = len({event.hash for event in heard} - {event.hash for event in stored})
        doubled = len(stored) - len({event.id for event in stored})
        with psycopg.connect(self._address) as sql:
            floor = len(set(bare) - {number for (number,) in sql.execute("select id from bare")})
        print(
            f"{'':9} {len(heard):,} events acknowledged so far, {lost} lost, {doubled} doubled, {self.errors.total()} "
            f"errors; floor: {len(bare):,} bare inserts acknowledged, {floor} lost"
        )
        return not (lost or doubled or self.errors or floor)


async def promote(address: str, home: Path) -> bool:
    """Writers go on while their primary is killed and its synchronous standby is promoted, again and again."""
    ports, good = [free_port() for _ in range(FAILOVERS + 1)], True
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    anywhere = f"postgresql://duty:{PASSWORD}@{hosts}/postgres?target_session_attrs=read-write"
    with ExitStack() as nodes:
        primary = nodes.enter_context(ExitStack())
        plain = primary.enter_context(postgres_server(home / "node0", ports[0], PASSWORD, durable=True))
        migrate(anywhere)
        with psycopg.connect(anywhere, autocommit=True) as sql:
            sql.execute("create table bare (id bigint primary key, body bytea)")
        async with opened(anywhere, FOLDER, home / "writers", TTL_S) as store, anyio.create_task_group() as group:
            writing = Writing(There(PostgresRig(anywhere, FOLDER, home / "writers", store)), anywhere)
            for number in range(WRITERS):
                group.start_soon(writing.write, f"ses_{number:02d}")
            group.start_soon(anyio.to_thread.run_sync, writing.insert)
            try:
                for number in range(1, FAILOVERS + 1):
                    standby = nodes.enter_context(ExitStack())
                    copy = standby_of(plain, home / f"node{number}", ports[number], PASSWORD, durable=True)
                    follows = await anyio.to_thread.run_sync(standby.enter_context, copy)
                    site = Site(home / f"doctor{number}", plain.replace("@", f":{PASSWORD}@"))
                    good &= await fail_over(writing, site, primary, follows.replace("@", f":{PASSWORD}@"))
                    primary, plain = standby, follows
            finally:
                writing.ended.set()
    return good


async def fail_over(writing: Writing, site: Site, primary: ExitStack, standby: str) -> bool:
    """Have `doctor` look at a standby before and after it is synchronous, kill its primary, and promote it."""
    refused = await diagnosed(site, "1 of its standbys follow asynchronously", (5,))
    demand_standby(site.address)
    accepted = await diagnosed(site, "what it acknowledges is safe")
    await anyio.sleep(PHASE_S)
    primary.close()
    killed_s, least = time.monotonic(), len(writing.heard) + WRITERS
    await anyio.to_thread.run_sync(promote_standby, standby)
    promoted_s = time.monotonic() - killed_s
    await anyio.to_thread.run_sync(until, lambda: len(writing.heard) > least)
    print(
        f"promote: `doctor` refuses an asynchronous standby: {refused}, accepts a synchronous one: {accepted}; promoted"
        f" {promoted_s:.1f} s after the kill, appends go on after {time.monotonic() - killed_s:.1f} s"
    )
    await anyio.sleep(PHASE_S)
    return await writing.check() and refused and accepted


async def diagnosed(site: Site, text: str, statuses: tuple[int, ...] = (0, 5)) -> bool:
    """Return True once `doctor` says that and ends so: a standby may have begun to follow a moment ago.

    It ends with 5 too where nothing isolates.
    """
    for _ in range(20):
        ran = await anyio.to_thread.run_sync(site.holdfast, "doctor")
        if text in ran.text and ran.status in statuses:
            return True
        await anyio.sleep(0.2)
    return False


def p99(values: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(values, n=100)[98]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="which (default: all)")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--parked", type=int, default=100_000, help="sessions of the case `parked`")
    parser.add_argument("--minutes", type=float, default=30.0, help="time of the case `soak`")
    given = parser.parse_args()
    cases: dict[str, Case] = {
        "append": partial(appends, rounds=given.rounds),
        **CASES,
        **OUTAGES,
        "missions": missions,
        **FLEET,
        "lost": lost,
        "promote": promote,
        "parked": partial(parked, count=given.parked),
        "soak": partial(soak, minutes=given.minutes),
    }
    if unknown := set(given.cases) - cases.keys():
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    good = True
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        with postgres_server(
            Path(folder) / "postgres", free_port(), PASSWORD, durable=True, connections=400
        ) as address:
            for name in given.cases or cases:
                good &= anyio.run(cases[name], address.replace("@", f":{PASSWORD}@"), Path(folder))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
