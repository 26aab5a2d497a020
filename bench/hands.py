"""What a tool call costs on real hands, beside a plain subprocess in the same run.

    python bench/hands.py [--calls N] [--cold N]

Targets: a call on warm hands p50 ≤ 15 ms and p95 ≤ 30 ms; making hands and their first call ≤ 200 ms.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from holdfast.clock import SystemClock
from holdfast.facts.session import Workspace
from holdfast.hands.base import ExecRequest, Hands, HandsSpec, Provider
from holdfast.hands.bubblewrap import BubblewrapProvider
from holdfast.hands.unsandboxed import UnsandboxedProvider
from holdfast.ids import new_hands_id, system_entropy

WARM_P50_MS, WARM_P95_MS, COLD_MS = 15.0, 30.0, 200.0
TRUE = ExecRequest("bash", {"command": "true"}, 30.0)


def percentiles(times_ms: list[float]) -> tuple[float, float, float]:
    """p50, p95 and the largest."""
    ordered = sorted(times_ms)
    return ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.95)], ordered[-1]


def row(name: str, times_ms: list[float], target: str = "") -> None:
    """One line of the table."""
    p50, p95, most = percentiles(times_ms)
    print(f"{name:44} {len(times_ms):5d} {p50:9.2f} {p95:9.2f} {most:9.2f}  {target}")


async def timed(step: Callable[[], Awaitable[object]]) -> float:
    """How long it takes, in milliseconds."""
    began = time.perf_counter()
    await step()
    return (time.perf_counter() - began) * 1000


async def call(hands: Hands, call_id: str, request: ExecRequest = TRUE) -> None:
    """Start a call and wait for its end."""
    await hands.start(1, call_id, request)
    await hands.wait(1, call_id)


def floor(count: int) -> list[float]:
    """A plain `bash -c true` from this process."""
    out = []
    for _ in range(count):
        began = time.perf_counter()
        subprocess.run(["/bin/bash", "-c", "true"], check=True, stdin=subprocess.DEVNULL)
        out.append((time.perf_counter() - began) * 1000)
    return out


def spec(workspace: Path) -> HandsSpec:
    """A spec of new hands on that workspace."""
    hands_id = new_hands_id(SystemClock().now_us(), system_entropy)
    return HandsSpec("ses_bench", hands_id, Workspace(str(workspace), disposable=True))


async def cold(provider: Provider, workspace: Path, count: int) -> list[float]:
    """Making hands and their first call."""
    out = []
    for _ in range(count):
        began = time.perf_counter()
        hands = await provider.provision(spec(workspace), 1)
        await call(hands, "1.0")
        out.append((time.perf_counter() - began) * 1000)
        await hands.release(1)
    return out


async def measure(name: str, provider: Provider, workspace: Path, calls: int, colds: int) -> bool:
    """All rows of one provider; False when a target is missed."""
    first = await cold(provider, workspace, colds)
    row(f"{name}: make hands and first call", first, f"p50 ≤ {COLD_MS:.0f}")
    hands = await provider.provision(spec(workspace), 1)
    await call(hands, "0.0")
    warm = [await timed(lambda number=number: call(hands, f"1.{number}")) for number in range(calls)]  # type: ignore[misc]
    row(f"{name}: bash -c true on warm hands", warm, f"p50 ≤ {WARM_P50_MS:.0f}, p95 ≤ {WARM_P95_MS:.0f}")
    read = ExecRequest("read", {"file_path": "file"}, 30.0)
    await call(hands, "2.0", ExecRequest("bash", {"command": "seq 1 100 > file"}, 30.0))
    reads = [await timed(lambda number=number: call(hands, f"3.{number}", read)) for number in range(calls)]  # type: ignore[misc]
    row(f"{name}: read", reads)
    row(f"{name}: status", [await timed(lambda: hands.status(1, "1.0")) for _ in range(calls)], "p50 < 1")
    quick = ExecRequest("glob", {"pattern": "*"}, 30.0)
    starts = []
    for number in range(calls):
        began = time.perf_counter()
        await hands.start(1, f"4.{number}", quick)
        starts.append((time.perf_counter() - began) * 1000)
        await hands.wait(1, f"4.{number}")
    row(f"{name}: start alone (journaled)", starts, "p50 < 1")
    await hands.release(1)
    p50, p95, _ = percentiles(warm)
    return p50 <= WARM_P50_MS and p95 <= WARM_P95_MS and percentiles(first)[0] <= COLD_MS


async def main(calls: int, colds: int, home: Path) -> int:
    """Measure, print, and say by the exit status whether the targets are met."""
    workspace = home / "work"
    workspace.mkdir()
    machine = f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{machine}, Python {platform.python_version()}")
    print(f"{' '.join(sys.argv)}  (milliseconds)\n")
    print(f"{'':44} {'n':>5} {'p50':>9} {'p95':>9} {'max':>9}  target")
    row("floor: subprocess bash -c true", floor(calls))
    met = await measure("bubblewrap", BubblewrapProvider(home / "hands"), workspace, calls, colds)
    await measure("no sandbox", UnsandboxedProvider(home / "hands"), workspace, calls, colds)
    row("floor again", floor(calls))
    print("\ntargets met" if met else "\ntargets MISSED")
    return 0 if met else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--cold", type=int, default=15)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    folder.chmod(0o711)
    try:
        raise SystemExit(anyio.run(main, given.calls, given.cold, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
