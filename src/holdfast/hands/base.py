"""The hands interface: two Protocols and their data types.

`Provider` creates hands and finds them again; `Hands` is one incarnation. Every verb of an incarnation carries the
caller's epoch, for a brain the `fence` of its shift; one lower than an epoch already seen is refused (S9). One
incarnation runs a call id at most once: `start` on a known call changes nothing.
"""

from __future__ import annotations

from typing import Any, BinaryIO, Literal, Protocol, runtime_checkable

import msgspec

from holdfast.facts.base import Isolation
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.session import HandsPolicy, Workspace
from holdfast.facts.tool import FileSeen


class HandsSpec(msgspec.Struct, frozen=True):
    """Request for hands: the session, the workspace, and read-only extras.

    `read_only` maps a host folder to its path in the sandbox. `env` is added to the clean environment of every command.
    `policy` limits all commands together. `network` is the only network access; without it there is none. `layers` are
    mounted over folders of the sandbox, see `Layer`.

    `on_news` is a host command that runs, with a clean environment, when a job has news and no client waits for it.
    `{call}` in its arguments becomes the call's id, `{news}` one of `line`, `exit` and `lost` (the hands died while the
    job ran). It is not a child of the supervisor and outlives the hands. It is retried until it exits with 0, with
    growing pauses, ten times at most.

    `guarded` are files and folders of the workspace, relative to its root, that providers able to mount a single file
    read-only (the sandbox, containers) show read-only; other providers leave them writable.

    `continues` are lost hands: the new ones continue with their workspace if those hands hold it.
    """

    session_id: str
    hands_id: str
    workspace: Workspace
    read_only: dict[str, str] = {}
    env: dict[str, str] = {}
    policy: HandsPolicy = HandsPolicy()
    network: Network | None = None
    layers: tuple[Layer, ...] = ()
    held: tuple[str, ...] = ()
    files: dict[str, bytes] = {}
    environment: str = ""
    on_news: tuple[str, ...] = ()
    continues: str = ""
    guarded: tuple[str, ...] = ()


class Network(msgspec.Struct, frozen=True):
    """Network access: a unix socket on this host that leads to the session's egress proxy.

    The sandbox reaches it at `http://127.0.0.1:PORT`. `env` are the variables that make programs use it. `files` maps
    paths in the sandbox to the content of read-only files, such as the certificates to trust.
    """

    socket: str
    port: int = 3128
    env: dict[str, str] = {}
    files: dict[str, bytes] = {}


class Layer(msgspec.Struct, frozen=True):
    """A host folder mounted over a folder in the sandbox, or a single file, which is then read-only.

    `lower` are host folders, the topmost first; with `over` the folder already at that path stays visible below them.
    Writes go to `upper`, a folder of these hands alone, or with `private` to a folder removed with them; without either
    the layer is read-only. Layers can cover `/workspace` and paths in it, `/usr`, and folders that exist nowhere else.
    A layer in the workspace whose parent folder is missing is left out.
    """

    inside: str
    lower: tuple[str, ...]
    upper: str = ""
    over: bool = False
    private: bool = False


class ExecRequest(msgspec.Struct, frozen=True):
    """One tool call for the hands.

    `tool` is one of bash, read, write, edit, glob, grep, web_fetch, web_search, job, service; `input` its validated
    input. A `job` ({command, name, line, keep_bytes}) and a `service` ({command, name, health, ready_s}) run until they
    end, are killed, or the hands end; a `job` runs for `timeout_s` at most, a `service` as long as the hands, whatever
    its `timeout_s`. The call's id is the job's id. `line` is a regular expression: the first line of output that
    matches it is news. `keep_bytes` is how much output of a job is kept. `health` is a command that runs in the sandbox
    repeatedly until it exits with 0 or `ready_s` have passed. `HandsError` refuses a second service with the name of a
    running one. With `stdin` true, a bash, job or service reads the input of `write`; otherwise its standard input is
    empty.

    `seen` holds, for write and edit, the digest under which the model last read the file, keyed by path: a file whose
    content has changed since is left alone (S18); the empty string means never read. `output_cap` is in bytes of output
    kept in the result, half from the head and half from the tail.
    """

    tool: str
    input: dict[str, Any]
    timeout_s: float
    output_cap: int = 30_000
    seen: dict[str, str] = {}


class ExecResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of a call, from the supervisor's journal, never from text that a command printed.

    `ok` is False for a tool error (a refused edit, a non-zero exit, a timeout); `output` is the text for the model.
    `killed` counts leftover processes that were killed; `limit` is the exceeded limit of the hands that ended the call,
    empty if none did.
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
    """Expected effect of a write or edit: the file's digest before it (empty: absent) and after."""

    path: str
    before: str
    after: str


class CallStatus(msgspec.Struct, frozen=True):
    """Status of one call, as its incarnation records it (S8).

    `unknown`: it started, no exit is journaled and no process lives. `expectation` is set when the call was a write or
    edit whose intent was journaled: a probe can then determine the outcome.

    `line` is the first line that a job's `line` matched, None until then; `problem` is why the search was given up.
    `ready` is the health of a service with a health command: `waiting`, `yes`, or `no` if it did not become healthy in
    time or ended before; `problem` then has the last output of the health command.
    """

    state: Literal["never_started", "running", "finished", "unknown"]
    result: ExecResult | None = None
    expectation: FileExpectation | None = None
    line: str | None = None
    ready: Literal["", "waiting", "yes", "no"] = ""
    problem: str = ""

    @property
    def settled(self) -> bool:
        """True when there is news: the call ended, its line matched or cannot match, or its readiness is known."""
        return self.state != "running" or self.line is not None or self.ready in ("yes", "no") or bool(self.problem)


