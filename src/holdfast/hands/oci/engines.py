"""Container engines: names, availability, commands, and the configuration of an OCI bundle."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.errors import SandboxUnavailable, UsageError
from holdfast.hands.incarnation import PATH

SCRATCH_MIB = 64
"""The size of each folder in memory."""

_MASKED = (
    "/proc/acpi /proc/asound /proc/kcore /proc/keys /proc/latency_stats /proc/timer_list /proc/timer_stats "
    "/proc/sched_debug /proc/scsi /sys/firmware"
).split()
_READONLY = "/proc/bus /proc/fs /proc/irq /proc/sys /proc/sysrq-trigger".split()


class Bind(NamedTuple):
    """A folder or file of the host, and its path in the container."""

    outside: str
    inside: str
    write: bool = False


def configuration(
    command: list[str], env: dict[str, str], uid: int, gid: int, binds: list[Bind], *, cwd: str, home: str
) -> dict[str, Any]:
    """Return the `config.json` of a bundle with its root in `rootfs` beside it. `binds` are mounted in order."""
    scratch = f"size={SCRATCH_MIB}m"
    mounts: list[dict[str, Any]] = [
        _mount("/proc", "proc", "proc", "nosuid", "noexec", "nodev"),
        _mount("/dev", "tmpfs", "tmpfs", "nosuid", "strictatime", "mode=755", "size=64k"),
        _mount("/dev/pts", "devpts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"),
        _mount("/dev/shm", "tmpfs", "tmpfs", "nosuid", "nodev", "mode=1777", scratch),
        _mount("/dev/mqueue", "mqueue", "mqueue", "nosuid", "noexec", "nodev"),
        _mount("/tmp", "tmpfs", "tmpfs", "nosuid", "nodev", "mode=1777", scratch),
        _mount("/var/tmp", "tmpfs", "tmpfs", "nosuid", "nodev", "mode=1777", scratch),
        _mount(home, "tmpfs", "tmpfs", "nosuid", "nodev", "mode=0700", f"uid={uid}", f"gid={gid}", scratch),
    ]
    for bind in binds:
        rights = ("rw",) if bind.write else ("ro",)
        mounts.append(_mount(bind.inside, "bind", bind.outside, "rbind", "nosuid", "nodev", "rprivate", *rights))
    nothing: list[str] = []
    return {
        "ociVersion": "1.0.2",
        "hostname": "hands",
        "root": {"path": "rootfs", "readonly": True},
        "process": {
            "terminal": False,
            "user": {"uid": uid, "gid": gid},
            "args": command,
            "env": [f"{name}={value}" for name, value in env.items()],
            "cwd": cwd,
            "noNewPrivileges": True,
            "capabilities": {
                kind: nothing for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")
            },
            "rlimits": [{"type": "RLIMIT_CORE", "hard": 0, "soft": 0}],
        },
        "mounts": mounts,
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")],
            "maskedPaths": list(_MASKED),
            "readonlyPaths": list(_READONLY),
            "rootfsPropagation": "private",
        },
    }


def _mount(inside: str, kind: str, source: str, *options: str) -> dict[str, Any]:
    return {"destination": inside, "type": kind, "source": source, "options": list(options)}


RUNTIMES = ("runc", "crun", "runsc")
"""OCI runtimes, which need no image: this host's own programs form their root."""

ENGINES = ("podman", "docker")
"""Engines, which need an image with bash and a Python from 3.9 on at /usr/bin/python3."""

_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._/:@-]{0,255}")
_FIXES = {
    "runc": "install it (apt-get install runc) and start Holdfast as root",
    "crun": "install it (apt-get install crun) and start Holdfast as root",
    "runsc": "install gVisor's runsc and start Holdfast as root",
    "podman": "install podman, and look at what `podman info` says",
    "docker": "install docker, and look at what `docker info` says",
}


