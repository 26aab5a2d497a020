"""The shelves under test, each with folders that it can see."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.repo.fake import FakeShelf, Folder
from holdfast.repo.snapshot_store import ShadowShelf
from holdfast.testing.repo import Rig


class MemoryRig:
    def __init__(self) -> None:
        self.folders: dict[Path, Folder] = {}
        self.shelf = FakeShelf(self.folders)

    def folder(self, name: str) -> Path:
        return Path("/") / name

    def write(self, folder: Path, files: Mapping[str, bytes]) -> None:
        self.folders.setdefault(folder, {}).update(files)

    def remove(self, folder: Path, path: str) -> None:
        del self.folders[folder][path]

    def read(self, folder: Path) -> dict[str, bytes]:
        return dict(self.folders.get(folder, {}))


class ShadowRig:
    def __init__(self, base: Path) -> None:
        self.base = base
        self.shelf = ShadowShelf(base / "snapshots")

    def folder(self, name: str) -> Path:
        return self.base / name

    def write(self, folder: Path, files: Mapping[str, bytes]) -> None:
        folder.mkdir(exist_ok=True)
        for path, data in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)

    def remove(self, folder: Path, path: str) -> None:
        (folder / path).unlink()

    def read(self, folder: Path) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


RIGS: dict[str, Callable[[Path], Rig]] = {"memory": lambda base: MemoryRig(), "shadow": ShadowRig}


def picture(folder: Path) -> dict[bytes, tuple[str, bytes]]:
    """All that a snapshot keeps of a folder: path → kind with permissions, and content."""
    out: dict[bytes, tuple[str, bytes]] = {}
    root = os.fsencode(folder)
    for path, folders, files in os.walk(root):
        for name in folders + files:
            full = os.path.join(path, name)
            found = os.lstat(full)
            data = b""
            if stat.S_ISLNK(found.st_mode):
                data = os.readlink(full)
            elif stat.S_ISREG(found.st_mode):
                with open(full, "rb") as file:
                    data = hashlib.sha256(file.read()).digest()
            out[os.path.relpath(full, root)] = (stat.filemode(found.st_mode), data)
    return out


def fresh(path: Path) -> Path:
    """That place, with nothing there."""
    shutil.rmtree(path, ignore_errors=True)
    return path
