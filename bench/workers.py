"""Workers on one home: sessions served per second by four workers against one, and memory growth of one worker.

python bench/workers.py [--sessions N] [--rounds N] [--served N]

Sessions have one turn without tools and a scripted model; the workers are real `holdfast worker` processes. All
workers serve before the sessions are opened. The rate counts from the first shift to the end of the last one; rounds
alternate, and their medians are compared.
Exit 1 if four workers are slower than 0.95 of one, or if memory grows by more than 2 MB between the first thousand
sessions served and the last.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from holdfast.app.home import open_home
from holdfast.clock import SystemClock
from holdfast.facts.codec import Draft
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.log.base import Post
from holdfast.log.sqlite.store import SqliteStore

SPEEDUP = 0.95
GROWTH_MB = 2.0
WARM = 1_000
"""Number of sessions after which a worker has finished loading and allocating."""

LONGEST_S = 900.0


async def fill(home: Path, sessions: range) -> None:
    """Open that many sessions, all due, in few transactions."""
    script = home / "script.json"
    script.write_text('{"turns": [{"text": "done"}]}')
    opened = open_home(home)
    async with await SqliteStore.open(opened.database, workers=opened.workers, clock=SystemClock()) as store:

        async def open_one(number: int) -> None:
            session_id = f"ses_bench{number:06d}"
            workspace = opened.workspaces / session_id
            workspace.mkdir(exist_ok=True)
            created = SessionCreated(
                goal="bench", agent=Agent(model=f"scripted:{script}"), workspace=Workspace(str(workspace), True)
            )
            await store.post(Post(session_id, "created", Draft(f"evt_{number}", "user:bench", created)), create=True)

        async with anyio.create_task_group() as group:
            for number in sessions:
                group.start_soon(open_one, number)


@contextmanager
def workers(home: Path, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """So many worker processes, all of which serve; stopped on the way out."""
    command = [sys.executable, "-m", "holdfast", "worker", "--home", str(home)]
    started = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(count)]
    try:
        while len(list((home / "serving").glob("*.lock"))) < count:
            time.sleep(0.05)
        yield started
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()


def done(home: Path) -> int:
    """How many sessions are done."""
    with sqlite3.connect(f"file:{home / 'holdfast.db'}?mode=ro", uri=True) as sql:
        return int(sql.execute("select count(*) from sessions where status = 'done'").fetchone()[0])


def until(home: Path, count: int, running: list[subprocess.Popen[bytes]]) -> None:
    """Wait until that many are done."""
    end = time.monotonic() + LONGEST_S
    while done(home) < count:
        if time.monotonic() > end or any(process.poll() is not None for process in running):
            raise SystemExit(f"{done(home)} of {count} sessions are done, and no more will be")
        time.sleep(0.2)


def rate(sessions: int, count: int) -> float:
    """Sessions a second that so many workers serve together."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        home = Path(name)
        with workers(home, count) as running:
            anyio.run(fill, home, range(sessions))
            until(home, sessions, running)
        with sqlite3.connect(home / "holdfast.db") as sql:
            kinds = "type in ('shift.started', 'shift.ended')"
            first, last = sql.execute(f"select min(at_us), max(at_us) from events where {kinds}").fetchone()
        return float(sessions / ((last - first) / 1e6))


def resident_mb(pid: int) -> float:
    """What a process has in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def growth(served: int) -> list[tuple[int, float]]:
    """What one worker has in memory after each thousand sessions."""
    found = []
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        home = Path(name)
        with workers(home, 1) as running:
            for count in range(WARM, served + 1, WARM):
                anyio.run(fill, home, range(count - WARM, count))
                until(home, count, running)
                found.append((count, resident_mb(running[0].pid)))
    return found


def main() -> None:
    """Measure, print, compare with the targets."""
    parser = argparse.ArgumentParser(description="measure workers")
    parser.add_argument("--sessions", type=int, default=1_000, help="sessions due at once")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of one worker, then four")
    parser.add_argument("--served", type=int, default=4_000, help="sessions served for the measurement of memory")
    args = parser.parse_args()
    rates: dict[int, list[float]] = {1: [], 4: []}
    for _ in range(args.rounds):
        for count, found in rates.items():
            found.append(rate(args.sessions, count))
    one, four = (statistics.median(rates[count]) for count in (1, 4))
    print(f"{args.sessions} sessions due: one worker {one:.1f}/s, four {four:.1f}/s: {four / one:.2f} x", end="; ")
    print(f"target {SPEEDUP} x: {'ok' if four >= SPEEDUP * one else 'MISSED'}")
    memory = growth(max(2 * WARM, args.served))
    grown = memory[-1][1] - memory[0][1]
    print("memory: " + ", ".join(f"{count} served {size:.1f} MB" for count, size in memory), end="; ")
    print(f"growth {grown:.1f} MB, target {GROWTH_MB} MB: {'ok' if grown <= GROWTH_MB else 'MISSED'}")
    raise SystemExit(0 if four >= SPEEDUP * one and grown <= GROWTH_MB else 1)


if __name__ == "__main__":
    main()
