"""The bell rings when a file of a watched directory changes, and follows no link. Tests wait for the ring itself."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from holdfast.clock import SystemClock
from holdfast.sources.bell import SourceBell
from holdfast.sources.settings import DirectorySettings
from tests.support.waiting import PATIENCE_S


class Ears:
    """A bell and its rings."""

    def __init__(self) -> None:
        self.bell = SourceBell(SystemClock())
        self._rang = anyio.Event()

    def stir(self) -> None:
        self._rang.set()

    def watch(self, **paths: DirectorySettings) -> None:
        self.bell.watch("duty", paths)

    async def ring(self, *triggers: str) -> frozenset[str]:
        """Wait until these have rung; what rang until then is answered."""
        with anyio.fail_after(PATIENCE_S):
            while not self.bell.rung("duty").issuperset(triggers):
                self._rang = anyio.Event()
                await self._rang.wait()
        found = self.bell.rung("duty")
        self.bell.answered("duty", found)
        return found


def of(path: Path, glob: str = "**", settle_s: float = 0.0) -> DirectorySettings:
    return DirectorySettings(path=str(path), glob=glob, settle_s=settle_s)


@asynccontextmanager
async def listening() -> AsyncIterator[Ears]:
    ears = Ears()
    async with anyio.create_task_group() as group:
        group.start_soon(ears.bell.run, ears.stir)
        yield ears
        group.cancel_scope.cancel()


async def test_a_new_and_a_changed_file_ring(tmp_path: Path) -> None:
    async with listening() as ears:
        ears.watch(inbox=of(tmp_path, "**/*.txt"), others=of(tmp_path, "*.csv"))
        await ears.ring("inbox", "others")  # both are watched now
        (tmp_path / "a.part").write_text("one")
        (tmp_path / "a.part").rename(tmp_path / "a.txt")
        assert await ears.ring("inbox") == {"inbox"}
        (tmp_path / "a.txt").write_text("two")
        assert await ears.ring("inbox") == {"inbox"}
        (tmp_path / "below").mkdir()
        await ears.ring("inbox", "others")
        (tmp_path / "below" / "b.txt").write_text("three")
        assert await ears.ring("inbox") == {"inbox"}


async def test_a_change_rings_once_it_has_settled(tmp_path: Path) -> None:
    clock = SystemClock()
    async with listening() as ears:
        ears.watch(inbox=of(tmp_path, settle_s=0.2))
        await ears.ring("inbox")
        before_s = clock.monotonic_s()
        (tmp_path / "a.txt").write_text("one")
        await ears.ring("inbox")
        assert clock.monotonic_s() - before_s >= 0.2


async def test_a_folder_that_is_removed_and_made_again_is_watched_again(tmp_path: Path) -> None:
    folder = tmp_path / "inbox"
    async with listening() as ears:
        ears.watch(inbox=of(folder))
        folder.mkdir()
        await ears.ring("inbox")
        for move in (shutil.rmtree, lambda path: path.rename(tmp_path / "away")):
            move(folder)
            await ears.ring("inbox")
            folder.mkdir()
            await ears.ring("inbox")
            (folder / "a.txt").write_text("one")
            await ears.ring("inbox")


async def test_no_link_is_followed(tmp_path: Path) -> None:
    real, linking, link = tmp_path / "real", tmp_path / "linking", tmp_path / "link"
    real.mkdir()
    linking.mkdir()
    (linking / "inside").symlink_to(real)
    link.symlink_to(real)
    async with listening() as ears:
        ears.watch(linking=of(linking), link=of(link), real=of(real))
        await ears.ring("linking", "link", "real")
        (real / "a.txt").write_text("one")
        assert await ears.ring("real") == {"real"}


async def test_what_is_no_longer_watched_does_not_ring(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    async with listening() as ears:
        ears.watch(first=of(first), second=of(second))
        await ears.ring("first", "second")
        ears.watch(second=of(second))
        (first / "a.txt").write_text("one")
        (second / "a.txt").write_text("one")
        assert await ears.ring("second") == {"second"}
