"""The server while 20 sessions run: lateness of streams, streams that are cut, answers by key.

python bench/serve.py [streams] [cuts] [answers] [--seconds N] [--streams N] [--cuts N] [--answers N] [--seed N]

`holdfast serve` is a real process on one core; this process, the client, is on another one, with what appends.

streams  events are appended to 20 sessions, 10 a second each, and every stream follows one of them. Late is the time
         from the stamp of an event to its arrival at the client. The floor is a bare asyncio server with as many
         streams, events, and the same limit of five frames a second. Memory is that of the server.
cuts     a session grows, and a stream of it is cut after random numbers of bytes; each goes on with Last-Event-ID.
answers  sessions wait for an approval; the time until the response that the decision is durable, and from the decision
         to the dispatch of the call, both as the log stamped them. The floor is a request that does nothing.

Exit 1 if a target is missed or an event is missing or doubled; 2 if a floor is above its target, so that nothing is
known about the server.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import httpx

from holdfast.app.home import Home, open_home
from holdfast.clock import SystemClock, boot_id
from holdfast.facts.base import Text
from holdfast.facts.codec import Draft
from holdfast.facts.people import UserMessage, UserPause
from holdfast.facts.session import Agent, Rule, SessionCreated, Workspace
from holdfast.facts.shift import ShiftStarted
from holdfast.ids import system_entropy
from holdfast.log.base import Post
from holdfast.log.sqlite.store import SqliteStore
from holdfast.log.worker_locks import Worker
from holdfast.service.intake import Intake
from holdfast.service.posting import Caller
from holdfast.session.rows import SessionRow

LATE_MS, GROWTH, DURABLE_MS, DISPATCH_MS = 250.0, 0.05, 150.0, 1_000.0
"""Targets: p95 of lateness, growth of memory, p95 of an answer, p95 from the decision to the dispatch."""

BESIDE = 20
"""Sessions that run while something is measured."""

FEED_NAMES, RATE = [f"ses_feed{number:05d}" for number in range(20)], 10
"""Sessions that receive events, and events a second of each."""

FRAME_S = 0.2
BARE = str(Path(__file__).with_name("_bare_stream.py"))
PATIENCE_S = 120.0


def apart() -> list[str]:
    """Words before a command that keep it on the last core; the client stays on the others."""
    return ["taskset", "-c", str((os.cpu_count() or 1) - 1)]


def holdfast(home: Home, *words: str) -> list[str]:
    """A command on this home."""
    return [sys.executable, "-m", "holdfast", *words, "--home", str(home.path)]


@contextmanager
def server(home: Home) -> Iterator[tuple[str, int]]:
    """`holdfast serve`, on a core of its own: its address and pid."""
    command = holdfast(home, "serve", "--port", "0", "--concurrency", "64", "--json")
    child = subprocess.Popen([*apart(), *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    try:
        line = child.stdout.readline()
        threading.Thread(target=child.stdout.read, daemon=True).start()  # its events: a full pipe would hold it up
        yield json.loads(line)["url"], child.pid
    finally:
        child.terminate()
        child.wait()


def key(home: Home) -> dict[str, str]:
    """A header with a new key."""
    made = subprocess.run(
        holdfast(home, "keys", "create", "bench", "--role", "admin", "--json"), capture_output=True, check=True
    )
    return {"authorization": f"Bearer {json.loads(made.stdout)['key']}"}


async def fill(store: SqliteStore, home: Home, count: int, prefix: str, agent: Agent, *, paused: bool = False) -> None:
    """Open sessions in workspaces of their own."""
    for number in range(count):
        session_id = f"ses_{prefix}{number:05d}"
        folder = home.workspaces / session_id
        folder.mkdir()
        created = SessionCreated(
            goal="bench",
            agent=agent,
            workspace=Workspace(str(folder), True, "root" if os.getuid() == 0 else "", "none"),
        )
        await store.post(
            Post(session_id, "created", Draft(f"evt_{prefix}{number}", "user:bench", created)), create=True
        )
        if paused:
            await store.post(Post(session_id, "pause", Draft(f"evt_p{prefix}{number}", "user:bench", UserPause())))


def busy(folder: Path) -> Agent:
    """An agent that runs commands for a long time, each for 1 to 9 s, so that sessions do not stay in step."""
    file = folder / "busy.json"
    turn = {"tool_calls": [{"name": "bash", "input": {"command": "sleep $((RANDOM % 9 + 1))"}}]}
    file.write_text(json.dumps({"turns": [turn] * 2_000}))
    return Agent(model=f"scripted:{file}", tools=("bash",))


def message(number: int) -> UserMessage:
    """An event of ordinary size."""
    return UserMessage(content=(Text(text=f"{number}: {'words ' * 20}"),))


async def until(store: SqliteStore, holds: Callable[[SessionRow], bool], count: int) -> None:
    """Wait until something holds of that many sessions."""
    token = 0
    with anyio.fail_after(PATIENCE_S):
        while sum(map(holds, await store.sessions())) < count:
            token = await store.changed(token)


# --- streams ---------------------------------------------------------------------------------------


async def feed(path: str, seconds: float) -> None:
    """Hold the feeds, as a worker beside the server would, and append RATE events a second to each of them."""
    home = open_home(Path(path))
    worker = Worker.start(home.workers, "wrk_feed")
    started = ShiftStarted(worker_id=worker.worker_id, host_id="h", boot_id=boot_id(), pid=os.getpid(), program="bench")
    async with await SqliteStore.open(home.database, workers=home.workers, clock=SystemClock()) as store:
        leases = [await store.acquire(name, Draft(f"evt_s{name}", "brain", started)) for name in FEED_NAMES]
        began, number = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            for lease in leases:
                name = lease.session_id
                await store.append(name, lease.epoch, [Draft(f"evt_{name}_{number}", "brain", message(number))])
            number += 1
            await anyio.sleep(max(0.0, began + number / RATE - time.monotonic()))


async def frames(client: httpx.AsyncClient, url: str, headers: dict[str, str]) -> AsyncIterator[tuple[int, list[Any]]]:
    """The messages of a stream: position and data."""
    async with client.stream("GET", url, headers=headers) as response:
        response.raise_for_status()
        position = 0
        async for line in response.aiter_lines():
            if line.startswith("id: "):
                position = int(line[4:])
            elif line.startswith("data: "):
                yield position, json.loads(line[6:])


def resident_mb(pid: int) -> float:
    """What a process has in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def follow(
    url: str, headers: dict[str, str], streams: int, seconds: float, pid: int
) -> tuple[list[float], float]:
    """Follow all streams; return how late events were in milliseconds, and by how much the server's memory grew."""
    late: list[float] = []
    sizes: list[float] = []
    limits = httpx.Limits(max_connections=None)

    async def one(client: httpx.AsyncClient, number: int) -> None:
        path = f"{url}/holdfast/v1/sessions/{FEED_NAMES[number % len(FEED_NAMES)]}/events/stream"
        async for _, events in frames(client, path, headers):
            now = time.time()
            late.extend((now - datetime.fromisoformat(each["at"]).timestamp()) * 1000 for each in events)

    async with httpx.AsyncClient(limits=limits, timeout=PATIENCE_S) as client:
        async with anyio.create_task_group() as group:
            for number in range(streams):
                group.start_soon(one, client, number)
            await anyio.sleep(3.0)
            late.clear()  # what was there before, and the start
            for _ in range(10):
                await anyio.sleep(seconds / 10)
                sizes.append(resident_mb(pid))
            group.cancel_scope.cancel()
    return late, sizes[-1] / sizes[0] - 1.0


