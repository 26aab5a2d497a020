"""Bombs in a sandbox with small limits: what ended each, what it left, how the host took it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import anyio

from holdfast.facts.session import HandsPolicy
from holdfast.hands.base import ExecResult, Hands
from holdfast.hands.box import processes
from holdfast.testing.hands import bash, run
from tests.hands.rigs import RealRig, bubblewrap, real
from tests.support.child import command_of
from tests.support.waiting import PATIENCE_S

SMALL = HandsPolicy(memory_bytes=256 << 20, processes=64, disk_bytes=96 << 20)
LARGE = HandsPolicy(memory_bytes=2 << 30, processes=500, disk_bytes=768 << 20)

TOUCH = "x = bytearray({n})\nfor i in range(0, len(x), 4096): x[i] = 1\nimport time; time.sleep(30)"


DEEP = """
import os, time
for _ in range(1200):
    os.mkdir("d")
    os.chdir("d")
for number in range({files}):
    open(str(number), "wb").write(bytes(1000000))
time.sleep(30)
"""


def bombs(policy: HandsPolicy) -> dict[str, str]:
    """Each bomb wants a few times what the policy allows.

    Files may be in memory, and count as both: those that write do so slowly enough to be found for the disk first.
    """
    assert policy.memory_bytes is not None
    assert policy.disk_bytes is not None
    memory, disk = policy.memory_bytes, policy.disk_bytes
    touch = TOUCH.format(n=memory * 4)
    each = TOUCH.format(n=memory // 8)
    hidden = f"exec 3>x$i; rm x$i; for j in $(seq 40); do head -c {disk // 80} /dev/zero >&3; sleep 0.2; done"
    files = disk * 4 // 1_000_000
    return {
        "memory of one": f"python3 -c '{touch}'",
        "memory of many": f"for i in $(seq 20); do python3 -c '{each}' & done; wait",
        "forks": "bomb() { bomb | bomb & }; bomb; sleep 60",
        "one file after another": f"for i in $(seq {files}); do head -c 1000000 /dev/zero > f$i; sleep 0.01; done",
        "files without a name": f"for i in $(seq 8); do ({hidden}) & done; wait",
        "empty files": f'python3 -c "for i in range({disk}): open(str(i), chr(119)).close()"',
        "deep folders": f"python3 -c '{DEEP.format(files=files // 2)}'",
    }


EXPECTED = {
    "memory of one": "memory",
    "memory of many": "memory",
    "forks": "processes",
    "one file after another": "disk",
    "files without a name": "disk",
    "empty files": "inodes",
    "deep folders": "inodes",
}

SPIN = """python3 -c '
import os, time
for _ in range(2):
    if os.fork() == 0:
        end = time.monotonic() + 1.0
        while time.monotonic() < end: pass
        print(time.process_time(), len(os.sched_getaffinity(0)), flush=True)
        os._exit(0)
os.wait(), os.wait()
'"""

GET_AWAY = "for i in 1 2 3; do (setsid bash -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' &) ; done; echo away"


async def drop(base: Path, policy: HandsPolicy, *, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
    """Drop them all, one after another, and a harmless call after each."""
    out: dict[str, Any] = {}
    async with real(base, bubblewrap) as rig:
        hands = await rig.provider.provision(rig.spec(policy=policy), 1)
        out["isolation"] = dict(hands.identity.isolation)
        before = _free()
        for number, (name, command) in enumerate(bombs(policy).items()):
            began = time.monotonic()
            result = await run(hands, f"{number}.0", bash(command, timeout_s))
            out[name] = {**_told(result), "took_s": time.monotonic() - began, "left": await _left(rig, hands)}
            after = await run(hands, f"{number}.1", bash("find . -mindepth 1 -delete; echo well"))
            out[name]["after"] = after.output[-5:] + after.limit
        slow = await rig.provider.provision(rig.spec(policy=HandsPolicy(cpus=0.5)), 1)
        out["cpu"] = slow.identity.isolation["cpu"]
        out["processor time"] = (await run(slow, "spin", bash(SPIN))).output.split()
        await slow.release(1)
        flood = await run(hands, "flood", bash("head -c 300000000 /dev/zero | tr '\\0' y >&2", timeout_s))
        out["flood"] = {**_told(flood), "total": flood.bytes_total, "left": await _left(rig, hands)}
        away = await run(hands, "away", bash(GET_AWAY))
        out["away"] = {**_told(away), "killed": away.killed, "left": await _left(rig, hands)}
        out["taken"] = before - _free()
    return out


def _told(result: ExecResult) -> dict[str, Any]:
    return {
        "ok": result.ok,
        "limit": result.limit,
        "cancelled": result.cancelled,
        "timed_out": result.timed_out,
        "output": result.output[-200:],
    }


async def _left(rig: RealRig, hands: Hands) -> int:
    """Processes of the sandbox beside its own: bubblewrap, the agent, the watcher and what it counts with."""
    supervisor = rig.supervisor(hands)
    left = -1
    for _ in range(int(PATIENCE_S / 0.01)):
        left = len([entry for entry in processes.descendants(supervisor) if not _own(entry.pid)])
        if left == 0:
            break
        await anyio.sleep(0.01)
    return left


def _own(pid: int) -> bool:
    said = command_of(pid)
    return not said or b"bwrap" in said or b"PACKAGES" in said


def _free() -> int:
    """Bytes of memory that the host has left."""
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))


def main() -> None:
    """`limits_driver FOLDER [large]`: print what was found as JSON."""
    policy, timeout_s = (LARGE, 90.0) if "large" in sys.argv[2:] else (SMALL, 30.0)
    found = anyio.run(lambda: drop(Path(sys.argv[1]), policy, timeout_s=timeout_s))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
