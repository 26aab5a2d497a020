"""Permission rules: which tools an agent may call. Consent, never containment: that is the sandbox."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from holdfast.facts.people import Grant
from holdfast.facts.session import Rule

Decision = Literal["allow", "ask", "deny"]

_RUNS_LATER = ("job_start", "service_start")
"""Tools that run a command as `bash` does, only longer: what rules say of that holds for them too."""

_NEVER_USED: Mapping[int, int] = {}


class Ruling(msgspec.Struct, frozen=True):
    """What the rules say of a call: the decision, the rule that said it and its place, -1 when none did."""

    decision: Decision
    rule: Rule | None = None
    place: int = -1


def evaluate(
    rules: Sequence[Rule], tool: str, argument: str = "", *, age_s: float = 0.0, uses: Mapping[int, int] = _NEVER_USED
) -> Ruling:
    """What the rules say of a call of `tool` whose main argument is `argument`. The last match wins; none allows.

    `age_s` is how old the session is and `uses` how often each rule, by its place, has let a call through:
    a rule that is bounded by either matches no longer once it is used up.
    """
    for place in range(len(rules) - 1, -1, -1):
        rule = rules[place]
        if _fits(rule, tool, argument) and _holds(rule, age_s, uses.get(place, 0)):
            return Ruling(rule.decision, rule, place)
    return Ruling("allow")


def _fits(rule: Rule | Grant, tool: str, argument: str) -> bool:
    named = fnmatchcase(tool, rule.tool) or (
        isinstance(rule, Rule) and tool in _RUNS_LATER and fnmatchcase("bash", rule.tool)
    )
    return named and (not rule.match or fnmatchcase(argument, rule.match))


def _holds(rule: Rule | Grant, age_s: float, uses: int) -> bool:
    return (rule.for_s is None or age_s <= rule.for_s) and (rule.uses is None or uses < rule.uses)


def grants(grant: Grant, tool: str, argument: str, *, age_s: float, uses: int) -> bool:
    """Whether a person's grant, given `age_s` ago and used so often, lets this call through (S21)."""
    return _fits(grant, tool, argument) and _holds(grant, age_s, uses)


def policy_digest(rules: Sequence[Rule]) -> str:
    """SHA-256 hex of the rules: an approval given under others counts no more (S21)."""
    return hashlib.sha256(msgspec.json.encode(tuple(rules), order="sorted")).hexdigest()
