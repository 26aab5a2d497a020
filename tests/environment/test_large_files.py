"""Large files come in where their pointers are, by git-lfs, unpacked without root. Leaves the machine: see `rigs`."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from holdfast.facts.session import Environment
from tests.environment.rigs import has, home, unreachable, write


def repository(work: Path, content: bytes) -> str:
    """A repository with a pointer to that content, which its remote has; returns the pointer."""
    digest = hashlib.sha256(content).hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(content)}\n"
    write(work, {"big.bin": pointer, ".gitattributes": "*.bin filter=lfs -text\n"})
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t"]
    remote = work / "remote.git"
    for command in (
        [*git, "init", "-q", "--bare", str(remote)],
        [*git, "-C", str(work), "init", "-q"],
        [*git, "-C", str(work), "remote", "add", "origin", "file:///workspace/remote.git"],
        [*git, "-C", str(work), "add", "big.bin", ".gitattributes"],
        [*git, "-C", str(work), "commit", "-qm", "pointer"],
    ):
        subprocess.run(command, check=True, capture_output=True)
    kept = remote / "lfs" / "objects" / digest[:2] / digest[2:4] / digest
    kept.parent.mkdir(parents=True)
    kept.write_bytes(content)
    return pointer


async def test_large_files_are_there_and_their_pointers_stay(tmp_path: Path) -> None:
    if reason := has("apt-get", "dpkg-deb", "git") or unreachable():
        pytest.skip(reason)
    pointer = repository(tmp_path / "work", b"large content\n" * 10)
    policy = Environment(lfs=True, packages=("git-lfs",))
    async with home(tmp_path) as here:
        await here.run(tmp_path / "work", policy, "sha256sum < big.bin; git lfs version")
        (said,) = await here.results()
        assert hashlib.sha256(b"large content\n" * 10).hexdigest() in said
        assert "git-lfs/" in said
        assert (tmp_path / "work" / "big.bin").read_text() == pointer
