"""Layers on the disk show what the kit asks, and so does the fake."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.environment.base import Environments
from holdfast.environment.fake import FakeEnvironments
from holdfast.environment.store import LayerStore
from holdfast.facts.session import Workspace
from holdfast.testing.environment import CHECKS, Rig


class DiskRig:
    """Two stores on one folder. The death of one is the end of its locks, which the kernel keeps by descriptor."""

    def __init__(self, base: Path) -> None:
        (base / "work").mkdir()
        self._first = LayerStore(base / "home" / "environments", SystemClock())
        self.one: Environments = self._first
        self.other: Environments = LayerStore(base / "home" / "environments", SystemClock())
        self.workspace = Workspace(str(base / "work"))
        self.owner = (os.getuid(), os.getgid())

    async def kill_one(self) -> None:
        """Its descriptors are closed, and nothing else happens."""
        for fd in self._first.locks.values():
            os.close(fd)
        self._first.locks.clear()


class FakeRig:
    """Two processes of one home in memory."""

    def __init__(self, base: Path) -> None:
        self._first = FakeEnvironments()
        self.one: Environments = self._first
        self.other: Environments = FakeEnvironments(self._first.shelf)
        self.workspace = Workspace(str(base))
        self.owner = (1, 1)

    async def kill_one(self) -> None:
        """It is gone."""
        self._first.die()


RIGS: dict[str, Callable[[Path], Rig]] = {"disk": DiskRig, "fake": FakeRig}


@pytest.mark.parametrize("kind", RIGS)
@pytest.mark.parametrize("name", CHECKS)
async def test_environments(name: str, kind: str, tmp_path: Path) -> None:
    await CHECKS[name](RIGS[kind](tmp_path))
