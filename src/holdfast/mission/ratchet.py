"""The ratchet: what may not become weaker. Which rules a change breaks, path by path."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from functools import cached_property

from holdfast.facts.contract import Contract
from holdfast.facts.task import Violation
from holdfast.mission.globs import matches
from holdfast.mission.pristine import ALWAYS, is_test_file, planted, shadowing
from holdfast.mission.ratchet_cases import Case, cases, parsed
from holdfast.mission.ratchet_config import CI, SHARED, run_by, shared, workflow
from holdfast.mission.ratchet_product import tricks
from holdfast.mission.ratchet_python import compared
from holdfast.mission.ratchet_surroundings import ended, fresh

LINKS = ("120000", "160000")
"""Modes of a link and of a repository inside this one."""

CONTRACTS = ("feature_list.json", "prd.json", "mission.toml")


class Trees:
    """Two trees: the regular files of both, the new modes of what differs, and what is protected of them."""

    def __init__(
        self,
        before: Mapping[str, bytes],
        after: Mapping[str, bytes],
        modes: Mapping[str, str],
        protected: tuple[str, ...],
        contract: Contract,
    ) -> None:
        self.before = before
        self.after = after
        self.modes = modes
        self.protected = protected
        self.contract = contract

    @cached_property
    def scripts(self) -> frozenset[str]:
        """Files that the checks run, but for those that an item names as what it is about: they are the product."""
        wanted = {path for item in self.contract.items for path in item.paths}
        return run_by(self.contract, {**self.after, **self.before}) - wanted

    @cached_property
    def examples(self) -> bool:
        """Whether checks run the examples in documentation."""
        checks = [each.check.command for each in self.contract.criteria().values() if each.check is not None]
        settings = [self.before.get(name, b"").decode("utf-8", "replace") for name in ("pytest.ini", *SHARED)]
        return any("doctest" in text for text in (*checks, *settings))

    @cached_property
    def shadows(self) -> frozenset[str]:
        """New files that would be imported instead of a module of the standard library or of a test tool."""
        return frozenset(shadowing(set(self.after))) - set(self.before)

    @cached_property
    def fixtures(self) -> frozenset[str]:
        """Names that tests and fixtures of the base take as arguments."""
        trees = [parsed(self.before[path]) for path in self.before if is_test_file(path)]
        return frozenset(
            argument.arg
            for tree in trees
            if tree is not None
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for argument in node.args.args
        )

    @cached_property
    def elsewhere(self) -> frozenset[str]:
        """The bodies of tests that are collected from files that changed."""
        changed = [path for path in self.modes if path in self.after and is_test_file(path)]
        trees = [parsed(self.after[path]) for path in changed]
        return frozenset(
            case.body for tree in trees if tree is not None for case in cases(tree).values() if case.collected
        )

    def moved(self, case: Case) -> bool:
        """Whether a test that is gone from its file is in another."""
        return case.body in self.elsewhere

    def is_protected(self, path: str) -> bool:
        """Whether a path is protected, by the contract or by what it is."""
        return matches(path, (*self.protected, *ALWAYS, *CI)) or path in self.scripts or self.is_contract(path)

    def is_contract(self, path: str) -> bool:
        """Whether the contract is written there."""
        return path == self.contract.source or path in CONTRACTS


def violations(trees: Trees, path: str) -> list[Violation]:
    """What a changed path breaks; nothing for a product's file without a trick, and for tests that are only more."""
    old, new = trees.before.get(path), trees.after.get(path)
    name = path.rsplit("/", 1)[-1]
    if name in SHARED and not matches(path, ALWAYS) and trees.modes.get(path) not in LINKS:
        return shared(path, old, new, trees.contract)
    if path in trees.shadows:
        return [Violation("shadowed", path, "it would be imported instead of a module that has this name already")]
    if not trees.is_protected(path):
        below = trees.modes.get(path) in LINKS and any(
            each.startswith(f"{path}/") and trees.is_protected(each) for each in trees.before
        )
        if below:
            return [Violation("linked", path, "a link stands where a folder with protected files was")]
        return _product(trees, path, old, new) if old != new else []
    return _protected(trees, path, old, new)


def _product(trees: Trees, path: str, old: bytes | None, new: bytes | None) -> list[Violation]:
    """Tricks, and examples in documentation that checks run as tests."""
    found = tricks(path, old, new) if new is not None and path.endswith(".py") else []
    gone = (old or b"").count(b">>> ") - (new or b"").count(b">>> ")
    if gone > 0 and trees.examples:
        found.append(Violation("test_deleted", path, f"{gone} examples that are run as tests are gone"))
    return found


