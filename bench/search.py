"""Cost of search: appends with the index filled beside them, its size and lag, searches and pages.

    python bench/search.py [--sessions N] [--seconds S] [--rounds N]

The home has seeded synthetic sessions, 10,000 by default, of about 34 events. Appends of 20 sessions alternate between
spells with the filler and spells without it. Each latency is printed with its CPU time and beside a floor, in turns
with it: the wall time of 10 ms of CPU time in a thread of this process. Targets: append p50 with the filler ≤ 1.05 ×
without, lag p95 ≤ 1 s, searches and pages p95 ≤ 50 ms. A figure whose floor is above its target is invalid, not missed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from holdfast.clock import SystemClock
from holdfast.facts.base import Text
from holdfast.facts.codec import Draft
from holdfast.facts.people import UserMessage
from holdfast.log.base import Post, Which
from holdfast.log.search.index import SearchIndex, search_path
from holdfast.log.sqlite.store import SqliteStore
from holdfast.service.filters import matching, parse
from holdfast.service.inbox import inbox
from holdfast.service.search import keep_filled, parse_search, search
from holdfast.service.sessions import sessions
from tests.support.synthetic.home import BEGIN_US, fill_home

SEED = 1
WRITERS = 20
PAUSE_S = 0.1
FLOOR_S = 0.01
RATIO_TARGET, LAG_TARGET_S, LATENCY_TARGET_MS = 1.05, 1.0, 50.0
QUERIES = (
    "pytest",
    "failed",
    "job-77",
    '"def ba"',
    "read is:failed",
    "bash* older:30d",
    "tests is:parked",
    "FAILED def",
)
FILTERS = ("is:parked", "for:approval", "older:30d", "newer:2d", "job-9", "spend:>1", "is:running")

Call = Callable[[], Awaitable[object]]


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(values, n=20)[18]


def compute() -> None:
    """Take 10 ms of CPU time."""
    until = time.thread_time() + FLOOR_S
    while time.thread_time() < until:
        hashlib.sha256(b"floor" * 100).digest()


class Bench:
    """A store with its index, and whether all targets hold."""

    def __init__(self, store: SqliteStore, index: SearchIndex) -> None:
        self.store = store
        self.index = index
        self.good = True
        self.count = 0
        self.chance = random.Random(SEED)

    def check(self, holds: bool, floor_holds: bool = True) -> str:
        """Return the verdict on a target."""
        if not floor_holds:
            return "INVALID: the floor is above the target"
        self.good &= holds
        return "met" if holds else "MISSED"

    async def append(self, session_id: str) -> float:
        """Append a message of 200 words; return the milliseconds."""
        self.count += 1
        text = " ".join(f"w{self.chance.randrange(20_000)}" for _ in range(200))
        name = f"evt_{self.count:026d}"
        post = Post(session_id, name, Draft(name, "user:ann", UserMessage(content=(Text(text),))))
        start = time.perf_counter()
        await self.store.post(post)
        return (time.perf_counter() - start) * 1e3

    async def appends(self, seconds: float, rounds: int) -> None:
        """Print appends with the filler and without it, in turns, and the lag of the index meanwhile."""
        ids = [row.session_id for row in await self.store.sessions(limit=WRITERS)]
        spent: dict[bool, list[float]] = {True: [], False: []}
        lags: list[float] = []

        async def write(session_id: str, filling: bool) -> None:
            while True:
                spent[filling].append(await self.append(session_id))
                await anyio.sleep(self.chance.uniform(0, 2 * PAUSE_S))

        async def watch(filling: bool) -> None:
            while True:
                lag = await self.store.look(self.index.lag)
                if filling:
                    lags.append((SystemClock().now_us() - lag.since_us) / 1e6 if lag.events else 0.0)
                await anyio.sleep(0.1)

        for number in range(2 * rounds):
            filling = bool(number % 2)
            with anyio.move_on_after(seconds):
                async with anyio.create_task_group() as group:
                    if filling:
                        group.start_soon(keep_filled, self.store, self.index, SystemClock(), print)
                        while (await self.store.look(self.index.lag)).events:
                            pass
                    group.start_soon(watch, filling)
                    for session_id in ids:
                        group.start_soon(write, session_id, filling)
        on, off = statistics.median(spent[True]), statistics.median(spent[False])
        print(
            f"append, {WRITERS} sessions: p50 {on:.2f} ms with the filler ({len(spent[True])}), {off:.2f} without "
            f"({len(spent[False])}), ratio {on / off:.3f}; p95 {p95(spent[True]):.1f}, {p95(spent[False]):.1f}: "
            f"≤ {RATIO_TARGET} {self.check(on / off <= RATIO_TARGET)}"
        )
        verdict = self.check(p95(lags) <= LAG_TARGET_S)
        print(f"lag: p95 {p95(lags):.2f} s, most {max(lags):.2f} s ({len(lags)} looks): ≤ {LAG_TARGET_S:g} s {verdict}")

    async def latency(self, name: str, calls: Sequence[Call], rounds: int) -> None:
        """Print the time of these calls, in turns with the floor."""
        walls, cpus, floors = list[float](), list[float](), list[float]()
        for _ in range(rounds):
            for call in calls:
                start = time.perf_counter()
                await anyio.to_thread.run_sync(compute)
                floors.append((time.perf_counter() - start) * 1e3)
                start, cpu = time.perf_counter(), time.process_time()
                await call()
                walls.append((time.perf_counter() - start) * 1e3)
                cpus.append((time.process_time() - cpu) * 1e3)
        verdict = self.check(p95(walls) <= LATENCY_TARGET_MS, p95(floors) <= LATENCY_TARGET_MS)
        ours = f"{statistics.median(walls):9.1f} {p95(walls):8.1f} {statistics.median(cpus):8.1f} {p95(cpus):8.1f}"
        floor = f"{statistics.median(floors):9.2f} {p95(floors):8.1f}"
        print(f"{name:<28} {len(walls):5d} {ours} {floor}  {verdict}")

    async def latencies(self, rounds: int) -> None:
        """Print the times of searches and pages."""
        store, now_us = self.store, BEGIN_US + 10_000 * 3_600_000_000
        middle = (await store.sessions(limit=5_000))[-1].session_id
        print(
            f"{'ms':<28} {'calls':>5} {'wall p50':>9} {'p95':>8} {'CPU p50':>8} {'p95':>8} {'floor p50':>9} {'p95':>8}"
        )
        queries = [parse_search([each]) for each in QUERIES]
        asks = [partial(search, store, self.index, each, now_us, limit=20) for each in queries]
        await self.latency("search, pages of 20", asks, rounds)
        pages: list[Call] = [lambda: sessions(store, limit=100), lambda: sessions(store, after=middle, limit=100)]
        pages += [lambda: sessions(store, Which(status="parked"), limit=100)]
        await self.latency("sessions, pages of 100", pages, rounds)
        lists = [partial(matching, store, parse([each]), now_us, limit=100) for each in FILTERS]
        await self.latency("filters, pages of 100", lists, rounds)
        await self.latency("counts by status", [store.counts], rounds * 3)
        await self.latency("inbox, 50 of each", [lambda: inbox(store, now_us, limit=50)], rounds * 3)


async def main(count: int, seconds: float, rounds: int) -> int:
    """Measure everything on one home."""
    print(f"{' '.join(sys.argv)}: seed {SEED}; {platform.platform()}, {os.cpu_count()} cores, ", end="")
    print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "holdfast.db"
        events = fill_home(database, count, seed=SEED)
        async with await SqliteStore.open(database, workers=Path(folder) / "workers", clock=SystemClock()) as store:
            index = SearchIndex(search_path(database))
            start, cpu = time.perf_counter(), time.process_time()
            while await store.look(index.fill):
                pass
            wall_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu
            sizes = index.path.stat().st_size / 1e6, database.stat().st_size / 1e6
            print(
                f"{count:,} sessions, {events:,} events: filled in {wall_s:.1f} s ({events / wall_s:,.0f} events/s, ",
                end="",
            )
            print(
                f"CPU {cpu_s:.1f} s); index {sizes[0]:.0f} MB, {sizes[0] / sizes[1]:.2f} x the log of {sizes[1]:.0f} MB"
            )
            bench = Bench(store, index)
            await bench.latencies(rounds)
            await bench.appends(seconds, rounds)
            gone = await store.find("ses_" + f"{count // 2:026d}")
            await store.remove([gone], "user:ann")
            start = time.perf_counter()
            index.forget([gone.session_id])
            print(f"forgetting a removed session: {(time.perf_counter() - start) * 1e3:.0f} ms")
            index.close()
    print(f"load {os.getloadavg()[0]:.1f}; targets {'met' if bench.good else 'MISSED'}")
    return 0 if bench.good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a spell of appends")
    parser.add_argument("--rounds", type=int, default=10, help="spells of each kind, and calls of each latency")
    given = parser.parse_args()
    sys.exit(anyio.run(main, given.sessions, given.seconds, given.rounds))
