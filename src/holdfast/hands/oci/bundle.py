"""What an OCI runtime is told: a container made of this host's own programs, with the walls of the default sandbox.

Pure: from what is wanted to the configuration of the bundle, as the OCI runtime specification has it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

SCRATCH_MIB = 64
"""The size of each folder in memory."""

_MASKED = (
    "/proc/acpi /proc/asound /proc/kcore /proc/keys /proc/latency_stats /proc/timer_list /proc/timer_stats "
    "/proc/sched_debug /proc/scsi /sys/firmware"
).split()
_READONLY = "/proc/bus /proc/fs /proc/irq /proc/sys /proc/sysrq-trigger".split()


class Bind(NamedTuple):
    """A folder or file of the host, and where it appears inside."""

    outside: str
    inside: str
    write: bool = False


def configuration(
    command: list[str], env: dict[str, str], uid: int, gid: int, binds: list[Bind], *, cwd: str, home: str
) -> dict[str, Any]:
    """The `config.json` of a bundle whose root is the folder `rootfs` beside it. `binds` are mounted in their order."""
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
