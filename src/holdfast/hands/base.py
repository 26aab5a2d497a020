"""The door to the hands: two Protocols and the shapes that cross them.

`Provider` makes hands and finds them again; `Hands` is one incarnation. Every verb of an
incarnation carries the caller's epoch and a lower one than it has seen is refused (S9). A call id is
run at most once by one incarnation: `start` on a known call changes nothing.
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

    `read_only` maps a host folder to the path where it appears inside. `env` is added to the clean
    environment of every command. `policy` limits all of them together. `network` is the only way outside; none
    without it. `layers` are laid over folders inside, see `Layer`.

    `on_news` is a host command that runs, with a clean environment, when a job has news and no client waits for
    it. `{call}` in its parts becomes the call's id, `{news}` one of `line`, `exit` and `lost` (the hands died while it
    ran). It is no child of the supervisor, is not ended with the hands, and is repeated until it exits with 0, with
    growing pauses, ten times at most.

    `guarded` are files and folders of the workspace, by their paths from its root, that are shown read-only by
    providers that can show a single file so (the sandbox, containers); others leave them as they are.

    `continues` are lost hands whose workspace, where it is with the hands, is to go on.
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
    """The way outside: a unix socket of this host that leads to the session's proxy.

    Inside it is reached at `http://127.0.0.1:PORT`. `env` are the variables that make programs use it. `files` maps
    paths inside to the content of files that are shown read-only, such as the certificates to trust.
    """

    socket: str
    port: int = 3128
    env: dict[str, str] = {}
    files: dict[str, bytes] = {}


class Layer(msgspec.Struct, frozen=True):
    """A folder of this host that is laid over one inside; or one file, which is then read-only.

    `lower` are folders of the host, the first on top, under which the folder that is there anyway stays visible when
    `over` is set. What is written goes to `upper`, a folder of these hands alone, or with `private` to one that goes
    with them; without either the layer is read-only. `/workspace` and what is in it, `/usr`, and folders that are
    nowhere else can be laid over. One in the workspace whose parent is not there is left out.
    """

    inside: str
    lower: tuple[str, ...]
    upper: str = ""
    over: bool = False
    private: bool = False


class ExecRequest(msgspec.Struct, frozen=True):
    """One tool call for the hands.

    `tool` is one of bash, read, write, edit, glob, grep, web_fetch, web_search, job, service; `input` its validated
    input. A `job` ({command, name, line, keep_bytes}) and a `service` ({command, name, health, ready_s}) go on until
    they end, are killed, or the hands go; a `job` lasts `timeout_s` at most, a `service` as long as the hands,
    whatever its `timeout_s` says. The call's id is the job's. `line` is a regular expression: the first line of
    output that it matches is news. `keep_bytes` is how much output of a job is kept. `health` is a command that is
    run inside again and again until it exits with 0 or `ready_s` have passed. The name of a service that runs is
    taken: a second one is refused by `HandsError`. With `stdin` true, a bash, job or service reads what `write`
    gives it; its standard input is empty otherwise.

    `seen` holds, for write and edit, the digest under which the model last read the file, keyed by path: a file
    that has another content now is not touched (S18); the empty string says never read.
    `output_cap` is in bytes of output kept in the result, half from the head and half from the tail.
    """

    tool: str
    input: dict[str, Any]
    timeout_s: float
    output_cap: int = 30_000
    seen: dict[str, str] = {}


class ExecResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of a call, from the supervisor's journal, never from text that a command printed.

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
    """Expected effect of a write or edit: the file's digest before it (empty: absent) and after."""

    path: str
    before: str
    after: str


