"""Which provider of hands a session gets: what its policy names, else this machine's own sandbox."""

from __future__ import annotations

from pathlib import Path

from holdfast.app.config import passed_on
from holdfast.errors import UsageError
from holdfast.facts.session import HandsPolicy, Workspace
from holdfast.hands.base import Provider
from holdfast.hands.bubblewrap import BubblewrapProvider
from holdfast.hands.far.link import PipeLink
from holdfast.hands.far.provider import FarProvider, ssh_command
from holdfast.hands.unsandboxed import UnsandboxedProvider

NAMES = "bubblewrap, ssh:HOST"
"""What can be named, for messages."""

SSH_NEEDS = ("PATH", "HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "LANG")
"""What ssh itself may see of our environment; nothing of it is sent to the other machine."""


def find_provider(policy: HandsPolicy, workspace: Workspace, home: Path) -> Provider:
    """The provider that holds for a session. Raises `UsageError` or `CannotRunSafely` for one that cannot be."""
    if workspace.isolation == "none":
        return UnsandboxedProvider(home / "hands")
    kind, _, rest = policy.provider.partition(":")
    if kind == "ssh":
        link = PipeLink(ssh_command(rest), name=policy.provider, env=passed_on(SSH_NEEDS))
        return FarProvider(link, home / "hands" / "far", name=policy.provider)
    return local_provider(policy, home / "hands")


def local_provider(policy: HandsPolicy, folder: Path) -> Provider:
    """A provider of this machine, with its journals in `folder`."""
    kind, _, _ = policy.provider.partition(":")
    if kind in ("", "bubblewrap"):
        return BubblewrapProvider(folder)
    raise UsageError(f"no hands are made by {policy.provider!r}; [hands] provider is one of {NAMES}")


def serving_provider(name: str, folder: Path) -> Provider:
    """The provider of a machine that gives its hands to others."""
    return local_provider(HandsPolicy(provider=name), folder / "hands")
