"""Whether a tree stays with its task: its scope, new dependencies, features that nobody asked for."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.facts.mission import MissionPolicy
from holdfast.facts.task import Violation
from holdfast.mission.globs import matches
from holdfast.mission.pristine import is_test_file


def outside(path: str, scope: Sequence[str], policy: MissionPolicy) -> Violation | str | None:
    """A change outside the globs of a task: refused, or listed in words; None for one inside, or a test."""
    if not scope or matches(path, scope) or is_test_file(path):
        return None
    detail = f"is outside of the task's scope ({', '.join(scope)})"
    return Violation("scope", path, detail) if policy.scope == "refuse" else f"{path} {detail}"
