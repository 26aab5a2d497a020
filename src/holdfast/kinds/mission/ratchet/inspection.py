"""What a worker's tree does to the files that decide about it, and whether it stays with its task.

Nothing is executed: both trees are looked at as bytes, Python as syntax. `inspect` is the whole of it; the rules are in
the `ratchet` modules and in `scope`. A violation is refused. Each of the ratchet's can be allowed by a person, who
allows exactly the content that they were shown: `digest_of` binds an approval to it.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.contract import Contract
from holdfast.facts.mission import MissionPolicy
from holdfast.facts.people import ApprovalSuperseded
from holdfast.facts.task import Violation
from holdfast.globs import matches
from holdfast.kinds.mission.ratchet.additions import last_name, parsed
from holdfast.kinds.mission.ratchet.planted import is_test_file, wanted
from holdfast.kinds.mission.ratchet.rules import CODE, LINKS, Trees, violations
from holdfast.session.decide.people import unanswered
from holdfast.session.state import Ask, State

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_OPTION = re.compile(r"--[a-z][a-z0-9-]*")

_SUPPRESSED = re.compile(rb"#\s*(?:noqa|type:\s*ignore|pragma:\s*no cover|pylint:\s*disable|nosec|pyright:\s*ignore)")

_NOT_PRODUCT = frozenset({"tests", "test", "docs", "doc", "examples", "benchmarks", "testing"})


class Asked:
    """The words that somebody used for what is wanted: the contract, the task, and the tests of the base."""

    def __init__(self, contract: Contract, task: str, before: Mapping[str, bytes]) -> None:
        texts = [contract.goal, task]
        for item in contract.items:
            texts += [item.id, item.description, item.category, *item.steps, *item.paths]
            for criterion in item.criteria:
                texts += [criterion.id, criterion.text]
                if criterion.check is not None:
                    texts += [criterion.check.command, *criterion.check.tests]
        self._text = "\n".join(texts)
        self._words = {word.lower() for word in _WORD.findall(self._text)}
        self._before = before
        self._tested: set[str] | None = None

    def names(self, name: str) -> bool:
        """Whether somebody used this name."""
        return name.lower() in self._words or name in self._in_tests()

    def says(self, text: str) -> bool:
        """Whether this very text occurs in what is wanted: an option, a path."""
        return text in self._text or text in "\n".join(self._in_tests())

    def _in_tests(self) -> set[str]:
        if self._tested is None:
            self._tested = {
                word
                for path, content in self._before.items()
                if is_test_file(path)
                for word in (*_WORD.findall(content.decode("utf-8", "replace")),)
            }
            self._tested |= {
                option
                for path, content in self._before.items()
                if is_test_file(path)
                for option in _OPTION.findall(content.decode("utf-8", "replace"))
            }
        return self._tested


def unasked(path: str, old: bytes | None, new: bytes | None, asked: Asked) -> list[str]:
    """What is new in a file of the product that nobody named, in words."""
    if new is None or is_test_file(path) or _NOT_PRODUCT & set(path.split("/")[:-1]):
        return []
    found = []
    if old is None and not _is_named_path(path, asked):
        found.append(f"{path}: a new file")
    if path.endswith(".py"):
        after, before = parsed(new), parsed(old) if old is not None else None
        if after is not None:
            known = set(_public(before)) if before is not None else set()
            found += [
                f"{path}: a new {kind} {name}"
                for kind, name in dict.fromkeys(_public(after))
                if (kind, name) not in known and not (asked.says(name) if name.startswith("-") else asked.names(name))
            ]
        more = len(_SUPPRESSED.findall(new)) - len(_SUPPRESSED.findall(old or b""))
        if more > 0:
            found.append(f"{path}: {more} more places that checkers are told to pass over")
    return found


def _is_named_path(path: str, asked: Asked) -> bool:
    name = path.rsplit("/", 1)[-1]
    return asked.says(path) or asked.says(name) or asked.names(name.rsplit(".", 1)[0]) or name == "__init__.py"


def _public(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield "function", node.name
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield "class", node.name
    for each in ast.walk(tree):
        if isinstance(each, ast.Call) and last_name(each.func) in ("add_argument", "option", "Option", "add_option"):
            for argument in each.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield from (("option", name) for name in _OPTION.findall(argument.value))


_VALUES = re.compile(rb"\"[^\"\n]{4,}\"|'[^'\n]{4,}'|\b\d[\d_.]+\b")

FEW = 2


def special(path: str, old: bytes | None, new: bytes, expected: Iterable[bytes]) -> list[str]:
    """A line on a file that has several values which tests expect and that it did not have, in words."""
    fresh = values(new) - values(old or b"")
    found = sorted(fresh & set(expected))
    if len(found) < FEW:
        return []
    shown = ", ".join(each.decode("utf-8", "replace")[:40] for each in found[:3])
    return [f"{path}: it has values that tests expect ({shown}); a judge should look for special cases"]


def expected(tests: Mapping[str, bytes], product: Iterable[bytes]) -> frozenset[bytes]:
    """Telling values of tests that the product does not have by itself."""
    wanted = {each for content in tests.values() for each in values(content)}
    return frozenset(wanted - {each for content in product for each in values(content)})


def values(content: bytes) -> set[bytes]:
    """Texts of some length and numbers of more than one digit, as they are written."""
    return {each.strip(b"'\"") for each in _VALUES.findall(content)}


LISTED_MAX = 60
"""So many unasked changes are named; the others are counted."""


def outside(path: str, scope: Sequence[str]) -> str:
    """Words on a change outside the globs of a task; empty for one inside, and for tests, which may be anywhere."""
    if not scope or matches(path, scope) or is_test_file(path):
        return ""
    return f"it is outside of the task's scope ({', '.join(scope)})"


def scope_violations(
    trees: Trees, path: str, scope: Sequence[str], policy: MissionPolicy
) -> tuple[list[Violation], list[str]]:
    """What leaves the scope or brings in a dependency: what of it is refused, and what is listed."""
    refused: list[Violation] = []
    listed: list[str] = []
    stray = outside(path, scope)
    if stray and policy.scope == "refuse":
        refused.append(Violation("scope", path, stray))
    elif stray:
        listed.append(f"{path}: {stray}")
    wants = [] if trees.is_protected(path) and path.endswith(".py") else wanted(path, trees.before, trees.after)
    if policy.dependencies == "refuse":
        refused += [Violation("dependency", path, f"it {each}") for each in wants]
    else:
        listed += [f"{path}: it {each}" for each in wants]
    return refused, listed


def features(trees: Trees, paths: Iterable[str], task: str) -> list[str]:
    """What is new in the product and named nowhere, and what looks like an answer that tests expect."""
    asked = Asked(trees.contract, task, trees.before)
    tests = {path: content for path, content in trees.before.items() if trees.is_protected(path)}
    answers = expected(tests, (content for path, content in trees.before.items() if path not in tests))
    found: list[str] = []
    for path in paths:
        old, new = trees.before.get(path), trees.after.get(path)
        if trees.is_protected(path) or old == new:
            continue
        found += unasked(path, old, new, asked)
        if new is not None and path.endswith(CODE) and not is_test_file(path):
            found += special(path, old, new, answers)
    more = len(found) - LISTED_MAX
    return [*found[:LISTED_MAX], *([f"and {more} more"] if more > 0 else [])]


SCOPE_RULES = frozenset({"scope", "dependency"})
"""Rules that are about a task rather than about the ratchet: no `ratchet.violated`, and no approval."""


NEVER_ASKED = frozenset({"linked", "mode_changed", "contract_edited"})
"""Rules about what no approval of a content could cover; a contract is amended by its own verb."""


class Change(Protocol):
    """One path that differs between two trees, as a repository tells it."""

    @property
    def path(self) -> str:
        """Relative to the root, with `/`."""
        ...

    @property
    def kind(self) -> str:
        """`added`, `removed` or `changed`."""
        ...

    @property
    def mode(self) -> str:
        """The new mode as git writes it, empty for a removed file."""
        ...

    @property
    def lines_added(self) -> int:
        """Lines that are new."""
        ...

    @property
    def lines_removed(self) -> int:
        """Lines that are gone."""
        ...


class Inspection(msgspec.Struct, frozen=True):
    """What was found. `files` are the changed paths, `lines` the sum of added and removed ones.

    `unasked` are changes that nobody asked for and that are let through, as words.
    """

    violations: tuple[Violation, ...]
    unasked: tuple[str, ...]
    files: tuple[str, ...]
    lines: int

    def of_ratchet(self) -> tuple[Violation, ...]:
        """The violations that weaken what is protected; the others leave the task's scope."""
        return tuple(each for each in self.violations if each.rule not in SCOPE_RULES)


