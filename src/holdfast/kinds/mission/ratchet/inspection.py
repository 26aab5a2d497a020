"""What a worker's tree does to the files that decide about it, and whether it stays with its task.

Nothing is executed: both trees are looked at as bytes, Python as syntax. `inspect` is the whole of it; the rules are in
the `ratchet` modules and in `scope`. A violation is refused. Each of the ratchet's can be allowed by a person, who
allows exactly the content that they were shown: `digest_of` binds an approval to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from holdfast.facts.contract import Contract
from holdfast.facts.mission import MissionPolicy
from holdfast.facts.task import Violation
from holdfast.kinds.mission.ratchet.rules import LINKS, Trees, violations
from holdfast.kinds.mission.ratchet.scope import features
from holdfast.kinds.mission.ratchet.scope import violations as strays

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
        refused, listed = strays(trees, change.path, () if weakened else scope, policy)
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
