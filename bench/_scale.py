"""Cases of `bench/many.py` about very many parked sessions, and about a long time."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import psycopg
from psycopg.conninfo import conninfo_to_dict

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench._fleet import p
from bench.workers import resident_mb
from holdfast.app.home import open_home
from holdfast.brain.doors import uptime
from holdfast.clock import SystemClock, boot_id
from holdfast.facts.codec import Chain, body_digest, genesis
from holdfast.facts.session import Agent, Limits, SessionCreated, Workspace
from holdfast.ids import system_entropy
from holdfast.log.postgres.connect import FOLDER
from holdfast.log.postgres.migrate import migrate
from holdfast.log.postgres.store import PostgresStore
from holdfast.log.search.index import SearchIndex, search_path
from holdfast.service.intake import Intake
from holdfast.service.posting import Caller
from tests.support.waiting import until

FEW, ASKS, BATCH = 1_000, 10, 5_000
SWEEPS, SWEEP_MS, RUNS, COMMAND_S = 50, 5.0, 5, 0.6
IDLE_S, REST_S, WORKER_SHARE, DATABASE_SHARE, GROWTH_MB = 60.0, 10.0, 0.03, 0.02, 10.0
SOAKED, SOAK_WORKERS, PER_HOUR = 200, 2, 10_000
SAMPLE_S, WINDOW, BESIDE_MB, OLDEST_S, DRIFT, LAST_S = 1.0, 1 / 15, 20.0, 60.0, 0.05, 60.0


class Ran(NamedTuple):
    """A command that ended: its exit status, its output, and its times."""

    status: int
    text: str
    wall_s: float
    cpu_s: float


class Site:
    """A home whose log is in PostgreSQL at `address`, with its commands and its workers."""

    def __init__(self, path: Path, address: str) -> None:
        self.home, self.address = open_home(path), address
        password = str(conninfo_to_dict(address)["password"])
        plain = address.replace(f":{password}@", "@")
        mine = {"HOLDFAST_HOME": str(path), "HOLDFAST_DB": plain, "PGPASSWORD": password}
        self._start = {"env": {**os.environ, **mine}, "stdin": subprocess.DEVNULL, "cwd": path.parent}

    def holdfast(self, *words: str) -> Ran:
        """Run a command to its end."""
        with tempfile.TemporaryFile("w+") as said:
            began_s = time.monotonic()
            command = [sys.executable, "-m", "holdfast", *words]
            child: Any = subprocess.Popen(command, stdout=said, stderr=said, **self._start)  # type: ignore[call-overload]
            _, status, used = os.wait4(child.pid, 0)
            wall_s, child.returncode = time.monotonic() - began_s, os.waitstatus_to_exitcode(status)
            said.seek(0)
            return Ran(child.returncode, said.read(), wall_s, used.ru_utime + used.ru_stime)

    @contextmanager
    def workers(self, count: int, *words: str) -> Iterator[tuple[list[int], list[Path]]]:
        """The processes of workers that serve, and the files with their output; they end with the block."""
        files = [self.home.logs / f"worker{number}.log" for number in range(count)]
        with ExitStack() as stack:
            pids = []
            for file in files:
                output = stack.enter_context(file.open("wb"))
                command = [sys.executable, "-m", "holdfast", "worker", *words]
                child: Any = subprocess.Popen(command, stdout=output, stderr=output, **self._start)  # type: ignore[call-overload]
                stack.callback(child.wait)
                stack.callback(child.terminate)
                pids.append(child.pid)
            until(lambda: all(b"serving" in file.read_bytes() for file in files))
            yield pids, files

    async def store(self) -> PostgresStore:
        """Open the log, as another process of this home."""
        return await PostgresStore.open(self.address, workers=self.home.workers, clock=SystemClock())

    def sql(self) -> psycopg.Connection[Any]:
        """A connection to the tables of the log."""
        return psycopg.connect(self.address, autocommit=True, options=f"-c search_path={FOLDER}")


@contextmanager
def site(address: str, path: Path) -> Iterator[Site]:
    """A home, and a database of its own on that server, named after it and dropped at the end."""
    with psycopg.connect(address, autocommit=True) as sql:
        sql.execute(f"create database {path.name}")
        try:
            made = Site(path, f"{address.rpartition('/')[0]}/{path.name}")
            migrate(made.address)
            yield made
        finally:
            sql.execute(f"drop database {path.name} with (force)")


# --- parked ----------------------------------------------------------------------------------------


TABLES = {
    "sessions": "session_id",
    "posts": "session_id",
    "accounts": "account_id",
    "trees": "root",
    "items": "session_id",
    "events": "session_id",
}
"""The tables that a session has rows in, with the column that names it. Its snapshot is a cache, and is left out."""


class Pattern:
    """A real session that waits, and copies of it with ids of their own: their chains and rows verify too."""

    def __init__(self, place: Site, tool: str, given: dict[str, Any]) -> None:
        """Run a session whose agent makes this one call, and waits."""
        script, agent = (place.home.path / f"{tool}.{end}" for end in ("json", "toml"))
        script.write_text(json.dumps({"turns": [{"tool_calls": [{"name": tool, "input": given}]}]}))
        agent.write_text(f'name = "a"\nmodel = "scripted:{script}"\ntools = ["{tool}"]\n')
        ran = place.holdfast("run", "wait", "--scratch", "--agent", str(agent), "--json")
        self._id = str(re.findall(r'"type":"result","session_id":"(\w+)"', ran.text)[0])
        self.names, self._rows = dict[str, list[str]](), dict[str, list[tuple[Any, ...]]]()
        with place.sql() as sql:
            for table, key in TABLES.items():
                order = "seq" if table == "events" else "1"
                found = sql.execute(f"select * from {table} where {key} = %s order by {order}", (self._id,))
                self.names[table] = [each.name for each in found.description or ()]
                self._rows[table] = found.fetchall()
        self._item = str(self._rows["items"][0][0]) if self._rows["items"] else ""

    def copy(self, number: int) -> dict[str, list[dict[str, Any]]]:
        """The rows of a copy by table. Ids keep their lengths, so they can be put into encoded bodies."""
        swaps = {self._id: f"ses_{number:026d}", **({self._item: f"itm_{number:08d}"} if self._item else {})}

        def swapped(value: Any) -> Any:
            for old, new in swaps.items():
                if isinstance(value, str):
                    value = value.replace(old, new)
                elif isinstance(value, bytes):
                    value = value.replace(old.encode(), new.encode())
            return value

        copied = {
            table: [dict(zip(self.names[table], map(swapped, row), strict=True)) for row in rows]
            for table, rows in self._rows.items()
        }
        chain = Chain(swaps[self._id], genesis(swaps[self._id]))
        for event in copied["events"]:
            parts = (event["seq"], event["epoch"], event["at_us"], event["type"])
            event["hash"] = chain.link(*parts, body_digest(event["body"]))
        copied["sessions"][0]["head_hash"] = chain.hash
        return copied


def fill(place: Site, count: int) -> int:
    """Make that many parked sessions: most wait for a time, and one of ASKS for an answer. Returns the latter."""
    sleeps, asks = Pattern(place, "sleep", {"seconds": 2_000_000}), Pattern(place, "ask_person", {"question": "Now?"})
    with place.sql() as sql:
        for first in range(2, count, BATCH):
            copies = [(sleeps if n % ASKS else asks).copy(n) for n in range(first, min(first + BATCH, count))]
            with sql.transaction():
                ((position,),) = sql.execute("select pg_current_xact_id()::text::bigint << 20")
                rows = {table: [row for each in copies for row in each[table]] for table in TABLES}
                for number, event in enumerate(rows["events"]):
                    event["position"] = position + number
                for table, found in rows.items():
                    with sql.cursor().copy(f"copy {table} ({', '.join(sleeps.names[table])}) from stdin") as into:
                        for row in found:
                            into.write_row(tuple(row.values()))
        sql.execute("vacuum (analyze)")
        sql.execute("checkpoint")
        ((asked,),) = sql.execute("select count(*) from items where status = 'open'")
        return int(asked)


def used_s(pid: int) -> float:
    """CPU time of a process with its children, living and dead."""
    ticks = 0
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended a moment ago
            fields = each.read_text().rpartition(")")[2].split()
            own = int(each.parent.name) == pid
            ticks += sum(map(int, fields[11 : 15 if own else 13])) if own or int(fields[1]) == pid else 0
    return ticks / os.sysconf("SC_CLK_TCK")


class Idle(NamedTuple):
    """Shares of a core that an idle worker and the database use, the worker's memory, and times of its looks."""

    worker: float
    database: float
    memory_mb: float
    sweeps_ms: list[float]
    reads_ms: list[float]