class CallStatus(msgspec.Struct, frozen=True):
    """Status of one call, as its incarnation testifies (S8).

    `unknown`: it started, no exit is journaled and no process lives. `expectation` is there when the
    call was a write or edit whose intent was journaled: a probe can then settle the question.

    `line` is the first line that a job's `line` matched, None before it came; `problem` says why it is looked for no
    more. `ready` tells of a service with a health command whether it has answered: `waiting`, `yes`, or `no` when it
    did not in time or ended before; `problem` then has what the command said last.
    """

    state: Literal["never_started", "running", "finished", "unknown"]
    result: ExecResult | None = None
    expectation: FileExpectation | None = None
    line: str | None = None
    ready: Literal["", "waiting", "yes", "no"] = ""
    problem: str = ""

    @property
    def settled(self) -> bool:
        """True when there is something to tell: it ended, its line came or cannot, its readiness is known."""
        return self.state != "running" or self.line is not None or self.ready in ("yes", "no") or bool(self.problem)


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
        """Start a call and return. A known call id changes nothing. A job or service runs when this returns."""
        ...

    async def wait(self, epoch: int, call_id: str) -> ExecResult:
        """Wait until that call has ended. Giving up waiting does not end the call.

        Raises `HandsLost` when the incarnation dies meanwhile.
        """
        ...

    async def kill(self, epoch: int, call_id: str) -> None:
        """End a running call with all its descendants; `wait` then returns with `cancelled`."""
        ...

    async def status(self, epoch: int, call_id: str, *, wait_s: float = 0.0) -> CallStatus:
        """Return the status of a call, from the journal when the supervisor is dead.

        With `wait_s` it answers when the status is `settled`, or after that time.
        """
        ...

    async def read(
        self, epoch: int, call_id: str, after: int = 0, *, wait_s: float = 0.0, max_bytes: int = 65_536
    ) -> Output:
        """Return the output of a call from byte `after` on; waits up to `wait_s` when there is none yet.

        A character is never cut in two, bytes that are no UTF-8 become U+FFFD. Works after the call's end, and for
        what is left when the supervisor is dead. Raises `HandsError` for a call that was never started here.
        """
        ...

    async def write(self, epoch: int, call_id: str, data: bytes, *, offset: int, close: bool = False) -> None:
        """Give a running command input; `close` ends it. `offset` is how much it was given before: a repeat is one.

        Raises `HandsError` when the call has no input or has ended, when bytes before `offset` are missing, or when
        it reads too slowly: nothing was given then.
        """
        ...

    async def pause(self, epoch: int) -> None:
        """Stop everything that runs here where it is. Raises `HandsError` where the provider cannot.

        Time limits stand still meanwhile. Nothing can be started until `resume`; a kill still ends a call. Safe to
        repeat.
        """
        ...

    async def resume(self, epoch: int) -> None:
        """Let it go on. Safe to repeat."""
        ...

    async def pack(self, epoch: int, path: str, target: BinaryIO) -> int:
        """Write a tar of a folder inside to `target`; returns its size in bytes. Read inside, as the hands' user.

        Sockets, pipes and devices are left out. Raises `HandsError` when something cannot be read or changes meanwhile.
        """
        ...

    async def unpack(self, epoch: int, path: str, source: BinaryIO) -> int:
        """Put a tar into a folder inside; returns the number of entries. What would leave the folder is refused.

        `HandsError` then names the entry; those before it are there. Nothing is written through a link, no device is
        made, set-user bits are dropped.
        """
        ...

    async def release(self, epoch: int) -> None:
        """End this incarnation and everything in it; its journal goes with it. Safe to repeat."""
        ...


@runtime_checkable
class Carrying(Protocol):
    """Hands that have the workspace with them, elsewhere."""

    async def bring_back(self, epoch: int) -> None:
        """Make the workspace's folder here what it is there, but for `.git`. Works for dead hands too.

        Raises `WorkspaceGone` when it is not there any more, `HandsUnreachable` without an answer.
        """
        ...


class Capabilities(msgspec.Struct, frozen=True):
    """Capabilities of a provider on this machine.

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
        """Check what this machine allows. Cheap enough to run at every start."""
        ...

    async def provision(self, spec: HandsSpec, epoch: int) -> Hands:
        """Make a new incarnation. Raises `SandboxUnavailable` or `HandsError`; leaves nothing then.

        `HandsLost` says that it was ended while it started: another one may well work. `WorkspaceGone` says that the
        workspace of the hands that `spec` continues is no longer where they were.
        """
        ...

    async def attach(self, identity: HandsProvisioned) -> Hands:
        """The incarnation of that event. Never fails for a dead one: its `status` still testifies."""
        ...
