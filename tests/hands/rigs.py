"""What the hands' checks run on: hands in memory, and real ones in a folder that any uid can pass."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec

from holdfast.clock import SystemClock
from holdfast.errors import HandsError
from holdfast.facts.session import Workspace
from holdfast.hands.base import ExecRequest, Hands, HandsSpec, Provider
from holdfast.hands.box.supervisor.journal import replay
from holdfast.hands.bubblewrap import BubblewrapProvider
from holdfast.hands.fake.provider import FakeProvider
from holdfast.hands.launch import Lives
from holdfast.hands.unsandboxed import UnsandboxedProvider
from holdfast.ids import new_hands_id, system_entropy
from holdfast.testing import hands as kit
from tests.support.waiting import PATIENCE_S

Made = Callable[[Path], Provider]

LIVES = Lives(grace_s=20.0)


class FakeRig:
    """Hands in memory, taught the commands of the kit."""

    def __init__(self) -> None:
        self.news: list[tuple[str, str]] = []
        self.fake = FakeProvider(SystemClock(), effect=kit.effect, pace=kit.pace, on_news=self._hear)
        self.provider: Provider = self.fake
        self._made = 0

    def spec(self) -> HandsSpec:
        """A spec with a new hands id on the one workspace."""
        self._made += 1
        return HandsSpec("ses_kit", f"hnd_{self._made}", Workspace("/srv/work", disposable=True))

    def _hear(self, session_id: str, call_id: str, news: str) -> None:
        self.news.append((call_id, news))

    async def heard(self, count: int) -> list[tuple[str, str]]:
        """All news so far, when there are that many."""
        with anyio.fail_after(PATIENCE_S):
            while len(self.news) < count:
                await anyio.sleep(max(0.0, self.fake.next_due()))
                self.fake.settle()
        return self.news

    async def kill(self, hands: Hands) -> None:
        """It is gone."""
        self.fake.lose(hands.identity.hands_id)


class RealRig:
    """Real hands under `base`, on a workspace that counts as made by Holdfast."""

    def __init__(self, base: Path, made: Made) -> None:
        self.folder = base / "hands"
        self.news = base / "news"
        self.workspace = base / "work"
        self.workspace.mkdir()
        self.provider = Remembering(made(self.folder))

    def spec(self, **changes: object) -> HandsSpec:
        """A spec with a new hands id on the one workspace."""
        hands_id = new_hands_id(SystemClock().now_us(), system_entropy)
        note = ("/bin/sh", "-c", f'echo "$1 $2" >> {self.news}', "note", "{call}", "{news}")
        given = {"on_news": note, **changes}
        return HandsSpec("ses_kit", hands_id, Workspace(str(self.workspace), disposable=True), **given)  # type: ignore[arg-type]

    async def heard(self, count: int) -> list[tuple[str, str]]:
        """All news so far, when there are that many."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                lines = self.news.read_text().splitlines() if self.news.exists() else []
                if len(lines) >= count:
                    return [(line.split()[0], line.split()[1]) for line in lines]
                await anyio.sleep(0.005)

    def journal(self, hands: Hands) -> Path:
        """The journal of an incarnation."""
        return self.folder / hands.identity.hands_id / "journal"

    def supervisor(self, hands: Hands) -> int:
        """The pid of its supervisor."""
        return int(replay(str(self.journal(hands))).opened["pid"])

    async def kill(self, hands: Hands) -> None:
        """SIGKILL to the supervisor; gone when this returns."""
        await kill_and_wait(self.supervisor(hands))

    async def close(self) -> None:
        """Release all that was made."""
        for hands in self.provider.made:
            await hands.release(1 << 40)


class Remembering:
    """A provider that knows what it made."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self.made: list[Hands] = []
        self.probe = provider.probe
        self.attach = provider.attach

    async def provision(self, spec: HandsSpec, epoch: int) -> Hands:
        """Make, and remember."""
        hands = await self._provider.provision(spec, epoch)
        self.made.append(hands)
        return hands


async def kill_and_wait(pid: int) -> None:
    """SIGKILL, and return when the process has ended."""
    handle = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        await anyio.wait_readable(handle)
    finally:
        os.close(handle)


def bubblewrap(folder: Path) -> Provider:
    """The default provider."""
    return BubblewrapProvider(folder, lives=LIVES)


def unsandboxed(folder: Path) -> Provider:
    """The one of --no-sandbox."""
    return UnsandboxedProvider(folder, lives=LIVES)


REAL: dict[str, Made] = {"bubblewrap": bubblewrap, "unsandboxed": unsandboxed}


@asynccontextmanager
async def real(base: Path, made: Made) -> AsyncIterator[RealRig]:
    """A rig whose hands are given back at the end."""
    rig = RealRig(base, made)
    try:
        yield rig
    finally:
        with anyio.CancelScope(shield=True):
            await rig.close()


@asynccontextmanager
async def started_in_time(
    base: Path, lives: Lives, request: Callable[[float], ExecRequest]
) -> AsyncIterator[tuple[RealRig, Hands, float]]:
    """Hands without a sandbox whose call 1.0 runs, and their longest life in seconds.

    A machine that is too slow to start a call within `lives.longest_s` gets hands with a longer life.
    """
    life_s = lives.longest_s / 4
    for factor in (1, 4, 16, 64):
        life_s *= 4
        (folder := base / f"life{factor}").mkdir()
        longer = msgspec.structs.replace(lives, longest_s=life_s)
        async with real(folder, lambda at, lives=longer: UnsandboxedProvider(at, lives=lives)) as rig:  # type: ignore[misc]
            try:
                hands = await rig.provider.provision(rig.spec(), 1)
                await hands.start(1, "1.0", request(life_s))
            except HandsError:
                continue
            yield rig, hands, life_s
            return
    raise AssertionError(f"no call could be started within {life_s:.0f} s")
