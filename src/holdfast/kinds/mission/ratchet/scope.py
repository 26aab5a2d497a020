"""Whether a tree stays with its task: its scope, new dependencies, features that nobody asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.facts.mission import MissionPolicy
from holdfast.facts.task import Violation
from holdfast.globs import matches
from holdfast.kinds.mission.ratchet.pristine import is_test_file
from holdfast.kinds.mission.ratchet.rules import CODE, Trees
from holdfast.kinds.mission.ratchet.scope_answers import expected, special
from holdfast.kinds.mission.ratchet.scope_dependencies import wanted
from holdfast.kinds.mission.ratchet.scope_features import Asked, unasked

LISTED_MAX = 60
"""So many unasked changes are named; the others are counted."""


def outside(path: str, scope: Sequence[str]) -> str:
    """Words on a change outside the globs of a task; empty for one inside, and for tests, which may be anywhere."""
    if not scope or matches(path, scope) or is_test_file(path):
        return ""
    return f"it is outside of the task's scope ({', '.join(scope)})"


def violations(
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
