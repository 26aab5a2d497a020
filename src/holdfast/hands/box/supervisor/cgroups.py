"""Control groups of a whole sandbox: created, joined, read, emptied, removed.

The groups to create come with the launch, as data (`plan`):

    folders   paths of the groups, one of cgroup v2 or one for each controller of v1
    settings  [path in a folder, value, True if it must succeed], in order
    own       for v2 in a scope of our own: the mount point and the file with our path in it; the folder is then
              found here, and this process first moves into its own leaf (v2 has no processes in inner nodes)

Every folder is recorded before it is created, so that a later process can remove those of a dead supervisor.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from typing import Any

PREFIX = "holdfast-"
"""Prefix of the names of our groups."""

RECORD = "groups"
"""The file in an incarnation's folder that names its groups."""

EMPTY_S = 5.0
"""Seconds that the processes of a group may take to be gone after they are killed."""

_STEP_S = 0.002
_MEMORY = (("memory.events", "oom_kill"), ("memory.oom_control", "oom_kill"))
_PROCESSES = (("pids.events", "max"),)


class Group:
    """The groups of one sandbox. Without folders every method does nothing."""

    def __init__(self, folders: list[str]) -> None:
        self.folders = folders

    @property
    def doors(self) -> list[str]:
        """The files that a process writes `0` to in order to join."""
        return [os.path.join(folder, "cgroup.procs") for folder in self.folders]

    def counters(self) -> dict[str, int]:
        """Count the kernel's kills for memory and its refusals of new processes so far."""
        return {"memory": self._sum(_MEMORY), "processes": self._sum(_PROCESSES)}

    def full(self) -> bool:
        """True while no more processes may start, or hardly any."""
        for folder in self.folders:
            most, there = (_number(os.path.join(folder, f"pids.{name}")) for name in ("max", "current"))
            if most > 0 and there + 2 >= most:
                return True
        return False

    def used(self) -> int:
        """Return the bytes of memory in use, as the kernel counts them; 0 if unknown."""
        names = ("memory.current", "memory.usage_in_bytes")
        return max((_number(os.path.join(folder, name)) for folder in self.folders for name in names), default=0)

    def _sum(self, places: tuple[tuple[str, str], ...]) -> int:
        total = 0
        for folder in self.folders:
            for name, key in places:
                total += _count(os.path.join(folder, name), key)
        return total

    def kill(self) -> None:
        """Kill every process in the groups."""
        for folder in self.folders:
            if write(os.path.join(folder, "cgroup.kill"), "1", make=False):
                continue
            for pid in _members(folder):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def remove(self) -> bool:
        """Kill the processes in the groups and remove the groups. Safe to repeat; False if removal failed."""
        end = time.monotonic() + EMPTY_S
        left = list(self.folders)
        while left:
            for folder in list(left):
                if _removed(folder):
                    left.remove(folder)
            if not left or time.monotonic() > end:
                break
            self.kill()
            time.sleep(_STEP_S)
        return not left


def make(plan: dict[str, Any], record: str) -> Group:
    """Create the groups of a plan. Raises `OSError` if one that must succeed cannot be created."""
    if not plan:
        return Group([])
    folders = [str(folder) for folder in plan["folders"]]
    inner = ""
    if plan.get("own"):
        mount, where = plan["own"]
        inner = mount + own_path(where)
        folders = [os.path.join(inner, name) for name in folders]
    with open(record, "w", encoding="utf-8") as file:
        json.dump(folders, file)
    if inner:
        _settle(inner, plan["controllers"])
    for folder in folders:
        os.mkdir(folder)
        os.chmod(folder, 0o711)  # the supervisor, no longer root by then, reads the counters; the files stay root's
    for place, value, needed in plan["settings"]:
        if not write(os.path.join(folders[0], place) if inner else place, value) and needed:
            raise OSError(f"the limit {place} could not be set to {value}")
    return Group(folders)


def recorded(record: str) -> Group:
    """Return the groups that a record names; none if there is no record, or it is not ours."""
    try:
        with open(record, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return Group([])
    return Group([path for path in found if os.path.basename(path).startswith(PREFIX)])


def own_path(where: str, controller: str = "") -> str:
    """Return this process's path in that hierarchy, from a file like /proc/self/cgroup; `/` if missing."""
    with open(where, encoding="utf-8") as file:
        for line in file:
            _, names, path = line.rstrip("\n").split(":", 2)
            if (controller in names.split(",")) if controller else names == "":
                return path if path != "/" else ""
    return ""


def _settle(inner: str, controllers: list[str]) -> None:
    """Move this process into a leaf, so that its sibling can receive the controllers."""
    leaf = os.path.join(inner, PREFIX + "supervisor")
    os.makedirs(leaf, exist_ok=True)
    if not write(os.path.join(leaf, "cgroup.procs"), "0"):
        raise OSError(f"this process could not move to {leaf}")
    for name in controllers:
        if not write(os.path.join(inner, "cgroup.subtree_control"), f"+{name}"):
            raise OSError(f"the controller {name} cannot be used under {inner}")


def write(path: str, value: str, *, make: bool = True) -> bool:
    """Write a file of a group; True if the kernel accepted it. No new file can be created in these folders."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | (os.O_CREAT if make else 0), 0o644)
    except OSError:
        return False
    try:
        os.write(fd, value.encode())
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def _count(path: str, key: str) -> int:
    try:
        with open(path, encoding="ascii") as file:
            for line in file:
                name, _, value = line.partition(" ")
                if name == key:
                    return int(value)
    except (OSError, ValueError):
        pass
    return 0


def _number(path: str) -> int:
    """Return the number in a file; -1 if there is none."""
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return -1


def _members(folder: str) -> list[int]:
    try:
        with open(os.path.join(folder, "cgroup.procs"), encoding="ascii") as file:
            return [pid for pid in map(int, file.read().split()) if pid > 0 and pid != os.getpid()]
    except (OSError, ValueError):
        return []


def _removed(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