class Output(msgspec.Struct, frozen=True):
    """A piece of the output of a running or finished call.

    `seq` is the position of its first byte in the whole output, `next_seq` that of the byte after it: the position to
    request next. `dropped` bytes before it are no longer kept. `ended` means that no more output follows.
    """

    seq: int
    text: str
    next_seq: int
    dropped: int = 0
    ended: bool = False


class Hands(Protocol):
    """One incarnation of hands. Raises `Fenced` for a stale epoch, `HandsLost` when the incarnation is gone."""

    identity: HandsProvisioned

    async def fence(self, epoch: int) -> None:
        """Refuse every lower epoch from now on."""
        ...

    async def start(self, epoch: int, call_id: str, request: ExecRequest) -> None:
        """Start a call and return. A known call id changes nothing. A job or service runs when this returns."""
        ...

    async def wait(self, epoch: int, call_id: str) -> ExecResult:
        """Wait until that call has ended. Cancelling the wait does not end the call.

        Raises `HandsLost` when the incarnation dies meanwhile.
        """
        ...

    async def kill(self, epoch: int, call_id: str) -> None:
        """Kill a running call with all its descendants; `wait` then returns with `cancelled`."""
        ...

    async def status(self, epoch: int, call_id: str, *, wait_s: float = 0.0) -> CallStatus:
        """Return the status of a call, from the journal when the supervisor is dead.

        With `wait_s` it returns when the status is `settled`, or after that time.
        """
        ...

    async def read(
        self, epoch: int, call_id: str, after: int = 0, *, wait_s: float = 0.0, max_bytes: int = 65_536
    ) -> Output:
        """Return the output of a call from byte `after` on; waits up to `wait_s` if there is none yet.

        Characters are never split; bytes that are not UTF-8 become U+FFFD. Works after the call's end, and for the kept
        output when the supervisor is dead. Raises `HandsError` for a call that was never started here.
        """
        ...

    async def write(self, epoch: int, call_id: str, data: bytes, *, offset: int, close: bool = False) -> None:
        """Write input to a running command; `close` ends it. `offset` is the bytes written before, so a repeat is safe.

        Raises `HandsError`, with nothing written, when the call has no input or has ended, when bytes before `offset`
        are missing, or when the command reads too slowly.
        """
        ...

    async def pause(self, epoch: int) -> None:
        """Pause all processes of these hands. Raises `HandsError` if the provider cannot.

        Time limits are suspended. Nothing can start until `resume`; a kill still ends a call. Safe to repeat.
        """
        ...

    async def resume(self, epoch: int) -> None:
        """Resume all processes of these hands. Safe to repeat."""
        ...

    async def pack(self, epoch: int, path: str, target: BinaryIO) -> int:
        """Write a tar of a folder in the sandbox to `target`; returns its size in bytes. Reads as the hands' user.

        Sockets, pipes and devices are left out. Raises `HandsError` if something cannot be read or changes meanwhile.
        """
        ...

    async def unpack(self, epoch: int, path: str, source: BinaryIO) -> int:
        """Extract a tar into a folder in the sandbox; returns the number of entries. Refuses paths outside it.

        `HandsError` then names the entry; earlier entries are already extracted. Never writes through a link or makes a
        device; drops set-user-id bits.
        """
        ...

    async def release(self, epoch: int) -> None:
        """End this incarnation and everything in it, and delete its journal. Safe to repeat."""
        ...


@runtime_checkable
class Carrying(Protocol):
    """Hands on another machine that hold the workspace there."""

    async def bring_back(self, epoch: int) -> None:
        """Copy the remote workspace back to its folder here, except `.git`. Works for dead hands too.

        Raises `WorkspaceGone` if it no longer exists there, `HandsUnreachable` without an answer.
        """
        ...


class Capabilities(msgspec.Struct, frozen=True):
    """Capabilities of a provider on this machine.

    `usable` is False if it must refuse; `findings` are sentences for `doctor`, each with its fix.
    """

    provider: str
    usable: bool
    isolation: dict[str, Isolation] = {}
    findings: tuple[Finding, ...] = ()


class Finding(msgspec.Struct, frozen=True):
    """One finding: the item checked, its state, and the fix (empty if there is no problem)."""

    name: str
    level: Literal["hard", "soft", "absent", "ok", "bad"]
    message: str
    fix: str = ""


class Provider(Protocol):
    """Creates hands, and finds those of an earlier shift again."""

    async def probe(self) -> Capabilities:
        """Check the capabilities of this machine. Cheap enough to run at every start."""
        ...

    async def provision(self, spec: HandsSpec, epoch: int) -> Hands:
        """Create a new incarnation. Raises `SandboxUnavailable` or `HandsError`, and then leaves nothing behind.

        `HandsLost` means that it was ended while it started: another attempt may work. `WorkspaceGone` means that the
        workspace of the hands that `spec` continues is no longer where they were.
        """
        ...

    async def attach(self, identity: HandsProvisioned) -> Hands:
        """Return the incarnation of that event. Never fails for a dead one: its `status` still works."""
        ...