def inspect(
    before: Mapping[str, bytes],
    after: Mapping[str, bytes],
    changes: Sequence[Change],
    *,
    protected: Sequence[str],
    scope: Sequence[str],
    contract: Contract,
    policy: MissionPolicy,
    allowed: Mapping[str, str],
    task: str = "",
) -> Inspection:
    """Hold a tree against its base.

    `before` and `after` are the regular files of both, by path. `protected` and `scope` are globs, an empty scope is
    everything. `allowed` has the digests of content that a person allowed, by path, "" for a path that may be gone.
    `task` is what its worker was asked, beside the contract: what it names is not unasked.
    """
    modes = {change.path: change.mode for change in changes}
    trees = Trees(before, after, modes, tuple(protected), contract, scope)
    found: list[Violation] = []
    unasked: list[str] = []
    for change in changes:
        if _is_allowed(change, before, after, allowed):
            continue
        weakened = violations(trees, change.path)
        found += weakened
        refused, listed = scope_violations(trees, change.path, () if weakened else scope, policy)
        found += refused
        unasked += listed
    unasked += features(trees, [change.path for change in changes], task)
    lines = sum(change.lines_added + change.lines_removed for change in changes)
    return Inspection(tuple(found), tuple(unasked), tuple(change.path for change in changes), lines)


