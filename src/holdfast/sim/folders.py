"""Folders of hands in memory, as a repository in memory reads and writes them."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from pathlib import Path

from holdfast.hands.fake.calls import ROOT, Files
from holdfast.repo.fake import Folder


class View(MutableMapping[str, bytes]):
    """The files of a workspace by path from its root."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def __getitem__(self, path: str) -> bytes:
        return self._files[f"{ROOT}/{path}"]

    def __setitem__(self, path: str, data: bytes) -> None:
        self._files[f"{ROOT}/{path}"] = data

    def __delitem__(self, path: str) -> None:
        del self._files[f"{ROOT}/{path}"]

    def __iter__(self) -> Iterator[str]:
        return (path.removeprefix(f"{ROOT}/") for path in list(self._files))

    def __len__(self) -> int:
        return len(self._files)


class Folders(MutableMapping[Path, Folder]):
    """The folders of hands in memory, as a repository in memory writes and reads them."""

    def __init__(self, workspaces: dict[str, Files]) -> None:
        self._workspaces = workspaces

    def __getitem__(self, path: Path) -> Folder:
        return View(self._workspaces[str(path)])

    def __setitem__(self, path: Path, files: Folder) -> None:
        self._workspaces[str(path)] = Files()
        self[path].update(files)

    def __delitem__(self, path: Path) -> None:
        del self._workspaces[str(path)]

    def __iter__(self) -> Iterator[Path]:
        return (Path(each) for each in self._workspaces)

    def __len__(self) -> int:
        return len(self._workspaces)

    def setdefault(self, path: Path, default: Folder | None = None) -> Folder:
        """A view of what is there, not what was handed in."""
        self._workspaces.setdefault(str(path), Files())
        return self[path]
