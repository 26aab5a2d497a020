"""Mechanisms of this machine to limit memory, processes and processor time of many processes together.

The rungs, best first; each is verified by a trial:

1. `scope`: a systemd scope of our own with delegated controllers (`--user`, or the system's as root), cgroup v2;
2. `v2`: a part of cgroup v2 that was delegated to us: our own group, or one above it that is ours;
3. `v1`: groups of cgroup v1 below our own, which root can make;
4. `watched`: no group. A process measures the others, which is a soft limit.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import subprocess
from pathlib import Path
from typing import Literal, NamedTuple

from holdfast.hands.box.supervisor.cgroups import PREFIX, own_path, write

NEEDED = ("memory", "pids")
"""Controllers that a rung must have; `cpu` is used where available."""

SCOPE_S = 10.0
"""Seconds that systemd may take to create a scope."""


class Rung(NamedTuple):
    """A mechanism. `bases` has the parent folder of groups by controller; in v2 they are all the same.

    `prefix` is the command that puts the supervisor into its scope, with `{unit}` for its name; the base is then found
    under `mount` by the path in the file `where`. `why` is the reason that no better rung works.
    """

    kind: Literal["scope", "v2", "v1", "watched"]
    bases: dict[str, str] = {}
    mount: str = ""
    where: str = ""
    prefix: tuple[str, ...] = ()
    controllers: tuple[str, ...] = ()
    why: str = ""

    @property
    def hard(self) -> bool:
        """True if the kernel enforces the limits."""
        return self.kind != "watched"


class Machine(NamedTuple):
    """Paths to inspect. The defaults are this machine's; tests use folders of their own."""

    proc: str = "/proc"
    systemd_run: str = "/usr/bin/systemd-run"
    uid: int | None = None

    @property
    def root(self) -> bool:
        """True if this is root."""
        return (os.getuid() if self.uid is None else self.uid) == 0


HERE = Machine()
_trials = itertools.count(1)


@functools.cache
def find(machine: Machine = HERE) -> Rung:
    """Return the best rung that works here, tried once per process."""
    missing = []
    for look in (_scope, _v2, _v1):
        found = look(machine)
        if isinstance(found, Rung):
            return found
        missing.append(found)
    return Rung("watched", why="; ".join(missing))


