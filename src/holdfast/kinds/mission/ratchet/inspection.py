"""Inspection of a worker's tree: violations of the ratchet, of the task's scope, and unasked changes.

Nothing is executed: both trees are compared as bytes, Python as syntax. A violation is refused. A user can allow most
violations of the ratchet, for exactly the content shown: `digest_of` binds the approval to it. Approved content stays
allowed for the whole mission; any other content, even one byte off, needs another approval or is refused. A refusal is
final for that content.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.mission import Contract, MissionPolicy
from holdfast.facts.people import ApprovalSuperseded
from holdfast.facts.task import Violation
from holdfast.globs import matches
from holdfast.kinds.mission.ratchet.additions import last_name, parsed
from holdfast.kinds.mission.ratchet.planted import is_test_file, wanted
from holdfast.kinds.mission.ratchet.rules import CODE, LINKS, Trees, violations
from holdfast.session.decide.waits import unanswered
from holdfast.session.state import Ask, State

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_OPTION = re.compile(r"--[a-z][a-z0-9-]*")

_SUPPRESSED = re.compile(rb"#\s*(?:noqa|type:\s*ignore|pragma:\s*no cover|pylint:\s*disable|nosec|pyright:\s*ignore)")

_NOT_PRODUCT = frozenset({"tests", "test", "docs", "doc", "examples", "benchmarks", "testing"})


class Asked:
    """Vocabulary of the request: the contract, the task, and the tests of the base."""

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
        """Return True if the request uses this name."""
        return name.lower() in self._words or name in self._in_tests()

    def says(self, text: str) -> bool:
        """Return True if the request contains this exact text, such as an option or a path."""
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
    """Describe additions to a product file that the request does not name."""
    if new is None or is_test_file(path) or _NOT_PRODUCT & set(path.split("/")[:-1]):
        return []
    found = []
    name = path.rsplit("/", 1)[-1]
    named = asked.says(path) or asked.says(name) or asked.names(name.rsplit(".", 1)[0]) or name == "__init__.py"
    if old is None and not named:
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
            found.append(f"{path}: {more} more suppressed warnings of linters or type checkers")
    return found


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


def special(path: str, old: bytes | None, new: bytes, expected: Iterable[bytes]) -> list[str]:
    """Describe a file that gained several values which tests expect. A hint for the judge, never a violation."""
    fresh = values(new) - values(old or b"")
    found = sorted(fresh & set(expected))
    if len(found) < 2:
        return []
    shown = ", ".join(each.decode("utf-8", "replace")[:40] for each in found[:3])
    return [f"{path}: it gained values that tests expect ({shown}); look for special cases"]


def expected(tests: Mapping[str, bytes], product: Iterable[bytes]) -> frozenset[bytes]:
    """Return distinctive values in tests that the product does not contain."""
    wanted = {each for content in tests.values() for each in values(content)}
    return frozenset(wanted - {each for content in product for each in values(content)})


def values(content: bytes) -> set[bytes]:
    """Return strings of four or more characters and numbers of more than one digit, as written."""
    return {each.strip(b"'\"") for each in _VALUES.findall(content)}


LISTED_MAX = 60
"""Most unasked changes that are named; the others are only counted."""


def outside(path: str, scope: Sequence[str]) -> str:
    """Describe a change outside the scope of a task; empty for one inside it, and for tests."""
    if not scope or matches(path, scope) or is_test_file(path):
        return ""
    return f"it is outside the task's scope ({', '.join(scope)})"


def scope_violations(
    trees: Trees, path: str, scope: Sequence[str], policy: MissionPolicy
) -> tuple[list[Violation], list[str]]:
    """Return refused and listed changes that leave the scope or add a dependency."""
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
    """Return additions to the product that the request does not name, and values that seem copied from tests."""
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
"""Rules about the scope of a task rather than the ratchet: no `ratchet.violated` event, no approval."""


NEVER_ASKED = frozenset({"linked", "mode_changed", "contract_edited"})
"""Rules that an approval of content cannot cover. `holdfast mission amend` changes a contract."""


class Change(Protocol):
    """Path that differs between two trees, as a repository reports it."""

    @property
    def path(self) -> str:
        """Path relative to the root, with `/`."""
        ...

    @property
    def kind(self) -> str:
        """`added`, `removed` or `changed`."""
        ...

    @property
    def mode(self) -> str:
        """New mode as git writes it; empty for a removed file."""
        ...

    @property
    def lines_added(self) -> int:
        """Number of added lines."""
        ...

    @property
    def lines_removed(self) -> int:
        """Number of removed lines."""
        ...


class Inspection(msgspec.Struct, frozen=True):
    """Result of an inspection. `files` are the changed paths, `lines` the sum of added and removed lines.

    `unasked` describes changes that were not asked for and are allowed.
    """

    violations: tuple[Violation, ...]
    unasked: tuple[str, ...]
    files: tuple[str, ...]
    lines: int

    def of_ratchet(self) -> tuple[Violation, ...]:
        """Violations that weaken protected files; the others leave the task's scope."""
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
    """Compare a tree with its base.

    `before` and `after` are the regular files of both, by path. `protected` and `scope` are globs; an empty scope is
    everything. `allowed` has digests of content that a user allowed, by path, "" for a path that may be removed. `task`
    is the text of the task, which is part of the request like the contract.
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
    """Return True if a user allowed this content. An approval of content covers no links and modes."""
    path = change.path
    if change.mode in LINKS or before.get(path) == after.get(path):
        return False
    return allowed.get(path) == content_digest(after.get(path))


def content_digest(content: bytes | None) -> str:
    """SHA-256 of a file's content in hex; empty for a file that does not exist."""
    return "" if content is None else hashlib.sha256(content).hexdigest()


def digest_of(violations: Sequence[Violation], after: Mapping[str, bytes]) -> str:
    """Return the digest that an approval is bound to: over the paths and exact content of the violations."""
    content = {each.path: content_digest(after.get(each.path)) for each in violations}
    rows = "\n".join(f"{path}\0{digest}" for path, digest in sorted(content.items()))
    return hashlib.sha256(rows.encode()).hexdigest()


KIND = "change"

DEVIATION_HINT = (
    "if the change is right nevertheless, hand in again and name the path among your deviations: then a user is asked"
)
"""Hint shown once to a worker whose changes were refused."""


def asking(state: State, effect: str) -> bool:
    """Return True if an inspection waits for a user's approval."""
    return any(ask.kind == KIND and ask.call_id == effect for ask in unanswered(state))


def waiting(state: State) -> list[Ask]:
    """Return unanswered questions about changes."""
    return [ask for ask in unanswered(state) if ask.kind == KIND]


def answered(state: State, digest: str) -> Ask | None:
    """Return the latest answer about this exact content, from any task."""
    found = [ask for ask in state.asks.values() if ask.kind == KIND and ask.action_digest == digest and ask.verdict]
    return found[-1] if found else None


def stale(state: State, wanted: Collection[str]) -> tuple[Fact, ...]:
    """Return events that supersede questions about trees whose inspection is no longer among the `wanted` effects."""
    reason = "its task went on without this change"
    return tuple(
        ApprovalSuperseded(item_id=ask.item_id, reason=reason) for ask in waiting(state) if ask.call_id not in wanted
    )


def declared(violations: Sequence[Violation], deviations: Sequence[str]) -> bool:
    """Return True if a worker named the path of every violation as a deviation."""
    words = {word for line in deviations for word in re.findall(r"[^\s,;:()'\"`]+", line)}
    words |= {word.rstrip(".") for word in words}
    return all(each.path in words for each in violations)
