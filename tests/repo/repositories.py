"""The repositories under test: in memory, and real ones of both kinds of names, made by git as a person makes them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.repo.fake import Folder
from holdfast.repo.fake_repository import FakeRepository
from holdfast.repo.git_repository import GitRepository
from holdfast.repo.plumbing import IDENTITY
from holdfast.testing.repo.repositories import START, RepositoryRig

PATH = "/usr/local/bin:/usr/bin:/bin"


def git(folder: Path, *arguments: str, check: bool = True) -> str:
    """Git as a person runs it, with a name and a date that do not change."""
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={
            "PATH": PATH,
            "HOME": "/nonexistent",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": IDENTITY[0],
            "GIT_AUTHOR_EMAIL": IDENTITY[1],
            "GIT_COMMITTER_NAME": IDENTITY[0],
            "GIT_COMMITTER_EMAIL": IDENTITY[1],
            "GIT_AUTHOR_DATE": "@0 +0000",
            "GIT_COMMITTER_DATE": "@0 +0000",
        },
    )
    assert not check or done.returncode == 0, f"git {arguments}: {done.stderr}"
    return done.stdout.strip()


def made(folder: Path, files: Mapping[str, bytes] = START, form: str = "sha1") -> Path:
    """A repository with one commit of these files."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main", f"--object-format={form}")
    put(folder, files)
    git(folder, "add", "-A", "-f")
    git(folder, "commit", "-q", "-m", "a person's")
    return folder


def put(folder: Path, files: Mapping[str, bytes]) -> None:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All files and links below a folder: mode and content."""
    out: dict[str, tuple[int, bytes]] = {}
    for path, _, names in os.walk(folder):
        for name in names:
            full = Path(path) / name
            data = os.fsencode(os.readlink(full)) if full.is_symlink() else full.read_bytes()
            out[str(full.relative_to(folder))] = (os.lstat(full).st_mode, data)
    return out


class MemoryRepositoryRig:
    def __init__(self) -> None:
        self.folders: dict[Path, Folder] = {}
        self.repository = FakeRepository(self.folders)
        self.repository.seed(START)

    def folder(self, name: str) -> Path:
        return Path("/") / name

    def write(self, folder: Path, files: Mapping[str, bytes]) -> None:
        self.folders.setdefault(folder, {}).update(files)

    def remove(self, folder: Path, path: str) -> None:
        del self.folders[folder][path]

    def read(self, folder: Path) -> dict[str, bytes]:
        return dict(self.folders.get(folder, {}))

    def occupy(self, ref: str) -> None:
        self.repository.held.add(ref)


class _DiskRig:
    def __init__(self, base: Path) -> None:
        self.base = base

    def folder(self, name: str) -> Path:
        return self.base / name

    def write(self, folder: Path, files: Mapping[str, bytes]) -> None:
        put(folder, files)

    def remove(self, folder: Path, path: str) -> None:
        (folder / path).unlink()

    def read(self, folder: Path) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class MemoryOnDiskRepositoryRig(_DiskRig):
    """The repository is in memory, its folders are not."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.repository = FakeRepository()
        self.repository.seed(START)

    def occupy(self, ref: str) -> None:
        self.repository.held.add(ref)


class GitRepositoryRig(_DiskRig):
    def __init__(self, base: Path, form: str = "sha1") -> None:
        super().__init__(base)
        self.path = made(base / "repository", form=form)
        self.repository = GitRepository(self.path, base / "state")

    def occupy(self, ref: str) -> None:
        git(self.path, "worktree", "add", "-q", str(self.base / "tree"), ref.removeprefix("refs/heads/"))


RIGS: dict[str, Callable[[Path], RepositoryRig]] = {
    "memory": lambda base: MemoryRepositoryRig(),
    "memory, folders on disk": MemoryOnDiskRepositoryRig,
    "sha1": GitRepositoryRig,
    "sha256": lambda base: GitRepositoryRig(base, "sha256"),
}
