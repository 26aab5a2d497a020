"""What a check needs of a shelf and of the folders that it keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

from holdfast.errors import SnapshotFailed
from holdfast.repo.base import Shelf


class Rig(Protocol):
    """A fresh, empty shelf, and folders that it can see."""

    @property
    def shelf(self) -> Shelf:
        """The shelf under test."""
        ...

    def folder(self, name: str) -> Path:
        """The place of a folder of that name; `write` makes it."""
        ...

    def write(self, folder: Path, files: Mapping[str, bytes]) -> None:
        """Write these files, by path from the folder, and the folders that they need."""
        ...

    def remove(self, folder: Path, path: str) -> None:
        """Remove a file."""
        ...

    def read(self, folder: Path) -> dict[str, bytes]:
        """Every file in the folder, by path from it; empty when there is no such folder."""
        ...


Check = Callable[[Rig], Awaitable[None]]


async def refused(attempt: Awaitable[object]) -> str:
    """`attempt` raises `SnapshotFailed`; returns what it says."""
    said: str | None = None
    try:
        await attempt
    except SnapshotFailed as error:
        said = str(error)
    assert said is not None, "SnapshotFailed was expected and nothing was raised"
    assert said, "SnapshotFailed says nothing"
    return said
