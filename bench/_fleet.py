"""Cases of `bench/many.py` about workers that serve one log: each is a process at a home of its own, without brains."""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from holdfast.brain.wake import wake as wake_session
from holdfast.clock import SystemClock, boot_s
from holdfast.facts.session import Limits
from holdfast.facts.shift import LimitSet
from holdfast.ids import system_entropy
from holdfast.log.base import Post
from holdfast.log.postgres.bell import Bell
from holdfast.log.postgres.connect import Connection, connect
from holdfast.log.postgres.store import PostgresStore
from holdfast.log.worker_locks import Worker
from holdfast.service.intake import Intake
from holdfast.service.posting import Caller
from holdfast.session.home import HOME
from tests.brain.stage import Stage, turn
from tests.log.elsewhere import There, opened
from tests.log.fleet import Ears, fleet
from tests.log.rigs import PostgresRig, postgres_rig

WAKES, WORKERS, RATIO = 40, 4, 2.5
BUSY = 8
TIMERS, BURST_S = 2_000, 60.0
DRAINED, EXIT_S, MOVED_S = 14, 10.0, 3.0
STORM, ROUNDS = 50, 20
FAIR, PLACES, CAP, SHIFT_S = {"large": 5_000, "small": 10}, 20, 10, 2.0
RATE, RATE_BURST, ASKING, RATE_S, USED = 60, 6, 3, 120.0, 0.95
CLIENTS, POSTS, TURNS, RUNG = 16, 50, 5, 0.45
LAST_S = 120.0


