"""Start of a supervisor: its launch message, and the program of the agent inside the sandbox."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import marshal
import os
import select
import shutil
import signal
import subprocess
import sys
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import NamedTuple

import anyio
import msgspec

from holdfast.errors import HandsError, HandsLost
from holdfast.hands.base import HandsSpec
from holdfast.hands.box.processes import is_locked
from holdfast.hands.box.supervisor import mounts
from holdfast.hands.box.supervisor.journal import replay
from holdfast.hands.limits.plan import Holding, remove_groups
from holdfast.hands.user import Veil

PYTHON = "/usr/bin/python3"
"""Interpreter of the agent: the system's own, which every user can reach."""

READY_S = 30.0
"""Seconds that a supervisor may take to report that it is ready."""

GONE_S = 5.0
"""Seconds that a killed process may take to be gone."""

_STEP_S = 0.01

_ROOT = Path(__file__).resolve().parent.parent
_AGENT_MODULES = (
    *("wire", "processes", "agent.text", "agent.files", "agent.web_text", "agent.web", "agent.output"),
    *("agent.beside", "agent.runner", "agent.archive", "agent.bridge", "agent.agent"),
)
"""Modules of the agent."""

_PACKAGES = """\
import sys
for name, path in PACKAGES:
    module = type(sys)(name)
    module.__path__ = [path]
    sys.modules[name] = module
"""
"""Creates our packages without running their `__init__`: only the box's own files load."""

_UNPACK = """\
import marshal
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER
with open(sys.argv[1], "rb") as file:
    MAGIC, PARTS = marshal.load(file)
class Packed:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return ModuleSpec(name, Packed) if name in PARTS else None
    @staticmethod
    def create_module(spec):
        return None
    @staticmethod
    def exec_module(module):
        source, code = PARTS[module.__name__]
        exec(marshal.loads(code) if MAGIC_NUMBER == MAGIC else compile(source, "agent", "exec"), module.__dict__)
sys.meta_path.insert(0, Packed)
import holdfast.hands.box.agent.agent
sys.modules["holdfast.hands.box.agent.agent"].main()
"""
"""Runs the agent from its parts. A module is loaded when it is imported: most agents need none for the web."""


class Limits(msgspec.Struct, frozen=True):
    """Resource limits of every command, in bytes and counts. Per process, except `processes`.

    `processes` None leaves the number unlimited: outside a sandbox it counts all processes of the user. `address_space`
    is far more than memory: JavaScript and WebAssembly programs reserve much of it and use little. The policy limits
    memory itself, for all of the hands together.
    """

    processes: int | None = 300
    address_space: int = 256 << 30
    file_size: int = 256 << 20
    open_files: int = 1024
    core: int = 0


class Lives(msgspec.Struct, frozen=True):
    """Lifetimes of a supervisor, in seconds.

    `grace_s` is the time without a call and without a client, `longest_s` the total; neither ever ends a running call.
    `hello_s` is the time that the sandbox may take to start, and `claim_s` the time that the supervisor waits for its
    first client, which may run on a loaded machine.
    """

    grace_s: float = 120.0
    longest_s: float = 24 * 3600.0
    hello_s: float = 60.0
    claim_s: float = 30.0


class Place(NamedTuple):
    """A mount point needed in `folder`, at the path `below` it. `kind` is "folder", "file" or "held"."""

    folder: str
    below: str
    kind: str


class Overlay(msgspec.Struct, frozen=True):
    """An overlay that is mounted before the sandbox starts, as `box.supervisor.mounts` takes it."""

    at: str
    lower: tuple[str, ...]
    upper: str = ""
    work: str = ""


class Laying(msgspec.Struct, frozen=True):
    """All overlays of these hands; they are mounted in the folder `stage`."""

    stage: str
    overlays: tuple[Overlay, ...]


class Opening(msgspec.Struct, frozen=True):
    """The first line of a journal: its incarnation. `places` are the mount points, see `box.supervisor.mounts`."""

    hands_id: str
    host_id: str
    boot_id: str
    places: tuple[Place, ...] = ()


EGRESS_FOLDER = "/run/egress"
"""Folder in the sandbox with the egress proxy's socket; the variables of a `Network` name its files there."""


class Way(msgspec.Struct, frozen=True):
    """The egress proxy as the agent reaches it: the socket's path inside, and the loopback port that leads to it."""

    socket: str
    port: int


def way_of(spec: HandsSpec) -> Way | None:
    """Return the agent's access to the egress proxy; None for hands without a network."""
    if spec.network is None:
        return None
    return Way(f"{EGRESS_FOLDER}/{os.path.basename(spec.network.socket)}", spec.network.port)


class Setup(msgspec.Struct, frozen=True):
    """Setup message of the agent; its paths are those inside the sandbox."""

    root: str
    output: str
    limits: dict[str, int]
    env: dict[str, str]
    network: Way | None = None


class Launch(msgspec.Struct, frozen=True):
    """Everything a supervisor needs. `blobs` are passed to `argv` as descriptors, `{fd:NAME}` in it.

    `holding` are its limits; `before` is a command that starts the supervisor under them, with `before_env`. `on_news`
    is the command that runs when a job has news (see `box.supervisor.notifier`). `veil` names the part of the home that
    stays visible. `filter` is the system call filter of the processes beside the sandbox; root's supervisor becomes
    `own_uid` and `own_gid`.
    """

    epoch: int
    folder: str
    socket: str
    opening: Opening
    argv: list[str]
    env: dict[str, str]
    blobs: dict[str, str]
    uid: int
    gid: int
    setup: Setup
    laying: Laying | None
    grace_s: float
    life_s: float
    hello_s: float
    claim_s: float
    holding: Holding = Holding()
    before: tuple[str, ...] = ()
    before_env: dict[str, str] = {}
    on_news: tuple[str, ...] = ()
    veil: Veil | None = None
    filter: str = ""
    own_uid: int = 0
    own_gid: int = 0


