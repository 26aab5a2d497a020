"""The tree that checks run on: a worker's, with what judges it as people have it (S25). Nothing of it is executed."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import msgspec

from holdfast.facts.contract import Contract
from holdfast.globs import literal, matches
from holdfast.kinds.mission.check import judging
from holdfast.kinds.mission.ratchet import planted
from holdfast.kinds.mission.ratchet.additions import fixtures_asked_for, only_more
from holdfast.kinds.mission.ratchet.rules import CODE, only_longer
from holdfast.repo.repository import Repository

MOUNTS_MAX = 300
"""Each file that is shown read-only is a mount of its own, and the time that they take grows with their square."""


class Ground(msgspec.Struct, frozen=True):
    """What is checked: a commit, its tree, and the commit of people whose protected files it is checked with."""

    commit: str
    tree: str
    people: str


class Base:
    """What decides about checks in a commit of people. `files` are those of it that say so."""

    def __init__(self, contract: Contract, files: dict[str, bytes]) -> None:
        self.files = files
        self.judges = judging.judges(contract, files)
        self.own = judging.named(contract)
        self.fixtures = frozenset(
            name for path in files if planted.is_test_file(path) for name in fixtures_asked_for(files[path])
        )
        self._globs = (*contract.protected, *planted.ALWAYS, *self.judges.settings, *contract.hidden)

    def guards(self, path: str) -> bool:
        """Whether a file is as people have it in every run."""
        return path not in self.own and (path in self.judges.files or matches(path, self._globs))


class Laying:
    """Lays trees for one contract."""

    def __init__(self, repository: Repository, contract: Contract) -> None:
        self.repository = repository
        self.contract = contract
        self._bases: dict[str, Base] = {}
        self._laid: dict[tuple[str, str], str] = {}

    async def tree(self, ground: Ground, asked: Collection[str] = (), allowed: Collection[str] = ()) -> str:
        """The tree of a checkout. `asked` are paths that tasks name, `allowed` those that a person allowed."""
        known = self._laid.get((ground.tree, ground.people))
        if known is None:
            paths = [literal(path) for path in await self._wrong(ground, asked) if path not in allowed]
            known = await self.repository.graft(ground.commit, ground.people, paths) if paths else ground.tree
            self._laid[ground.tree, ground.people] = known
        return known

    async def _wrong(self, ground: Ground, asked: Collection[str]) -> list[str]:
        """Paths that are to be as people have them, or not there at all."""
        changes = await self.repository.changes(ground.people, ground.tree)
        if not changes:
            return []
        base = await self.base(ground.people)
        globs = tuple(literal(each.path) for each in changes if each.kind != "removed")
        new = await self.repository.files(ground.tree, globs) if globs else {}
        added = {each.path: new.get(each.path, b"") for each in changes if each.kind == "added"}
        wrong = list(planted.planted(added, base.files, base.judges, base.own | set(asked)))
        wrong += [path for path in added if matches(path, self.contract.hidden)]
        changed = [each.path for each in changes if each.kind != "added" and base.guards(each.path)]
        old = await self.repository.files(ground.people, tuple(map(literal, changed))) if changed else {}
        return [*wrong, *(path for path in changed if not _is_more(path, old.get(path), new.get(path), base.fixtures))]

    async def base(self, people: str) -> Base:
        """What decides about checks, as people have it."""
        if people not in self._bases:
            files = await self.repository.files(people, planted.STRUCTURE)
            looked: frozenset[str] = frozenset()
            while more := judging.looked_into(self.contract, files) - looked - {""}:
                looked |= more
                files |= await self.repository.files(people, tuple(map(literal, more)))
            self._bases[people] = Base(self.contract, files)
        return self._bases[people]


def read_only(folder: Path, guards: Callable[[str], bool]) -> tuple[str, ...]:
    """The files of a checkout that its hands show read-only.

    What is too much to show file by file is shown as folders of which every file is such a one, the largest first: a
    run cannot make files there. What is still too much is left out; as on any checkout, the files are those of people
    at its start.
    """
    found: list[str] = []
    other: set[str] = set()
    for top, _, names in os.walk(folder):
        below = os.path.relpath(top, folder)
        for name in names:
            path = name if below == "." else f"{below}/{name}"
            if guards(path):
                found.append(path)
            else:
                other |= set(_above(path))
    whole: dict[str, int] = {}
    for path in found:
        for above in _above(path):
            whole[above] = whole.get(above, 0) + (above not in other)
    folders = sorted((each for each in whole if each not in other), key=lambda each: (-whole[each], each))
    while len(found) > MOUNTS_MAX and folders:
        largest = folders.pop(0)
        found = [path for path in found if not path.startswith(f"{largest}/")] + [largest]
        folders = [each for each in folders if not each.startswith(f"{largest}/")]
    return tuple(sorted(found)[:MOUNTS_MAX])


def _above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _is_more(path: str, old: bytes | None, new: bytes | None, fixtures: frozenset[str]) -> bool:
    """Whether a changed file of tests is one that was only added to: then the new cases are run as well."""
    if old is None or new is None:
        return False
    if not path.endswith(CODE):
        return only_longer(path, old, new)
    return not only_more(path, old, new, fixtures if path.endswith("conftest.py") else ())
