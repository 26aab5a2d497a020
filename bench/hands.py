"""What a tool call costs on real hands, beside a plain subprocess in the same run.

    python bench/hands.py [--calls N] [--cold N]

Targets: a call on warm hands p50 ≤ 15 ms and p95 ≤ 30 ms, and p50 ≤ 10 ms and p95 ≤ 20 ms at the supervisor's own
socket, without what the caller adds; making hands and their first call ≤ 200 ms; who is to be told of a job's end is
told ≤ 1 s after it.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import shutil
import socket
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
DOOR_P50_MS, DOOR_P95_MS, NEWS_MS = 10.0, 20.0, 1000.0
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


def spec(workspace: Path, on_news: tuple[str, ...] = ()) -> HandsSpec:
    """A spec of new hands on that workspace."""
    hands_id = new_hands_id(SystemClock().now_us(), system_entropy)
    return HandsSpec("ses_bench", hands_id, Workspace(str(workspace), disposable=True), on_news=on_news)


def at_the_supervisor(address: str, count: int) -> list[float]:
    """Start and end of `bash -c true`, seen from the supervisor's socket: one question, one answer, no event loop."""
    out = []
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(address)
        lines = door.makefile("rb")
        request = {"tool": "bash", "input": {"command": "true"}, "timeout_s": 30.0, "output_cap": 30_000, "seen": {}}
        for number in range(count):
            call = {"epoch": 1, "call": f"door.{number}"}
            start = {"id": 1, "verb": "start", **call, "request": request}
            asked = json.dumps(start) + "\n" + json.dumps({"id": 2, "verb": "wait", **call}) + "\n"
            began = time.perf_counter()
            door.sendall(asked.encode())
            while json.loads(lines.readline())["id"] != 2:
                pass
            out.append((time.perf_counter() - began) * 1000)
    return out


async def told(provider: Provider, workspace: Path, count: int) -> list[float]:
    """From the end of a job to the start of the command that is to be told of it."""
    ended, heard = workspace / "ended", workspace.parent / "heard"
    script = ("/bin/sh", "-c", f'date +%s%N >> "{heard}"')
    hands = await provider.provision(spec(workspace, script), 1)
    for number in range(count):
        await hands.start(1, f"5.{number}", ExecRequest("job", {"command": "date +%s%N >> ended"}, 60.0))
        while not heard.exists() or len(heard.read_text().splitlines()) <= number:  # noqa: ASYNC110 - another process
            await anyio.sleep(0.001)
    await hands.release(1)
    ends, hears = ended.read_text().split(), heard.read_text().split()
    heard.unlink()
    ended.unlink()
    return [(int(later) - int(sooner)) / 1e6 for sooner, later in zip(ends, hears, strict=True)]


async def moved(hands: Hands) -> tuple[list[float], list[float]]:
    """10,000 files, 157 MB, out and in as a tar."""
    make = "mkdir many && cd many && for i in $(seq 100); do mkdir $i; done && head -c 157000000 /dev/urandom | "
    split = "split -a 4 -d -b 15700 --filter='cat > $((10#${FILE: -2}+1))/$FILE' - f"
    await call(hands, "6.0", ExecRequest("bash", {"command": make + split}, 300.0))
    tar = io.BytesIO()
    out = [await timed(lambda: hands.pack(1, "many", tar))]
    tar.seek(0)
    return out, [await timed(lambda: hands.unpack(1, "again", tar))]


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
    door = at_the_supervisor(hands.identity.address, calls)
    row(f"{name}: the same at the supervisor", door, f"p50 ≤ {DOOR_P50_MS:.0f}, p95 ≤ {DOOR_P95_MS:.0f}")
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
    out, back = await moved(hands)
    row(f"{name}: pack 10,000 files, 157 MB", out)
    row(f"{name}: unpack them", back)
    await hands.release(1)
    news = await told(provider, workspace, colds)
    row(f"{name}: job's end to who is told", news, f"max ≤ {NEWS_MS:.0f}")
    most = (WARM_P50_MS, WARM_P95_MS, DOOR_P50_MS, DOOR_P95_MS)
    took = percentiles(warm)[:2] + percentiles(door)[:2]
    met = all(time_ms <= most_ms for time_ms, most_ms in zip(took, most, strict=True))
    return met and percentiles(first)[0] <= COLD_MS and max(news) <= NEWS_MS


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
