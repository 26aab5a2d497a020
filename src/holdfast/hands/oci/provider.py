"""Hands in a container: the same agent inside, the same supervisor outside, the same verbs.

With an engine (podman, docker) the programs come from an image that the policy names; nothing is pulled. With a runtime
alone (runc, crun, gVisor's runsc) they are this host's own, as in the default sandbox. Both have no network but the
socket of the session's proxy, no capability, a read-only root, and our system call filter.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pwd
import subprocess
from pathlib import Path
from typing import Any

import anyio

from holdfast.errors import SandboxUnavailable, UsageError
from holdfast.facts.base import Isolation
from holdfast.facts.hands import HandsProvisioned
from holdfast.hands.base import Capabilities, Finding, HandsSpec
from holdfast.hands.box import confine, container
from holdfast.hands.host_files import guarded, protected
from holdfast.hands.incarnation import PATH, Maker, Plan
from holdfast.hands.launch import EGRESS_FOLDER, PYTHON, Limits, Lives, Place, agent_command, agent_parts, blob
from holdfast.hands.oci.engines import Bind, Engine, clear_command, complaint, configuration, named, run_command
from holdfast.hands.probe import about_here
from holdfast.hands.supervised import SupervisedHands
from holdfast.hands.talk import ANSWER_S
from holdfast.hands.user import HandsUser, choose_user, make_ready
from holdfast.seccomp import assemble_here

ROOT, OUTPUT, HOME = "/workspace", "/output", "/home/agent"
PARTS, DOOR = "/run/agent", "/run/door"

ISOLATION: dict[str, Isolation] = {
    "files": "hard",
    "network": "hard",
    "processes": "hard",
    "syscalls": "hard",
    "users": "hard",
    "memory": "soft",
    "disk": "soft",
    "cpu": "none",
}

_TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC = "ld.so.cache ld.so.conf ld.so.conf.d alternatives ssl/certs ssl/openssl.cnf ca-certificates localtime mime.types"

_THEN = """
import json, socket
try:
    told = json.loads(sys.argv[1])
    door = socket.socket(socket.AF_UNIX)
    door.connect(told["door"])
    os.dup2(door.fileno(), 0)
    confine(told)
    os.execve(sys.argv[2], sys.argv[2:], os.environ)
except BaseException as error:
    fail(error)
"""


class OciProvider:
    """Creates hands in containers of the engine with that name (see `engines.Engine`)."""

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        sockets: Path | None = None,
        limits: Limits | None = None,
        lives: Lives | None = None,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._engine = named(name)
        self._name = name
        self._answer_s = answer_s
        self._maker = Maker(folder, sockets=sockets, limits=limits, lives=lives or Lives(), answer_s=answer_s)

    async def probe(self) -> Capabilities:
        """Check with the engine that it works here."""
        problem = await anyio.to_thread.run_sync(complaint, self._engine)
        if problem:
            finding = Finding("engine", "bad", problem, self._engine.fix)
            return Capabilities(self._name, False, findings=(finding, *about_here()))
        finding = Finding("engine", "ok", f"{self._engine.name} answers; a container is made when it is needed")
        return Capabilities(self._name, True, dict(ISOLATION), (finding, *about_here()))

    async def provision(self, spec: HandsSpec, epoch: int) -> OciHands:
        """Create a container with its agent. Raises `SandboxUnavailable` with the engine's error and the fix."""
        user, plan = await anyio.to_thread.run_sync(self._plan, spec)
        made = await self._maker.make(spec, epoch, user, plan, self._refuse)
        return self._hands(made.identity)

    async def attach(self, identity: HandsProvisioned) -> OciHands:
        """Return the incarnation of that event, dead or alive."""
        return self._hands(identity)

    def _hands(self, identity: HandsProvisioned) -> OciHands:
        folder = self._maker.place(identity.hands_id)
        return OciHands(identity, folder, self._engine, answer_s=self._answer_s)

    def _plan(self, spec: HandsSpec) -> tuple[HandsUser, Plan]:
        engine, folder = self._engine, self._maker.place(spec.hands_id)
        if problem := complaint(engine):
            raise SandboxUnavailable(f"{problem}; nothing was started: {engine.fix}")
        if spec.layers:
            raise SandboxUnavailable(
                f"hands by {engine.name} cannot have a prepared environment; nothing was started: put what is needed "
                "into the image, or use the default sandbox"
            )
        workspace = self._maker.separate(spec.workspace.path)
        user = choose_user(spec.workspace)
        make_ready(spec.workspace, user, home=self._maker.folder.parent)
        binds, places = _binds(spec, folder, workspace, user, engine)
        told = _told(spec, folder, user, engine, binds)
        argv = [PYTHON, "-I", "-S", "-c", Path(container.__file__).read_text(), "{fd:told}"]
        plan = Plan(
            self._name,
            argv,
            {"PATH": PATH, "LANG": "C.UTF-8", **_engine_environment(engine)},
            {"told": blob(json.dumps(told).encode())},
            *(ROOT, OUTPUT, ISOLATION, places),
            folders=("door",),
            starter=HandsUser(os.getuid(), os.getgid(), "", "runs the engine"),
        )
        return user, plan

    def _refuse(self, problem: str) -> Exception:
        last = problem.strip().splitlines()[-1] if problem.strip() else "it said nothing"
        return SandboxUnavailable(f"{self._engine.name} started no hands ({last}); {self._engine.fix}")