def _mounts(machine: Machine) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return (kind, mount point, options) of every cgroup hierarchy."""
    out = []
    with contextlib.suppress(OSError), open(f"{machine.proc}/self/mounts", encoding="utf-8") as file:
        for line in file:
            parts = line.split()
            if len(parts) >= 4 and parts[2] in ("cgroup", "cgroup2"):
                out.append((parts[2], parts[1].replace("\\040", " "), tuple(parts[3].split(","))))
    return out


def _unified(machine: Machine) -> str:
    """Return the mount point of cgroup v2 with the needed controllers; empty if they are missing."""
    for kind, mount, _ in _mounts(machine):
        if kind == "cgroup2" and set(NEEDED) <= set(_words(f"{mount}/cgroup.controllers")):
            return mount
    return ""


# --- systemd ---


def _scope(machine: Machine) -> Rung | str:
    mount = _unified(machine)
    if not mount:
        return "cgroup v2 has no memory and process controllers here"
    if not os.access(machine.systemd_run, os.X_OK):
        return "systemd is not there"
    where = () if machine.root else ("--user",)
    common = (machine.systemd_run, *where, "--scope", "--quiet", "--collect", "-p", "Delegate=yes")
    prefix = (*common, "--unit={unit}", "--")
    unit = _trial()
    command = [part.replace("{unit}", unit) for part in prefix]
    script = 'p=$(sed -n s/^0:://p "$1/self/cgroup"); cat "$2$p/cgroup.controllers" && test -w "$2$p/cgroup.procs"'
    try:
        done = subprocess.run(
            [*command, "/bin/sh", "-c", script, "sh", machine.proc, mount],
            capture_output=True,
            timeout=SCOPE_S,
            check=False,
            env=_session(),
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"systemd gives no scope ({error})"
    given = done.stdout.decode("utf-8", "replace").split()
    if done.returncode != 0:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return f"systemd gives no scope ({words[-1] if words else 'it said nothing'})"
    if not set(NEEDED) <= set(given):
        return f"systemd delegates only {' '.join(given) or 'nothing'} to this user"
    return Rung("scope", mount=mount, where=f"{machine.proc}/self/cgroup", prefix=prefix, controllers=_taken(given))


def _session() -> dict[str, str]:
    """Return the environment variables that systemd-run needs to find its manager."""
    runtime = f"/run/user/{os.getuid()}"
    return {
        "PATH": "/usr/bin:/bin",
        "XDG_RUNTIME_DIR": runtime,
        "DBUS_SESSION_BUS_ADDRESS": f"unix:path={runtime}/bus",
    }


def scope_environment(rung: Rung) -> dict[str, str]:
    """Return the variables that the command of a scope needs; empty for other rungs."""
    return _session() if rung.prefix else {}


# --- a delegated part of cgroup v2 ---


def _v2(machine: Machine) -> Rung | str:
    mount = _unified(machine)
    if not mount:
        return "no part of cgroup v2 is ours"
    try:
        own = own_path(f"{machine.proc}/self/cgroup")
    except (OSError, ValueError):
        return "this process is in no group of cgroup v2"
    path = Path(mount + own)
    for base in (path, *path.parents):
        if not base.is_relative_to(mount):
            break
        if not _ours(base, Path(mount), machine):
            break
        given = _words(f"{base}/cgroup.controllers")
        if set(NEEDED) <= set(given) and _enable(base, _taken(given)) and _tried(str(base), "memory.max", "max"):
            return Rung("v2", dict.fromkeys(_taken(given), str(base)), mount, controllers=_taken(given))
    return "no part of cgroup v2 was delegated to this process (in a systemd unit: Delegate=yes, DelegateSubgroup=main)"


def _ours(base: Path, mount: Path, machine: Machine) -> bool:
    """Return True if we may divide a group: our user owns it, it is delegated, or we see nothing above it."""
    try:
        status = base.stat()
    except OSError:
        return False
    if not os.access(base, os.W_OK) or not os.access(base / "cgroup.procs", os.W_OK):
        return False
    if not machine.root:
        return status.st_uid == (os.getuid() if machine.uid is None else machine.uid)
    if base == mount:
        return True
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(base, name) == b"1":
                return True
    return False


def _enable(base: Path, controllers: tuple[str, ...]) -> bool:
    """Enable the controllers for the children of a group. The kernel refuses that for a group with processes."""
    for name in controllers:
        if name in _words(f"{base}/cgroup.subtree_control"):
            continue
        try:
            with open(base / "cgroup.subtree_control", "w", encoding="ascii") as file:
                file.write(f"+{name}")
        except OSError:
            return False
    return True


# --- cgroup v1 ---


_FIRST_VERSION = {
    "memory": ("memory.limit_in_bytes", "-1"),
    "pids": ("pids.max", "max"),
    "cpu": ("cpu.cfs_quota_us", "-1"),
}


def _v1(machine: Machine) -> Rung | str:
    if not machine.root:
        return "groups of cgroup v1 can be made by root alone"
    bases: dict[str, str] = {}
    for kind, mount, options in _mounts(machine):
        for name in ("memory", "pids", "cpu"):
            if kind == "cgroup" and name in options:
                try:
                    own = own_path(f"{machine.proc}/self/cgroup", name)
                except (OSError, ValueError):
                    continue
                bases[name] = mount + own if os.path.isdir(mount + own) else mount
    if not set(NEEDED) <= bases.keys():
        return "cgroup v1 has no memory and process controllers here"
    works = {name: base for name, base in bases.items() if _tried(base, *_FIRST_VERSION[name])}
    if not set(NEEDED) <= works.keys():
        return "groups of cgroup v1 cannot be made here"
    return Rung("v1", works, controllers=tuple(works))


def _tried(base: str, name: str, value: str) -> bool:
    """Check that a group with that limit can be made below, by making and removing one."""
    folder = f"{base}/{_trial()}"
    try:
        os.mkdir(folder)
    except OSError:
        return False
    try:
        return write(f"{folder}/{name}", value)
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _trial() -> str:
    """Return a name for a group that is created only as a trial."""
    return f"{PREFIX}probe-{os.getpid()}-{next(_trials)}"


def _taken(given: list[str]) -> tuple[str, ...]:
    return tuple(name for name in ("memory", "pids", "cpu") if name in given)


def _words(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().split()
    except OSError:
        return []
