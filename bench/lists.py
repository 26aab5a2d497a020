"""A home with 100,000 sessions beside an empty one: CPU of lists and of a run, and what an idle worker takes.

    python bench/lists.py [--sessions N] [--runs N] [--idle SECONDS]

The sessions are rows and first events copied from one real session. One in ten waits for a job, one in ten waits for a
user without an item, one in five is done, and the others wait for a time. Each figure is the user and system time of
one command, as the median of several runs.
"""

from __future__ import annotations

import argparse
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STANDING = ("job", "person", "", "", "timer", "timer", "timer", "timer", "timer", "timer")
"""Reasons of ten consecutive sessions; a session without a reason is done."""

RUN = ("run", "say hello", "--model", "scripted:hello.json", "--scratch")

VERBS = (("ps",), ("ps", "--tree"), ("inbox", "--plain"), ("brief",), RUN)


def holdfast(home: Path, *words: str, for_s: float | None = None) -> resource.struct_rusage:
    """Run a command to its end, or for some seconds; what it used."""
    command = [sys.executable, "-m", "holdfast", *words]
    env = {**os.environ, "HOLDFAST_HOME": str(home)}
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=home.parent, process_group=0
        )
        if for_s is not None:
            time.sleep(for_s)
            child.terminate()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        if child.returncode and for_s is None:
            sys.exit(f"{words}: {said.read()}")
    return used


def cpu_s(used: resource.struct_rusage) -> float:
    """User and system time."""
    return used.ru_utime + used.ru_stime


def fill(home: Path, count: int, first: str = "first") -> None:
    """Copy a session of a home, named by its key or id."""
    with sqlite3.connect(home / "holdfast.db") as db:
        db.row_factory = sqlite3.Row
        row = dict(db.execute("select * from sessions where ? in (key, session_id)", (first,)).fetchone())
        events = [dict(each) for each in db.execute("select * from events where session_id = ?", (row["session_id"],))]
        for number in range(count):
            session_id, reason = f"ses_copy{number:08d}", STANDING[number % 10]
            at_us = row["created_us"] - (number + 1) * 1_000_000
            due_us = at_us + 10**15 if reason == "timer" else None
            copy = {**row, "session_id": session_id, "root": session_id, "key": "", "holder": "", "reason": reason}
            copy |= {"status": "parked" if reason else "done", "due_us": due_us, "boot_id": "", "due_boot_us": None}
            copy |= {"created_us": at_us, "updated_us": at_us}
            _insert(db, "sessions", copy)
            for event in events:
                _insert(db, "events", {**event, "session_id": session_id})


def _insert(db: sqlite3.Connection, table: str, values: dict[str, object]) -> None:
    names = ", ".join(values)
    db.execute(f"insert into {table} ({names}) values ({', '.join(f':{name}' for name in values)})", values)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--idle", type=float, default=120.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # as root, the sandbox runs as another user
        homes = {count: Path(folder) / f"home{count}" for count in (0, args.sessions)}
        script = Path(folder) / "hello.json"
        script.write_text('{"turns": [{"text": "Done."}]}')
        for count, home in homes.items():
            holdfast(home, *RUN, "--session-id", "first")
            fill(home, count)
        print(f"{sys.platform}, {os.cpu_count()} cores, Python {sys.version.split()[0]}; median of {args.runs} runs")
        print("CPU in seconds, or as a share of one core")
        print(f"{'command':<16} {'empty home':>11} {f'{args.sessions:,} sessions':>18}")
        for words in VERBS:
            few, many = (statistics.median(cpu_s(holdfast(homes[n], *words)) for _ in range(args.runs)) for n in homes)
            print(f"{' '.join(words[: 1 if words is RUN else 3]):<16} {few:>11.2f} {many:>18.2f}")
        for home in homes.values():
            holdfast(home, "worker", for_s=args.idle)  # it fills the search index, once
        short, long = (
            {n: holdfast(homes[n], "worker", for_s=seconds) for n in homes} for seconds in (10.0, 10.0 + args.idle)
        )
        idle = (f"{(cpu_s(long[n]) - cpu_s(short[n])) / args.idle:.2%}" for n in homes)
        print("{:<16} {:>11} {:>18}".format("idle worker", *idle))
        peak = (f"{long[n].ru_maxrss / 1024:.0f} MiB" for n in homes)
        print("{:<16} {:>11} {:>18}".format("its peak", *peak))


if __name__ == "__main__":
    main()
