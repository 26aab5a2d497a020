"""Checks of the machine's isolation by trial runs, with the command that fixes a failure."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from holdfast import privileges
from holdfast.facts.base import Isolation
from holdfast.hands.base import Capabilities, Finding
from holdfast.hands.launch import PYTHON
from holdfast.hands.limits import mechanisms
from holdfast.hands.limits.plan import able
from holdfast.hands.limits.plan import findings as about_limits
from holdfast.hands.user import HandsUser
from holdfast.seccomp import assemble_here
from holdfast.uids import set_apart

BWRAP_OLDEST = "0.8"
PYTHON_OLDEST = (3, 9)

Level = Literal["hard", "soft", "absent", "ok", "bad"]

Trial = tuple[list[str], dict[str, str], dict[str, bytes], HandsUser]
"""argv, environment, contents of the descriptors that argv names, and the user to run as."""

_APPARMOR_SYSCTL = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
_USERNS_SYSCTL = Path("/proc/sys/kernel/unprivileged_userns_clone")

_APPARMOR_FIX = """\
allow it for bubblewrap alone (as root):
  printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\nprofile bwrap /usr/bin/bwrap flags=(unconfined) {\\n  userns,\\n\
}\\n' > /etc/apparmor.d/bwrap && apparmor_parser -r /etc/apparmor.d/bwrap
or for every program: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"""

_CONTAINER_FIX = """\
on the host of the container, start it with a seccomp profile that allows user namespaces \
(docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined …), or run Holdfast outside it"""

_WHAT = {
    "files": "only the workspace can be written, only system programs and the workspace be read",
    "network": "no interface but a loopback of its own; no vsock, no raw sockets",
    "processes": "own process namespace, at most so many processes, none survives its call",
    "syscalls": "mounts, namespaces, tracing, bpf, io_uring, keyrings and rare socket families are closed",
    "users": "never root, no capability, no way to regain one",
}


def missing_program(program: str) -> Finding | None:
    """Return the finding for a missing bubblewrap or system Python."""
    if not os.access(program, os.X_OK):
        return Finding(
            "bubblewrap",
            "bad",
            f"bubblewrap is not installed ({program} is not there)",
            f"type: {_install('bubblewrap')}",
        )
    if not os.access(PYTHON, os.X_OK):
        return Finding(
            "python", "bad", f"{PYTHON} is not there, and the sandbox runs it", f"type: {_install('python3')}"
        )
    return None


def _install(package: str) -> str:
    for manager, command in (
        ("apt-get", "apt-get install -y"),
        ("dnf", "dnf install -y"),
        ("apk", "apk add"),
        ("pacman", "pacman -S"),
        ("zypper", "zypper install -y"),
    ):
        if os.access(f"/usr/bin/{manager}", os.X_OK) or os.access(f"/sbin/{manager}", os.X_OK):
            return f"sudo {command} {package}" if os.getuid() else f"{command} {package}"
    return f"your system's package manager, for the package {package}"


def diagnose(said: str) -> Finding:
    """Explain bubblewrap's error output, with its fix."""
    last = said.strip().splitlines()[-1] if said.strip() else "it said nothing"
    text = said.lower()
    if "cannot become uid" in text:
        fix = "run Holdfast as an ordinary user, or give the container a range of user ids"
        return _bad(f"tool calls never run as root, and here root can become nobody else ({last})", fix)
    if "no space left on device" in text or "enospc" in text:
        return _bad(
            f"the kernel gives no more user namespaces ({last})", "type: sysctl -w user.max_user_namespaces=65536"
        )
    if "unknown option" in text:
        return _bad(
            f"bubblewrap is too old ({last}); {BWRAP_OLDEST} or later is needed", f"type: {_install('bubblewrap')}"
        )
    mapped = "permission denied" in text and "uid map" in text
    if mapped or "rtm_newaddr" in text or _reads(_APPARMOR_SYSCTL, "1"):
        return _bad(f"AppArmor keeps ordinary programs from making user namespaces ({last})", _APPARMOR_FIX)
    if _reads(_USERNS_SYSCTL, "0"):
        return _bad(f"user namespaces are switched off ({last})", "type: sysctl -w kernel.unprivileged_userns_clone=1")
    if "namespace" in text or "make / slave" in text or "operation not permitted" in text:
        fix = _CONTAINER_FIX if in_container() else "type: sysctl -w user.max_user_namespaces=65536"
        return _bad(f"this kernel or container lets nobody make user namespaces ({last})", fix)
    if "execvp" in text or "no module named" in text.lower():
        return _bad(f"the system's Python does not run in the sandbox ({last})", f"type: {_install('python3')}")
    return _bad(f"the sandbox did not start ({last})", "`holdfast doctor` looks closer; --no-sandbox isolates nothing")


def _bad(message: str, fix: str) -> Finding:
    return Finding("sandbox", "bad", message, fix)


def _reads(path: Path, value: str) -> bool:
    try:
        return path.read_text().strip() == value
    except OSError:
        return False


def in_container() -> bool:
    """True in a container, as far as a process inside can tell."""
    return any(os.path.exists(path) for path in ("/.dockerenv", "/run/.containerenv"))


