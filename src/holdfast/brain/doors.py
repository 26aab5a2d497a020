"""Doors and identity of a brain, and the observers of its events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


class ObserverGone(Exception):
    """Whoever watches has gone. It says nothing about the session, which is left as it is."""


class Observer(Protocol):
    """Somebody who watches a shift as it happens. It must not block, and cannot change anything."""

    def on_events(self, events: list[Event]) -> None:
        """Events that this shift folded: its own and those posted meanwhile."""
        ...

    def on_delta(self, part: StreamPart) -> None:
        """A piece of a response that is still streaming. Never in the log."""
        ...


class Kinds(Protocol):
    """The registry of kinds of sessions, by name. Both raise `LookupError` for a name that it does not know."""

    def __call__(self, name: str) -> Kind[State]:
        """The pure part of a kind."""
        ...

    def acts(self, name: str) -> Callable[[Any], object]:
        """The part of a kind that acts: makes the `Acts` of a shift (`holdfast.brain.shift`)."""
        ...


class NoObserver:
    """Nobody watches."""

    def on_events(self, events: list[Event]) -> None:
        """Look away."""

    def on_delta(self, part: StreamPart) -> None:
        """Look away."""


@dataclass(frozen=True)
class Worker:
    """The process that runs brains, as `shift.started` names it."""

    worker_id: str
    host_id: str
    boot_id: str
    pid: int
    program: str


def uptime(clock: Clock, boot_id: str) -> Uptime:
    """The uptime now. Only uptimes of the same `boot_id` can be compared."""
    return Uptime(boot_id, int(clock.monotonic_s() * 1_000_000))


def same_workspace(session_id: str, near: Workspace) -> Workspace:
    """A child's workspace where nobody makes others: its parent's."""
    return near


def no_user(workspace: Workspace) -> int:
    """The user of hands where nobody asks: none that could connect to anything."""
    return -1


def nobody_is_told(session_id: str) -> tuple[str, ...]:
    """No command: news of jobs are found out by the next brain that looks."""
    return ()


def no_repository(path: str) -> Repository:
    """Repository opener of a host without git."""
    raise CannotRunSafely(f"there is no git on this machine to work on {path} with; nothing was changed: install it")


def kept(workspace: Workspace) -> None:
    """Leave a folder where it is."""


@dataclass(frozen=True)
class Doors:
    """Everything outside a brain. `model` finds a model by the name in the agent.

    `prompt` is the system prompt's text, `prompts` the texts of the others by name (`compaction`, `handoff`),
    and `prompt_digests` the digests of all of them.
    `kinds` finds what belongs to a kind of session. `provisioning` says when hands are made: at the first streamed
    tool name, or before the model is asked. `tools` are those of the embedding program, by name. `targets` are where
    messages to people go.
    `shelf` keeps snapshots of the workspace; without one there are none. `workspace` makes one for a
    new session, near that of the session that opens it. `egress` opens ways outside; without one hands have none.
    `environments` keeps what stands ready before work begins; without one a session that wants something does not
    begin. `uid` says as which user the hands of a workspace run. `on_news` is the command that is run for a session
    when a job of it has news and no brain waits for that.
    `repository` opens a user's repository by its path; `discard` removes a folder that `workspace` made.
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


class CustomResult(msgspec.Struct, frozen=True):
    """End of a custom call. `unknown` means that it exceeded its timeout and may still run."""

    ok: bool
    content: str
    unknown: bool = False


class ToolRunner(Protocol):
    """One tool. `spec` is what the log and the model are told of it."""

    @property
    def spec(self) -> CustomTool:
        """Its declaration, as it stands in the log of a session that has it."""
        ...

    async def run(self, call_id: str, value: dict[str, Any], key: str) -> CustomResult:
        """Do it. `key` stays the same when the call is repeated (S12). Raises nothing for a bad input."""
        ...

    async def probe(self, call_id: str, value: dict[str, Any], key: str) -> bool | None:
        """Return whether that call happened; None when it cannot be known."""
        ...
