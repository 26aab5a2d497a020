"""Permission rules: which tools an agent may call. Consent, never containment: that is the sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal

from holdfast.facts.session import Rule

Decision = Literal["allow", "ask", "deny"]


def evaluate(rules: Sequence[Rule], tool: str) -> tuple[Decision, Rule | None]:
    """What the rules say of a tool, and the rule that said it. The last match wins; none allows."""
    for rule in reversed(rules):
        if fnmatchcase(tool, rule.tool):
            return rule.decision, rule
    return "allow", None
