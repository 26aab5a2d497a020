"""Doors and identity of a brain, and the observers of its events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import msgspec

from holdfast.clock import Clock
from holdfast.egress.base import Egress
from holdfast.environment.base import Environments
from holdfast.errors import CannotRunSafely
from holdfast.facts.codec import Event
from holdfast.facts.session import CustomTool, Workspace
from holdfast.hands.base import Provider
from holdfast.ids import Entropy
from holdfast.log.base import Leases, Log, Snapshots
from holdfast.model.base import Model, StreamPart
from holdfast.notify.base import Outlet
from holdfast.repo.base import Shelf
from holdfast.repo.repository import Repository
from holdfast.session.rows import Uptime
from holdfast.session.state import State
from holdfast.session.tenant import Kind
from holdfast.sources.settings import DirectorySettings


class ObserverGone(Exception):
    """The observer has disconnected. The session is left unchanged."""


class Observer(Protocol):
    """Observer of a shift in progress. It must not block, and cannot change anything."""

    def on_events(self, events: list[Event]) -> None:
        """Take events that this shift folded: its own and those posted meanwhile."""
        ...

    def on_delta(self, part: StreamPart) -> None:
        """Take a part of a response that is still streaming. Never in the log."""
        ...


class Kinds(Protocol):
    """Registry of the kinds of sessions, by name. Both methods raise `LookupError` for an unknown name."""

    def __call__(self, name: str) -> Kind[State]:
        """Return the pure part of a kind."""
        ...

    def acts(self, name: str) -> Callable[[Any], object]:
        """Return the acting part of a kind, which makes the `Acts` of a shift (`holdfast.brain.shift`)."""
        ...


class NoObserver:
    """Observer that ignores everything."""

    def on_events(self, events: list[Event]) -> None:
        """Ignore events."""

    def on_delta(self, part: StreamPart) -> None:
        """Ignore a part."""


class Bell(Protocol):
    """Signals that sources of a duty changed (S27)."""

    def watch(self, session_id: str, directories: Mapping[str, DirectorySettings]) -> None:
        """Watch these directories of a session, by trigger, and no others of it."""
        ...

    def rung(self, session_id: str) -> frozenset[str]:
        """Return the triggers of a session whose sources changed."""
        ...

    def answered(self, session_id: str, triggers: frozenset[str]) -> None:
        """Forget the rings of these triggers."""
        ...


class NoBell:
    """Bell that hears nothing: sources are polled at their intervals."""

    def watch(self, session_id: str, directories: Mapping[str, DirectorySettings]) -> None:
        """Watch nothing."""

    def rung(self, session_id: str) -> frozenset[str]:
        """Return nothing."""
        return frozenset()

    def answered(self, session_id: str, triggers: frozenset[str]) -> None:
        """Forget nothing."""


@dataclass(frozen=True)
class Worker:
    """The process that runs brains, as `shift.started` names it."""

    worker_id: str
    host_id: str
    boot_id: str
    pid: int
    program: str
    place: str = ""


def uptime(clock: Clock, boot_id: str) -> Uptime:
    """Return the current uptime. Only uptimes of the same `boot_id` can be compared."""
    return Uptime(boot_id, int(clock.monotonic_s() * 1_000_000))


def same_workspace(session_id: str, near: Workspace) -> Workspace:
    """Return the parent's workspace for a child, on a host that creates no others."""
    return near


def no_user(workspace: Workspace) -> int:
    """Return a user id for hands that can connect to nothing: the default of a host without users."""
    return -1


def nobody_is_told(session_id: str) -> tuple[str, ...]:
    """Return no command: the next brain to wake finds the news of jobs."""
    return ()


def no_repository(path: str) -> Repository:
    """Repository opener of a host without git."""
    raise CannotRunSafely(f"there is no git on this machine to work on {path} with; nothing was changed: install it")


def no_secret(name: str) -> str:
    """Read a secret on a host without a vault."""
    raise CannotRunSafely(f"there are no secrets here, so {name!r} is not known; nothing was read")


