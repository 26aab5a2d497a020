"""Plan of the limits of a sandbox, and removal of control groups that killed supervisors left behind."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import SandboxUnavailable
from holdfast.facts.base import Isolation
from holdfast.facts.session import HandsPolicy
from holdfast.hands.base import Finding, HandsSpec
from holdfast.hands.box.processes import is_locked
from holdfast.hands.box.supervisor.cgroups import PREFIX, RECORD, recorded
from holdfast.hands.limits.mechanisms import Rung, scope_environment

OURS = 8
"""Processes that a sandbox needs for itself, in addition to those that the policy allows."""

BYTES_PER_INODE = 16_384
INODES_LEAST = 10_000
"""The disk limit allows one file per `BYTES_PER_INODE` bytes, and at least this many."""

_PERIOD_US = 100_000
_HARD_FIX = {
    "memory": "run Holdfast where systemd gives user scopes or with Delegate=yes in its unit, or as root",
    "cpu": "set `cpus`, and run Holdfast where systemd gives user scopes or with Delegate=yes in its unit, or as root",
    "disk": "no provider here limits the disk in the kernel; leave `disk` out of require_hard",
}


class Holding(msgspec.Struct, frozen=True):
    """The limits for the supervisor and its watcher. None means no limit.

    `plan` are the groups to create, empty for none; `paths` the folders under the disk limit, counted from the baseline
    in the file `baseline`; `processors` those that the sandbox starts on, all if empty.
    """

    memory_bytes: int | None = None
    processes: int | None = None
    disk_bytes: int | None = None
    inodes: int | None = None
    plan: dict[str, Any] = {}
    paths: tuple[str, ...] = ()
    baseline: str = ""
    processors: tuple[int, ...] = ()


def holding_of(spec: HandsSpec, rung: Rung, folder: Path) -> Holding:
    """Turn a spec's policy into limits with that mechanism. `folder` is the incarnation's."""
    policy = spec.policy
    disk = policy.disk_bytes
    own = (str(folder / f"upper{number}") for number, layer in enumerate(spec.layers) if layer.private)
    uppers = (*(layer.upper for layer in spec.layers if layer.upper), *own)
    return Holding(
        memory_bytes=policy.memory_bytes,
        processes=policy.processes,
        disk_bytes=disk,
        inodes=None if disk is None else max(INODES_LEAST, disk // BYTES_PER_INODE),
        plan=_plan(policy, rung, spec.hands_id),
        paths=(spec.workspace.path, str(folder / "output"), *uppers),
        baseline=str(folder.parent.parent / "usage" / baseline_name(spec.session_id, spec.workspace.path)),
        processors=_processors(policy.cpus, spec.hands_id) if not rung.hard or "cpu" not in rung.controllers else (),
    )


def baseline_name(session_id: str, workspace: str) -> str:
    """Return the name of the file with the first count of a session's workspace."""
    return hashlib.sha256(f"{session_id}\0{os.path.realpath(workspace)}".encode()).hexdigest()[:24]


def start_command(rung: Rung, hands_id: str) -> tuple[list[str], dict[str, str]]:
    """Return the prefix of the supervisor's command for that mechanism, and the environment that it needs."""
    unit = f"{PREFIX}{hands_id}"
    return [part.replace("{unit}", unit) for part in rung.prefix], scope_environment(rung)


def _plan(policy: HandsPolicy, rung: Rung, hands_id: str) -> dict[str, Any]:
    if not rung.hard:
        return {}
    name = f"{PREFIX}{hands_id}"
    quota = "max" if policy.cpus is None else str(max(1000, int(policy.cpus * _PERIOD_US)))
    most = None if policy.processes is None else str(policy.processes + OURS)
    if rung.kind == "v1":
        folders = {controller: f"{base}/{name}" for controller, base in rung.bases.items()}
        settings: list[tuple[str, str, bool]] = []
        if policy.memory_bytes is not None:
            settings.append((f"{folders['memory']}/memory.limit_in_bytes", str(policy.memory_bytes), True))
            settings.append((f"{folders['memory']}/memory.memsw.limit_in_bytes", str(policy.memory_bytes), False))
        if most is not None:
            settings.append((f"{folders['pids']}/pids.max", most, True))
        if policy.cpus is not None and "cpu" in folders:
            settings.append((f"{folders['cpu']}/cpu.cfs_period_us", str(_PERIOD_US), True))
            settings.append((f"{folders['cpu']}/cpu.cfs_quota_us", quota, True))
        return {"folders": list(dict.fromkeys(folders.values())), "settings": settings}
    folder = f"{rung.bases['memory']}/{name}" if rung.bases else name
    before = f"{folder}/" if rung.bases else ""
    # The kernel kills one process for memory, not all: the agent must live, and ends the rest of the call.
    settings = [(f"{before}memory.oom.group", "0", False)]
    if policy.memory_bytes is not None:
        settings.append((f"{before}memory.max", str(policy.memory_bytes), True))
        settings.append((f"{before}memory.swap.max", "0", False))
    if most is not None:
        settings.append((f"{before}pids.max", most, True))
    if policy.cpus is not None and "cpu" in rung.controllers:
        settings.append((f"{before}cpu.max", f"{quota} {_PERIOD_US}", True))
    plan: dict[str, Any] = {"folders": [folder], "settings": settings, "controllers": list(rung.controllers)}
    if not rung.bases:
        plan["own"] = [rung.mount, rung.where]
    return plan


