"""Hands behind Landlock and a system call filter alone: less than a sandbox, for machines that allow no namespaces.

These are usually a second layer; here they are the only one. The user must select the provider by name and accept it as
weak (`accept_weak`); there is no fallback to it. The event that records the hands names what they lack.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path

import anyio
import msgspec

from holdfast.errors import CannotRunSafely, SandboxUnavailable
from holdfast.facts.base import Isolation
from holdfast.facts.hands import HandsProvisioned
from holdfast.hands.base import Capabilities, Finding, HandsSpec
from holdfast.hands.box import confine
from holdfast.hands.incarnation import PATH, Maker, Plan
from holdfast.hands.launch import PYTHON, Limits, Lives, agent_command, agent_parts, blob
from holdfast.hands.probe import about_here
from holdfast.hands.supervised import SupervisedHands
from holdfast.hands.talk import ANSWER_S
from holdfast.hands.user import HandsUser, choose_user, make_ready
from holdfast.seccomp import assemble_here

NAME = "landlock"

OLDEST = 3
"""Before this version of Landlock (Linux 6.2), commands could truncate a file outside to zero bytes."""

ISOLATION: dict[str, Isolation] = {
    "files": "soft",
    "network": "hard",
    "processes": "none",
    "syscalls": "hard",
    "users": "soft",
    "memory": "soft",
    "disk": "soft",
    "cpu": "none",
}

MISSING = (
    "no namespaces, so that the names of the host's files and its processes can be seen; the workspace's .git can be "
    "changed, and git on the host would run what it names"
)

_SYSTEM = "/usr /bin /sbin /lib /lib32 /lib64 /libx32 /opt /proc /etc/ld.so.cache /etc/ld.so.conf /etc/ld.so.conf.d"
_ETC = "alternatives ssl/certs ssl/openssl.cnf ca-certificates localtime mime.types passwd group nsswitch.conf services"
_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))


class LandlockProvider:
    """Creates weak hands. Raises `CannotRunSafely` unless the user accepted that (`accept_weak`)."""

    def __init__(
        self,
        folder: Path,
        *,
        accept_weak: bool,
        sockets: Path | None = None,
        limits: Limits | None = None,
        lives: Lives | None = None,
        answer_s: float = ANSWER_S,
    ) -> None:
        if not accept_weak:
            raise CannotRunSafely(
                "hands by Landlock isolate less than a sandbox; nothing was started: set accept_weak = true in [hands] "
                "of your own settings if that is what you want, or leave the provider out"
            )
        limits = msgspec.structs.replace(limits or Limits(), processes=None)
        self._maker = Maker(folder, sockets=sockets, limits=limits, lives=lives, answer_s=answer_s)

    async def probe(self) -> Capabilities:
        """Check the kernel; report what is missing even if the provider works."""
        if problem := _problem():
            return Capabilities(NAME, False, findings=(Finding("landlock", "bad", problem, _FIX), *about_here()))
        finding = Finding("landlock", "soft", f"weak isolation: {missing()}", "use bubblewrap where it works")
        return Capabilities(NAME, True, dict(ISOLATION), (finding, *about_here()))

    async def provision(self, spec: HandsSpec, epoch: int) -> SupervisedHands:
        """Create confined hands, or raise `SandboxUnavailable`; never weaker than `missing` says."""
        user, plan = await anyio.to_thread.run_sync(self._plan, spec)
        return await self._maker.make(spec, epoch, user, plan, _refuse)

    async def attach(self, identity: HandsProvisioned) -> SupervisedHands:
        """Return the incarnation of that event, dead or alive."""
        return self._maker.attach(identity)

    def _plan(self, spec: HandsSpec) -> tuple[HandsUser, Plan]:
        if problem := _problem():
            raise SandboxUnavailable(f"{problem}: {_FIX}")
        for wanted, what in (
            (spec.network is not None, "a way outside"),
            (bool(spec.layers or spec.files), "a prepared environment"),
        ):
            if wanted:
                raise SandboxUnavailable(
                    f"hands by Landlock cannot have {what}; nothing was started: leave it out of the session's policy, "
                    "or use a sandbox"
                )
        folder = self._maker.place(spec.hands_id)
        root = self._maker.separate(spec.workspace.path)
        user = choose_user(spec.workspace)
        make_ready(spec.workspace, user, home=self._maker.folder.parent)
        parts = [str(folder / name) for name in ("output", "scratch")]
        environment = {
            **{"PATH": PATH, "HOME": parts[1], "TMPDIR": parts[1], "USER": user.name, "LOGNAME": user.name},
            **{"SHELL": "/bin/bash", "LANG": "C.UTF-8", "TERM": "dumb", "GIT_OPTIONAL_LOCKS": "0"},
        }
        program = assemble_here(sockets=False)
        assert program is not None
        told = {
            "read": [*_SYSTEM.split(), *(f"/etc/{name}" for name in _ETC.split()), *spec.read_only],
            "write": [root, *parts, *_DEVICES],
            "filter": base64.b64encode(program).decode(),
        }
        argv = confined_command(told, agent_command("/proc/self/fd/{fd:agent}"))
        blobs = {"agent": blob(agent_parts())}
        plan = Plan(*(NAME, argv, environment, blobs, root, parts[0], ISOLATION), folders=("scratch",), weak=missing())
        return user, plan


_FIX = "use bubblewrap, or a kernel from 6.2 on that starts with landlock among its security modules (lsm=…)"


def _problem() -> str:
    """Return the reason that this provider is unavailable here; empty if it is available."""
    version = confine.abi()
    if version < OLDEST:
        return f"this kernel has Landlock version {version}, and {OLDEST} is needed"
    if assemble_here() is None:
        return f"there is no system call filter for {os.uname().machine}"
    if not os.access(PYTHON, os.X_OK):
        return f"{PYTHON} is not there"
    return ""


def missing() -> str:
    """List what these hands lack compared with a sandbox, on this kernel and for this user."""
    out = [MISSING]
    if confine.abi() < 6:
        out.append("commands can send signals to processes of their user")
    if os.getuid() != 0:
        out.append("commands run as your own user")
    return "; ".join(out)


def confined_command(told: Mapping[str, object], command: list[str]) -> list[str]:
    """Return a command that applies the confinement and then becomes the given one."""
    source = Path(confine.__file__).read_text()
    return [PYTHON, "-I", "-S", "-c", f"{source}{_THEN}", msgspec.json.encode(told).decode(), *command]


_THEN = """
import json
try:
    confine(json.loads(sys.argv[1]))
    os.execve(sys.argv[2], sys.argv[2:], os.environ)
except BaseException as error:
    fail(error)
"""


def _refuse(problem: str) -> Exception:
    return SandboxUnavailable(f"the hands by Landlock did not start: {problem}; {_FIX}")
