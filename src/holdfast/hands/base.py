"""The door to the hands: two Protocols and the shapes that cross them.

`Provider` makes hands and finds them again; `Hands` is one incarnation. Every verb of an
incarnation carries the caller's epoch and a lower one than it has seen is refused (S9). A call id is
run at most once by one incarnation: `start` on a known call changes nothing.
"""

from __future__ import annotations

from typing import Any, BinaryIO, Literal, Protocol

import msgspec

from holdfast.facts.base import Isolation
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.session import HandsPolicy, Workspace
from holdfast.facts.tool import FileSeen


class HandsSpec(msgspec.Struct, frozen=True):
    """What hands are wanted: for which session, on which workspace, with which read-only extras.

    `read_only` maps a host folder to the path where it appears inside. `env` is added to the clean
    environment of every command. `policy` limits all of them together. `network` is the only way outside; none
    without it. `layers` are laid over folders inside, see `Layer`. `on_news` is a command of the host that the
    supervisor runs, with nothing of its own environment but what stands in it, when a job has news and nobody listens.
    """

    session_id: str
    hands_id: str
    workspace: Workspace
    read_only: dict[str, str] = {}
    env: dict[str, str] = {}
    policy: HandsPolicy = HandsPolicy()
    network: Network | None = None
    layers: tuple[Layer, ...] = ()
    environment: str = ""
    on_news: tuple[str, ...] = ()


class Network(msgspec.Struct, frozen=True):
    """The way outside: a unix socket of this host that leads to the session's proxy.

    Inside it is reached at `http://127.0.0.1:PORT`. `env` are the variables that make programs use it. `files` maps
    paths inside to the content of files that are shown read-only, such as the certificates to trust.
    """

    socket: str
    port: int = 3128
    env: dict[str, str] = {}
    files: dict[str, bytes] = {}


class Layer(msgspec.Struct, frozen=True):
    """A folder of this host that is laid over one inside.

    `lower` are folders of the host, the first on top, under which the folder that is there anyway stays visible when
    `over` is set. What is written goes to `upper`, a folder of these hands alone; without it the layer is read-only.
    """

    inside: str
    lower: tuple[str, ...]
    upper: str = ""
    over: bool = False


class ExecRequest(msgspec.Struct, frozen=True):
    """One tool call for the hands.

    `tool` is one of bash, read, write, edit, glob, grep, web_fetch, web_search, job, service; `input` its validated
    input. A `job` and a `service` ({command, name, health, ready_s}) go on until they end, are killed, or the hands
    go; a `job` lasts `timeout_s` at most, a `service` as long as the hands. `seen` holds,
    for write and edit, the digest under which the model last read the file, keyed by path: a file
    that has another content now is not touched (S18); the empty string says never read.
    `output_cap` is in bytes of output kept in the result, half from the head and half from the tail.
    """

    tool: str
    input: dict[str, Any]
    timeout_s: float
    output_cap: int = 30_000
    seen: dict[str, str] = {}


class ExecResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a call ended, from the supervisor's journal, never from text that a command printed.

    `ok` is False for a tool error (a refused edit, a non-zero exit, a timeout); `output` is what the
    model may read. `killed` counts processes that were left behind and ended; `limit`
    is the limit of the hands that ended it, empty when none did.
    """

    ok: bool
    output: str
    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    cancelled: bool = False
    truncated: bool = False
    bytes_total: int = 0
    output_path: str = ""
    duration_ms: float = 0.0
    killed: int = 0
    limit: Literal["", "memory", "processes", "disk", "inodes", "cpu"] = ""
    files: tuple[FileSeen, ...] = ()


class FileExpectation(msgspec.Struct, frozen=True):
    """What a write or edit was about to do: the file's digest before it (empty: absent) and after."""

    path: str
    before: str
    after: str


