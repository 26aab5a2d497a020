"""What the kit needs of an implementation under test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from holdfast.environment.base import Environments
from holdfast.facts.session import Workspace


class Rig(Protocol):
    """One home, as two processes see it, and a workspace that both can name."""

    one: Environments
    other: Environments
    workspace: Workspace
    owner: tuple[int, int]

    async def kill_one(self) -> None:
        """The first process dies in the middle of whatever it does."""
        ...


Check = Callable[[Rig], Awaitable[None]]
"""Raises `AssertionError` when the implementation does not hold."""