def _protected(trees: Trees, path: str, old: bytes | None, new: bytes | None) -> list[Violation]:
    if trees.modes.get(path) in LINKS:
        return [Violation("linked", path, "a link stands where a file that decides about the work belongs")]
    if old is not None and old == new:
        return [Violation("mode_changed", path, f"its mode is {trees.modes.get(path)} now")]
    if trees.is_contract(path):
        return [Violation("contract_edited", path, "the contract is changed by `holdfast mission amend` alone")]
    if matches(path, CI):
        return [workflow(path, old, new)]
    if path in trees.scripts:
        return [
            Violation("check_script", path, "it is gone" if new is None else "checks run it, and it is another now")
        ]
    if path.rsplit("/", 1)[-1] == ".gitattributes":
        return [Violation("attributes_changed", path, "attributes decide how files are written and packed")]
    conftest = path.rsplit("/", 1)[-1] == "conftest.py"
    if not conftest and new is not None and planted([path], trees.before):
        return [Violation("planted", path, "a new file of a kind that decides what checks say")]
    if path.endswith(".py"):
        return _python(trees, path, old, new)
    return _data(path, old, new)


def _python(trees: Trees, path: str, old: bytes | None, new: bytes | None) -> list[Violation]:
    if new is None:
        return _gone(trees, path, old or b"")
    before, after = parsed(old or b""), parsed(new)
    if old is not None:
        found = compared(path, old, new, trees.fixtures, trees.moved)
    else:
        words = fresh(after, trees.fixtures, path) if after is not None else []
        found = [Violation(rule, path, each) for rule, each in words]
    known = Counter(ended(before)) if before is not None else Counter()
    heavy = Counter(ended(after)) - known if after is not None else Counter()
    found += [Violation(rule, path, each) for rule, each in heavy if all(rule != other.rule for other in found)]
    return found or _conftest(path, old, new)


def _conftest(path: str, old: bytes | None, new: bytes) -> list[Violation]:
    """One that is only more is asked about too: checks run without it until a person allows it."""
    if path.rsplit("/", 1)[-1] != "conftest.py":
        return []
    was, now = parsed(old or b""), parsed(new)
    same = was is not None and now is not None and ast.dump(was) == ast.dump(now)
    return [] if same else [Violation("fixture_edited", path, "fixtures of all tests below it are more than they were")]


def _gone(trees: Trees, path: str, old: bytes) -> list[Violation]:
    tree = parsed(old)
    known = [case for case in cases(tree).values() if case.collected] if tree is not None else []
    if known and all(trees.moved(case) for case in known):
        return [Violation("test_moved", path, f"its {len(known)} tests are in other files now")]
    copies = [each for each in trees.modes if trees.after.get(each) == old and each not in trees.before]
    if known and copies:
        return [Violation("test_renamed", path, f"it is {copies[0]} now: its {len(known)} tests are not collected")]
    if path.rsplit("/", 1)[-1] == "conftest.py":
        return [Violation("test_hook", path, "it is gone")]
    return [Violation("test_deleted", path, f"it is gone, with {len(known)} tests" if known else "it is gone")]


def _data(path: str, old: bytes | None, new: bytes | None) -> list[Violation]:
    """Files that are no Python: by content alone. New ones are free."""
    if old is None:
        return [Violation("test_config", path, "it is new")] if matches(path, _SETTINGS) else []
    words = "it is gone" if new is None else "its content is another"
    if matches(path, (*ALWAYS, *_SETTINGS)):
        return [Violation("test_config", path, words)]
    if new is None:
        return [Violation("test_deleted" if _is_code(path) else "fixture_edited", path, words)]
    return [Violation("test_edited" if _is_code(path) else "fixture_edited", path, words)]


_SETTINGS = (
    "**/pytest.ini", "**/tox.ini", "**/.coveragerc", "noxfile.py", "**/*.config.js", "**/*.config.ts",
    "**/*.config.mjs", "**/.mocharc*", "**/karma.conf.*", ".rspec",
)  # fmt: skip


def _is_code(path: str) -> bool:
    return path.endswith((".js", ".jsx", ".ts", ".tsx", ".mjs", ".cjs", ".go", ".rb", ".rs", ".java", ".kt", ".sh"))
