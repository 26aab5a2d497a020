"""The default on Linux: a bubblewrap sandbox, with every isolation that needs no daemon and no root.

The sandbox has the system's programs (read-only), the workspace at `/workspace`, an output folder, small scratch
folders in memory, and nothing else: no network, no other process, no other file. The workspace's own `.git` is
read-only and always exists (empty if there was none), since git on the host would run programs that its hooks, config
or `commondir` name; commits are made outside.
"""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import msgspec

from holdfast.errors import EnvironmentFailed, SandboxUnavailable, UsageError
from holdfast.facts.base import Isolation
from holdfast.facts.hands import HandsProvisioned
from holdfast.hands.base import Capabilities, HandsSpec
from holdfast.hands.box.supervisor.mounts import TROUBLE
from holdfast.hands.host_files import guarded, protected
from holdfast.hands.incarnation import PATH, Maker, Plan
from holdfast.hands.launch import EGRESS_FOLDER, PYTHON, Limits, Lives, agent_command, agent_parts, blob
from holdfast.hands.layers import contents, lay_out, layers_finding, try_layers
from holdfast.hands.limits.plan import remove_all_groups
from holdfast.hands.probe import diagnose, examine, missing_program
from holdfast.hands.supervised import SupervisedHands
from holdfast.hands.talk import ANSWER_S
from holdfast.hands.user import HandsUser, choose_user, make_ready
from holdfast.seccomp import assemble_here
from holdfast.uids import set_apart

ROOT = "/workspace"
OUTPUT = "/output"
HOME = "/home/agent"
PARTS = "/run/agent"

SCRATCH = 64 << 20
"""Bytes in each of the folders in memory: /tmp, /dev/shm, the home."""

ISOLATION: dict[str, Isolation] = {
    "files": "hard",
    "network": "hard",
    "processes": "hard",
    "syscalls": "hard",
    "users": "hard",
    "memory": "none",
    "disk": "none",
    "cpu": "none",
}
"""Isolation of the sandbox itself; `limits` adds the limits of memory, disk and processor time on this machine."""

_ETC = (
    "ld.so.cache ld.so.conf ld.so.conf.d alternatives ssl/certs ssl/openssl.cnf ca-certificates pki/tls/certs "
    "pki/ca-trust localtime mime.types services protocols"
).split()
_TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_RESERVED = ("/proc", "/dev", "/tmp", "/run", ROOT, OUTPUT, HOME)


class BubblewrapProvider:
    """Creates sandboxed hands. Keeps nothing in memory: any process can attach to hands that another created."""

    def __init__(
        self,
        folder: Path,
        *,
        sockets: Path | None = None,
        limits: Limits | None = None,
        lives: Lives | None = None,
        answer_s: float = ANSWER_S,
        program: str = "/usr/bin/bwrap",
    ) -> None:
        self._maker = Maker(folder, sockets=sockets, limits=limits, lives=lives, answer_s=answer_s)
        self._program = program

    async def probe(self) -> Capabilities:
        """Run the real profile once around a tiny program, and report the result. Removes what dead processes left."""
        await anyio.to_thread.run_sync(remove_all_groups, self._maker.folder)
        found = await anyio.to_thread.run_sync(examine, self._program, _trial(self._program), ISOLATION)
        if not found.usable:
            return found
        layers = await anyio.to_thread.run_sync(try_layers, self._maker.folder)
        return msgspec.structs.replace(found, findings=(*found.findings, layers))

    async def provision(self, spec: HandsSpec, epoch: int) -> SupervisedHands:
        """Create a sandbox with its agent. Raises `SandboxUnavailable` with the cause and its fix."""
        user, plan = await anyio.to_thread.run_sync(self._plan, spec)
        return await self._maker.make(spec, epoch, user, plan, _refuse)

    async def attach(self, identity: HandsProvisioned) -> SupervisedHands:
        """Return the incarnation of that event, dead or alive."""
        return self._maker.attach(identity)

    def _plan(self, spec: HandsSpec) -> tuple[HandsUser, Plan]:
        absent = missing_program(self._program)
        if absent is not None:
            raise SandboxUnavailable(f"{absent.message}: {absent.fix}")
        output = self._maker.place(spec.hands_id) / "output"
        workspace = self._maker.separate(spec.workspace.path)
        user = choose_user(spec.workspace)
        make_ready(spec.workspace, user, home=self._maker.folder.parent)
        names, places = protected(Path(workspace))
        git = [part for name in names for part in ("--ro-bind", f"{workspace}/{name}", f"{ROOT}/{name}")]
        shown: list[str] = []
        if spec.network is not None:
            shown = ["--ro-bind", os.path.dirname(spec.network.socket), EGRESS_FOLDER]
            spec = msgspec.structs.replace(spec, files={**spec.files, **spec.network.files})
        laid = lay_out(spec, self._maker.place(spec.hands_id), workspace, ROOT)
        argv = [
            *_profile(self._program, user, laid.usr),
            *("--bind", laid.workspace, ROOT, *git, *_guarded(workspace, laid.workspace, spec.guarded)),
            *("--bind", str(output), OUTPUT),
            *_extras(spec.read_only),
            *laid.mounts,
            *shown,
            *("--ro-bind-data", "{fd:agent}", PARTS),
            *_closing(),
            *("--chdir", ROOT, "--as-pid-1", "--", *agent_command(PARTS)),
        ]
        given = {**_fixtures(user), **contents(spec), "agent": agent_parts()}
        blobs = {name: blob(content) for name, content in given.items()}
        places = (*places, *laid.places)
        plan = Plan(
            *("bubblewrap", argv, _environment(), blobs, ROOT, OUTPUT, ISOLATION), places, laid.laying, laid.folders
        )
        return user, plan


