"""Cost of the log: an append against a bare durable insert, reads, and disk space.

python bench/log.py [--rounds N] [--quick | --watermark]

An append begins a transaction, checks the epoch, extends the chain, updates its rows, and commits with one sync. A
bare insert writes the same bytes to a table of the same file, with one sync. The two alternate, at the same level:
inside the writing thread, and through the same hop from the event loop, with 1 and 8 writers. Targets: p50 of an
append ≤ 1.6 × that of a bare insert; 10,000 events of 2 KB read, verified, and decoded in 70 ms; disk
≤ 4 × content. `--watermark` measures only an append with the watermark against one without, alternating: ≤ 1.05 ×.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import anyio

from holdfast.clock import SystemClock
from holdfast.facts.codec import Draft, Event, encode_body, genesis
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import ShiftStarted
from holdfast.facts.tool import ToolResult
from holdfast.log.base import Lease, Post, Snapshot
from holdfast.log.sql.threads import ConnectionThread
from holdfast.log.sqlite import SqliteStore
from holdfast.log.sqlite.append import Writer
from holdfast.log.sqlite.connect import connect
from holdfast.log.transaction import Transaction, ready
from holdfast.log.worker_locks import Worker

SEED = 1
WRITERS = 8
PER_ROUND = 10
RATIO_TARGET = 1.6
READ_TARGET_MS = 70.0
DISK_TARGET = 4.0
WATERMARK_TARGET = 1.05
BARE = "insert into bare (body) values (?)"


class Bench:
    """A store in a folder, one shift on each of its sessions, and drafts of a size."""

    def __init__(self, home: Path, store: SqliteStore) -> None:
        self.path = home / "holdfast.db"
        self.store = store
        self.source = random.Random(SEED)
        self.count = 0

    def draft(self, size: int) -> Draft:
        """A tool result whose body has `size` bytes."""
        self.count += 1
        bare = Draft(f"evt_{self.count:026d}", "brain", ToolResult(call_id="1.0", outcome="ok", content=""))
        room = size - len(encode_body(bare))
        words = " ".join("".join(self.source.choices("abcdefghijklmnopqrstuvwxyz", k=5)) for _ in range(room // 6 + 1))
        return Draft(bare.id, bare.actor, ToolResult(call_id="1.0", outcome="ok", content=words[:room]))

    async def lease(self, session_id: str) -> Lease:
        """A new session with a shift on it."""
        created = SessionCreated(goal="bench", agent=Agent("m"), workspace=Workspace("/w"))
        await self.store.post(Post(session_id, "c", Draft("evt_c", "user:x", created)), create=True)
        shift = ShiftStarted(worker_id="wrk_bench", host_id="h", boot_id="b", pid=1, program="bench")
        return await self.store.acquire(session_id, Draft("evt_s", "brain", shift))


def append_one(lease: Lease, draft: Draft, transaction: Transaction) -> object:
    """One event, as `Log.append` does it."""
    return transaction.append(lease.session_id, lease.epoch, [ready(draft)], None, ())


def insert(connection: sqlite3.Connection, body: bytes) -> None:
    """The bare durable insert."""
    connection.execute("begin immediate")
    connection.execute(BARE, (body,))
    connection.execute("commit")


def insert_in(thread: ConnectionThread[sqlite3.Connection], body: bytes) -> None:
    """The bare durable insert, on that thread's connection."""
    insert(thread.connection(), body)


class NoWatermark:
    """What a writer keeps instead of a watermark to measure what that costs."""

    def write(self, last: Event) -> None:
        """Nothing is recorded."""

    def close(self) -> None:
        """Nothing is open."""


async def watermark(bench: Bench, lease: Lease, size: int, rounds: int) -> bool:
    """Print an append with the watermark against one without, in turns on one connection; whether the target holds."""
    thread = ConnectionThread("bench-write", lambda: connect(bench.path, 30.0))
    writer = Writer(bench.path, thread, SystemClock())
    real, none = writer._watermark, NoWatermark()
    spent: dict[object, list[float]] = {real: [], none: []}

    def one_round(drafts: list[Draft]) -> None:
        for number, draft in enumerate(drafts):
            for each in (real, none) if number % 2 else (none, real):
                writer._watermark = each  # type: ignore[assignment]
                start = time.perf_counter()
                ask = writer.ask(partial(append_one, lease, draft))
                writer.settle(ask)
                ask.result()
                spent[each].append((time.perf_counter() - start) * 1e3)

    for _ in range(rounds):
        await thread.run(partial(one_round, [bench.draft(size) for _ in range(PER_ROUND)]))
    await thread.close()
    real.close()
    ours, bare = statistics.median(spent[real]), statistics.median(spent[none])
    means = statistics.fmean(spent[real]), statistics.fmean(spent[none])
    print(
        f"{size:5d} B watermark, {len(spent[real])} each: p50 {ours:.3f} ms with it, {bare:.3f} without, ratio "
        f"{ours / bare:.3f}; mean {means[0]:.3f}, {means[1]:.3f}"
    )
    return ours / bare <= WATERMARK_TARGET


