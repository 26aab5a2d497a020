"""Pages of the server in a home of 10,000 sessions while 20 sessions run: time, weight, long sessions, first paint.

python bench/pages.py [lists] [long] [paint] [--sessions N] [--events N] [--loads N] [--seed N]

`holdfast serve` is a real process on one core; the client, and a browser for `paint` and `long`, are on the others.
Times are until the whole page is at the client; the floor is a request that does nothing.

lists  the fleet, a search in it, and the inbox: first alone, then while a session of half of --events events is folded.
long   a session of --events events at random positions: each page at once, and with the state of then; in the browser,
       the longest task and the number of rows. The first page with a state folds the log, once: its time stands beside.
paint  the first contentful paint of the main pages in chromium, with an empty cache.

Exit 1 if a target is missed, 2 if a floor is above its target, so that nothing is known about the server.
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
from playwright.async_api import async_playwright

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.lists import fill as fill_rows
from bench.serve import BESIDE, busy, fill, key, p95, server, until
from holdfast.app.home import Home, open_home
from holdfast.brain.recall import recall, remember
from holdfast.clock import SystemClock
from holdfast.facts.base import Text, Usage
from holdfast.facts.codec import Draft
from holdfast.facts.model import (
    AgentMessage,
    AgentToolUse,
    ContextCompacted,
    ModelRequestEnd,
    ModelRequestStart,
)
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import ShiftStarted
from holdfast.facts.tool import ToolDispatched, ToolResult
from holdfast.facts.union import AnyFact
from holdfast.kinds import KINDS
from holdfast.log.base import Post
from holdfast.log.search.index import SearchIndex, search_path
from holdfast.log.sqlite.store import SqliteStore
from holdfast.log.worker_locks import Worker

SETTLED = 3
"""Turns of each session before the first measurement. Their sandboxes start together, and the server fills its search
index with the events that were written before it started: both are another load.
"""

LIST_MS, BESIDE_FOLD_MS, LONG_MS, PAINT_MS, TASK_MS = 50.0, 60.0, 300.0, 600.0, 200.0
PAGE_BYTES, ROWS_MAX = 8_000, 700

LISTS = {"fleet": "/fleet", "search": "/fleet?q=bench", "inbox": "/"}
PAINTED = ("/", "/fleet", "/missions", "/brief", "/sessions/ses_long?at=5000", "/inbox/new")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")


def turn(seq: int) -> list[AnyFact]:
    """The events of a turn that begins at `seq`; each hundredth turn ends with a compaction."""
    call = f"{seq}.0"
    facts: list[AnyFact] = [
        ModelRequestStart(purpose="turn", model="m", attempt=1, inputs_through=seq - 1, max_output_tokens=8192),
        AgentMessage(request_seq=seq, content=(Text(f"Step {seq}: " + "some words " * 12),)),
        AgentToolUse(request_seq=seq, call_id=call, name="bash", input={"command": f"make step-{seq}"}),
        ModelRequestEnd(request_seq=seq, outcome="ok", usage=Usage(1000, 100), cost_pico=1000, stop_reason="tool_use"),
        ToolDispatched(call_id=call, attempt=1, hands_id="h", action_digest="0", on_unknown="tell", timeout_s=9),
        ToolResult(call_id=call, outcome="ok", content="a line of output\n" * 8, exit_code=0, duration_ms=5.0),
    ]
    if seq // 6 % 100 == 99:
        summary = ContextCompacted(
            request_seq=0, from_seq=2, through_seq=seq - 1, summary="so far", tokens_before=9, tokens_after=1
        )
        facts.append(summary)
    return facts


async def grow(store: SqliteStore, workers: Path, name: str, events: int) -> None:
    """A session with so many events, and a snapshot of its state, as a brain leaves it."""
    created = SessionCreated(goal="a long bench", agent=Agent(model="m"), workspace=Workspace("/w"))
    await store.post(Post(name, "created", Draft(f"evt_{name}", "user:bench", created)), create=True)
    worker = Worker.start(workers, f"wrk_{name}")
    shift = ShiftStarted(worker_id=worker.worker_id, host_id="h", boot_id="b", pid=1, program="bench")
    lease = await store.acquire(name, Draft(f"evt_{name}s", "brain", shift))
    seq = 3
    while seq <= events:
        facts: list[AnyFact] = []
        while len(facts) < 600:
            facts += turn(seq + len(facts))
        drafts = [Draft(f"evt_{name}_{seq}_{place}", "brain", fact) for place, fact in enumerate(facts)]
        await store.append(name, lease.epoch, drafts)
        seq += len(facts)
    state, _ = await recall(name, store, store, KINDS)
    await remember(state, store)


async def timed(client: httpx.AsyncClient, path: str) -> tuple[float, bytes]:
    """Milliseconds until a page is here, and the page."""
    began = time.perf_counter()
    got = await client.get(path)
    took = (time.perf_counter() - began) * 1000
    got.raise_for_status()
    return took, got.content


Judge = Callable[..., None]


async def lists(client: httpx.AsyncClient, judge: Judge, loads: int, least: float, when: str, target: float) -> None:
    """Load the lists."""
    for name, path in LISTS.items():
        times = [(await timed(client, path))[0] for _ in range(loads)]
        judge(f"{name}{when}, p95", p95(times), target, least=least)


async def long(
    client: httpx.AsyncClient, judge: Judge, loads: int, least: float, head: int, chance: random.Random
) -> None:
    """Open a long session at random positions."""
    places = [chance.randrange(1, head + 1) for _ in range(loads)]
    times = [(await timed(client, f"/sessions/ses_long?at={at}"))[0] for at in places]
    judge("long session at a random event, p95", p95(times), LONG_MS, least=least)
    took, _ = await timed(client, f"/sessions/ses_long?at={head}&state=1")
    print(f"  its first fold, beside other requests: {took / 1000:.1f} s")
    times = []
    for at in places:
        took, page = await timed(client, f"/sessions/ses_long?at={at}&state=1")
        assert f"As of e{at}".encode() in page
        times.append(took)
    judge("  with the state, files, and context of then, p95", p95(times), LONG_MS, least=least)


TASKS = """() => new Promise((done) => {
  let worst = 0;
  new PerformanceObserver((list) => { for (const each of list.getEntries()) worst = Math.max(worst, each.duration); })
    .observe({ type: "longtask", buffered: true });
  let steps = 0;
  const step = () => { scrollBy(0, 400); 
    if (++steps < 60) requestAnimationFrame(step); else setTimeout(() => done(worst), 300); };
  step();
})"""


async def browse(url: str, headers: dict[str, str], judge: Judge, cases: list[str], head: int) -> None:
    """First paints, and the tasks of a long session, in a browser."""
    program = shutil.which("chromium")
    if program is None:
        print("no browser: apt-get install chromium")
        return
    async with async_playwright() as tool:
        browser = await tool.chromium.launch(executable_path=program, args=[*FLAGS])
        for path in PAINTED if "paint" in cases else ():
            times = []
            for _ in range(7):
                context = await browser.new_context(base_url=url, extra_http_headers=headers)
                page = await context.new_page()
                await page.goto(path, wait_until="load")
                times.append(
                    await page.evaluate(
                        "() => new Promise((done) => new PerformanceObserver((list) => done(list.getEntries()"
                        ".find((each) => each.name === 'first-contentful-paint').startTime))"
                        ".observe({ type: 'paint', buffered: true }))"
                    )
                )
                await context.close()
            judge(f"first paint of {path}, p95 of 7", max(times), PAINT_MS)
        if "long" in cases:
            worst, rows = 0.0, 0
            for at in (head, head // 2, 700, 1):
                context = await browser.new_context(base_url=url, extra_http_headers=headers)
                page = await context.new_page()
                await page.goto(f"/sessions/ses_long?at={at}", wait_until="load")
                worst = max(worst, await page.evaluate(TASKS))
                rows = max(rows, await page.locator(".ev").count())
                await context.close()
            judge("longest task of the browser, opening and scrolling", worst, TASK_MS)
            judge("rows in the page", rows, ROWS_MAX, unit="")
        await browser.close()


async def run(args: argparse.Namespace, home: Home, folder: Path) -> int:
    """Measure what was asked for; return the exit status."""
    status = 0

    def judge(what: str, value: float, target: float, *, least: float = 0.0, unit: str = " ms") -> None:
        nonlocal status
        word = "INVALID (floor)" if least > target else "met" if value <= target else "MISSED"
        status = max(status, {"met": 0, "MISSED": 1}.get(word, 2))
        print(f"{what}: {value:.1f}{unit}, target {target:g}{unit}: {word}", flush=True)

    async with await SqliteStore.open(home.database, workers=home.workers, clock=SystemClock()) as store:
        await fill(store, home, 1, "first", busy(folder), paused=True)
        await anyio.to_thread.run_sync(fill_rows, home.path, args.sessions, "ses_first00000")
        await grow(store, home.workers, "ses_long", args.events)
        await grow(store, home.workers, "ses_half", args.events // 2)
        await fill(store, home, BESIDE, "busy", busy(folder))
        with server(home) as (url, _):
            headers = {**key(home), "accept": "text/html"}
            await until(store, lambda row: row.turns > SETTLED and row.session_id.startswith("ses_busy"), BESIDE)
            with closing(SearchIndex(search_path(home.database))) as index:
                token = 0
                while (await store.look(index.lag)).events:
                    token = await store.changed(token)
            head = (await store.find("ses_long")).head
            async with httpx.AsyncClient(base_url=url, headers=headers, timeout=120.0) as client:
                least = p95([(await timed(client, "/healthz"))[0] for _ in range(args.loads)])
                print(f"floor: a request that does nothing, p95 {least:.1f} ms")
                if "lists" in args.cases:
                    for name, path in LISTS.items():
                        weight = len(gzip.compress((await timed(client, path))[1]))
                        judge(f"{name}, gzip", weight, PAGE_BYTES, unit=" bytes")
                    await lists(client, judge, args.loads, least, "", LIST_MS)
                    half, done = args.events // 2, 0.0
                    beside = f" while {half:,} events are folded"

                    async def folding() -> None:
                        nonlocal done
                        done, _ = await timed(client, f"/sessions/ses_half?at={half}&state=1")

                    async with anyio.create_task_group() as group:
                        group.start_soon(folding)
                        await lists(client, judge, args.loads, least, beside, BESIDE_FOLD_MS)
                    print(f"  the fold took {done / 1000:.1f} s")
                if "long" in args.cases:
                    await long(client, judge, args.loads, least, head, random.Random(args.seed))
            await browse(url, headers, judge, args.cases, head)
    return status


def main() -> None:
    """Measure, print, compare with the targets."""
    parser = argparse.ArgumentParser(description="measure the pages of the server")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="lists, long, paint (default: all)")
    parser.add_argument("--sessions", type=int, default=10_000, help="sessions in the home")
    parser.add_argument("--events", type=int, default=100_000, help="events of the long session")
    parser.add_argument("--loads", type=int, default=200, help="loads of each page")
    parser.add_argument("--seed", type=int, default=1, help="seed of the positions")
    args = parser.parse_args()
    args.cases = args.cases or ["lists", "long", "paint"]
    print(f"{platform.platform()}, {os.cpu_count()} cores; {BESIDE} sessions run; seed {args.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        raise SystemExit(anyio.run(run, args, open_home(folder / "home"), folder))


if __name__ == "__main__":
    main()
