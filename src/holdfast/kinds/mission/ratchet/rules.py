"""The ratchet: files that decide about the work may become more and not less. Which rules a change breaks, by path.

It knows which files these are, never how product code is spelled: that the product does what the checks say is shown
by running them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from holdfast.facts.contract import Contract
from holdfast.facts.task import Violation
from holdfast.globs import matches
from holdfast.kinds.mission.check import judging
from holdfast.kinds.mission.check.judging import Judges
from holdfast.kinds.mission.ratchet.additions import fixtures_asked_for, only_more
from holdfast.kinds.mission.ratchet.config import CI, SHARED, only_longer, shared
from holdfast.kinds.mission.ratchet.pristine import ALWAYS, is_test_file, planted, shadowing

LINKS = ("120000", "160000")
"""Modes of a link and of a repository inside this one."""

CONTRACTS = ("feature_list.json", "prd.json", "mission.toml")


class Trees:
    """Two trees: the regular files of both, the new modes of what differs, and what decides about them.

    `asked` is the scope of the task: new files that it names by their paths are asked for.
    """

    def __init__(
        self,
        before: Mapping[str, bytes],
        after: Mapping[str, bytes],
        modes: Mapping[str, str],
        protected: tuple[str, ...],
        contract: Contract,
        asked: Iterable[str] = (),
    ) -> None:
        self.before = before
        self.after = after
        self.modes = modes
        self.protected = protected
        self.contract = contract
        self._asked = frozenset(asked)

    @cached_property
    def judges(self) -> Judges:
        """What the checks run, as the base has it."""
        return judging.judges(self.contract, self.before)

    @cached_property
    def own(self) -> frozenset[str]:
        """Paths that items name: they are what the work is about."""
        return judging.named(self.contract)

    @cached_property
    def planted(self) -> frozenset[str]:
        """New files that decide what checks say, and that nobody asked for."""
        new = set(self.after) - set(self.before)
        contents = {path: self.after[path] for path in new}
        return frozenset(planted(contents, self.before, self.judges, self.own | self._asked))

    @cached_property
    def fixtures(self) -> frozenset[str]:
        """Names that tests and fixtures of the base take as arguments."""
        return frozenset(
            name for path in self.before if is_test_file(path) for name in fixtures_asked_for(self.before[path])
        )

    def is_protected(self, path: str) -> bool:
        """Whether a path is protected, by the contract or by what it is."""
        if self.is_contract(path):
            return True
        if path in self.own:
            return False
        settings = (*ALWAYS, *CI, *self.judges.settings, *self.contract.hidden)
        return matches(path, (*self.protected, *settings)) or path in self.judges.files

    def is_contract(self, path: str) -> bool:
        """Whether the contract is written there."""
        return path == self.contract.source or path in CONTRACTS


def violations(trees: Trees, path: str) -> list[Violation]:
    """What a changed path breaks; nothing for a file of the product, and for tests that are only more."""
    old, new, mode = trees.before.get(path), trees.after.get(path), trees.modes.get(path)
    if path in trees.planted:
        named = " in place of a module that has this name already" if path in shadowing(set(trees.after)) else ""
        return [Violation("planted", path, f"a new file that would decide what checks say{named}")]
    if path.rsplit("/", 1)[-1] in SHARED and path not in trees.own and mode not in LINKS:
        return shared(path, old, new, trees.judges)
    if not trees.is_protected(path):
        below = mode in LINKS and any(each.startswith(f"{path}/") and trees.is_protected(each) for each in trees.before)
        return [Violation("linked", path, "a link stands where a folder with protected files was")] if below else []
    if mode in LINKS:
        return [Violation("linked", path, "a link stands where a file that decides about the work belongs")]
    if trees.is_contract(path):
        return [Violation("contract_edited", path, "the contract is changed by `holdfast mission amend` alone")]
    if matches(path, CI):
        words = "it is gone" if new is None else "it is new" if old is None else "it is another now"
        return [Violation("ci_edited", path, f"{words}; it runs with the rights of CI")]
    if old is None:
        return []
    if old == new:
        return [Violation("mode_changed", path, f"its mode is {mode} now")]
    return _changed(trees, path, old, new)


def _changed(trees: Trees, path: str, old: bytes, new: bytes | None) -> list[Violation]:
    """A file that was there is another, or gone."""
    if path in trees.judges.files and not is_test_file(path):
        if new is not None and only_longer(path, old, new):
            return []
        words = "it is gone" if new is None else "checks run it, and it is another now"
        return [Violation("check_script", path, words)]
    if matches(path, (*ALWAYS, *trees.judges.settings)) and not path.endswith("conftest.py"):
        return [Violation("test_config", path, "it is gone" if new is None else "it is another now")]
    code = path.endswith(CODE)
    if new is None:
        return [Violation("test_deleted" if code else "fixture_edited", path, "it is gone")]
    if not code:
        return [Violation("fixture_edited", path, "its content is another")]
    problem = only_more(path, old, new, trees.fixtures if path.endswith("conftest.py") else ())
    if not problem:
        return []
    return [Violation("test_deleted" if problem.endswith(" is gone") else "test_edited", path, problem)]


CODE = (
    ".py", ".js", ".jsx", ".ts", ".tsx", ".mjs", ".cjs", ".go", ".rb", ".rs", ".java", ".kt", ".sh", ".c", ".h", ".cc",
    ".cpp", ".hpp", ".cs", ".php", ".swift", ".scala", ".ex", ".exs",
)  # fmt: skip
