"""Cost of a wake before the brain acts: reading, verifying, decoding, and folding a long log.

python bench/wake.py [--runs N]

Logs of 10,000 and 100,000 events of 2 KB on average are made in a temporary folder. Each run reopens the
file. `read` reads, verifies, and decodes the same pages without folding them. Targets for the medians: a wake of
10,000 events takes at most 1.3 times as long as `read`, less than 10 ms with a snapshot, and ten times the events cost
at most ten times as much.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import tempfile
import time
from pathlib import Path

import anyio

from holdfast.brain.recall import PAGE, recall, remember
from holdfast.clock import SystemClock
from holdfast.facts.base import Text, Usage
from holdfast.facts.codec import Draft, genesis
from holdfast.facts.model import AgentMessage, AgentToolUse, ModelRequestEnd, ModelRequestStart
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import ShiftStarted
from holdfast.facts.tool import ToolDispatched, ToolResult
from holdfast.facts.union import AnyFact
from holdfast.kinds import KINDS
from holdfast.log.base import Post
from holdfast.log.sqlite.store import SqliteStore
from holdfast.log.worker_locks import Worker

SESSION = "ses_bench"
BATCH = 600
TARGET_RATIO = 1.3
SNAPSHOT_TARGET_MS = 10.0


def words(source: random.Random, size: int) -> str:
    """Text that looks like text, `size` characters."""
    return " ".join("".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=5)) for _ in range(size // 6 + 1))[:size]


def turn(source: random.Random, seq: int) -> list[AnyFact]:
    """The six events of a turn that starts at `seq`; 2 KB each on average."""
    call_id = f"{seq}.0"
    return [
        ModelRequestStart(purpose="turn", model="m", attempt=1, inputs_through=seq - 1, max_output_tokens=8192),
        AgentMessage(request_seq=seq, content=(Text(words(source, 3_700)),)),
        AgentToolUse(request_seq=seq, call_id=call_id, name="bash", input={"command": words(source, 3_600)}),
        ModelRequestEnd(request_seq=seq, outcome="ok", usage=Usage(1000, 100), cost_pico=1000, stop_reason="tool_use"),
        ToolDispatched(
            call_id=call_id, attempt=1, hands_id="hnd_1", action_digest="0" * 64, on_unknown="tell", timeout_s=120
        ),
        ToolResult(call_id=call_id, outcome="ok", content=words(source, 3_700), exit_code=0, duration_ms=5.0),
    ]


async def open_store(folder: Path) -> SqliteStore:
    """The store in `folder`."""
    return await SqliteStore.open(folder / "holdfast.db", workers=folder / "workers", clock=SystemClock())


async def fill(folder: Path, events: int) -> None:
    """A session of that many events."""
    source = random.Random(7)
    store = await open_store(folder)
    try:
        created = SessionCreated(goal="bench", agent=Agent(model="m"), workspace=Workspace("/w"))
        await store.post(Post(SESSION, "created", Draft("evt_0", "user:bench", created)), create=True)
        shift = ShiftStarted(worker_id="wrk_bench", host_id="h", boot_id="b", pid=1, program="bench")
        lease = await store.acquire(SESSION, Draft("evt_1", "brain", shift))
        seq = 3
        batch: list[AnyFact] = []
        while seq <= events:
            batch += turn(source, seq)
            seq += 6
            if len(batch) >= BATCH or seq > events:
                drafts = [Draft(f"evt_{seq}_{place}", "brain", fact) for place, fact in enumerate(batch)]
                await store.append(SESSION, lease.epoch, drafts)
                batch = []
    finally:
        await store.close()


async def timed(folder: Path) -> tuple[float, float, int]:
    """Milliseconds of opening the store, and of folding the session; and how many events it has."""
    began = time.perf_counter()
    store = await open_store(folder)
    opened = time.perf_counter()
    try:
        state, _ = await recall(SESSION, store, store, KINDS)
        return (opened - began) * 1000, (time.perf_counter() - opened) * 1000, state.seq
    finally:
        await store.close()


async def read(folder: Path) -> float:
    """Milliseconds of reading, verifying, and decoding the session in the pages of a wake."""
    store = await open_store(folder)
    try:
        began = time.perf_counter()
        seq, prev = 0, genesis(SESSION)
        while events := await store.read(SESSION, after=seq, prev=prev, limit=PAGE):
            seq, prev = events[-1].seq, events[-1].hash
        return (time.perf_counter() - began) * 1000
    finally:
        await store.close()


async def snapshot(folder: Path) -> None:
    """Keep a snapshot of the whole session."""
    store = await open_store(folder)
    try:
        state, _ = await recall(SESSION, store, store, KINDS)
        await remember(state, store)
    finally:
        await store.close()


async def measure(events: int, runs: int) -> dict[str, float]:
    """Medians for one size."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        (folder / "workers").mkdir(mode=0o700)
        worker = Worker.start(folder / "workers", "wrk_bench")
        await fill(folder, events)
        await timed(folder)
        floors, plain = [], []
        for _ in range(runs):
            floors.append(await read(folder))
            plain.append(await timed(folder))
        await snapshot(folder)
        kept = [await timed(folder) for _ in range(runs)]
        worker.close()
        size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
        return {
            "events": plain[0][2],
            "open_ms": statistics.median(row[0] for row in plain),
            "read_ms": statistics.median(floors),
            "full_ms": statistics.median(row[1] for row in plain),
            "snapshot_ms": statistics.median(row[1] for row in kept),
            "disk_mb": size / 1e6,
        }


def main() -> None:
    """Measure, print a table, compare with the targets."""
    parser = argparse.ArgumentParser(description="measure the wake of long logs")
    parser.add_argument("--runs", type=int, default=9, help="runs of each (medians are printed)")
    runs = max(5, parser.parse_args().runs)
    print(
        f"{runs} runs each, medians; {platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    print(f"{'events':>8}{'open ms':>10}{'read ms':>10}{'full ms':>10}{'snapshot ms':>13}{'disk MB':>9}")
    rows = [anyio.run(measure, events, runs) for events in (10_000, 100_000)]
    for row in rows:
        print(
            f"{row['events']:>8.0f}{row['open_ms']:>10.1f}{row['read_ms']:>10.1f}{row['full_ms']:>10.1f}{row['snapshot_ms']:>13.1f}"
            f"{row['disk_mb']:>9.0f}"
        )
    growth = rows[1]["full_ms"] / rows[0]["full_ms"]
    ratio = rows[0]["full_ms"] / rows[0]["read_ms"]
    good = ratio <= TARGET_RATIO and rows[0]["snapshot_ms"] < SNAPSHOT_TARGET_MS and growth <= 10
    print(f"ten times the events cost {growth:.1f} times as much")
    print(f"a wake of 10,000 events takes {ratio:.2f} times as long as reading them")
    print(f"targets: ≤ {TARGET_RATIO}, snapshot < {SNAPSHOT_TARGET_MS:.0f} ms at 10,000, growth ≤ 10", end=": ")
    print("met" if good else "MISSED")
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