def _processors(cpus: float | None, hands_id: str) -> tuple[int, ...]:
    """Select some of our processors, different ones for different hands; all unless the policy allows fewer."""
    if cpus is None:
        return ()
    allowed = sorted(os.sched_getaffinity(0))
    wanted = max(1, math.ceil(cpus))
    if wanted >= len(allowed):
        return ()
    first = int.from_bytes(hashlib.sha256(hands_id.encode()).digest()[:4]) % len(allowed)
    return tuple(allowed[(first + step) % len(allowed)] for step in range(wanted))


def able(walls: Mapping[str, Isolation], rung: Rung) -> dict[str, Isolation]:
    """Return the strongest isolation available: that of a provider, with the limits of this mechanism."""
    walled = walls.get("files") == "hard"  # otherwise a program may reach its own group, and leave it
    level: Isolation = "hard" if rung.hard and walled else "soft"
    cpu: Isolation = "hard" if "cpu" in rung.controllers and walled else "soft"
    return {**walls, "memory": level, "disk": "soft", "cpu": cpu}


def held(walls: Mapping[str, Isolation], rung: Rung, policy: HandsPolicy) -> dict[str, Isolation]:
    """Return the isolation under a policy: a resource without a limit in the policy is not limited."""
    out = able(walls, rung)
    for kind in _FIELDS:
        if _unset(policy, kind):
            out[kind] = "none"
    return out


def demand(policy: HandsPolicy, isolation: Mapping[str, Isolation], rung: Rung) -> None:
    """Raise `SandboxUnavailable` unless every isolation that the policy requires to be hard is hard."""
    weak = [kind for kind in policy.require_hard if isolation.get(kind, "none") != "hard"]
    if not weak:
        return
    kind = weak[0]
    level = isolation.get(kind, "none")
    if kind not in isolation:
        fix = f"no such kind of isolation; name some of {', '.join(sorted(isolation))}"
    elif kind in ("memory", "disk", "cpu") and _unset(policy, kind):
        fix = f"the policy sets no limit for it; set `{_FIELDS[kind]}`"
    else:
        fix = _HARD_FIX.get(kind, "use a provider that isolates it, such as bubblewrap")
    why = f" ({rung.why})" if rung.why and kind in ("memory", "cpu") else ""
    raise SandboxUnavailable(
        f"the policy requires that {' and '.join(weak)} be limited hard, and here {kind} is {level}{why}. Nothing was "
        f"started: {fix}"
    )


_FIELDS = {"memory": "memory_bytes", "disk": "disk_bytes", "cpu": "cpus"}


def _unset(policy: HandsPolicy, kind: str) -> bool:
    return getattr(policy, _FIELDS[kind]) is None


_HARD = {
    "scope": "by a systemd scope (cgroup v2)",
    "v2": "by a delegated part of cgroup v2",
    "v1": "by groups of cgroup v1",
}


def findings(rung: Rung, isolation: Mapping[str, Isolation]) -> tuple[Finding, ...]:
    """Findings of `doctor` about the limits."""
    means = _HARD.get(rung.kind, "")
    fix = _HARD_FIX["memory"]
    why = f": {rung.why}" if rung.why else ""
    if rung.hard:
        memory = Finding("memory", "hard", f"limited for all processes together, {means}")
    else:
        told = (
            f"looked at every {50} ms and ended when over its limit, or when this machine runs out; no group holds it"
            f"{why}. What no process has mapped, such as files in memory and buffers of sockets, is not counted"
        )
        memory = Finding("memory", "soft", told, fix)
    if isolation["cpu"] == "hard":
        cpu = Finding("cpu", "hard", f"limited when the policy sets `cpus`, {means}")
    else:
        told = "limited when the policy sets `cpus`, to so many processors, which a program can undo"
        cpu = Finding("cpu", "soft", told, _HARD_FIX["cpu"].removeprefix("set `cpus`, and "))
    told = "the growth of the workspace, output and layers is counted, in bytes and files; who goes over is ended"
    return (memory, Finding("disk", "soft", told), cpu)


def remove_groups(folder: Path) -> None:
    """Remove the groups of one incarnation whose supervisor is dead, and any processes in them."""
    record = folder / RECORD
    if is_locked(str(folder / "lock")):
        return
    group = recorded(str(record))
    if group.folders and group.remove():
        with contextlib.suppress(OSError):
            record.unlink()


def remove_all_groups(folder: Path) -> int:
    """Do the same for every incarnation under `folder`; returns the number of incarnations checked."""
    found = []
    with contextlib.suppress(OSError):
        found = list(folder.glob(f"*/{RECORD}"))
    for record in found:
        with contextlib.suppress(OSError):
            remove_groups(record.parent)
    return len(found)