async def idle(place: Site) -> Idle:
    """Start a worker, wait until its search index is built, and measure."""
    with place.workers(1) as ((pid,), _), place.sql() as sql:
        ((postmaster,),) = sql.execute("select split_part(pg_read_file('postmaster.pid'), chr(10), 1)::int")
        async with await place.store() as store:
            index = SearchIndex(search_path(place.home.database))
            lag = 1
            while lag:
                await anyio.sleep(1.0)
                lag = (await store.look(index.lag)).events
            await anyio.sleep(REST_S)
            before, began_s = (used_s(pid), used_s(postmaster)), time.monotonic()
            await anyio.sleep(IDLE_S)
            after, spent_s = (used_s(pid), used_s(postmaster)), time.monotonic() - began_s
            memory_mb, clock = resident_mb(pid), SystemClock()
            sweeps_ms, reads_ms = list[float](), list[float]()
            for _ in range(SWEEPS):
                began_s = time.perf_counter()
                await store.due(clock.now_us(), uptime(clock, boot_id()))
                await store.next_due(clock.now_us(), uptime(clock, boot_id()))
                between_s = time.perf_counter()
                await store.account("none")
                sweeps_ms.append((between_s - began_s) * 1e3)
                reads_ms.append((time.perf_counter() - between_s) * 1e3)
            worker, database = ((late - early) / spent_s for late, early in zip(after, before, strict=True))
            return Idle(worker, database, memory_mb, sweeps_ms, reads_ms)


