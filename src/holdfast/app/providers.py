"""Sandbox providers by name, each loaded at its first use."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from holdfast.app.settings.config import passed_on
from holdfast.clock import SystemClock
from holdfast.errors import UsageError
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.session import HandsPolicy, Workspace
from holdfast.hands.base import Capabilities, Hands, HandsSpec, Provider
from holdfast.ids import system_entropy

NAMES = "bubblewrap, podman:IMAGE, docker:IMAGE, runc, crun, runsc, ssh:HOST, remote, landlock"
"""The accepted values of `provider` in [hands]."""

SSH_NEEDS = ("PATH", "HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "LANG")
"""Environment variables passed to ssh itself; none is sent to the other machine."""

CONTAINERS = ("podman", "docker", "runc", "crun", "runsc")


class _Link(Protocol):
    def close(self) -> None: ...


class Providers:
    """All providers of one home, each created at its first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[tuple[str, bool], Provider] = {}
        self._links: list[_Link] = []

    def of(self, policy: HandsPolicy, workspace: Workspace) -> Provider:
        """The provider in a session's policy. Only the user's own settings and flags set it, never a tool."""
        return self.named("unsandboxed" if workspace.isolation == "none" else policy.provider, policy.accept_weak)

    def named(self, name: str, accept_weak: bool) -> Provider:
        """The provider with that name. Raises `UsageError` or `CannotRunSafely` for an unusable one."""
        key = (name, accept_weak)
        if key not in self._made:
            self._made[key] = self._make(name, accept_weak)
        return self._made[key]

    def close(self) -> None:
        """Close the programs that carry connections. The hands keep running."""
        for link in self._links:
            link.close()

    def _make(self, name: str, accept_weak: bool) -> Provider:
        kind, _, rest = name.partition(":")
        clock = SystemClock()
        if name == "unsandboxed":
            from holdfast.hands.unsandboxed import UnsandboxedProvider

            return UnsandboxedProvider(self._folder)
        if kind == "ssh":
            from holdfast.hands.far.link import PipeLink
            from holdfast.hands.far.provider import FarProvider, ssh_command

            link = PipeLink(ssh_command(rest), name=name, env=passed_on(SSH_NEEDS))
            self._links.append(link)
            return FarProvider(link, self._folder / "far", name=name)
        if name == "remote":
            from holdfast.hands.remote.provider import RemoteProvider
            from holdfast.hands.remote.queue import Queue

            queue = Queue(queue_path(self._folder.parent), clock, system_entropy)
            return RemoteProvider(queue, self._folder / "far", clock)
        return local_provider(name, self._folder, accept_weak=accept_weak)


def queue_path(home: Path) -> Path:
    """The queue of a home, where remote workers find its sessions."""
    return home.absolute() / "remote" / "queue.db"


def local_provider(name: str, folder: Path, *, accept_weak: bool = False) -> Provider:
    """A provider of this machine, with its journals in `folder`. Raises `UsageError` or `CannotRunSafely`."""
    if name in ("", "bubblewrap"):
        from holdfast.hands.bubblewrap import BubblewrapProvider

        return BubblewrapProvider(folder)
    if name == "landlock":
        from holdfast.hands.landlock import LandlockProvider

        return LandlockProvider(folder, accept_weak=accept_weak)
    if name.partition(":")[0].partition("+")[0] in CONTAINERS:
        from holdfast.hands.oci.provider import OciProvider

        return OciProvider(folder, name)
    raise UsageError(f"there are no hands by {name!r}; provider in [hands] is one of {NAMES}")


class SessionProvider:
    """The provider of one session: provisions by the spec's policy, attaches by the provider in the event."""

    def __init__(self, providers: Providers, policy: HandsPolicy, workspace: Workspace) -> None:
        self._providers = providers
        self._policy = policy
        self._workspace = workspace

    async def probe(self) -> Capabilities:
        """Probe the capabilities of the configured provider."""
        return await self._providers.of(self._policy, self._workspace).probe()

    async def provision(self, spec: HandsSpec, epoch: int) -> Hands:
        """Create hands by the policy of that spec."""
        return await self._providers.of(spec.policy, spec.workspace).provision(spec, epoch)

    async def attach(self, identity: HandsProvisioned) -> Hands:
        """Attach to the incarnation in an event, through the provider that the event names."""
        return await self._providers.named(identity.provider, accept_weak=True).attach(identity)


def serving_provider(name: str, folder: Path) -> Provider:
    """The provider of a machine that serves its hands to others; a weak one is refused."""
    return local_provider(name, folder / "hands")