class OciHands(SupervisedHands):
    """Hands in a container. Their release also removes the engine's records of it."""

    def __init__(self, identity: HandsProvisioned, folder: Path, engine: Engine, *, answer_s: float) -> None:
        super().__init__(identity, folder, answer_s=answer_s)
        self._engine = engine
        self._place = folder

    async def release(self, epoch: int) -> None:
        """End the container and remove the engine's records of it. Safe to repeat."""
        if self._ours() and self._place.exists():
            await self.status(epoch, "")  # refuses a lower epoch, dead or alive
            with contextlib.suppress(SandboxUnavailable, OSError, subprocess.TimeoutExpired):
                await anyio.to_thread.run_sync(_clear, self._engine, self._place, self.identity.hands_id)
        await super().release(epoch)


def _told(spec: HandsSpec, folder: Path, user: HandsUser, engine: Engine, binds: list[Bind]) -> dict[str, Any]:
    """Message to the program between the supervisor and the container."""
    command, env = _inside(), _environment()
    bundle, parts = str(folder / "bundle"), str(folder / "bundle" / "parts")
    config = configuration(command, env, user.uid, user.gid, binds, cwd=ROOT, home=HOME)
    files = {
        f"{bundle}/config.json": json.dumps(config).encode(),
        f"{parts}/agent": agent_parts(),
        f"{parts}/passwd": f"agent:x:{user.uid}:{user.gid}::{HOME}:/bin/bash\n".encode(),
        f"{parts}/group": f"agent:x:{user.gid}:\n".encode(),
        **{f"{parts}/shown{number}": content for number, content in enumerate(_shown(spec).values())},
    }
    links = [name for name in _TOP if os.path.islink(f"/{name}")]
    ids = (user.uid, user.gid)
    return {
        "door": str(folder / "door" / "s"),
        "files": {path: base64.b64encode(content).decode() for path, content in files.items()},
        "folders": [bundle, parts, f"{bundle}/rootfs"],
        "links": {f"{bundle}/rootfs/{name}": os.readlink(f"/{name}") for name in links},
        "command": run_command(engine, folder, spec.hands_id, command, env, ids, binds, cwd=ROOT, home=HOME),
        "after": clear_command(engine, folder, spec.hands_id),
        "uid": user.uid,
        "gid": user.gid,
    }