def commands(place: Site) -> bool:
    """Print the times of the commands that list sessions, in turns with one that does not; True if they are short."""
    ran: dict[str, list[Ran]] = {"version": [], "ps": [], "inbox": []}
    for _ in range(RUNS):
        for word, each in ran.items():
            each.append(place.holdfast(word))
    good = True
    for word, each in ran.items():
        wall_s, cpu_s = statistics.median(it.wall_s for it in each), statistics.median(it.cpu_s for it in each)
        print(
            f"  holdfast {word:7} p50 {wall_s:.2f} s (≤ {COMMAND_S}{', floor' if word == 'version' else ''}), CPU p50 "
            f"{cpu_s:.2f} s, the first time {each[0].wall_s:.2f} s"
        )
        good &= wall_s <= COMMAND_S and not any(it.status for it in each)
    return good


async def parked(address: str, home: Path, count: int) -> bool:
    """Sessions that wait, most for a time and one of ten for an answer, beside a log with few of them."""
    found, good = list[Idle](), True
    for number in (FEW, count):
        with site(address, home / f"parked{number}") as place:
            began_s = time.monotonic()
            asked = await anyio.to_thread.run_sync(fill, place, number)
            print(
                f"parked: {number:,} sessions, {asked:,} with an open question, in {time.monotonic() - began_s:.0f} s"
            )
            found.append(it := await idle(place))
            sweep, read = statistics.median(it.sweeps_ms), statistics.median(it.reads_ms)
            print(
                f"  a look for due sessions p50 {sweep:.2f} ms, p95 {p(it.sweeps_ms, 95):.2f} (≤ {SWEEP_MS:g}), floor "
                f"(a read of one row) {read:.2f}; for {IDLE_S:.0f} s an idle worker uses {it.worker:.2%} of a core "
                f"(≤ {WORKER_SHARE:.0%}), the database {it.database:.2%} (≤ {DATABASE_SHARE:.0%}); "
                f"the worker has {it.memory_mb:.1f} MB"
            )
            good &= read <= SWEEP_MS and sweep <= SWEEP_MS
            good &= it.worker <= WORKER_SHARE and it.database <= DATABASE_SHARE
            good &= await anyio.to_thread.run_sync(commands, place)
    grown_mb = found[1].memory_mb - found[0].memory_mb
    print(f"parked: memory {grown_mb:+.1f} MB against {FEW:,} sessions (≤ {GROWTH_MB:g})")
    return good and grown_mb <= GROWTH_MB


# --- soak ------------------------------------------------------------------------------------------


OLDEST = """
select coalesce(max((select now_us() - max(at_us) from events
    where events.session_id = sessions.session_id and type = 'shift.started')), 0) / 1e6
from sessions where holder <> ''
"""
SIZES = """
select relname, pg_total_relation_size(oid) / 1e6 from pg_class
where relkind = 'r' and relnamespace = current_schema()::regnamespace and relname not in ('events', 'blobs', 'posts')
order by 2 desc
"""
WAITS = """
select (shift.at_us - message.at_us) / 1e3 from events shift
join events message on message.session_id = shift.session_id and message.seq = shift.seq - 1
where shift.type = 'shift.started' and message.type = 'user.message'
"""
"""Times from a message to the shift that follows it, in milliseconds."""

QUIET = re.compile(rb"\S+ \S+Z  (serving |stopped; |\S+ is done)")
"""Lines of a worker that are no trouble."""


