"""Limits of all of one hands together: bombs in small, as root's hands and as an ordinary user's; the large ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast.errors import SandboxUnavailable
from holdfast.facts.session import HandsPolicy
from holdfast.hands.base import Hands
from holdfast.hands.box import processes
from holdfast.hands.box.supervisor.cgroups import RECORD, Group, recorded
from holdfast.hands.limits import mechanisms
from holdfast.hands.limits.plan import remove_all_groups
from holdfast.testing.hands import bash, run
from tests.hands import limits_driver
from tests.hands.limits_driver import EXPECTED, LARGE, SMALL, TOUCH
from tests.hands.rigs import RealRig, bubblewrap, real, unsandboxed
from tests.support.as_user import run_as_user
from tests.support.child import command_of
from tests.support.waiting import PATIENCE_S


def held(found: dict[str, Any]) -> None:
    """Every bomb was ended for the right reason, nothing of it lives, and the next call works."""
    for name, limit in EXPECTED.items():
        told = found[name]
        assert (told["limit"], told["ok"], told["cancelled"]) == (limit, False, False), f"{name}: {told}"
        assert told["left"] == 0, (name, told)
        assert told["after"] == "well\n", (name, told)
        assert not told["timed_out"], (name, told)
    assert found["flood"]["total"] == 300_000_000
    assert (found["flood"]["limit"], found["flood"]["left"]) == ("", 0)
    assert (found["away"]["ok"], found["away"]["left"]) == (True, 0)
    assert found["away"]["killed"] >= 3


async def test_bombs_go_off_inside_alone(tmp_path: Path) -> None:
    found = await limits_driver.drop(tmp_path, SMALL)
    held(found)
    rung = mechanisms.find()
    expected = "hard" if rung.hard else "soft"
    assert found["isolation"]["memory"] == expected
    assert found["isolation"]["disk"] == "soft"
    spent = sum(map(float, found["processor time"][::2]))
    if "cpu" in rung.controllers:
        assert spent < 0.9, found["processor time"]


@pytest.mark.faults
def test_bombs_go_off_inside_alone_for_an_ordinary_user(tmp_path: Path) -> None:
    found = run_as_user(tmp_path, "tests.hands.limits_driver")
    held(found)
    assert found["isolation"]["memory"] == found["isolation"]["disk"] == found["cpu"] == "soft"
    assert found["isolation"]["processes"] == "hard"
    assert set(found["processor time"][1::2]) == {"1"}


@pytest.mark.faults
async def test_large_bombs(tmp_path: Path) -> None:
    held(await limits_driver.drop(tmp_path, LARGE, timeout_s=90.0))


@pytest.mark.faults
def test_large_bombs_of_an_ordinary_user(tmp_path: Path) -> None:
    held(run_as_user(tmp_path, "tests.hands.limits_driver", "large", timeout_s=400.0))


async def started(hands: Hands, call: str, command: str, *, timeout_s: float = PATIENCE_S) -> None:
    """Start a call, and return when its command runs: it makes a file of the call's name."""
    await hands.start(1, call, bash(f"touch {call}; {command}", timeout_s))


async def exists(path: Path) -> None:
    """Wait until that file is there."""
    with anyio.fail_after(PATIENCE_S):
        while not path.exists():  # noqa: ASYNC110 - a process of the sandbox makes it
            await anyio.sleep(0.005)


async def test_only_the_call_that_takes_the_memory_is_ended(tmp_path: Path) -> None:
    async with real(tmp_path, bubblewrap) as rig:
        hands = await rig.provider.provision(rig.spec(policy=HandsPolicy(memory_bytes=256 << 20)), 1)
        await started(hands, "calm", "sleep 60")
        await exists(rig.workspace / "calm")
        # The shell lives on: its own end is not what tells.
        result = await run(hands, "bomb", bash(f"python3 -c '{TOUCH.format(n=1 << 30)}'; sleep 30", 40.0))
        assert (result.limit, result.ok) == ("memory", False)
        assert (await hands.status(1, "calm")).state == "running"
        await hands.kill(1, "calm")
        calm = await hands.wait(1, "calm")
        assert (calm.limit, calm.cancelled) == ("", True)


async def test_without_limits_nothing_is_ended(tmp_path: Path) -> None:
    none = HandsPolicy(memory_bytes=None, processes=None, disk_bytes=None)
    async with real(tmp_path, bubblewrap) as rig:
        hands = await rig.provider.provision(rig.spec(policy=none), 1)
        assert {hands.identity.isolation[kind] for kind in ("memory", "disk", "cpu")} == {"none"}
        result = await run(
            hands, "1.0", bash(f"python3 -c '{TOUCH.format(n=300 << 20)}' & sleep 0.4; kill %1; echo well")
        )
        assert (result.output, result.limit) == ("well\n", "")


