"""The kit on a real repository, run in a process of its own; prints what failed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio

from holdfast.errors import RepositoryUnfit
from holdfast.repo.git_repository import GitRepository
from holdfast.testing.repo.repositories import REPOSITORY_CHECKS
from tests.repo.repositories import GitRepositoryRig, everything
from tests.repo.user_driver import problem


async def read_only(base: Path) -> None:
    """A store that cannot be written is said, and nothing is half done."""
    rig = GitRepositoryRig(base)
    start = (await rig.repository.look()).head
    work = base / "w"
    await rig.repository.checkout(start, work)
    rig.write(work, {"x": b"1"})
    before = everything(rig.path)
    folders = [path for path in (rig.path / ".git").rglob("*") if path.is_dir()]
    for folder in folders:
        folder.chmod(0o500)
    said = ""
    try:
        await rig.repository.commit(work, (start,), "m", 0)
    except RepositoryUnfit as error:
        said = str(error)
    assert "make the repository writable" in said, said
    assert everything(rig.path) == before
    (rig.path / ".git/config").chmod(0)
    try:
        await GitRepository(rig.path, base / "other").look()
    except RepositoryUnfit as error:
        said = str(error)
    assert "make it readable" in said, said
    for folder in folders:
        folder.chmod(0o700)


async def main(base: Path) -> dict[str, str]:
    """Name → what went wrong."""
    found = {}
    for name, check in REPOSITORY_CHECKS.items():
        found[name] = await problem(check(GitRepositoryRig(base / name)))
    found["read_only"] = await problem(read_only(base / "read_only"))
    return found


if __name__ == "__main__":
    print(json.dumps(anyio.run(main, Path(sys.argv[1]))))
