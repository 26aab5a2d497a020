"""Cases of `bench/many.py` about leases. Workers are processes at places of their own; they append, and run nothing."""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from holdfast.errors import LeaseHeld
from holdfast.log.postgres.beats import TTL_S

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.log.elsewhere import There, holder, opened
from tests.log.processes import line, tell
from tests.log.rigs import PostgresRig, port_of, postgres_rig
from tests.support.commit_proxy import Way, commit_proxy

SESSIONS = tuple(f"ses_{number:02d}" for number in range(20))
SWEEP_S = 1.0
"""Interval at which a worker looks for due sessions."""


@asynccontextmanager
async def sessions(address: str, home: Path, place: str) -> AsyncIterator[tuple[There, PostgresRig]]:
    """New tables with the sessions, seen from a place."""
    async with postgres_rig(home / "first", address) as rig:
        async with opened(rig.address, rig.folder, home / place, TTL_S) as store:
            here = PostgresRig(rig.address, rig.folder, home / place, store)
            case = There(here)
            for session_id in SESSIONS:
                await case.begin(session_id)
            yield case, rig
            here.kill_all()


async def taken_over(case: There, until_s: float = 60.0) -> list[float]:
    """Take the sessions as a worker does that looks for due ones every second; the times that it took, in seconds."""
    began_s, took_s, worker = time.monotonic(), list[float](), case.rig.worker()
    while len(took_s) < len(SESSIONS) and time.monotonic() < began_s + until_s:
        for session_id in await case.store.due(2**60):
            try:
                await case.store.acquire(session_id, case.shift(worker))
                took_s.append(time.monotonic() - began_s)
            except LeaseHeld:
                continue
        await anyio.sleep(SWEEP_S)
    return took_s


def shown(name: str, took_s: list[float], most_s: float) -> bool:
    """Print the times of a takeover; returns True if all were taken over in time."""
    p95 = statistics.quantiles(took_s, n=20)[18]
    print(
        f"{name:24} {len(took_s)} taken over, p50 {statistics.median(took_s):5.2f} s, p95 {p95:5.2f} s (≤ {most_s:g})"
    )
    return len(took_s) == len(SESSIONS) and p95 <= most_s


async def answers(child: subprocess.Popen[str]) -> list[str]:
    """What a worker says about each of the sessions."""
    return [(await anyio.to_thread.run_sync(line, child))[0] for _ in SESSIONS]


async def heads(case: There) -> list[int]:
    """The heads of the sessions."""
    return [(await case.store.find(session_id)).head for session_id in SESSIONS]


async def kill(address: str, home: Path) -> bool:
    """A killed worker's sessions are taken over elsewhere, and at its own place."""
    good = True
    for name, place, most_s in (("killed, elsewhere", "b", TTL_S + 2.0), ("killed, same place", "a", 2.0)):
        async with sessions(address, home, place) as (case, rig):
            with holder(rig, home / "a", TTL_S, sessions=SESSIONS) as child:
                child.kill()
                good &= shown(name, await taken_over(case), most_s)
    return good


async def zombie(address: str, home: Path) -> bool:
    """A stopped worker's sessions are taken over; when it runs again, it appends and begins nothing."""
    async with sessions(address, home, "b") as (case, rig):
        with holder(rig, home / "a", TTL_S, sessions=SESSIONS) as child:
            child.send_signal(signal.SIGSTOP)
            took_s = await taken_over(case)
            await anyio.sleep(max(0.0, 2 * TTL_S - took_s[-1]))
            child.send_signal(signal.SIGCONT)
            said = []
            for verb in ("act", "record"):
                tell(child, verb)
                said += await answers(child)
        good = shown("stopped, 2 lifetimes", took_s, TTL_S + 2.0)
    print(f"{'':24} {said.count('Fenced')} of {len(said)} appends of the stopped worker were refused")
    return good and set(said) == {"Fenced"}


async def partition(address: str, home: Path) -> bool:
    """A worker that is parted from the database begins nothing and is succeeded."""
    good, port = True, port_of(address)
    ways: dict[str, tuple[Way, ...]] = {"both ways": ("there", "back"), "there": ("there",), "back": ("back",)}
    for name, cut in ways.items():
        with commit_proxy(port) as proxy:
            through = address.replace(f":{port}/", f":{proxy.port}/")
            async with sessions(address, home, "b") as (case, rig):
                with holder(rig, home / "a", TTL_S, through, SESSIONS) as child:
                    proxy.part(*cut)
                    took_s = await taken_over(case)
                    before = await heads(case)
                    tell(child, "act")
                    await anyio.sleep(SWEEP_S)
                    begun = sum(now - then for now, then in zip(await heads(case), before, strict=True))
                    proxy.join()
                    said = await answers(child)
                good &= shown(f"parted, {name}", took_s, TTL_S + 2.0)
        print(f"{'':24} {begun} begun while parted; then {said.count('Fenced')} of {len(said)} refused")
        good &= begun == 0 and set(said) == {"Fenced"}
    return good


Case = Callable[[str, Path], Coroutine[None, None, bool]]
CASES: dict[str, Case] = {each.__name__: each for each in (kill, zombie, partition)}