class CallStatus(msgspec.Struct, frozen=True):
    """What an incarnation can testify about one call (S8).

    `unknown`: it started, no exit is journaled and no process lives. `expectation` is there when the
    call was a write or edit whose intent was journaled: a probe can then settle the question.
    """

    state: Literal["never_started", "running", "finished", "unknown"]
    result: ExecResult | None = None
    expectation: FileExpectation | None = None


class Output(msgspec.Struct, frozen=True):
    """A piece of what a running or finished call printed.

    `seq` is the number of its first byte in all that the call printed, `next_seq` of the byte after it: ask for that
    next. `dropped` bytes before it are no longer kept. `ended` says that nothing comes after it.
    """

    seq: int
    text: str
    next_seq: int
    dropped: int = 0
    ended: bool = False


class Hands(Protocol):
    """One incarnation of hands. Raises `Fenced` for a stale epoch, `HandsLost` when it is gone."""

    identity: HandsProvisioned

    async def fence(self, epoch: int) -> None:
        """Refuse every lower epoch from now on."""
        ...

    async def start(self, epoch: int, call_id: str, request: ExecRequest) -> None:
        """Start a call and return. A known call id changes nothing."""
        ...

    async def wait(self, epoch: int, call_id: str) -> ExecResult:
        """Wait until that call has ended. Giving up waiting does not end the call.

        Raises `HandsLost` when the incarnation dies meanwhile.
        """
        ...

    async def kill(self, epoch: int, call_id: str) -> None:
        """End a running call with all its descendants; `wait` then returns with `cancelled`."""
        ...

    async def status(self, epoch: int, call_id: str) -> CallStatus:
        """What is known of a call. Answers from the journal when the supervisor is dead."""
        ...

    async def read(
        self, epoch: int, call_id: str, after: int = 0, *, wait_s: float = 0.0, max_bytes: int = 65_536
    ) -> Output:
        """What a call printed from byte `after` on; waits so long for something when there is nothing yet."""
        ...

    async def write(self, epoch: int, call_id: str, data: bytes, *, offset: int, close: bool = False) -> None:
        """Give a running command input; `close` ends it. `offset` is how much it was given before: a repeat is one."""
        ...

    async def pause(self, epoch: int) -> None:
        """Stop everything that runs here where it is. Raises `HandsError` where the provider cannot."""
        ...

    async def resume(self, epoch: int) -> None:
        """Let it go on."""
        ...

    async def pack(self, epoch: int, path: str, target: BinaryIO) -> int:
        """Write a tar of a folder inside to `target`; returns its size in bytes. Read inside, as the hands' user."""
        ...

    async def unpack(self, epoch: int, path: str, source: BinaryIO) -> int:
        """Put a tar into a folder inside; returns the number of files. What would leave the folder is refused."""
        ...

    async def release(self, epoch: int) -> None:
        """End this incarnation and everything in it; its journal goes with it. Safe to repeat."""
        ...


class Capabilities(msgspec.Struct, frozen=True):
    """What a provider can do on this machine.

    `usable` is False when it must refuse; `findings` are sentences for `doctor`, each with its fix.
    """

    provider: str
    usable: bool
    isolation: dict[str, Isolation] = {}
    findings: tuple[Finding, ...] = ()


class Finding(msgspec.Struct, frozen=True):
    """One line of health: what was looked at, how it is, how to mend it (empty when it is well)."""

    name: str
    level: Literal["hard", "soft", "absent", "ok", "bad"]
    message: str
    fix: str = ""


class Provider(Protocol):
    """Makes hands, and finds those of an earlier shift again."""

    async def probe(self) -> Capabilities:
        """What this machine allows. Cheap enough to run at every start."""
        ...

    async def provision(self, spec: HandsSpec, epoch: int) -> Hands:
        """Make a new incarnation. Raises `SandboxUnavailable` or `HandsError`; leaves nothing then.

        `HandsLost` says that it was ended while it started: another one may well work.
        """
        ...

    async def attach(self, identity: HandsProvisioned) -> Hands:
        """The incarnation of that event. Never fails for a dead one: its `status` still testifies."""
        ...
