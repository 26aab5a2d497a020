"""The door to environments: what a workspace needs before work begins, and the layers that were made of it.

A set-up runs in hands of its own, which this room knows nothing of: it says what is to be run and where what comes of
it goes, and keeps the result. A layer is whole or not there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

import msgspec

from holdfast.facts.environment import EnvironmentRecorded
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.session import Destination, Environment, Service, Workspace

WORKSPACE = "/workspace"
SHARED = "/opt/environment"
"""A folder inside that set-up may write too, for what does not belong into the workspace."""


class Wanted(msgspec.Struct, frozen=True):
    """What is to stand ready, and the digest over all that it is made from.

    `commands` run in order, with `packages` unpacked before. Packages are a layer of their own under the digest `base`,
    which all workspaces share: nothing of a workspace is in it. `files` are the lock files that count, each with its
    SHA-256. `env` is set in every later command of the work. `notes` are sentences about what was left out.
    """

    digest: str
    base: str = ""
    commands: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    toolchains: tuple[str, ...] = ()
    files: dict[str, str] = {}
    env: dict[str, str] = {}
    services: tuple[Service, ...] = ()
    lfs: bool = False
    notes: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to make."""
        return not (self.commands or self.packages)


class Laid(msgspec.Struct, frozen=True):
    """One folder or file of a layer: where it lies on the host and where it is shown inside.

    `how`: `own` is writable, and what is written is the hands' own; `read` is read-only; `over` is read-only and the
    folder that is there anyway shows under it.
    """

    inside: str
    path: str
    how: Literal["own", "read", "over"]


class Made(msgspec.Struct, frozen=True):
    """A layer that is there, whole: the folder that it is in, what it lays where, and what is recorded of it.

    `laid` has what the layer of packages lays too, whose folder is `base`; empty without packages. `bytes` are its own.
    """

    folder: str
    laid: tuple[Laid, ...]
    record: EnvironmentRecorded
    base: str = ""
    bytes: int = 0

    @property
    def folders(self) -> tuple[str, ...]:
        """All that has to stay while hands stand on it."""
        return (self.folder, self.base) if self.base else (self.folder,)


class Tools(msgspec.Struct, frozen=True):
    """How this machine's own package tools are set: where they ask, and what makes them ask the same inside.

    `apt` is the content of a configuration for apt, `read_only` what it needs of this host at the same paths.
    """

    destinations: tuple[Destination, ...] = ()
    env: dict[str, str] = {}
    apt: str = ""
    read_only: dict[str, str] = {}


class Draft(msgspec.Struct, frozen=True):
    """A place for what is being made: folders of the user that set-up runs as. It is ours alone until it is given up.

    Packages are unpacked into `root` below `packages`; `workspace` takes what is written over the real one, `shared`
    what goes to `SHARED`. `scratch` has a `home` and a `tmp`, and is not kept.
    """

    digest: str
    folder: str
    packages: str
    workspace: str
    shared: str
    scratch: str


Release = Callable[[HandsProvisioned], Awaitable[None]]
"""Ends hands that an earlier set-up left behind when it died."""


class Environments(Protocol):
    """Finds and keeps environments. Raises `EnvironmentFailed` and `UsageError`, each with what to type."""

    async def look(self, workspace: Workspace, policy: Environment, uid: int) -> Wanted:
        """What that workspace wants, by its policy and its files. Reads a few files; runs nothing."""
        ...

    async def find(self, wanted: Wanted) -> Made | None:
        """The layer, when it was made before."""
        ...

    async def prepare(self, wanted: Wanted, owner: tuple[int, int], release: Release) -> Draft | Made:
        """A place to make it in; or the layer, when another made it while this waited. One makes at one time."""
        ...

    async def begun(self, draft: Draft, hands: HandsProvisioned) -> None:
        """Remember hands that work on a draft, so that whoever comes after a death can end them."""
        ...

    async def tools(self) -> Tools:
        """How the package tools of this machine are set. Asks them."""
        ...

    async def seal(
        self, draft: Draft, wanted: Wanted, real: str, record: EnvironmentRecorded, base: Made | None = None
    ) -> Made:
        """Keep what came of it over the workspace `real`, and over the layer of packages `base`: all of it at once.

        No hands may work on it any more.
        """
        ...

    async def give_up(self, draft: Draft) -> None:
        """Take a draft away. Safe to repeat."""
        ...