class _Ready(msgspec.Struct, frozen=True):
    ok: bool
    problem: str
    pid: int


def blob(content: bytes) -> str:
    """Encode bytes for a launch."""
    return base64.b64encode(content).decode()


def limits_of(limits: Limits) -> dict[str, int]:
    """Return the limits that are set."""
    return {name: value for name, value in msgspec.structs.asdict(limits).items() if value is not None}


def agent_command(parts: str) -> list[str]:
    """Return the command that runs the agent, given the path of its parts as seen there."""
    packages = [(name, "") for name in ("holdfast", "holdfast.hands", "holdfast.hands.box", "holdfast.hands.box.agent")]
    return [PYTHON, "-I", "-S", "-c", f"PACKAGES = {packages!r}\n{_PACKAGES}{_UNPACK}", parts]


@cache
def agent_parts() -> bytes:
    """Return the agent's parts in one file that imports nothing else of ours.

    It carries compiled code beside each source: used if the Python there has the same format.
    """
    parts = {}
    for module in _AGENT_MODULES:
        path = _ROOT / "hands" / "box" / f"{module.replace('.', '/')}.py"
        name = f"holdfast.hands.box.{module}"
        code = SourceFileLoader(name, str(path)).get_code(name)
        parts[name] = (path.read_text(), marshal.dumps(code))
    return marshal.dumps((importlib.util.MAGIC_NUMBER, parts), 4)


def _run(launch: Launch) -> _Ready:
    """Start the supervisor and wait until it is ready. Blocks; the supervisor outlives us."""
    packages = [("holdfast", str(_ROOT)), ("holdfast.hands", str(_ROOT / "hands"))]
    program = f"PACKAGES = {packages!r}\n{_PACKAGES}from holdfast.hands.box.supervisor.supervisor import main\nmain()\n"
    command = [*launch.before, sys.executable or PYTHON, "-I", "-S", "-c", program]
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin", **launch.before_env},
        cwd="/",
    )
    try:
        said, complaint = child.communicate(msgspec.json.encode(launch), timeout=READY_S)
    except subprocess.TimeoutExpired:
        _abandon(child)
        raise HandsError(f"the supervisor of the hands did not start within {READY_S:.0f} s; try again") from None
    try:
        return msgspec.json.decode(said, type=_Ready)
    except msgspec.DecodeError:
        words = complaint.decode("utf-8", "replace").strip().splitlines()
    if not words:
        raise HandsLost("the supervisor of the hands was ended while it started")
    return _Ready(False, f"the supervisor did not start: {words[-1]}", 0)


def _abandon(child: subprocess.Popen[bytes]) -> None:
    """Stop listening to a start that takes too long. Only a supervisor that has not detached ends with this."""
    child.kill()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    child.wait()


async def start_supervisor(launch: Launch) -> str:
    """Start a supervisor. Returns its error message; empty if it runs.

    Raises `HandsLost` if it was ended during the start, `HandsError` if it takes too long. Leaves nothing behind unless
    it runs.
    """
    runs = False
    try:
        ready = await anyio.to_thread.run_sync(_run, launch)
        runs = ready.ok
        return ready.problem
    finally:
        if not runs:
            with anyio.CancelScope(shield=True):
                await _ended(launch)
                await anyio.to_thread.run_sync(_clear, launch)


async def _ended(launch: Launch) -> None:
    """End the supervisor of a failed start, found by its journal; its steward cleans up in the same folder."""
    lock = os.path.join(launch.folder, "lock")
    await anyio.to_thread.run_sync(end_supervisor, Path(launch.folder))
    with anyio.move_on_after(GONE_S):
        while is_locked(lock):  # noqa: ASYNC110 - another process holds it
            await anyio.sleep(_STEP_S)


def end_supervisor(folder: Path) -> None:
    """Kill the supervisor of the incarnation in that folder if it lives."""
    pid = replay(str(folder / "journal")).opened.get("pid")
    if pid is not None:
        _end(pid, str(folder / "lock"))


def _clear(launch: Launch) -> None:
    """Remove the files of a failed start once its processes are gone."""
    with contextlib.suppress(OSError):
        Path(launch.socket).unlink()
    for place in launch.opening.places:
        mounts.remove_mount_point(place)
    remove_folder(Path(launch.folder))


def _end(pid: int, lock: str) -> None:
    """Kill that supervisor if it lives, and wait until it and all that it held are gone."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if is_locked(lock):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        select.select([handle], [], [], GONE_S)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


def remove_folder(folder: Path) -> None:
    """Remove the folder of an incarnation, even if a command removed its own permissions.

    No process may use it any more. Links are removed, never followed. Control groups that a killed supervisor left are
    removed first: only this folder knows of them.
    """
    remove_groups(folder)
    if os.getuid() != 0:
        for path, folders, _ in os.walk(folder):
            for name in folders:
                inner = os.path.join(path, name)
                if not os.path.islink(inner):
                    os.chmod(inner, 0o700)
    while os.path.lexists(folder):
        with contextlib.suppress(FileNotFoundError):  # a steward removed part of it meanwhile: continue
            shutil.rmtree(folder)
