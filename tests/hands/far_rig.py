"""Hands elsewhere, for the checks: the far end is `holdfast hands serve` in a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from holdfast.clock import SystemClock
from holdfast.facts.session import Workspace
from holdfast.hands.base import Hands, HandsSpec
from holdfast.hands.box.supervisor.journal import replay
from holdfast.hands.far.link import PipeLink
from holdfast.hands.far.provider import FarProvider
from holdfast.ids import new_hands_id, system_entropy
from tests.hands.rigs import Remembering, kill_and_wait


def serve_command(home: Path) -> tuple[str, ...]:
    """The far end, with everything under `home`."""
    return (sys.executable, "-m", "holdfast", "hands", "--home", str(home), "serve")


class FarRig:
    """A near workspace, and a far end under `base/there`."""

    def __init__(self, base: Path, argv: Sequence[str] = (), *, patience_s: float = 20.0) -> None:
        self.there = base / "there"
        self.workspace = base / "work"
        for folder, mode in ((self.workspace, 0o755), (self.there, 0o711)):
            folder.mkdir(mode=mode, exist_ok=True)
        env = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}
        command = argv or serve_command(self.there)
        self.link = PipeLink(command, name="there", env=env, patience_s=patience_s)
        self.far = FarProvider(self.link, base / "spool", name="there")
        self.provider: Remembering = Remembering(self.far)

    @classmethod
    def again(cls, rig: FarRig) -> FarRig:
        """Another process that asks the same far end."""
        return cls(rig.there.parent)

    def spec(self, **changes: object) -> HandsSpec:
        """A spec with a new hands id on the one workspace."""
        hands_id = new_hands_id(SystemClock().now_us(), system_entropy)
        return HandsSpec("ses_kit", hands_id, Workspace(str(self.workspace), disposable=True), **changes)  # type: ignore[arg-type]

    def supervisor(self, hands: Hands) -> int:
        """The pid of its supervisor there."""
        journal = self.there / "served" / "hands" / hands.identity.hands_id / "journal"
        return int(replay(str(journal)).opened["pid"])

    async def kill(self, hands: Hands) -> None:
        """SIGKILL to the supervisor there; gone when this returns."""
        await kill_and_wait(self.supervisor(hands))

    async def close(self) -> None:
        """Release all that was made, and end the far end."""
        for hands in self.provider.made:
            await hands.release(1 << 40)
        self.link.close()


@asynccontextmanager
async def far(base: Path, argv: Sequence[str] = ()) -> AsyncIterator[FarRig]:
    """A rig whose hands are given back at the end."""
    rig = FarRig(base, argv)
    try:
        yield rig
    finally:
        with anyio.CancelScope(shield=True):
            await rig.close()