class Samples:
    """Samples of the memory of workers, and of the oldest shift that runs: all of them once in `SAMPLE_S`."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self.memory_mb, self.oldest_s = list[list[float]](), list[float]()

    def take(self, sql: psycopg.Connection[Any]) -> None:
        """Take one sample."""
        self.memory_mb.append([resident_mb(pid) for pid in self._pids])
        self.oldest_s.append(float(sql.execute(OLDEST).fetchone()[0]))  # type: ignore[index]

    def drifts(self) -> list[tuple[float, float]]:
        """The memory of each worker after a third of the time and at the end: medians over a fifteenth of the time."""
        count, third = max(1, round(len(self.memory_mb) * WINDOW)), len(self.memory_mb) // 3
        windows = self.memory_mb[third : third + count], self.memory_mb[-count:]
        early, late = ([statistics.median(each) for each in zip(*window, strict=True)] for window in windows)
        return list(zip(early, late, strict=True))


async def soak(address: str, home: Path, minutes: float) -> bool:
    """Sessions that are woken by messages at a steady rate, for a long time, by workers at one home."""
    with site(address, home / "soak") as place, place.workers(SOAK_WORKERS) as (pids, files), place.sql() as sql:
        async with await place.store() as store:
            intake = Intake(store, store, SystemClock(), system_entropy, Caller("user:bench"))
            script = place.home.path / "done.json"
            script.write_text('{"turns": []}')  # the model answers each message that it is done
            sessions = [await _opened(intake, place, script) for _ in range(SOAKED)]

            async def rested() -> int:
                """Wait until no session is due or runs, not for too long; the number of those that are or do."""
                token = 0
                with anyio.move_on_after(LAST_S):
                    while (await store.counts()).get("runnable"):
                        token = await store.changed(token)
                return (await store.counts()).get("runnable", 0)

            await rested()
            samples, posted, began_s = Samples(pids), 0, time.monotonic()

            async def sample() -> None:
                while True:
                    await anyio.to_thread.run_sync(samples.take, sql)
                    await anyio.sleep(SAMPLE_S)

            async with anyio.create_task_group() as group:
                group.start_soon(sample)
                while (now_s := time.monotonic() - began_s) < minutes * 60:
                    if posted > now_s * PER_HOUR / 3600:
                        await anyio.sleep(0.01)
                        continue
                    row = await store.find(sessions[posted % SOAKED])
                    await intake.send(row, f"message {posted}")
                    posted += 1
                group.cancel_scope.cancel()
            hours = (time.monotonic() - began_s) / 3600
            waiting = await rested()
        waits = [float(wait) for (wait,) in sql.execute(WAITS)]
        sizes = sql.execute(SIZES).fetchall()
    troubles = [line for file in files for line in file.read_bytes().splitlines() if not QUIET.match(line)]
    beside_mb, drifts = float(sum(size for _, size in sizes)), samples.drifts()
    print(
        f"soak: {posted:,} messages to {SOAKED} sessions in {hours * 60:.1f} min, {posted / hours:,.0f} an hour (≥ "
        f"{PER_HOUR:,}, less 1 %, or the run is invalid); {SOAK_WORKERS} workers: {len(waits):,} wakes, begun p50 "
        f"{p(waits, 50):.0f} ms, p95 {p(waits, 95):.0f} ms, {waiting} waiting; {len(troubles)} errors in their output"
    )
    for line in troubles[:5]:
        print(f"  {line.decode(errors='replace')[:200]}")
    largest = ", ".join(f"{name} {size:.1f}" for name, size in sizes[:3])
    print(
        f"  tables beside the log {beside_mb:.1f} MB (≤ {BESIDE_MB:g}; {largest}); oldest shift at work "
        f"{max(samples.oldest_s):.1f} s in {len(samples.oldest_s):,} samples, one a second (≤ {OLDEST_S:g}); memory, "
        f"medians of the samples of {WINDOW * hours * 3600:.0f} s after a third of the time and at the end: "
        + ", ".join(f"{early:.1f} and {late:.1f} MB, {late / early - 1:+.1%}" for early, late in drifts)
        + f" (± {DRIFT:.0%})"
    )
    good = posted / hours >= PER_HOUR * 0.99 and len(waits) == posted and not waiting and not troubles
    good &= beside_mb <= BESIDE_MB and max(samples.oldest_s) <= OLDEST_S
    return good and all(abs(late / early - 1) <= DRIFT for early, late in drifts)


async def _opened(intake: Intake, place: Site, script: Path) -> str:
    """Open a session in a folder of Holdfast's own."""
    session_id = intake.new_session_id()
    folder = place.home.workspaces / session_id
    folder.mkdir()
    agent, limits = Agent(model=f"scripted:{script}"), Limits(max_turns=1_000_000)
    await intake.open(session_id, SessionCreated("soak", agent, Workspace(str(folder), True), limits))
    return session_id
