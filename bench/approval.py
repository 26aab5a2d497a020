"""Time from a user's approval to the next shift of the session, while a worker serves.

python bench/approval.py [--runs N] [--json]

A first worker parks sessions for an approval. Then all processes end, as in a reboot, and a new worker starts for
every ten approvals. This process sends each approval; the time is from the approval's event to the next
`shift.started`, both as the log stamped them. The floor is the time until another connection that waits for a commit
notices it. Target: p95 of 400 ms, and no process but the worker runs while sessions wait.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from holdfast.app.home import Home, is_served, open_home
from holdfast.clock import SystemClock
from holdfast.facts.codec import Draft
from holdfast.facts.people import UserMessage
from holdfast.facts.session import Agent, Rule, SessionCreated, Workspace
from holdfast.ids import system_entropy
from holdfast.log.base import Post
from holdfast.log.sqlite.store import SqliteStore
from holdfast.service.intake import Intake
from holdfast.service.posting import Caller
from holdfast.session.rows import ItemRow

TARGET_MS = 400.0
RESTART_EVERY = 10
PATIENCE_S = 60.0


def write_script(folder: Path) -> str:
    """A model that wants one command and then is done."""
    file = folder / "model.json"
    call = {"name": "bash", "input": {"command": "true"}}
    file.write_text(json.dumps({"turns": [{"tool_calls": [call]}, {"text": "done"}]}))
    return f"scripted:{file}"


@contextmanager
def worker(home: Home) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that serves; ended as a service is."""
    command = [sys.executable, "-m", "holdfast", "worker", "--home", str(home.path)]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until_s = time.monotonic() + PATIENCE_S
        while not is_served(home):
            if child.poll() is not None or time.monotonic() > until_s:
                raise SystemExit(f"approval: the worker does not serve ({child.poll()})")
            time.sleep(0.01)
        yield child
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait()


def others(home: Home, known: int) -> list[str]:
    """Processes beside this one and the worker that have to do with this home."""
    found = []
    needle = os.fsencode(home.path)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in (os.getpid(), known):
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if needle in command:
                found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found


async def prepare(intake: Intake, home: Home, model: str, runs: int) -> None:
    """Open the sessions."""
    agent = Agent(model=model, tools=("bash",), rules=(Rule("bash", "ask"),))
    for _ in range(runs):
        session_id = intake.new_session_id()
        folder = home.workspaces / session_id
        folder.mkdir()
        workspace = Workspace(str(folder), True, "root" if os.getuid() == 0 else "", "none")
        await intake.open(session_id, SessionCreated(goal="bench", agent=agent, workspace=workspace))


async def parked(store: SqliteStore, runs: int) -> list[ItemRow]:
    """Wait until every session asks and rests."""
    token = 0
    with anyio.fail_after(PATIENCE_S):
        while True:
            token = await store.changed(token)
            rows = await store.sessions()
            if len(rows) == runs and all(row.status == "parked" and not row.holder for row in rows):
                return await store.items()


async def answered(store: SqliteStore, intake: Intake, item: ItemRow) -> float:
    """Approve one item. Returns the milliseconds until its session ran again; it is done when this returns."""
    receipt = await intake.approve(item)
    (decided,) = await store.read(item.session_id, after=receipt.seq - 1, limit=1)
    seen = receipt.seq
    started_us = 0
    with anyio.fail_after(PATIENCE_S):
        while (await store.find(item.session_id)).status != "done":
            seen = await store.wait(item.session_id, seen)
        for event in await store.read(item.session_id, after=receipt.seq):
            if event.type == "shift.started":
                started_us = event.at_us
                break
    return (started_us - decided.at_us) / 1000


async def floor(home: Home, store: SqliteStore, runs: int) -> list[float]:
    """Milliseconds from a commit to the moment that another connection, which waits for it, has noticed."""
    waits = []
    created = SessionCreated(goal="floor", agent=Agent(model="m"), workspace=Workspace("/"))
    await store.post(Post("ses_floor", "created", Draft("evt_floor", "user:bench", created)), create=True)
    async with await SqliteStore.open(home.database, workers=home.workers, clock=SystemClock()) as other:
        for number in range(runs):
            token = await other.changed(0)
            noticed = 0.0

            async def notice(token: int) -> None:
                nonlocal noticed
                await other.changed(token)
                noticed = time.perf_counter()

            async with anyio.create_task_group() as group:
                group.start_soon(notice, token)
                await anyio.sleep(0.05 + number % 7 * 0.003)
                message = Draft(f"evt_f{number}", "user:bench", UserMessage(content=()))
                await store.post(Post("ses_floor", f"f{number}", message))
                began = time.perf_counter()
            waits.append(max(0.0, noticed - began) * 1000)
    return waits


async def run(runs: int) -> dict[str, object]:
    """All of it, in a home of its own."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        home = open_home(Path(name) / "home")
        model = write_script(Path(name))
        clock = SystemClock()
        async with await SqliteStore.open(home.database, workers=home.workers, clock=clock) as store:
            intake = Intake(store, store, clock, system_entropy, Caller("user:bench"))
            await prepare(intake, home, model, runs)
            with worker(home):
                items = await parked(store, runs)
        waits: list[float] = []
        waiting: list[str] = []
        for first in range(0, runs, RESTART_EVERY):
            with worker(home) as serving:
                async with await SqliteStore.open(home.database, workers=home.workers, clock=clock) as store:
                    intake = Intake(store, store, clock, system_entropy, Caller("user:bench"))
                    waiting += others(home, serving.pid)
                    for item in items[first : first + RESTART_EVERY]:
                        waits.append(await answered(store, intake, item))
        async with await SqliteStore.open(home.database, workers=home.workers, clock=clock) as store:
            floors = await floor(home, store, runs)
        return {"runs": len(waits), **_both("answer", waits), **_both("floor", floors), "others": len(waiting)}


def _both(what: str, values: list[float]) -> dict[str, float]:
    at = statistics.quantiles(values, n=20)
    return {
        f"{what}_p50_ms": round(statistics.median(values), 2),
        f"{what}_p95_ms": round(at[-1], 2),
        f"{what}_max_ms": round(max(values), 2),
    }


def main() -> None:
    """Measure, print, compare with the target; exit 1 when it is missed."""
    parser = argparse.ArgumentParser(description="measure how soon a session runs again after an answer")
    parser.add_argument("--runs", type=int, default=50, help="answers (at least 50)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    found = anyio.run(run, max(50, args.runs))
    p95, processes = float(str(found["answer_p95_ms"])), int(str(found["others"]))
    good = p95 <= TARGET_MS and processes == 0
    if args.json:
        print(json.dumps({**found, "target_ms": TARGET_MS, "met": good}))
    else:
        print(
            f"{found['runs']} answers, a new worker for each {RESTART_EVERY}; {platform.platform()}, "
            f"{os.cpu_count()} cores"
        )
        print(f"{'':<36}{'p50 ms':>9}{'p95 ms':>9}{'max ms':>9}")
        for what, text in (("answer", "answer to shift.started"), ("floor", "floor: a commit is noticed")):
            values = "".join(f"{found[f'{what}_{each}_ms']:>9}" for each in ("p50", "p95", "max"))
            print(f"{text:<36}{values}")
        print(f"processes beside the worker while sessions wait: {processes}")
        print(f"target: p95 ≤ {TARGET_MS:.0f} ms, no process: {'met' if good else 'MISSED'}")
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
