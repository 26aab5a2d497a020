"""Runs over a list beside bare sessions: items per second, memory, and the time to resume a half-done list.

python bench/items.py [--items N] [--bare N] [--workers K]

Both do the same work in one process on SQLite, with a scripted model and sessions without tools: half of the bare
sessions, opened one by one, then a run over a list, then the other half. The run is interrupted in the middle of its
list, and goes on with a newly opened home: resuming lasts from its first read of the log to the next item that it
starts. Memory is the process's, after a tenth of the list and at its end.
Exit 1 if the run does less than 60 % of the bare rate, grows by more than 24 MB, or resumes in more than 1 s.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import msgspec

from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.settings.config import Settings
from holdfast.brain.doors import NoObserver
from holdfast.brain.wake import wake
from holdfast.clock import SystemClock
from holdfast.facts.codec import Event
from holdfast.facts.items import ItemData, ItemEnded, Items, ItemStarted
from holdfast.facts.session import (
    Agent,
    EgressPolicy,
    Environment,
    HandsPolicy,
    Limits,
    People,
    SessionCreated,
    Workspace,
)
from holdfast.fleet.dispatch import InlineDispatcher
from holdfast.service.items.runs import open_items
from holdfast.service.opening import NewSession, Policies

RATE = 0.6
GROWTH_MB = 24.0
RESUME_S = 1.0


class Counter(NoObserver):
    """Observer that counts ended items, notes the memory and the first start, and may stop the work."""

    def __init__(self, stop: Callable[[int], bool] = lambda _: False) -> None:
        self.ended = 0
        self.memory: dict[int, float] = {}
        self.started_s = self.started_cpu_s = 0.0
        self.stop = stop
        self.scope = anyio.CancelScope()

    def on_events(self, events: list[Event]) -> None:
        """Count."""
        for event in events:
            if isinstance(event.fact, ItemStarted) and not self.started_s:
                self.started_s, self.started_cpu_s = time.perf_counter(), time.process_time()
            if isinstance(event.fact, ItemEnded):
                self.ended += 1
                if self.ended % 50 == 0:
                    self.memory[self.ended] = resident_mb()
        if self.stop(self.ended):
            self.scope.cancel()


def resident_mb() -> float:
    """The memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def serve(runtime: Runtime, limit: int, counter: Counter, only: str = "") -> None:
    """Run all due sessions, or those of one run, as the command line does."""

    async def handle(session_id: str) -> None:
        doors = await runtime.doors_for(session_id, observer=counter)
        await wake(session_id, doors)

    dispatcher = InlineDispatcher(runtime.store, SystemClock(), boot_id=runtime.worker.boot_id, only=only, limit=limit)
    with counter.scope:
        await dispatcher.run(handle)


def agent(home: Path) -> Agent:
    """The scripted agent of both."""
    script = home.parent / "script.json"
    script.write_text('{"turns": [{"text": "done"}]}')
    return Agent(model=f"scripted:{script}", tools=())


async def bare(home: Path, count: int, workers: int) -> float:
    """Bare sessions per second, from the first opening to the last end."""
    async with open_runtime(Settings(home=str(home))) as runtime:
        folder = runtime.home.workspaces / "all"
        folder.mkdir()
        began_s = time.perf_counter()
        for number in range(count):
            created = SessionCreated(
                goal=f"Do thing {number}.", agent=agent(home), workspace=Workspace(str(folder), True)
            )
            await runtime.intake.open(runtime.intake.new_session_id(), created)
        await serve(runtime, workers, Counter())
        return count / (time.perf_counter() - began_s)


async def opened(runtime: Runtime, home: Path, count: int, workers: int) -> str:
    """A new run over a list."""
    policies = Policies(
        people=People(),
        hands=HandsPolicy(),
        egress=EgressPolicy(),
        environment=Environment(),
        searchers=(),
    )
    out = str((home.parent / f"{home.name}.jsonl").resolve())
    new = NewSession(
        goal="bench",
        agent=agent(home),
        workspace=Workspace("", True),
        limits=Limits(),
        policies=policies,
        needs_hands=False,
        items=Items(each="Do thing {n}.", count=count, out=out, workers=workers, own_workspace=False),
    )
    data = [ItemData(f"item-{number}", {"n": number}) for number in range(count)]
    return (await open_items(runtime.site, new, data)).row.session_id


async def run(home: Path, count: int, workers: int) -> tuple[float, tuple[float, float], Counter]:
    """Items per second, without the pause in the middle; the resumption in wall and CPU seconds; and the observer."""
    counter = Counter()
    counter.stop = lambda ended: ended >= count // 2
    async with open_runtime(Settings(home=str(home))) as runtime:
        began_s = time.perf_counter()
        session_id = await opened(runtime, home, count, workers)
        await serve(runtime, workers + 1, counter, session_id)
        took_s = time.perf_counter() - began_s
    counter.stop, counter.scope, counter.started_s = lambda _: False, anyio.CancelScope(), 0.0
    async with open_runtime(Settings(home=str(home))) as runtime:
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        await serve(runtime, workers + 1, counter, session_id)
        took_s += time.perf_counter() - began_s
        row = await runtime.store.find(session_id)
        assert (row.status, counter.ended) == ("done", count), (row, counter.ended)
    lines = Path(home.parent / f"{home.name}.jsonl").read_bytes().splitlines()
    keys = {msgspec.json.decode(line)["key"] for line in lines}
    assert len(lines) == len(keys) == count
    return count / took_s, (counter.started_s - began_s, counter.started_cpu_s - began_cpu_s), counter


def main() -> None:
    """Measure, print, compare with the targets."""
    parser = argparse.ArgumentParser(description="measure runs over a list")
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--bare", type=int, default=2_000)
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        before = anyio.run(bare, folder / "before", args.bare // 2, args.workers)
        items, (resume_s, cpu_s), counter = anyio.run(run, folder / "run", args.items, args.workers)
        after = anyio.run(bare, folder / "after", args.bare // 2, args.workers)
    sessions = 2 / (1 / before + 1 / after)
    share = items / sessions
    print(f"bare sessions: {before:.0f}/s before, {after:.0f}/s after; {args.items} items: {items:.0f}/s", end=": ")
    print(f"{share:.0%}; target {RATE:.0%}: {'ok' if share >= RATE else 'MISSED'}")
    first = min((at for at in counter.memory if at >= args.items // 10), default=min(counter.memory))
    last = max(counter.memory)
    grown = counter.memory[last] - counter.memory[first]
    print(
        f"memory after {first} items {counter.memory[first]:.0f} MB, after {last} {counter.memory[last]:.0f} MB",
        end="; ",
    )
    print(f"target growth {GROWTH_MB:.0f} MB: {'ok' if grown <= GROWTH_MB else 'MISSED'}")
    print(f"half-done list of {args.items} resumed in {resume_s:.2f} s ({cpu_s:.2f} s of CPU)", end="; ")
    print(f"target {RESUME_S:.0f} s: {'ok' if resume_s <= RESUME_S else 'MISSED'}")
    raise SystemExit(0 if share >= RATE and grown <= GROWTH_MB and resume_s <= RESUME_S else 1)


if __name__ == "__main__":
    main()