async def test_a_limit_outlives_its_watcher(tmp_path: Path) -> None:
    """The watcher is killed: another one takes its place."""
    async with real(tmp_path, bubblewrap) as rig:
        hands = await rig.provider.provision(rig.spec(policy=HandsPolicy(disk_bytes=16 << 20)), 1)
        await run(hands, "0.0", bash("true"))
        killed = watcher(rig, hands)
        os.kill(killed, signal.SIGKILL)
        with anyio.fail_after(PATIENCE_S):
            while watcher(rig, hands) in (0, killed):  # noqa: ASYNC110 - the supervisor starts it
                await anyio.sleep(0.005)
        result = await run(hands, "1.0", bash("for i in $(seq 400); do head -c 1000000 /dev/zero > f$i; done", 30.0))
        assert result.limit == "disk"


def watcher(rig: RealRig, hands: Hands) -> int:
    """The child of the steward."""
    return beside(beside(rig.supervisor(hands)))


def beside(parent: int) -> int:
    """A child of that process that is not the sandbox; 0 for none."""
    for entry in processes.list_all().values():
        if parent and entry.parent == parent and entry.state not in "ZX":
            command = command_of(entry.pid)
            if command and b"bwrap" not in command:
                return entry.pid
    return 0


async def test_a_session_does_not_get_its_disk_anew_with_new_hands(tmp_path: Path) -> None:
    policy = HandsPolicy(disk_bytes=32 << 20)
    fill = "for i in $(seq {n}); do head -c 1000000 /dev/zero > {name}$i; done"
    async with real(tmp_path, bubblewrap) as rig:
        first = await rig.provider.provision(rig.spec(policy=policy), 1)
        result = await run(first, "1.0", bash(fill.format(n=24, name="a")))
        assert result.limit == ""
        await first.release(1)
        second = await rig.provider.provision(rig.spec(policy=policy), 2)
        result = await run(second, "1.0", bash(fill.format(n=200, name="b"), 30.0), epoch=2)
        assert result.limit == "disk"
        assert sum(path.stat().st_size for path in rig.workspace.glob("b*")) < 160_000_000


async def test_groups_of_a_killed_supervisor_are_cleared(tmp_path: Path) -> None:
    if not mechanisms.find().hard:
        pytest.skip("no control group can be made here")
    async with real(tmp_path, bubblewrap) as rig:
        hands = await rig.provider.provision(rig.spec(), 1)
        group = recorded(str(rig.folder / hands.identity.hands_id / RECORD))
        await started(hands, "busy", "sleep 60")
        assert group.folders
        assert all(map(os.path.isdir, group.folders))
        assert remove_all_groups(rig.folder) == 1
        assert all(map(os.path.isdir, group.folders)), "a living supervisor lost its groups"
        await rig.kill(hands)
        await rig.provider.probe()
        assert not any(map(os.path.exists, group.folders))
        other = await rig.provider.provision(rig.spec(), 1)
        mine = recorded(str(rig.folder / other.identity.hands_id / RECORD))
        await other.release(1)
        assert not any(map(os.path.exists, mine.folders))


async def test_hard_limits_can_be_demanded(tmp_path: Path) -> None:
    async with real(tmp_path, bubblewrap) as rig:
        with pytest.raises(SandboxUnavailable, match=r"disk is soft.*leave `disk` out"):
            await rig.provider.provision(rig.spec(policy=HandsPolicy(require_hard=("disk",))), 1)
        with pytest.raises(SandboxUnavailable, match="sets no limit for it; set `cpus`"):
            await rig.provider.provision(rig.spec(policy=HandsPolicy(require_hard=("cpu",))), 1)
        assert not rig.folder.exists()
    (tmp_path / "bare").mkdir()
    async with real(tmp_path / "bare", unsandboxed) as rig:
        with pytest.raises(SandboxUnavailable, match="memory"):
            await rig.provider.provision(rig.spec(policy=HandsPolicy(require_hard=("memory",))), 1)


def test_a_group_of_the_second_version_is_ended_whole() -> None:
    """The real kernel: cgroup.kill on a group without controllers, with processes that ignore signals."""
    mount = next((m for kind, m, _ in mechanisms._mounts(mechanisms.HERE) if kind == "cgroup2"), "")
    if os.getuid() != 0 or not os.path.exists(f"{mount}/cgroup.procs") or not mount:
        pytest.skip("only root can make a group of cgroup v2 without a delegation")
    folder = f"{mount}/holdfast-test-{os.getpid()}"
    os.mkdir(folder)
    group = Group([folder])
    script = "import os, signal, time; signal.signal(15, signal.SIG_IGN); os.fork(); os.fork(); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        Path(group.doors[0]).write_text(str(child.pid))
        assert group.remove()
        assert child.wait(timeout=PATIENCE_S) == -signal.SIGKILL
        assert not os.path.exists(folder)
        assert group.remove(), "safe to repeat"
    finally:
        child.kill()
        group.remove()