def _refuse(problem: str) -> Exception:
    finding = diagnose(problem)
    if TROUBLE in problem:
        finding = layers_finding(problem.strip().splitlines()[-1])
        return EnvironmentFailed(f"{finding.message}: {finding.fix}")
    return SandboxUnavailable(f"{finding.message}. {finding.fix}")


def _profile(program: str, user: HandsUser, usr: str = "/usr") -> list[str]:
    """Return the arguments before the workspace: namespaces, system folders, scratch folders."""
    scratch = []
    for path in ("/tmp", "/dev/shm", HOME):
        scratch += ["--size", str(SCRATCH), "--perms", "0700" if path == HOME else "1777", "--tmpfs", path]
    return [
        program,
        *("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
        *("--uid", str(user.uid), "--gid", str(user.gid), "--hostname", "hands"),
        *("--ro-bind", usr, "/usr"),
        *_top(),
        *("--dir", "/etc"),
        *(part for name in _ETC for part in ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")),
        *(part for path in _python_etc() for part in ("--ro-bind-try", path, path)),
        *(
            part
            for name in ("passwd", "group", "hosts", "nsswitch.conf")
            for part in ("--perms", "0644", "--ro-bind-data", f"{{fd:{name}}}", f"/etc/{name}")
        ),
        *("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"),
        *("--ro-bind-try", "/proc/pressure", "/proc/pressure"),
        *scratch,
        *("--dir", "/run", "--dir", "/var", "--symlink", "/tmp", "/var/tmp"),
    ]


def _closing() -> list[str]:
    """Return the arguments after the last mount."""
    return ["--remount-ro", "/dev", "--remount-ro", "/", "--cap-drop", "ALL", "--seccomp", "{fd:filter}"]


def _top() -> list[str]:
    """Mount /bin and its like: links into /usr on most systems, folders on some."""
    out = []
    for name in _TOP:
        path = f"/{name}"
        if os.path.islink(path):
            out += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            out += ["--ro-bind", path, path]
    return out


def _python_etc() -> list[str]:
    """Mount the part of Python's library that some systems keep under /etc."""
    with os.scandir("/etc") as found:
        return sorted(entry.path for entry in found if entry.name.startswith("python3"))


def _fixtures(user: HandsUser) -> dict[str, bytes]:
    """Return the generated files, and the system call filter."""
    program = assemble_here()
    if program is None:
        raise SandboxUnavailable(
            f"there is no system call filter for {os.uname().machine}; Holdfast's sandbox needs x86_64 or aarch64. "
            "--no-sandbox runs without any isolation"
        )
    return {
        "passwd": f"agent:x:{user.uid}:{user.gid}::{HOME}:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n".encode(),
        "group": f"agent:x:{user.gid}:\nnogroup:x:65534:\n".encode(),
        "hosts": b"127.0.0.1 localhost hands\n::1 localhost hands\n",
        "nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
        "filter": program,
    }


def _environment() -> dict[str, str]:
    """Return the environment of bwrap itself, which is the first process visible inside."""
    return {
        "PATH": PATH,
        "HOME": HOME,
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": "/tmp",
        "GIT_OPTIONAL_LOCKS": "0",
    }


def _guarded(workspace: str, shown: str, names: tuple[str, ...]) -> list[str]:
    """Mount files over themselves, read-only: they cannot be changed, moved or removed, nor can a folder above them."""
    found = guarded(Path(workspace), names)
    return [
        part
        for name, writable in found.items()
        for part in ("--bind" if writable else "--ro-bind", os.path.join(shown, name), f"{ROOT}/{name}")
    ]


def is_taken(inside: str) -> bool:
    """Return True for a path that the sandbox itself uses, so that no folder can be shown there."""
    return any(inside == path or inside.startswith(path + "/") for path in _RESERVED)


def _extras(read_only: dict[str, str]) -> list[str]:
    out = []
    for here, inside in read_only.items():
        if os.path.normpath(inside) != inside or not inside.startswith("/") or inside == "/":
            raise UsageError(f"{inside!r} is not an absolute path for {here} inside the sandbox")
        if is_taken(inside):
            raise UsageError(f"{inside} is taken inside the sandbox; choose another place for {here}, such as /mnt/…")
        if not os.path.exists(here):
            raise UsageError(f"{here}, wanted read-only at {inside}, does not exist")
        out += ["--ro-bind", here, inside]
    return out


def _trial(program: str) -> tuple[list[str], dict[str, str], dict[str, bytes], HandsUser]:
    """Run a program that ends at once in the profile, as the user that the sandbox would have here."""
    uid = os.getuid() or set_apart("trial")
    user = HandsUser(uid, os.getgid() or uid, "", "")
    check = "import ctypes, hashlib, json, sys; print(*sys.version_info[:2])"
    argv = [*_profile(program, user), *_closing(), "--", PYTHON, "-I", "-S", "-c", check]
    blobs = _fixtures(user) if assemble_here() is not None else {}
    return argv, _environment(), blobs, user