class Engine(NamedTuple):
    """A container engine or runtime: `podman:IMAGE`, `docker:IMAGE` (`+runsc` for gVisor), `runc`, `crun`, `runsc`."""

    name: str
    image: str = ""
    runtime: str = ""

    @property
    def needs_image(self) -> bool:
        """True for an engine, False for a runtime alone."""
        return self.name in ENGINES

    @property
    def fix(self) -> str:
        """Return the fix if the engine does not work."""
        return _FIXES[self.name]

    @property
    def program(self) -> str:
        """Return the engine's path. Raises `SandboxUnavailable` if it is not installed."""
        found = shutil.which(self.name, path=PATH)
        if found is None:
            raise SandboxUnavailable(f"{self.name} is not installed here; nothing was started: {self.fix}")
        return found


def named(text: str) -> Engine:
    """Parse a provider's name. Raises `UsageError`."""
    kind, _, image = text.partition(":")
    name, plus, runtime = kind.partition("+")
    engine = Engine(name, image, runtime)
    if name in RUNTIMES and not image and not plus:
        return engine
    if name in ENGINES and _IMAGE.fullmatch(image) and (not plus or runtime in RUNTIMES):
        return engine
    raise UsageError(
        f"{text!r} names no container engine; write podman:IMAGE, docker:IMAGE, docker+runsc:IMAGE (gVisor), runc, "
        "crun or runsc"
    )


def complaint(engine: Engine) -> str:
    """Return the reason that it cannot be used here; empty if it can. Asks the engine, which takes a moment."""
    try:
        program = engine.program
    except SandboxUnavailable:
        return f"{engine.name} is not installed here"
    if not engine.needs_image:
        return "" if os.getuid() == 0 else f"{engine.name} alone needs root here"
    ask = [program, "info", "--format", "{{json .}}"]
    try:
        done = subprocess.run(ask, capture_output=True, timeout=20, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{engine.name} does not answer ({error})"
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    if done.returncode != 0:
        return f"{engine.name} does not work here ({said[-1] if said else 'it said nothing'})"
    try:
        info = json.loads(done.stdout)
    except ValueError:
        return f"{engine.name} says of itself what cannot be understood"
    errors = info.get("ServerErrors") if isinstance(info, dict) else None
    return f"{engine.name} does not work here ({errors[0]})" if errors else ""


def run_command(
    engine: Engine, folder: Path, name: str, command: list[str], env: dict[str, str], user: tuple[int, int],
    binds: list[Bind], *, cwd: str, home: str,
) -> list[str]:  # fmt: skip
    """Return the command that runs the container in the foreground until it ends."""
    if not engine.needs_image:
        quiet = ["--network=none", "--host-uds=open"] if engine.name == "runsc" else []
        state = ["--root", str(folder / "state"), *quiet]
        return [engine.program, *state, "run", "--bundle", str(folder / "bundle"), name]
    uid, gid = user
    mounts = [f"--volume={bind.outside}:{bind.inside}:{'rw' if bind.write else 'ro'}" for bind in binds]
    return [
        engine.program,
        *("run", "--rm", f"--name={name}", "--pull=never", "--network=none", "--read-only", "--hostname=hands"),
        *("--cap-drop=ALL", "--security-opt=no-new-privileges", f"--user={uid}:{gid}", f"--workdir={cwd}"),
        *(f"--tmpfs={path}:rw,nosuid,nodev,size=64m,mode=1777" for path in ("/tmp", "/var/tmp", home)),
        *(("--userns=keep-id",) if engine.name == "podman" and os.getuid() != 0 else ()),
        *((f"--runtime={engine.runtime}",) if engine.runtime else ()),
        *mounts,
        *(f"--env={key}={value}" for key, value in env.items()),
        f"--entrypoint={command[0]}",
        engine.image,
        *command[1:],
    ]


def clear_command(engine: Engine, folder: Path, name: str) -> list[str]:
    """Return the command that removes whatever is left of the container."""
    if not engine.needs_image:
        return [engine.program, "--root", str(folder / "state"), "delete", "--force", name]
    return [engine.program, "rm", "--force", name]
