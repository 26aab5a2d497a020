"""The rungs on machines that are not this one: folders that look like their control groups."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.errors import SandboxUnavailable
from holdfast.facts.base import Isolation
from holdfast.facts.session import HandsPolicy, Workspace
from holdfast.hands.base import HandsSpec, Layer
from holdfast.hands.box.supervisor import cgroups, quota, usage
from holdfast.hands.box.supervisor.watcher import Watcher
from holdfast.hands.box.wire import Channel
from holdfast.hands.limits.mechanisms import Machine, Rung, find
from holdfast.hands.limits.plan import able, demand, findings, held, holding_of, start_command
from tests.support.child import await_end
from tests.support.waiting import PATIENCE_S

HOURS = itertools.count(1)
ALL = "cpuset cpu io memory pids"
POLICY = HandsPolicy(memory_bytes=1 << 30, processes=100, cpus=1.5)
WALLS: dict[str, Isolation] = {"files": "hard", "processes": "hard", "memory": "none", "disk": "none", "cpu": "none"}

SYSTEMD_RUN = """#!/bin/sh
echo "$@" >> {log}
{refuse}
while [ "$1" != "--" ]; do shift; done
shift
exec "$@"
"""


class Fake:
    """A machine in a folder: what its /proc says, its hierarchies, and a systemd-run that starts nothing."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.mount = base / "cgroup"
        self.mounts: list[str] = []
        self.log = base / "systemd.log"
        (base / "proc" / "self").mkdir(parents=True)
        self.group("0::/")

    def group(self, *lines: str) -> None:
        """Where this process is."""
        (self.base / "proc/self/cgroup").write_text("\n".join(lines) + "\n")

    def unified(self, path: str, controllers: str = ALL, *, enabled: str = "") -> Path:
        """A folder of cgroup v2 with those controllers."""
        if not self.mounts:
            self._mount("cgroup2", self.mount, "rw")
            self._files(self.mount, controllers, "")
        self._files(self.mount / path.lstrip("/"), controllers, enabled)
        return self.mount / path.lstrip("/")

    def _files(self, folder: Path, controllers: str, enabled: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.controllers").write_text(controllers + "\n")
        (folder / "cgroup.subtree_control").write_text(enabled + "\n")
        (folder / "cgroup.procs").write_text("")

    def _mount(self, kind: str, path: Path, options: str) -> None:
        self.mounts.append(f"{kind} {path} {kind} {options} 0 0")
        path.mkdir(parents=True, exist_ok=True)
        (self.base / "proc/self/mounts").write_text("\n".join(self.mounts) + "\n")

    def first_version(self, *controllers: str) -> None:
        """Hierarchies of cgroup v1."""
        for name in controllers:
            self._mount("cgroup", self.base / "v1" / name, f"rw,{name}")

    def machine(self, *, root: bool = False, systemd: bool = False, refuse: str = "") -> Machine:
        """How it is looked at."""
        program = self.base / "systemd-run"
        if systemd:
            program.write_text(
                SYSTEMD_RUN.format(log=self.log, refuse=f"echo {refuse!r} >&2; exit 1" if refuse else "")
            )
            program.chmod(0o755)
        return Machine(str(self.base / "proc"), str(program), 0 if root else os.getuid() or 1)


def spec(workspace: Path, policy: HandsPolicy = POLICY, **changes: Any) -> HandsSpec:
    """Hands under a policy."""
    return HandsSpec("ses_a", "hnd_a", Workspace(str(workspace)), policy=policy, **changes)


def made(rung: Rung, base: Path, policy: HandsPolicy = POLICY) -> cgroups.Group:
    """The groups of a policy on a rung, made where the fake machine has its folders."""
    (base / "hnd_a").mkdir(exist_ok=True)
    holding = holding_of(spec(base, policy), rung, base / "hnd_a")
    return cgroups.make(msgspec.to_builtins(holding.plan), str(base / "hnd_a" / cgroups.RECORD))


def read(folder: str | Path, name: str) -> str:
    """What stands in a file of a group."""
    return (Path(folder) / name).read_text().strip()


def test_a_scope_of_our_own_comes_first(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    inside = fake.unified("/user.slice/a.scope")
    fake.group("0::/user.slice/a.scope")
    rung = find(fake.machine(systemd=True))
    assert (rung.kind, rung.controllers) == ("scope", ("memory", "pids", "cpu"))
    assert "--user --scope" in fake.log.read_text()
    assert "Delegate=yes" in fake.log.read_text()
    command, environment = start_command(rung, "hnd_a")
    assert "--unit=holdfast-hnd_a" in command
    assert command[-1] == "--"
    assert environment["XDG_RUNTIME_DIR"].startswith("/run/user/")
    found = made(rung, tmp_path)
    # This process moved into a leaf, the controllers went to its sibling, and that has the limits.
    assert read(inside / "holdfast-supervisor", "cgroup.procs") == "0"
    assert read(inside, "cgroup.subtree_control") == "+cpu"
    assert found.folders == [str(inside / "holdfast-hnd_a")]
    assert found.doors == [str(inside / "holdfast-hnd_a/cgroup.procs")]
    files = {path.name: path.read_text() for path in Path(found.folders[0]).iterdir()}
    assert files == {
        "memory.max": str(1 << 30), "memory.swap.max": "0", "memory.oom.group": "0", "pids.max": "108",
        "cpu.max": "150000 100000",
    }  # fmt: skip


def test_a_delegated_part_of_the_second_version(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    above = fake.unified("/system.slice/holdfast.service", enabled="memory pids")
    fake.unified("/system.slice/holdfast.service/main", "")
    fake.group("0::/system.slice/holdfast.service/main")
    machine = fake.machine(systemd=True, refuse="Failed to connect to bus")._replace(uid=above.stat().st_uid or 1)
    if above.stat().st_uid == 0:
        os.chown(above, 1, 1)
        os.chown(above / "main", 1, 1)
    rung = find(machine)
    assert (rung.kind, rung.bases["memory"]) == ("v2", str(above))
    assert rung.prefix == ()
    found = made(rung, tmp_path, HandsPolicy(memory_bytes=None, processes=7))
    assert found.folders == [str(above / "holdfast-hnd_a")]
    assert read(found.folders[0], "pids.max") == "15"
    assert not (Path(found.folders[0]) / "memory.max").exists()
    assert not (Path(found.folders[0]) / "cpu.max").exists()


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    """A root that sees somebody else's group, not marked as delegated, makes nothing in it."""
    fake = Fake(tmp_path)
    fake.unified("/user.slice/session-1.scope", enabled=ALL)
    fake.group("0::/user.slice/session-1.scope")
    rung = find(fake.machine(root=True))
    assert rung.kind == "watched"
    assert "Delegate=yes" in rung.why
    assert list((fake.mount / "user.slice/session-1.scope").glob("holdfast-*")) == []


def test_groups_of_the_first_version(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    fake.first_version("memory", "pids", "cpu")
    fake.group("3:memory:/kept", "2:pids:/", "1:cpu:/")
    kept = tmp_path / "v1/memory/kept"
    kept.mkdir()
    assert find(fake.machine(root=False)).kind == "watched"
    rung = find(fake.machine(root=True))
    bases = {"memory": str(kept), "pids": str(tmp_path / "v1/pids"), "cpu": str(tmp_path / "v1/cpu")}
    assert (rung.kind, rung.bases, rung.controllers) == ("v1", bases, ("memory", "pids", "cpu"))
    found = made(rung, tmp_path)
    assert read(kept / "holdfast-hnd_a", "memory.limit_in_bytes") == str(1 << 30)
    assert read(kept / "holdfast-hnd_a", "memory.memsw.limit_in_bytes") == str(1 << 30)
    assert read(tmp_path / "v1/pids/holdfast-hnd_a", "pids.max") == "108"
    assert read(tmp_path / "v1/cpu/holdfast-hnd_a", "cpu.cfs_quota_us") == "150000"
    assert cgroups.recorded(str(tmp_path / "hnd_a" / cgroups.RECORD)).folders == found.folders


@pytest.mark.parametrize(
    ("name", "text"), [("memory.events", "oom 3\noom_kill 2\n"), ("memory.oom_control", "oom_kill 2\n")]
)
def test_the_kernels_counters(tmp_path: Path, name: str, text: str) -> None:
    found = cgroups.Group([str(tmp_path)])
    assert found.counters() == {"memory": 0, "processes": 0}
    (tmp_path / name).write_text(text)
    (tmp_path / "pids.events").write_text("max 5\n")
    assert found.counters() == {"memory": 2, "processes": 5}
    (tmp_path / "pids.max").write_text("max\n")
    (tmp_path / "pids.current").write_text("500\n")
    assert not found.full()
    (tmp_path / "pids.max").write_text("501\n")
    assert found.full()


HOLDER = (
    "import os, time; x = bytearray({size}); print({call!r}, os.getppid(), os.getpid(), flush=True); time.sleep(600)"
)


def test_a_look_that_comes_late_still_knows_whose_memory_it_was(tmp_path: Path) -> None:
    """The kernel killed the process of one call, whose shell lives on; the other call holds more than that shell."""
    parts = [("hog", 96 << 20), ("calm", 24 << 20)]
    shells = [
        shlex.join(
            ["sh", "-c", f"{shlex.join([sys.executable, '-c', HOLDER.format(call=call, size=size)])}; sleep 600"]
        )
        for call, size in parts
    ]
    mine, theirs = socket.socketpair()
    holding = {"memory_bytes": 100 << 20, "processes": None, "disk_bytes": None, "inodes": None}
    (tmp_path / "memory.current").write_text(f"{100 << 20}\n")
    command = ["sh", "-c", " & ".join([*shells, "wait"])]
    with mine, subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as supervisor:
        assert supervisor.stdout is not None
        said = sorted(supervisor.stdout.readline().split() for _ in parts)
        pids = {call.decode(): (int(shell), int(process)) for call, shell, process in said}
        try:
            watch = Watcher(
                Channel(theirs.detach()),
                supervisor.pid,
                {**holding, "paths": [], "baseline": ""},
                cgroups.Group([str(tmp_path)]),
            )
            for call in ("hog", "calm"):
                watch._take({"began": call, "pid": pids[call][0]})
            watch._look(1.0)
            os.kill(pids["hog"][1], signal.SIGKILL)
            await_end(pids["hog"][1], PATIENCE_S)
            (tmp_path / "memory.current").write_text(f"{30 << 20}\n")
            (tmp_path / "memory.events").write_text("oom_kill 1\n")
            watch._look(6.0)
            watch._look(6.5)
            mine.settimeout(PATIENCE_S)
            assert json.loads(mine.recv(1000)) == {"over": "memory", "call": "hog"}
        finally:
            os.killpg(supervisor.pid, signal.SIGKILL)


def test_a_limit_that_the_kernel_refuses_is_no_limit(tmp_path: Path) -> None:
    """A read-only file of the group: what must hold and cannot be set keeps the hands from starting."""
    (tmp_path / "hnd_a").mkdir()
    plan = {"folders": [str(tmp_path / "holdfast-a")], "settings": [(str(tmp_path / "nowhere/memory.max"), "1", True)]}
    with pytest.raises(OSError, match="could not be set"):
        cgroups.make(plan, str(tmp_path / "hnd_a/groups"))
    assert cgroups.recorded(str(tmp_path / "hnd_a/groups")).remove(), "what was made can be found and goes"
    assert not (tmp_path / "holdfast-a").exists()


def test_a_record_names_only_groups_of_ours(tmp_path: Path) -> None:
    record = tmp_path / "groups"
    record.write_text('["/sys/fs/cgroup/other", "/sys/fs/cgroup/holdfast-x"]')
    assert cgroups.recorded(str(record)).folders == ["/sys/fs/cgroup/holdfast-x"]
    record.write_text("no json")
    assert cgroups.recorded(str(record)).folders == []
    assert cgroups.recorded(str(tmp_path / "absent")).folders == []


WATCHED = Rung("watched", why="systemd is not there")
GROUPS = Rung("v2", {"memory": "/x", "pids": "/x"}, controllers=("memory", "pids"))


def test_how_hard_each_wall_is() -> None:
    assert able(WALLS, WATCHED) == {**WALLS, "memory": "soft", "disk": "soft", "cpu": "soft"}
    assert able(WALLS, GROUPS) == {**WALLS, "memory": "hard", "disk": "soft", "cpu": "soft"}
    bare: dict[str, Isolation] = dict.fromkeys(WALLS, "none")
    assert able(bare, GROUPS)["memory"] == "soft", "a program that reaches its own group can leave it"
    none = HandsPolicy(memory_bytes=None, processes=None, disk_bytes=None)
    assert held(WALLS, GROUPS, none) == WALLS
    assert {finding.name: finding.level for finding in findings(WATCHED, able(WALLS, WATCHED))} == {
        "memory": "soft", "disk": "soft", "cpu": "soft",
    }  # fmt: skip
    told = findings(WATCHED, able(WALLS, WATCHED))[0]
    assert "systemd is not there" in told.message
    assert "Delegate=yes" in told.fix


@pytest.mark.parametrize(
    ("wanted", "policy", "told"),
    [
        ("memory", HandsPolicy(), "here memory is soft (systemd is not there).*Delegate=yes"),
        ("cpu", HandsPolicy(cpus=1.0), "cpu is soft.*Delegate=yes"),
        ("cpu", HandsPolicy(), "set `cpus`"),
        ("memory", HandsPolicy(memory_bytes=None), "set `memory_bytes`"),
        ("disk", HandsPolicy(), "leave `disk` out"),
        ("colour", HandsPolicy(), "no such kind of isolation; name some of cpu, disk, files"),
    ],
)
def test_what_is_demanded_and_not_there_is_refused(wanted: str, policy: HandsPolicy, told: str) -> None:
    policy = msgspec.structs.replace(policy, require_hard=(wanted,))
    with pytest.raises(SandboxUnavailable, match=told.replace("(", r"\(").replace(")", r"\)")):
        demand(policy, held(WALLS, WATCHED, policy), WATCHED)
    if wanted == "memory" and policy.memory_bytes is not None:
        demand(policy, held(WALLS, GROUPS, policy), GROUPS)


def test_what_the_disk_limit_counts(tmp_path: Path) -> None:
    layers = (Layer("/usr/lib/x", ("/low",), upper="/up"), Layer("/opt/x", ("/low",)))
    holding = holding_of(spec(tmp_path, HandsPolicy(disk_bytes=1 << 30), layers=layers), WATCHED, tmp_path / "h")
    assert holding.paths == (str(tmp_path), str(tmp_path / "h/output"), "/up")
    assert holding.inodes == 65_536
    assert holding_of(spec(tmp_path, HandsPolicy(disk_bytes=1 << 20)), WATCHED, tmp_path / "h").inodes == 10_000
    assert holding_of(spec(tmp_path, HandsPolicy(disk_bytes=None)), WATCHED, tmp_path / "h").inodes is None


def test_files_are_counted_as_they_lie_on_the_disk(tmp_path: Path) -> None:
    empty = usage.disk([str(tmp_path)])
    one = tmp_path / "one"
    one.write_bytes(b"x" * 1_000_000)
    os.link(one, tmp_path / "again")
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "out").symlink_to("/usr")
    (tmp_path / "folder").mkdir()
    found = usage.disk([str(tmp_path)])
    assert 1_000_000 <= found.size - empty.size < 1_100_000
    assert found.inodes == 4
    assert not found.deep
    assert usage.disk([str(tmp_path / "absent"), str(one)]) == usage.Disk(0, 0)


def test_folders_without_end_are_counted_as_such(tmp_path: Path) -> None:
    _nest(tmp_path)
    found = usage.disk([str(tmp_path)])
    assert found.deep
    assert found.inodes >= usage.DEEPEST - 1
    assert len(os.listdir("/proc/self/fd")) < 100, "descriptors were left open"
    _flatten(tmp_path)


def test_folders_without_end_end_a_call_once_however_late_they_are_found(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    holding = {"paths": [work], "disk_bytes": 1 << 30, "inodes": 65_536, "baseline": tmp_path / "kept"}
    watch = quota.Quota(holding, lambda: ())
    assert _count(watch) == ""
    watch.struck()
    _nest(work)
    assert _count(watch) == "inodes", "the first count of the call found them"
    watch.struck()
    assert _count(watch) == "", "the next call may remove them"
    assert _count(quota.Quota(holding, lambda: ())) == "", "so may the first call of the next hands"
    _flatten(work)


def _count(watch: quota.Quota) -> str:
    """Have it count once, each time an hour later. Returns the exceeded limit."""
    watch.look(time.monotonic() + 3600.0 * next(HOURS), busy=True)
    os.set_blocking(watch.fd, True)
    while watch.fd >= 0:
        watch.hear()
    return watch.over


def _nest(folder: Path) -> None:
    """Make more levels of folders than are counted."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(usage.DEEPEST + 20):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def _flatten(folder: Path) -> None:
    """Take a long chain of folders apart from its top: no path to its end would be short enough."""
    top = folder / "d"
    while top.is_dir() and not stat.S_ISLNK(top.lstat().st_mode):
        inner = top / "d"
        if inner.is_dir():
            os.rename(inner, folder / "next")
        os.rmdir(top)
        if not (folder / "next").is_dir():
            return
        os.rename(folder / "next", top)