async def in_the_thread(bench: Bench, lease: Lease, size: int, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds of appends and of bare inserts, both measured inside one writing thread."""
    thread = ConnectionThread("bench-write", lambda: connect(bench.path, 30.0))
    writer = Writer(bench.path, thread, SystemClock())
    ours: list[float] = []
    bare: list[float] = []

    def one_round(drafts: list[Draft], bodies: list[bytes]) -> None:
        for draft, body in zip(drafts, bodies, strict=True):
            start = time.perf_counter()
            ask = writer.ask(partial(append_one, lease, draft))
            writer.settle(ask)
            ask.result()
            ours.append((time.perf_counter() - start) * 1e3)
            start = time.perf_counter()
            insert(thread.connection(), body)
            bare.append((time.perf_counter() - start) * 1e3)

    for _ in range(rounds):
        drafts = [bench.draft(size) for _ in range(PER_ROUND)]
        bodies = [encode_body(draft) for draft in drafts]
        await thread.run(partial(one_round, drafts, bodies))
    await thread.close()
    return ours, bare


async def through_the_hop(bench: Bench, leases: list[Lease], size: int, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds seen by the callers, as many at once as there are leases; rounds take turns."""
    thread = ConnectionThread("bench-bare", lambda: connect(bench.path, 30.0))
    ours: list[float] = []
    bare: list[float] = []

    async def append(lease: Lease, drafts: list[Draft]) -> None:
        for draft in drafts:
            start = time.perf_counter()
            await bench.store.append(lease.session_id, lease.epoch, [draft])
            ours.append((time.perf_counter() - start) * 1e3)

    async def plain(bodies: list[bytes]) -> None:
        for body in bodies:
            start = time.perf_counter()
            await thread.run(partial(insert_in, thread, body))
            bare.append((time.perf_counter() - start) * 1e3)

    for _ in range(rounds):
        work = [[bench.draft(size) for _ in range(PER_ROUND)] for _ in leases]
        bodies = [[encode_body(draft) for draft in drafts] for drafts in work]
        async with anyio.create_task_group() as group:
            for lease, drafts in zip(leases, work, strict=True):
                group.start_soon(append, lease, drafts)
        async with anyio.create_task_group() as group:
            for each in bodies:
                group.start_soon(plain, each)
    await thread.close()
    return ours, bare


async def appends(bench: Bench, rounds: int) -> bool:
    """Print the table of appends; whether the target holds everywhere."""
    leases = [await bench.lease(f"ses_{number:026d}") for number in range(WRITERS)]
    await through_the_hop(bench, leases[:1], 2_048, rounds)  # grow the WAL to its final size first
    print("append, ms              n   ours p50    p99   bare p50    p99   ratio p50")
    good = True
    for size in (1_024, 2_048):
        for name, measure in (
            ("in the thread, 1", partial(in_the_thread, bench, leases[0], size, rounds)),
            ("with the hop, 1", partial(through_the_hop, bench, leases[:1], size, rounds)),
            (f"with the hop, {WRITERS}", partial(through_the_hop, bench, leases, size, max(5, rounds // 4))),
        ):
            ours, bare = await measure()
            ratio = statistics.median(ours) / statistics.median(bare)
            good &= ratio <= RATIO_TARGET
            print(
                f"{size:5d} B {name:17s} {len(ours):4d} {statistics.median(ours):8.3f} {p99(ours):8.3f}"
                f" {statistics.median(bare):8.3f} {p99(bare):8.3f} {ratio:8.2f}"
            )
    return good


async def reads(bench: Bench, sizes: tuple[int, ...]) -> bool:
    """Print what reading back costs; whether the target holds."""
    print("read, verify, decode      events     wall ms      CPU ms   µs an event")
    good = True
    for count in sizes:
        lease = await bench.lease(f"ses_read{count}")
        for _ in range(count // 500):
            drafts = [bench.draft(2_048) for _ in range(500)]
            await bench.store.append(lease.session_id, lease.epoch, drafts)
        walls: list[float] = []
        cpus: list[float] = []
        for _ in range(9 if count <= 10_000 else 3):
            start, cpu = time.perf_counter(), time.process_time()
            await bench.store.read(lease.session_id, prev=genesis(lease.session_id))
            walls.append((time.perf_counter() - start) * 1e3)
            cpus.append((time.process_time() - cpu) * 1e3)
        wall, cpu = statistics.median(walls), statistics.median(cpus)
        good &= count > 10_000 or wall <= READ_TARGET_MS
        print(f"{'':20s} {count:11d} {wall:11.1f} {cpu:11.1f} {wall * 1e3 / count:11.2f}")
    return good


async def disk(home: Path) -> bool:
    """Print what 10,000 events of 2 KB and 20 of 100 KB take; whether the target holds."""
    async with await opened(home) as store:
        bench = Bench(home, store)
        lease = await bench.lease("ses_disk")
        content = 0
        drafts = [bench.draft(2_048) for _ in range(10_000)] + [bench.draft(100_000) for _ in range(20)]
        for draft in drafts:
            content += len(encode_body(draft))
            (event,) = await store.append(lease.session_id, lease.epoch, [draft])
            if event.seq % 1_000 == 0:
                await store.save(Snapshot("ses_disk", event.seq, event.hash, "fold", b"s" * 200_000))
        open_bytes = size_of(home)
    closed_bytes = size_of(home)
    print(f"disk, 10,000 events of 2 KB, 20 of 100 KB, a snapshot of 200 KB: content {content / 1e6:.1f} MB, ", end="")
    print(f"open {open_bytes / 1e6:.1f} MB (x{open_bytes / content:.2f}), ", end="")
    print(f"closed {closed_bytes / 1e6:.1f} MB (x{closed_bytes / content:.2f})")
    return open_bytes / content <= DISK_TARGET


def size_of(home: Path) -> int:
    """Bytes that the database takes on the disk, its WAL and shared memory counted."""
    return sum(path.stat().st_blocks * 512 for path in home.glob("holdfast.db*"))


def p99(values: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(values, n=100)[98]


async def opened(home: Path) -> SqliteStore:
    """The store of that home."""
    return await SqliteStore.open(home / "holdfast.db", workers=home / "workers", clock=SystemClock())


async def main(rounds: int, sizes: tuple[int, ...]) -> int:
    """Measure everything in fresh folders."""
    print(f"{' '.join(sys.argv)}: seed {SEED}, {rounds} rounds of {PER_ROUND}; {platform.platform()}, ", end="")
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, ", end="")
    print(f"load {os.getloadavg()[0]:.1f}")
    good = True
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "a"
        with Worker.start(home / "workers", "wrk_bench"):
            async with await opened(home) as store:
                with sqlite3.connect(home / "holdfast.db") as connection:
                    connection.execute("create table bare (body bytea)")
                connection.close()
                bench = Bench(home, store)
                good &= await appends(bench, rounds)
                good &= await reads(bench, sizes)
        home = Path(folder) / "b"
        with Worker.start(home / "workers", "wrk_bench"):
            good &= await disk(home)
    met = "met" if good else "MISSED"
    print(f"targets: append ≤ {RATIO_TARGET} x bare, 10,000 read ≤ {READ_TARGET_MS:.0f} ms, ", end="")
    print(f"disk ≤ x{DISK_TARGET:.0f}: {met}")
    return 0 if good else 1


async def main_watermark(rounds: int) -> int:
    """Measure the watermark in a fresh folder."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with Worker.start(home / "workers", "wrk_bench"):
            async with await opened(home) as store:
                bench = Bench(home, store)
                lease = await bench.lease("ses_mark")
                await watermark(bench, lease, 2_048, 20)  # grow the WAL to its final size first
                good = all([await watermark(bench, lease, size, rounds) for size in (1_024, 2_048)])
    print(f"target: append with the watermark ≤ {WATERMARK_TARGET} x without: {'met' if good else 'MISSED'}")
    return 0 if good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="measure the log")
    parser.add_argument("--rounds", type=int, default=100, help=f"rounds of {PER_ROUND} operations")
    parser.add_argument("--quick", action="store_true", help="without the log of 100,000 events")
    parser.add_argument("--watermark", action="store_true", help="only what the watermark costs")
    given = parser.parse_args()
    if given.watermark:
        sys.exit(anyio.run(main_watermark, given.rounds))
    sys.exit(anyio.run(main, given.rounds, (10_000,) if given.quick else (10_000, 100_000)))
