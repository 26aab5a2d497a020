"""The environment interface: the set-up that a workspace needs before work begins, and the layers made from it.

A set-up runs in a separate sandbox, which the brain makes. This package determines the commands and the place of
their output, and stores the result. A layer is complete or absent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

import msgspec

from holdfast.facts.hands import EnvironmentRecorded, HandsProvisioned
from holdfast.facts.session import Destination, Environment, Service, Workspace

WORKSPACE = "/workspace"
SHARED = "/opt/environment"
"""Folder in the sandbox that a set-up may write to, for files outside the workspace."""


class Wanted(msgspec.Struct, frozen=True):
    """A requested environment, and the digest over all its inputs.

    `commands` run in order, after `packages` are unpacked. Packages are a separate layer under the digest `base`,
    which all workspaces share: it has no file of a workspace. `files` are the relevant lock files with their SHA-256.
    `env` is set in every later command of the work. `notes` name the parts that were left out.
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
        """True if there is nothing to set up."""
        return not (self.commands or self.packages)


class Laid(msgspec.Struct, frozen=True):
    """One folder or file of a layer: its path on the host, and its path in the sandbox.

    `how`: `own` is writable with private changes; `read` is read-only; `over` is a read-only overlay on the folder of
    the sandbox.
    """

    inside: str
    path: str
    how: Literal["own", "read", "over"]


class Made(msgspec.Struct, frozen=True):
    """A complete layer: its folder, the paths that it adds, and its record.

    `laid` includes the paths of the layer of packages, whose folder is `base`; empty without packages. `bytes` is the
    size of this layer alone.
    """

    folder: str
    laid: tuple[Laid, ...]
    record: EnvironmentRecorded
    base: str = ""
    bytes: int = 0

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders that must exist while a sandbox uses the layer."""
        return (self.folder, self.base) if self.base else (self.folder,)


class Tools(msgspec.Struct, frozen=True):
    """Settings of this machine's package tools: their registries, and variables that select the same in a sandbox.

    `apt` is a configuration for apt, `read_only` the paths of this host that it needs.
    """

    destinations: tuple[Destination, ...] = ()
    env: dict[str, str] = {}
    apt: str = ""
    read_only: dict[str, str] = {}


class Draft(msgspec.Struct, frozen=True):
    """Folders of an unfinished layer, owned by the user of the set-up, and locked until sealed or given up.

    Packages are unpacked into `root` below `packages`; `workspace` takes writes to the workspace, `shared` writes to
    `SHARED`. `scratch` has a `home` and a `tmp`, and is not kept.
    """

    digest: str
    folder: str
    packages: str
    workspace: str
    shared: str
    scratch: str


Release = Callable[[HandsProvisioned], Awaitable[None]]
"""Function that ends the hands of an earlier set-up whose process died."""


class Environments(Protocol):
    """A store of environments. Raises `EnvironmentFailed` and `UsageError`."""

    async def look(self, workspace: Workspace, policy: Environment, uid: int) -> Wanted:
        """Determine the environment of a workspace from its policy and files. Runs nothing."""
        ...

    async def find(self, wanted: Wanted) -> Made | None:
        """Return the layer if it exists."""
        ...

    async def prepare(self, wanted: Wanted, owner: tuple[int, int], release: Release) -> Draft | Made:
        """Return a draft to fill, or the layer if another process made it meanwhile. Only one process makes it."""
        ...

    async def begun(self, draft: Draft, hands: HandsProvisioned) -> None:
        """Record the hands that work on a draft, so that another process can end them if this one dies."""
        ...

    async def tools(self) -> Tools:
        """Return the settings of this machine's package tools."""
        ...

    async def seal(
        self, draft: Draft, wanted: Wanted, real: str, record: EnvironmentRecorded, base: Made | None = None
    ) -> Made:
        """Turn a draft into a layer over the workspace `real` and the layer of packages `base`, atomically.

        No hands may work on the draft any more.
        """
        ...

    async def give_up(self, draft: Draft) -> None:
        """Remove a draft. Safe to repeat."""
        ...
