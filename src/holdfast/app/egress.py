"""The egress proxies of this home's sessions, with the user's secrets behind them."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from holdfast.app.settings.config import Settings
from holdfast.app.settings.egress_policy import open_vault, upstream
from holdfast.clock import SystemClock
from holdfast.egress.base import Egress, Gateway, Notes
from holdfast.egress.proxy import ProxyEgress
from holdfast.environment.registries import discover
from holdfast.errors import EgressUnavailable
from holdfast.facts.session import Destination, EgressPolicy


class NoEgress:
    """The egress without the extra: no network access. The error of `open` has the command that installs the extra."""

    async def open(
        self, session_id: str, policy: EgressPolicy, *, uid: int, held: tuple[str, ...] = (), wary: bool = False
    ) -> Gateway:
        """Raise `EgressUnavailable`."""
        raise EgressUnavailable(
            "hands have no network: the way outside needs packages that are not installed; "
            "type: pip install 'holdfast[egress]'"
        )

    async def change(
        self, session_id: str, policy: EgressPolicy, *, held: tuple[str, ...] = (), wary: bool = False
    ) -> None:
        """Do nothing: there is no proxy to change."""

    async def notes(self, session_id: str, after: int) -> Notes:
        """Return no notes."""
        return Notes(after)

    async def close(self, session_id: str) -> None:
        """Do nothing: there is no proxy to close."""

    async def forget(self, session_id: str) -> None:
        """Do nothing: there is nothing to remove."""


def open_egress(settings: Settings, home: Path) -> Egress:
    """Create the egress proxies. Raises `UsageError` for invalid tables."""
    if any(importlib.util.find_spec(module) is None for module in ("h11", "cryptography")):
        return NoEgress()
    through = upstream(settings)
    host = f"[{through.host}]" if through is not None and ":" in through.host else through.host if through else ""
    return ProxyEgress(
        home / "egress",
        open_vault(settings, SystemClock()),
        registries=_registries,
        through=f"{host}:{through.port}" if through is not None else "",
    )


def _registries() -> Sequence[Destination]:
    return discover().destinations