async def unknown_costs(session_id: str) -> str:
    """Say nothing: the default `costs`."""
    return ""


def kept(workspace: Workspace) -> None:
    """Keep a folder: the default `discard`."""


@dataclass(frozen=True)
class Doors:
    """Doors to everything outside a brain. `model` opens a model by its name in the agent.

    `prompt` is the text of the system prompt, `prompts` are the other texts by name (`compaction`, `handoff`), and
    `prompt_digests` the digests of all of them. `kinds` looks up a kind of session. `provisioning` sets when hands are
    created: at the first streamed tool name, or before the model request. `tools` are those of the embedding program,
    by name. `targets` receive notifications. `shelf` stores workspace snapshots; without one there are none.
    `workspace` creates the workspace of a new session, near that of the session that opens it. `egress` opens egress
    proxies; without one, hands have no network. `environments` stores prepared environments; without one, a session
    that needs an environment does not start. `uid` returns the user id for the hands of a workspace. `on_news` is the
    command to run for a session when one of its jobs has news and no brain waits for it. `repository` opens a user's
    repository by its path; `discard` removes a folder that `workspace` made. `costs` says
    what a session and all below it cost so far, for a notice; `secret` reads a secret that a source of events needs;
    `bell` says which sources changed.
    """

    log: Log
    leases: Leases
    snapshots: Snapshots
    hands: Provider
    model: Callable[[str], Model]
    clock: Clock
    entropy: Entropy
    worker: Worker
    prompt: str
    kinds: Kinds
    prompts: Mapping[str, str] = field(default_factory=dict)
    prompt_digests: dict[str, str] = field(default_factory=dict)
    observer: Observer = field(default_factory=NoObserver)
    provisioning: Literal["lazy", "eager"] = "lazy"
    tools: Mapping[str, ToolRunner] = field(default_factory=dict)
    targets: Mapping[str, Outlet] = field(default_factory=dict)
    shelf: Shelf | None = None
    egress: Egress | None = None
    environments: Environments | None = None
    uid: Callable[[Workspace], int] = no_user
    workspace: Callable[[str, Workspace], Workspace] = same_workspace
    on_news: Callable[[str], tuple[str, ...]] = nobody_is_told
    repository: Callable[[str], Repository] = no_repository
    discard: Callable[[Workspace], None] = kept
    costs: Callable[[str], Awaitable[str]] = unknown_costs
    secret: Callable[[str], str] = no_secret
    bell: Bell = field(default_factory=NoBell)


class CustomResult(msgspec.Struct, frozen=True):
    """End of a custom call. `unknown` means that it exceeded its timeout and may still run."""

    ok: bool
    content: str
    unknown: bool = False


Opens = Callable[[str, dict[str, Any]], Awaitable[str]]


async def no_children(key: str, value: dict[str, Any]) -> str:
    """Refuse to open a child: this call may not."""
    raise CannotRunSafely("no child was opened: only a running call of a tool opens children")


@dataclass(frozen=True)
class Attempt:
    """An attempt of a custom call: its number, and the position of the event that dispatched it.

    `child` opens a child from the input of `spawn`, once for each key, waits for its end, and returns its id.
    """

    number: int = 1
    seq: int = 0
    child: Opens = no_children


FIRST = Attempt()


class ToolRunner(Protocol):
    """One tool of the embedding program. `spec` is its declaration for the log and the model."""

    @property
    def spec(self) -> CustomTool:
        """The tool's declaration, as in the log of a session that has it."""
        ...

    async def run(self, call_id: str, value: dict[str, Any], key: str, attempt: Attempt = FIRST) -> CustomResult:
        """Run the call. `key` is the same for every attempt (S12). An invalid input raises nothing."""
        ...

    async def probe(self, call_id: str, value: dict[str, Any], key: str, attempt: Attempt = FIRST) -> bool | None:
        """Return True if that call happened; None if it cannot be known."""
        ...