def _clear(engine: Engine, folder: Path, name: str) -> None:
    command = clear_command(engine, folder, name)
    environment = {"PATH": PATH, "LANG": "C.UTF-8", **_engine_environment(engine)}
    subprocess.run(command, capture_output=True, timeout=60, check=False, stdin=subprocess.DEVNULL, env=environment)


def _binds(
    spec: HandsSpec, folder: Path, workspace: str, user: HandsUser, engine: Engine
) -> tuple[list[Bind], tuple[Place, ...]]:
    """Return the binds in mount order, and the mount points in the workspace that they need."""
    out = [] if engine.needs_image else _system()
    out += [Bind(workspace, ROOT, True), Bind(str(folder / "output"), OUTPUT, True)]
    names, places = protected(Path(workspace))
    shown = dict.fromkeys(names, False) | guarded(Path(workspace), spec.guarded)
    out += [Bind(os.path.join(workspace, name), f"{ROOT}/{name}", writable) for name, writable in shown.items()]
    parts = folder / "bundle" / "parts"
    out += [Bind(str(parts), PARTS), Bind(str(folder / "door"), DOOR)]
    out += [Bind(str(parts / name), f"/etc/{name}") for name in ("passwd", "group")]
    if spec.network is not None:
        out.append(Bind(os.path.dirname(spec.network.socket), EGRESS_FOLDER))
    for here, there in spec.read_only.items():
        if os.path.normpath(there) != there or not there.startswith(("/opt/", "/mnt/", "/srv/")):
            raise UsageError(f"{there!r} cannot be shown in a container; choose a place below /opt, /mnt or /srv")
        if not os.path.exists(here):
            raise UsageError(f"{here}, wanted read-only at {there}, does not exist")
        out.append(Bind(here, there))
    out += [Bind(str(parts / f"shown{number}"), path) for number, path in enumerate(_shown(spec))]
    for bind in out:
        if ":" in bind.outside + bind.inside and engine.needs_image:
            raise UsageError(f"{bind.outside} has a colon in its name, which {engine.name} cannot mount; use another")
    return out, places


def _system() -> list[Bind]:
    """Return the binds of this host's own programs."""
    tops = [f"/{name}" for name in _TOP if os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}")]
    etc = [f"/etc/{name}" for name in _ETC.split() if os.path.exists(f"/etc/{name}")]
    with os.scandir("/etc") as found:
        etc += sorted(entry.path for entry in found if entry.name.startswith("python3"))
    return [Bind(path, path) for path in ("/usr", *tops, *etc)]


def _shown(spec: HandsSpec) -> dict[str, bytes]:
    return {**spec.files, **(spec.network.files if spec.network is not None else {})}


def _inside() -> list[str]:
    """Return the command of the container: connect to the socket, filter system calls, become the agent."""
    program = assemble_here()
    if program is None:
        raise SandboxUnavailable(f"there is no system call filter for {os.uname().machine}")
    told = {"door": f"{DOOR}/s", "filter": base64.b64encode(program).decode()}
    source = Path(confine.__file__).read_text()
    return [PYTHON, "-I", "-S", "-c", f"{source}{_THEN}", json.dumps(told), *agent_command(f"{PARTS}/agent")]


def _environment() -> dict[str, str]:
    return {
        **{"PATH": PATH, "HOME": HOME, "USER": "agent", "LOGNAME": "agent", "SHELL": "/bin/bash"},
        **{"LANG": "C.UTF-8", "TERM": "dumb", "TMPDIR": "/tmp", "GIT_OPTIONAL_LOCKS": "0"},
    }


def _engine_environment(engine: Engine) -> dict[str, str]:
    """Return the environment that an engine needs to find its own files; it is not visible inside."""
    if not engine.needs_image:
        return {}
    home = pwd.getpwuid(os.getuid()).pw_dir
    runtime = f"/run/user/{os.getuid()}"
    return {"HOME": home, **({"XDG_RUNTIME_DIR": runtime} if os.path.isdir(runtime) else {})}