def examine(program: str, trial: Trial, isolation: Mapping[str, Isolation]) -> Capabilities:
    """Run the trial and report the result."""
    absent = missing_program(program)
    if absent is not None:
        return Capabilities("bubblewrap", False, findings=(absent, *about_here()))
    argv, env, blobs, user = trial
    if not blobs:
        machine = os.uname().machine
        finding = _bad(f"there is no system call filter for {machine}", "use a machine with x86_64 or aarch64")
        return Capabilities("bubblewrap", False, findings=(finding, *about_here()))
    code, said, complaint = _try(argv, env, blobs, user)
    if code != 0:
        return Capabilities("bubblewrap", False, findings=(diagnose(complaint or said), *about_here()))
    if (version := tuple(int(part) for part in said.split())) < PYTHON_OLDEST:
        finding = Finding(
            "python",
            "bad",
            f"{PYTHON} is Python {version[0]}.{version[1]}; the sandbox needs 3.9 or later",
            f"type: {_install('python3')}",
        )
        return Capabilities("bubblewrap", False, findings=(finding, *about_here()))
    rung = mechanisms.find()
    isolation = able(isolation, rung)
    limits = {finding.name: finding for finding in about_limits(rung, isolation)}
    walls = (limits.get(kind) or Finding(kind, _LEVEL[level], _WHAT[kind]) for kind, level in isolation.items())
    works = Finding("sandbox", "ok", f"bubblewrap isolates here, tried as uid {user.uid}")
    return Capabilities("bubblewrap", True, dict(isolation), (works, *walls, *about_here()))


_LEVEL: dict[Isolation, Level] = {"hard": "hard", "soft": "soft", "none": "absent"}


def _try(argv: list[str], env: dict[str, str], blobs: dict[str, bytes], user: HandsUser) -> tuple[int, str, str]:
    handles: list[int] = []
    drop = {"user": user.uid, "group": user.gid, "extra_groups": []} if os.getuid() == 0 else {}
    try:
        for name, content in blobs.items():
            handle = os.memfd_create(name)
            handles.append(handle)
            os.write(handle, content)
            os.lseek(handle, 0, os.SEEK_SET)
            argv = [part.replace(f"{{fd:{name}}}", str(handle)) for part in argv]
        done = subprocess.run(  # type: ignore[call-overload]
            argv, env=env, pass_fds=handles, capture_output=True, timeout=20, check=False, cwd="/", **drop
        )
    except subprocess.TimeoutExpired:
        return 1, "", "bubblewrap did not come back within 20 s"
    except OSError as error:
        return 1, "", f"this root cannot become uid {user.uid} ({error.strerror})" if drop else str(error)
    finally:
        for handle in handles:
            os.close(handle)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def about_here() -> tuple[Finding, ...]:
    """Return further findings about this machine: the user of tool calls, and survival after a worker's end."""
    out = []
    if os.getuid() == 0:
        out.append(
            Finding(
                "user",
                "ok",
                "started as root; tool calls run as the workspace's owner or a user id set apart, never as root",
            )
        )
    else:
        out.append(Finding("user", "ok", f"tool calls run as uid {os.getuid()}, inside the sandbox"))
    out += [_survival(), _minimum()]
    return tuple(out)


_CONFINED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from privileges import CAP_KILL, give_up, status
uid = int(sys.argv[2])
give_up(uid=uid, gid=uid, keep=(CAP_KILL,), filter_calls=bytes.fromhex(sys.argv[3]))
found = status()
print(found["Uid"].split()[0], found["CapEff"], found["NoNewPrivs"], found["Seccomp"])
"""


def _minimum() -> Finding:
    """Check the privileges left to processes beside a sandbox, in one that gives up the same (docs/hands.md)."""
    root = os.getuid() == 0
    uid = set_apart("trial", "process") if root else os.getuid()
    given = [str(Path(privileges.__file__).parent), str(uid), (assemble_here(programs=False) or b"").hex()]
    command = [PYTHON, "-I", "-S", "-c", _CONFINED, *given]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False, env={}, cwd="/")
    except subprocess.TimeoutExpired:
        why = "the trial did not end within 20 s"
        return Finding(
            "privileges", "bad", f"cannot tell what supervisors give up: {why}", "try again on a quieter machine"
        )
    words = done.stdout.split()
    if done.returncode != 0 or len(words) != 4:
        why = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "it was ended"
        return Finding(
            "privileges", "bad", f"supervisors and proxies cannot give up theirs here ({why})", _CONTAINER_FIX
        )
    kept = f"uid {words[0]}, CapEff {words[1]}, NoNewPrivs {words[2]}, Seccomp {words[3]}"
    return Finding("privileges", "ok", f"a supervisor keeps {kept}, tried; a proxy has no capability")


def _survival() -> Finding:
    """Check that a supervisor outlives the worker that started it (S10)."""
    try:
        unit = Path("/proc/self/cgroup").read_text()
    except OSError:
        unit = ""
    if ".service" in unit and "user@" not in unit.rsplit("/", 1)[-1]:
        return Finding(
            "supervisor",
            "soft",
            "this runs in a systemd service: a restart of it ends running calls, their outcome is then unknown",
            "in the unit: KillMode=process, so that only the worker itself is restarted",
        )
    if in_container():
        return Finding(
            "supervisor",
            "soft",
            "a supervisor survives the death of its worker, but not that of the container's first process",
            "keep the worker from being the container's first process (docker run --init)",
        )
    return Finding("supervisor", "ok", "a supervisor, and the call it runs, survives the death of its worker")