@contextmanager
def bare_server() -> Iterator[str]:
    """The server of the floor, on the core of the other one: its address."""
    child = subprocess.Popen([*apart(), sys.executable, BARE, str(RATE), str(FRAME_S)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(child.stdout.readline())}/"
    finally:
        child.kill()
        child.communicate()


@contextmanager
def feeding(home: Home, seconds: float) -> Iterator[None]:
    """A process that appends to the feeds."""
    child = subprocess.Popen([sys.executable, __file__, "--feed", str(home.path), "--seconds", str(seconds)])
    try:
        yield
    finally:
        child.kill()
        child.wait()


async def floor(streams: int, seconds: float) -> list[float]:
    """How late a bare server is with the same streams."""
    late: list[float] = []

    async def one(client: httpx.AsyncClient, url: str) -> None:
        async for _, sent in frames(client, url, {}):
            now = time.time()
            late.extend((now - each) * 1000 for each in sent)

    limits = httpx.Limits(max_connections=None)
    with bare_server() as url:
        async with httpx.AsyncClient(limits=limits, timeout=PATIENCE_S) as client, anyio.create_task_group() as group:
            for _ in range(streams):
                group.start_soon(one, client, url)
            await anyio.sleep(2.0)
            late.clear()
            await anyio.sleep(seconds)
            group.cancel_scope.cancel()
    return late


# --- cuts ------------------------------------------------------------------------------------------


async def cut(
    store: SqliteStore, url: str, headers: dict[str, str], cuts: int, chance: random.Random
) -> tuple[int, int]:
    """Follow a growing session through so many cuts; return the number of missing and of doubled events."""
    path, seen, position, number = f"{url}/holdfast/v1/sessions/ses_cut00000/events/stream", [], 0, 0

    async def grow() -> None:
        nonlocal number
        for _ in range(20):
            number += 1
            await store.post(Post("ses_cut00000", f"n{number}", Draft(f"evt_c{number}", "user:bench", message(number))))

    async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
        for _ in range(cuts):
            async with anyio.create_task_group() as group:
                group.start_soon(grow)
                left = chance.randrange(1, 40_000)
                with anyio.move_on_after(chance.uniform(0.0, 0.5)):
                    async with client.stream("GET", path, headers={**headers, "last-event-id": str(position)}) as got:
                        held = b""
                        async for piece in got.aiter_raw():
                            held += piece[:left]
                            left -= len(piece)
                            *whole, held = held.split(b"\n\n")
                            for each in whole:
                                lines = dict(line.split(b": ", 1) for line in each.split(b"\n") if line[:1] != b":")
                                if b"data" in lines:
                                    seen += [event["seq"] for event in json.loads(lines[b"data"])]
                                    position = int(lines[b"id"])
                            if left <= 0:
                                break
        head = (await store.find("ses_cut00000")).head
        with anyio.fail_after(PATIENCE_S):
            async for last, events in frames(client, path, {**headers, "last-event-id": str(position)}):
                seen += [event["seq"] for event in events]
                if last >= head:
                    break
    return len(set(range(1, head + 1)) - set(seen)), len(seen) - len(set(seen))


# --- answers ---------------------------------------------------------------------------------------


async def answer(store: SqliteStore, url: str, headers: dict[str, str], count: int) -> dict[str, list[float]]:
    """Approve one item after the other; all times in milliseconds."""
    found: dict[str, list[float]] = {"durable": [], "dispatch": [], "floor": []}
    async with httpx.AsyncClient(timeout=PATIENCE_S, headers=headers) as client:
        await until(store, lambda row: row.status == "parked" and row.session_id.startswith("ses_ask"), count)
        for item in (await client.get(f"{url}/holdfast/v1/inbox?limit=500")).json()["items"]:
            body = {"verdict": "approve", "digest": item["digest"]}
            began = time.perf_counter()
            (await client.get(f"{url}/healthz")).raise_for_status()
            found["floor"].append((time.perf_counter() - began) * 1000)
            began = time.perf_counter()
            done = await client.post(f"{url}/holdfast/v1/inbox/{item['item_id']}/answer", json=body)
            found["durable"].append((time.perf_counter() - began) * 1000)
            done.raise_for_status()
            seq = done.json()["seq"]
            with anyio.fail_after(PATIENCE_S):
                while True:
                    events = await store.read(item["session_id"], after=seq - 1)
                    times = [event.at_us for event in events if event.type == "tool.dispatched"]
                    if times:
                        break
                    await store.wait(item["session_id"], events[-1].seq)
            found["dispatch"].append((times[0] - events[0].at_us) / 1000)
    return found


# --- all -------------------------------------------------------------------------------------------


def p95(values: list[float]) -> float:
    """The 95th percentile; infinite without values."""
    return float("inf") if len(values) < 2 else statistics.quantiles(values, n=20)[-1]


async def run(args: argparse.Namespace, home: Home, folder: Path) -> int:
    """Measure what was asked for; return the exit status."""
    asks = folder / "asks.json"
    asks.write_text(
        json.dumps({"turns": [{"tool_calls": [{"name": "bash", "input": {"command": "true"}}]}, {"text": "."}]})
    )
    asking = Agent(model=f"scripted:{asks}", tools=("bash",), rules=(Rule("bash", "ask"),))
    status = 0

    def judge(what: str, value: float, target: float, *, least: float = 0.0, unit: str = " ms") -> None:
        nonlocal status
        word = "INVALID (floor)" if least > target else "met" if value <= target else "MISSED"
        status = max(status, {"met": 0, "MISSED": 1}.get(word, 2))
        print(f"{what}: {value:.1f}{unit}, target {target:g}{unit}: {word}", flush=True)

    async with await SqliteStore.open(home.database, workers=home.workers, clock=SystemClock()) as store:
        await fill(store, home, BESIDE, "busy", busy(folder))
        await fill(store, home, len(FEED_NAMES), "feed", asking, paused=True)
        await fill(store, home, 1, "cut", asking, paused=True)
        if "answers" in args.cases:
            await fill(store, home, args.answers, "ask", asking)
        with server(home) as (url, pid):
            headers = key(home)
            await until(store, lambda row: row.turns > 1, BESIDE)
            if "streams" in args.cases:
                bare = p95(await floor(args.streams, min(20.0, args.seconds)))
                with feeding(home, args.seconds + 10.0):
                    late, growth = await follow(url, headers, args.streams, args.seconds, pid)
                print(
                    f"{args.streams} streams, {len(late) / args.seconds:.0f} events/s arrived; floor p95 {bare:.1f} ms"
                )
                judge("  event to client, p95", p95(late), LATE_MS, least=bare)
                judge("  growth of memory", growth * 100, GROWTH * 100, unit=" %")
            if "cuts" in args.cases:
                missing, doubled = await cut(store, url, headers, args.cuts, random.Random(args.seed))
                judge(f"{args.cuts} cuts in {20 * args.cuts} events, missing", missing, 0, unit="")
                judge(f"{args.cuts} cuts in {20 * args.cuts} events, doubled", doubled, 0, unit="")
            if "answers" in args.cases:
                found = await answer(store, url, headers, args.answers)
                least = p95(found["floor"])
                print(f"{args.answers} answers; floor p95 {least:.1f} ms")
                judge("  durable, p95", p95(found["durable"]), DURABLE_MS, least=least)
                judge("  decision to dispatch, p95", p95(found["dispatch"]), DISPATCH_MS, least=least)
        intake = Intake(store, store, SystemClock(), system_entropy, Caller("user:bench"))
        for number in range(BESIDE):
            await intake.cancel(await store.find(f"ses_busy{number:05d}"))
    return status


def main() -> None:
    """Measure, print, compare with the targets."""
    parser = argparse.ArgumentParser(description="measure the server")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="streams, cuts, answers (default: all)")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the measurement of streams")
    parser.add_argument("--streams", type=int, default=100, help="streams at a time")
    parser.add_argument("--cuts", type=int, default=200, help="cuts of a stream")
    parser.add_argument("--answers", type=int, default=50, help="answers")
    parser.add_argument("--seed", type=int, default=1, help="seed of the cuts")
    parser.add_argument("--feed", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.feed:
        anyio.run(feed, args.feed, args.seconds)
        return
    args.cases = args.cases or ("streams", "cuts", "answers")
    print(f"{platform.platform()}, {os.cpu_count()} cores; {BESIDE} sessions run; seed {args.seed}")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        raise SystemExit(anyio.run(run, args, open_home(folder / "home"), folder))


if __name__ == "__main__":
    main()
