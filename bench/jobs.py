"""Time from the end of a background job to the next shift of its session, when no process waits for it.

python bench/jobs.py [--runs N] [--worker] [--json]

Each run starts a session in the background whose job ends when this process lets it. Meanwhile, no Holdfast
process but the hands' supervisor lives (with `--worker`, also the worker). The time is from the moment at which the
job may end to the `shift.started` after it, as the log stamped it: the command notices, its end is recorded,
and the supervisor starts the command for news, which posts the end and starts a brain. The floor is a Python process
that imports the log and opens it. Target: 1 s at the median.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

TARGET_MS = 1_000.0
PATIENCE_S = 60.0
COMMAND = "until [ -e finish ]; do sleep 0.005; done"


def holdfast(*words: str) -> list[str]:
    """A command line of ours."""
    return [sys.executable, "-m", "holdfast", *words]


def write_agent(folder: Path) -> Path:
    """An agent that starts a job, waits, and is done."""
    call = {"name": "job_start", "input": {"name": "long", "command": COMMAND, "timeout_s": 600}}
    turns = [{"tool_calls": [call]}, {"text": "I wait."}, {"text": "Done."}]
    (folder / "model.json").write_text(json.dumps({"turns": turns}))
    file = folder / "agent.toml"
    file.write_text(f'name = "a"\nmodel = "scripted:{folder / "model.json"}"\ntools = ["job_start"]\n')
    return file


def wait(condition: Callable[[], object], what: str) -> None:
    """Look again and again until it is so."""
    until_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > until_s:
            raise SystemExit(f"jobs: {what}")
        time.sleep(0.002)


def query(home: Path, sql: str, *values: object) -> list[tuple[object, ...]]:
    """Rows of the log."""
    with closing(sqlite3.connect(home / "holdfast.db")) as connection:
        return connection.execute(sql, values).fetchall()


def status(home: Path, session_id: str) -> str:
    """How a session stands."""
    ((found,),) = query(home, "select status from sessions where session_id = ?", session_id)
    return str(found)


def brains(home: Path) -> int:
    """Processes of ours that name this home, but for workers."""
    found = 0
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        found += b"holdfast" in words and os.fsencode(home) in words and b"worker" not in words
    return found


def once(home: Path, agent: Path) -> tuple[float, int]:
    """One job: milliseconds from its end to the next shift, and the brains that lived while it ran."""
    words = ("run", "x", "--agent", str(agent), "--home", str(home), "--detach", "--json")
    said = subprocess.run(holdfast(*words), check=True, capture_output=True, text=True)
    session_id = json.loads(said.stdout.splitlines()[-1])["session_id"]
    wait(lambda: status(home, session_id) == "parked", "the session does not park")
    wait(lambda: not brains(home), "a brain stays")
    time.sleep(0.2)
    lived = brains(home)
    began_us = time.time_ns() // 1_000
    (home / "workspaces" / session_id / "finish").touch()
    wait(lambda: status(home, session_id) == "done", "the session does not go on")
    shifts = query(home, "select at_us from events where session_id = ? and type = 'shift.started'", session_id)
    return (max(int(str(at_us)) for (at_us,) in shifts) - began_us) / 1_000, lived


def floor_ms(home: Path) -> float:
    """A process that opens the log."""
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-c", "import holdfast.app.news"], check=True, cwd=home)
    return (time.monotonic() - began_s) * 1_000


def measure(home: Path, runs: int) -> dict[str, object]:
    """All runs."""
    agent = write_agent(home)
    found = [once(home, agent) for _ in range(runs)]
    times = sorted(took_ms for took_ms, _ in found)
    return {
        "runs": runs,
        "p50_ms": round(statistics.median(times), 1),
        "p95_ms": round(times[min(len(times) - 1, int(len(times) * 0.95))], 1),
        "floor_ms": round(statistics.median(floor_ms(home) for _ in range(5)), 1),
        "brains_while_it_ran": max(lived for _, lived in found),
        "target_ms": TARGET_MS,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def main() -> int:
    """Measure, print, and say by the exit status whether the target was met."""
    parser = argparse.ArgumentParser(description="how soon a session runs again after its job has ended")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--worker", action="store_true", help="a worker serves the home")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        home = Path(folder)
        home.chmod(0o711)
        served = subprocess.Popen(holdfast("worker", "--home", str(home))) if args.worker else None
        try:
            result = measure(home, args.runs)
        finally:
            if served is not None:
                served.send_signal(signal.SIGTERM)
                served.wait()
    if args.json:
        print(json.dumps(result))
    else:
        print(f"job's end → next shift: p50 {result['p50_ms']} ms, p95 {result['p95_ms']} ms ({args.runs} runs)")
        print(f"floor (a process that imports what news need): {result['floor_ms']} ms; target {TARGET_MS:.0f} ms")
        print(f"brains while it ran: {result['brains_while_it_ran']}")
    return 0 if float(str(result["p50_ms"])) <= TARGET_MS and not result["brains_while_it_ran"] else 1


if __name__ == "__main__":
    sys.exit(main())
