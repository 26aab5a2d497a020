"""A hand-in as the harness takes it: a worker's folder is committed, inspected, laid for checks, and merged."""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.facts.mission import Check, Contract, Criterion, Item, MissionPolicy
from holdfast.facts.task import Violation
from holdfast.kinds.mission.acts.checkouts import Ground, Laying
from holdfast.kinds.mission.contract.protected import DEFAULT_PROTECTED
from holdfast.kinds.mission.ratchet.inspection import inspect
from holdfast.repo.git_repository import GitRepository
from holdfast.repo.repository import Commit

Files = Mapping[str, str | bytes]


def text(value: str) -> str:
    """A file's text, written indented."""
    return textwrap.dedent(value).lstrip("\n")


def contract(
    *commands: str, paths: Sequence[str] = (), hidden: Sequence[str] = (), tests: Sequence[str] = ()
) -> Contract:
    """A contract with one item that these commands check."""
    criteria = tuple(
        Criterion(f"c{number}", "it works", Check(each, tuple(tests))) for number, each in enumerate(commands)
    )
    item = Item("all", "the whole", criteria=criteria, paths=tuple(paths))
    return Contract("it works as its tests say", (item,), DEFAULT_PROTECTED, "feature_list.json", tuple(hidden))


SUITE = contract("python -m pytest -q")


class Case(msgspec.Struct, frozen=True):
    """A hand-in: what is edited of the base, None for what is removed. `dropped` are paths that do not arrive.

    `more` are files that the base has besides, `unlaid` are paths that arrive and are not there when checks run.
    """

    name: str
    edits: dict[str, str | bytes | None]
    contract: Contract = SUITE
    more: dict[str, str] = {}
    scope: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    policy: MissionPolicy = MissionPolicy()


class Outcome(msgspec.Struct, frozen=True):
    """What became of a hand-in: what is refused, the files of its tree, of the tree of checks, of the merge."""

    violations: tuple[Violation, ...]
    tree: dict[str, bytes]
    laid: dict[str, bytes]
    merged: dict[str, bytes]


def data(files: Files) -> dict[str, bytes]:
    """Files as bytes."""
    return {path: each.encode() if isinstance(each, str) else each for path, each in files.items()}


class Ground0:
    """A repository with a base, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / "repository"
        path.mkdir(parents=True)
        subprocess.run(("git", "init", "-q", str(path)), check=True, capture_output=True)
        self.repository = GitRepository(path, folder / "state")
        self.count = 0

    async def base(self, files: Files) -> Commit:
        """Commit the base."""
        return await self.repository.write(data(files), (), "base\n", 1_000_000)

    async def hand_in(self, base: Commit, case: Case) -> Outcome:
        """Do the edits in a checkout, and take it as a worker's."""
        self.count += 1
        at = self.folder / f"work{self.count}"
        at.mkdir()
        await self.repository.checkout(base.commit, at)
        edit(at, case.edits)
        made = await self.repository.commit(at, (base.commit,), "work\n", 2_000_000)
        return await self.taken(base, made, case)

    async def taken(self, base: Commit, made: Commit, case: Case) -> Outcome:
        """Inspect, lay and merge a commit."""
        repository = self.repository
        before, after = await repository.files(base.commit), await repository.files(made.tree)
        found = inspect(
            before,
            after,
            await repository.changes(base.commit, made.tree),
            protected=case.contract.protected,
            scope=case.scope,
            contract=case.contract,
            policy=case.policy,
            allowed={},
        )
        ground = Ground(made.commit, made.tree, base.commit)
        laid = await Laying(repository, case.contract).tree(ground, case.scope)
        other = await repository.write({**before, "beside.txt": b"x\n"}, (base.commit,), "other\n", 3_000_000)
        merged = await repository.merge(other.commit, made.commit, "merge\n", 4_000_000)
        assert isinstance(merged, Commit)
        return Outcome(found.violations, after, await repository.files(laid), await repository.files(merged.tree))


def edit(at: Path, edits: Mapping[str, str | bytes | None]) -> None:
    """Do edits to a folder."""
    for path, content in edits.items():
        file = at / path
        if content is None:
            file.unlink()
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