def p(values: list[float], percent: int) -> float:
    """A percentile, in the unit of the values."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


async def wake(address: str, home: Path) -> bool:
    """Times from the end of a post to a durable `shift.started` elsewhere, in turns with the least that a bell costs.

    That is a notification by the one who posted, to a process that takes the session at once.
    """
    good = True
    async with postgres_rig(home / "posts", address) as rig, opened(rig.address, rig.folder, home / "bare", 8.0) as own:
        case, bare = There(rig), There(PostgresRig(rig.address, rig.folder, home / "bare", own))
        sessions = [f"ses_{number:02d}" for number in range(WAKES)]
        homes = [home / f"wake{number}" for number in range(WORKERS)]
        with (
            fleet(rig.address, rig.folder, homes, limit=25) as children,
            fleet(rig.address, rig.folder, [home / "bare"], limit=0) as least,
            closing(connect(rig.address, rig.folder)) as calls,
        ):
            ears, floor = Ears(children), Ears(least)
            for session in sessions:
                await case.begin(session)
                await bare.begin(f"{session}_bare", own=False)
            await anyio.to_thread.run_sync(ears.several, "took", WAKES)
            await anyio.sleep(2.0)
            for name, writers in (("idle", 0), (f"{BUSY} writers", BUSY)):
                took, bound = list[float](), list[float]()
                async with anyio.create_task_group() as group:
                    for number in range(writers):
                        group.start_soon(_write, rig, home, f"ses_busy{number}")
                    await anyio.sleep(1.0)
                    for session in sessions:
                        took.append(await _woken(case, session, ears))
                        bound.append(await _woken(case, f"{session}_bare", floor, calls))
                    group.cancel_scope.cancel()
                ratio = p(took, 50) / p(bound, 50)
                print(
                    f"wake, {name:10} n={len(took)}: p50 {p(took, 50):.1f} ms, p95 {p(took, 95):.1f} ms; floor "
                    f"{p(bound, 50):.1f}, {p(bound, 95):.1f} ms; ratio of p50 {ratio:.2f} (≤ {RATIO})"
                )
                good &= ratio <= RATIO
            print(f"leases that another worker had taken first: {ears.counts['held']} of {ears.counts['took']}")
    return good


async def _woken(case: There, session: str, ears: Ears, calls: Connection | None = None) -> float:
    """Post to a session; the time from the end of that to its shift, in milliseconds. `calls` notifies by hand."""
    await case.say(session, f"{session}.{boot_s()}")
    posted_s = boot_s()
    if calls is not None:
        await anyio.to_thread.run_sync(calls.execute, f"notify bare, '{session}'")
    said = await anyio.to_thread.run_sync(ears.next, "took")
    await anyio.sleep(0.05)
    return (said.at_s - posted_s) * 1e3


async def _write(rig: PostgresRig, home: Path, session: str) -> None:
    """Append to a session without end, from a store of its own place."""
    async with opened(rig.address, rig.folder, home / session, 8.0) as store:
        here = There(PostgresRig(rig.address, rig.folder, home / session, store))
        await here.begin(session, own=False)
        lease = await here.take(session)
        while True:
            await here.append(lease, here.result())


async def burst(address: str, home: Path) -> bool:
    """Timers that are due at one instant."""
    async with postgres_rig(home / "posts", address) as rig:
        async with opened(rig.address, rig.folder, home / "parks", 8.0) as own:
            case = There(PostgresRig(rig.address, rig.folder, home / "parks", own))
            worker = case.rig.worker()
            for number in range(TIMERS):
                await case.begin(f"ses_{number:04d}")
                lease = await own.acquire(f"ses_{number:04d}", case.shift(worker))
                await case.append(lease, case.parked("timer", 2**60))
        due_us = int((time.time() + 10.0) * 1e6)
        with rig.sql() as sql:
            sql.execute("update sessions set due_us = %s where status = 'parked'", (due_us,))
        homes = [home / f"burst{number}" for number in range(WORKERS)]
        with fleet(rig.address, rig.folder, homes, limit=64) as children:
            ears = Ears(children)
            await anyio.to_thread.run_sync(ears.several, "took", TIMERS)
            took_s = time.time() - due_us / 1e6
    print(f"burst: {TIMERS} timers at one instant, all begun after {took_s:.1f} s (≤ {BURST_S:.0f})")
    return took_s <= BURST_S


async def drain(address: str, home: Path) -> bool:
    """A worker that is asked to end while it holds sessions; another home goes on with them."""
    async with postgres_rig(home / "posts", address) as rig:
        case = There(rig)
        with fleet(rig.address, rig.folder, [home / "drain0"], limit=25, hold_s=LAST_S) as (first,):
            ears = Ears([first])
            for number in range(DRAINED):
                await case.begin(f"ses_{number:02d}")
            await anyio.to_thread.run_sync(ears.several, "took", DRAINED)
            with fleet(rig.address, rig.folder, [home / "drain1"], limit=25, hold_s=0.0) as (second,):
                others = Ears([second])
                began_s = boot_s()
                first.terminate()
                left = await anyio.to_thread.run_sync(ears.next, "left")
                moved = await anyio.to_thread.run_sync(others.several, "took", DRAINED)
                exit_s = left.at_s - began_s
                took_s = [said.at_s - began_s for said in moved]
    print(
        f"drain: {DRAINED} sessions, gone after {exit_s:.2f} s (≤ {EXIT_S:.0f}); elsewhere p50 {p(took_s, 50):.2f} s, "
        f"p95 {p(took_s, 95):.2f} s (≤ {MOVED_S:.0f})"
    )
    return exit_s <= EXIT_S and p(took_s, 95) <= MOVED_S


async def fair(address: str, home: Path) -> bool:
    """Many due sessions of one project and few of another, which were opened later, and a limit for each."""
    async with postgres_rig(home / "posts", address) as rig:
        async with opened(rig.address, rig.folder, home / "opens", 8.0) as own:
            case = There(PostgresRig(rig.address, rig.folder, home / "opens", own))
            for name, count in FAIR.items():
                for number in range(count):
                    await case.begin(f"ses_{name}{number}", project=name)
                fact = LimitSet(scope="account", name=f"project:{name}", running=CAP)
                await own.post(Post(HOME, f"limit.{name}", case.draft(fact, "user:bench")))
        most = Counter[str]()
        homes = [home / f"fair{number}" for number in range(2)]
        with fleet(rig.address, rig.folder, homes, limit=PLACES, hold_s=SHIFT_S) as children, rig.sql() as sql:
            ears = Ears(children)
            began_s, waits, samples = boot_s(), list[float](), 0
            while len(waits) < FAIR["small"] or boot_s() < began_s + 10 * SHIFT_S:
                running: Counter[str] = Counter(dict(sql.execute(RUNNING).fetchall()))
                most |= running
                samples += 1
                while not ears.lines.empty():
                    said = ears.lines.get()
                    if said.what == "took" and said.session.startswith("ses_small"):
                        waits.append((said.at_s - began_s) / SHIFT_S)
                await anyio.sleep(0.02)
            took = ears.counts["took"] * SHIFT_S / (boot_s() - began_s)
    print(
        f"fair: {FAIR['large']:,} due sessions against {FAIR['small']}, {2 * PLACES} places, at most {CAP} of each "
        f"project: the small one waits p95 {p(waits, 95):.2f} shifts (≤ 2); most at work in {samples} samples: "
        f"{most['large']} and {most['small']} (≤ {CAP}); on average {took:.1f} places were used"
    )
    return p(waits, 95) <= 2.0 and max(most.values()) <= CAP


RUNNING = """
select case when accounts like '%project:small%' then 'small' else 'large' end, count(*) from sessions
where holder <> '' group by 1
"""


async def rate(address: str, home: Path) -> bool:
    """Brains at four homes, each with sessions that ask without end, under a limit of their model."""
    turns = [turn("", ("read", {"path": "a"}))] * 1_000
    starts = list[int]()
    async with postgres_rig(home / "posts", address) as rig, AsyncExitStack() as stack:
        case = There(rig)
        fact = LimitSet(scope="model", name="scripted", per_minute=RATE, burst=RATE_BURST)
        await rig.store.post(Post(HOME, "limit", case.draft(fact, "user:bench")))
        stages = []
        for number in range(WORKERS):
            place = home / f"rate{number}"
            own = await stack.enter_async_context(opened(rig.address, rig.folder, place, 8.0))
            mine = stack.enter_context(closing(Worker.start(place / "workers", f"wrk_{number}")))
            for _ in range(ASKING):
                stages.append(await _asking(turns, own, mine.worker_id))
        with anyio.move_on_after(RATE_S):
            async with anyio.create_task_group() as group:
                for stage in stages:
                    group.start_soon(_ask, stage)
        for stage in stages:
            events = await rig.store.read(stage.session_id)
            starts += [event.at_us for event in events if event.type == "span.model_request_start"]
    starts.sort()
    window = max(sum(at <= each < at + 60_000_000 for each in starts) for at in starts)
    used = (len(starts) - RATE_BURST) / (RATE * (starts[-1] - starts[0]) / 60e6)
    print(
        f"rate: {RATE} requests a minute, {RATE_BURST} at once, for {len(stages)} sessions of {WORKERS} workers: "
        f"{window} in the fullest minute (≤ {RATE + RATE_BURST}), {used:.1%} used (≥ {USED:.0%})"
    )
    return window <= RATE + RATE_BURST and used >= USED


async def _asking(turns: list[dict[str, Any]], store: PostgresStore, worker_id: str) -> Stage:
    """A session in a store, with a brain that would ask without end."""
    stage = Stage(turns, limits=Limits(max_turns=10_000))
    stage.intake = Intake(store, store, SystemClock(), system_entropy, Caller("user:bench"))
    stage.doors = replace(
        stage.doors,
        log=store,
        leases=store,
        snapshots=store,
        worker=replace(stage.doors.worker, worker_id=worker_id, place=store.place_id),
    )
    await stage.open()
    return stage


async def _ask(stage: Stage) -> None:
    """Wake the session whenever it parked, as a worker does at its due time."""
    while True:
        await wake_session(stage.session_id, stage.doors)
        row = await stage.intake.index.find(stage.session_id)
        await anyio.sleep(max(0.0, ((row.due_us or 0) - time.time() * 1e6) / 1e6))


async def storm(address: str, home: Path) -> bool:
    """Processes at one place that all want one session, again and again: one shift at a time."""
    async with postgres_rig(home / "posts", address) as rig:
        case = There(rig)
        await case.begin("ses_storm")
        with fleet(rig.address, rig.folder, [home / "storm"] * STORM, limit=1) as children:
            ears = Ears(children)
            await anyio.to_thread.run_sync(ears.next, "took")
            for number in range(1, ROUNDS):
                row = await case.row("ses_storm")
                while row.holder or row.status != "parked":
                    await anyio.sleep(0.01)
                    row = await case.row("ses_storm")
                await case.say("ses_storm", f"round{number}")
                await anyio.to_thread.run_sync(ears.next, "took")
            counts = ears.counts
        events = await case.store.read("ses_storm")
        shifts = [event for event in events if event.type == "shift.started"]
        pairs = itertools.pairwise(events)
        one = all(event.epoch == later.epoch or later.type == "shift.started" for event, later in pairs)
        epochs = [event.epoch for event in shifts]
    apart = epochs == sorted(set(epochs))
    print(
        f"storm: {STORM} processes, {ROUNDS} rounds: {len(shifts)} shifts, each epoch once: {apart}, one at a time: "
        f"{one}; fenced {counts['fenced']}, held {counts['held']}, errors {counts['error']}"
    )
    return len(shifts) == ROUNDS and apart and one and not counts["fenced"] and not counts["error"]


async def rings(address: str, home: Path) -> bool:
    """Posts that make sessions due, by clients with stores of their own, with a ring after each commit or without."""
    spent_s = {False: 0.0, True: 0.0}
    async with postgres_rig(home / "posts", address) as rig, AsyncExitStack() as stack:
        cases = []
        for number in range(CLIENTS):
            place = home / f"rings{number}"
            own = await stack.enter_async_context(opened(rig.address, rig.folder, place, 8.0))
            case = There(PostgresRig(rig.address, rig.folder, place, own))
            await case.begin(f"ses_{number:02d}")
            cases.append(case)
        real, count = Bell.ring, itertools.count()

        async def post(case: There, session: str) -> None:
            for _ in range(POSTS):
                await case.say(session, f"post.{next(count)}")

        for turn in range(2 * TURNS):
            ringing = bool(turn % 2)
            Bell.ring = real if ringing else lambda *_: None  # type: ignore[method-assign]
            began_s = boot_s()
            async with anyio.create_task_group() as group:
                for number, case in enumerate(cases):
                    group.start_soon(post, case, f"ses_{number:02d}")
            spent_s[ringing] += boot_s() - began_s if turn > 1 else 0.0  # the statements are prepared
        Bell.ring = real  # type: ignore[method-assign]
    rates = {ringing: (TURNS - 1) * CLIENTS * POSTS / spent for ringing, spent in spent_s.items()}
    share = rates[True] / rates[False]
    print(
        f"rings: {CLIENTS} clients post {rates[False]:.0f}/s without rings, {rates[True]:.0f}/s with one after each "
        f"commit: {share:.0%} (≥ {RUNG:.0%})"
    )
    return share >= RUNG


CASES = {"wake": wake, "burst": burst, "drain": drain, "storm": storm, "fair": fair, "rate": rate, "rings": rings}