def _is_allowed(
    change: Change, before: Mapping[str, bytes], after: Mapping[str, bytes], allowed: Mapping[str, str]
) -> bool:
    """Whether a person allowed this content. Links and modes are not allowed by content."""
    path = change.path
    if change.mode in LINKS or before.get(path) == after.get(path):
        return False
    return allowed.get(path) == content_digest(after.get(path))


def content_digest(content: bytes | None) -> str:
    """The digest of a file's content, as hex; empty for a file that is not there."""
    return "" if content is None else hashlib.sha256(content).hexdigest()


def digest_of(violations: Sequence[Violation], after: Mapping[str, bytes]) -> str:
    """What an approval of violations is bound to: the paths and the exact content that they are about."""
    content = {each.path: content_digest(after.get(each.path)) for each in violations}
    rows = "\n".join(f"{path}\0{digest}" for path, digest in sorted(content.items()))
    return hashlib.sha256(rows.encode()).hexdigest()


KIND = "change"

DEVIATION_HINT = (
    "if the change is right nevertheless, hand in again and name the path among your deviations: then a user is asked"
)
"""Shown once to a worker whose changes were refused."""


def asking(state: State, effect: str) -> bool:
    """Whether an inspection waits for a person's answer."""
    return any(ask.kind == KIND and ask.call_id == effect for ask in unanswered(state))


def waiting(state: State) -> list[Ask]:
    """Questions about changes that nobody has answered."""
    return [ask for ask in unanswered(state) if ask.kind == KIND]


def answered(state: State, digest: str) -> Ask | None:
    """The latest answer about this very content, whichever task it came up in."""
    found = [ask for ask in state.asks.values() if ask.kind == KIND and ask.action_digest == digest and ask.verdict]
    return found[-1] if found else None


def stale(state: State, wanted: Collection[str]) -> tuple[Fact, ...]:
    """The facts that end questions about trees whose inspection is not among the `wanted` effects any more."""
    reason = "its task went on without this change"
    return tuple(
        ApprovalSuperseded(item_id=ask.item_id, reason=reason) for ask in waiting(state) if ask.call_id not in wanted
    )


def declared(violations: Sequence[Violation], deviations: Sequence[str]) -> bool:
    """Whether a worker named every path that its violations are about as a deviation."""
    words = {word for line in deviations for word in re.findall(r"[^\s,;:()'\"`]+", line)}
    words |= {word.rstrip(".") for word in words}
    return all(each.path in words for each in violations)
