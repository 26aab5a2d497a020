"""Successive tagged releases of libraries as hand-ins: no product file and no pure addition of tests may be refused.

    python -m tests.honest.releases --clones DIR [--json]

`DIR` has clones, one a folder, with their tags. Each release is taken as a hand-in on the one before it, all of its
changed files. A pure addition of tests is a new file of tests, or one that only gained whole functions: every old line
is still there, in order, and no line among the new ones skips, hooks or begins in an old function.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import anyio
import msgspec

from holdfast.facts.mission import MissionPolicy
from holdfast.globs import matches
from holdfast.kinds.mission.check.judging import judges
from holdfast.kinds.mission.contract.protected import TESTS
from holdfast.kinds.mission.ratchet.inspection import Change, inspect
from holdfast.kinds.mission.ratchet.planted import ALWAYS
from holdfast.kinds.mission.ratchet.rules import CODE
from holdfast.repo.git_repository import GitRepository
from tests.honest.kit import contract

RELEASES_MAX = 12
"""So many of the newest releases of each library are taken."""

POLICY = MissionPolicy(dependencies="list")
"""New dependencies are a person's matter, whoever brings them."""


class Counted(msgspec.Struct):
    """What became of the changed files of one library. Refused ones are named with the rule."""

    releases: int = 0
    product: int = 0
    additions: int = 0
    other_tests: int = 0
    product_refused: list[str] = []
    additions_refused: list[str] = []
    others_refused: int = 0

    def take(self, path: str, rules: list[str], *, is_test: bool, addition: bool) -> None:
        """Count one changed file."""
        line = f"{path}: {', '.join(rules)}"
        if not is_test:
            self.product += 1
            self.product_refused += [line] if rules else []
        elif addition:
            self.additions += 1
            self.additions_refused += [line] if rules else []
        else:
            self.other_tests += 1
            self.others_refused += bool(rules)


async def library(folder: Path, scratch: Path) -> Counted:
    """Take the releases of one clone, oldest first."""
    repository, found = GitRepository(folder, scratch), Counted()
    before: dict[str, bytes] = {}
    last = ""
    for tag in tags(folder)[-RELEASES_MAX:]:
        commit = await repository.resolve(f"refs/tags/{tag}")
        if commit is None:
            continue
        after = await repository.files(commit.tree)
        if last:
            found.releases += 1
            changes = await repository.changes(last, commit.tree)
            count(found, tag, before, after, changes)
        before, last = after, commit.tree
    return found


def count(
    found: Counted, tag: str, before: Mapping[str, bytes], after: Mapping[str, bytes], changes: Sequence[Change]
) -> None:
    """Hold one release against the one before it."""
    agreed = contract(command_for(before))
    said = inspect(
        before,
        after,
        changes,
        protected=agreed.protected,
        scope=(),
        contract=agreed,
        policy=POLICY,
        allowed={},
    )
    settings = (*judges(agreed, before).settings, *ALWAYS)
    for path in said.files:
        rules = [f"{each.rule} ({each.detail})" for each in said.violations if each.path == path]
        if path in after and (matches(path, agreed.protected) or path.endswith(CODE)):
            test = matches(path, agreed.protected)
            if (test and not matches(path, TESTS)) or matches(path, settings):
                continue  # CI and settings of what the check runs are asked about by design
            addition = test and is_addition(path, before.get(path), after[path])
            found.take(f"{tag} {path}", rules, is_test=test, addition=addition)


def command_for(files: Mapping[str, bytes]) -> str:
    """The check that a mission on this library would have."""
    if "go.mod" in files:
        return "go test ./..."
    if "package.json" in files:
        return "npm test"
    return "python -m pytest -q" if any(path.endswith(".py") for path in files) else "make check"


def tags(folder: Path) -> list[str]:
    """Tags that are versions, in their order; no candidates."""
    out = subprocess.run(("git", "-C", str(folder), "tag"), check=True, capture_output=True, text=True).stdout
    found = [tag for tag in out.split() if re.fullmatch(r"[A-Za-z_-]*v?\d+(?:[._]\d+)+", tag)]
    return sorted(found, key=lambda tag: [int(part) for part in re.findall(r"\d+", tag)])


_LOUD = re.compile(
    r"skip|xfail|autouse|pytest_\w+|pytestmark|__test__|setUp|tearDown|setup_|teardown_|timeout|\.only|TestMain"
    r"|func init|(?:before|after)(?:Each|All)?\(|#\s*(?:if|else|endif|define|undef)|exit\(|mock\("
)

_HEAD = re.compile(r"\s*(?:@|(?:async )?def test|class |func Test|(?:it|test|describe)\(|static void|void test|TEST\()")


def is_addition(path: str, old: bytes | None, new: bytes) -> bool:
    """Whether a file of tests only gained whole cases, by its lines; told without the ratchet's own code."""
    if old is None:
        return path.endswith(CODE) and path.rsplit("/", 1)[-1] != "conftest.py"
    if path.rsplit("/", 1)[-1] == "conftest.py" or not path.endswith(CODE):
        return False
    was, now = (text.decode("utf-8", "replace").splitlines() for text in (old, new))
    blocks = [*_added(was, now)]
    whole = all(_HEAD.match(next((line for line in block if line.strip()), "@")) for block in blocks)
    return bool(blocks) and whole and not any(_LOUD.search(line) for block in blocks for line in block)


def _added(was: list[str], now: list[str]) -> Iterator[list[str]]:
    """Blocks of new lines; one that makes it no addition when an old line is gone."""
    block: list[str] = []
    at = 0
    for line in now:
        if at < len(was) and line == was[at]:
            at += 1
            if block:
                yield block
            block = []
        else:
            block.append(line)
    if block:
        yield block
    if at < len(was):
        yield ["gone"]


async def measure(clones: Path) -> dict[str, Counted]:
    """All libraries in a folder."""
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for folder in sorted(each for each in clones.iterdir() if (each / ".git").exists() or (each / "HEAD").exists()):
            found[folder.name] = await library(folder, Path(scratch) / folder.name)
    return found


def main() -> None:
    """Measure and print; the exit status is 1 when anything was refused that may not be."""
    parser = argparse.ArgumentParser(description="take releases of libraries as hand-ins")
    parser.add_argument("--clones", type=Path, required=True, help="a folder with clones, one a folder")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    args = parser.parse_args()
    found = anyio.run(measure, args.clones)
    if args.json:
        print(json.dumps({name: msgspec.to_builtins(each) for name, each in found.items()}))
    else:
        print(
            f"{'library':<20}{'releases':>9}{'product':>9}{'refused':>9}{'additions':>10}{'refused':>9}{'others':>8}{'asked':>7}"
        )
        for name, each in found.items():
            numbers = (
                each.releases,
                each.product,
                len(each.product_refused),
                each.additions,
                len(each.additions_refused),
            )
            print(f"{name:<20}{numbers[0]:>9}{numbers[1]:>9}{numbers[2]:>9}{numbers[3]:>10}{numbers[4]:>9}", end="")
            print(f"{each.other_tests:>8}{each.others_refused:>7}")
            for line in (*each.product_refused, *each.additions_refused):
                print(f"    refused: {line}")
    sys.exit(any(each.product_refused or each.additions_refused for each in found.values()))


if __name__ == "__main__":
    main()
