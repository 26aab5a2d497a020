"""Permission rules: the tools that an agent may call. Rules are consent, never containment: that is the sandbox."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from holdfast.facts.people import Grant
from holdfast.facts.session import Rule
from holdfast.session.tools.effects import Part, normalized_pattern
from holdfast.session.tools.shell_words import UNKNOWN

Decision = Literal["allow", "ask", "deny"]

_RUNS_LATER = ("job_start", "service_start")
"""Tools that run a command as `bash` does, only longer: rules for `bash` apply to them too."""

_NEVER_USED: Mapping[int, int] = {}
_NOTHING = (Part(("",)),)
_STRICTNESS = {"allow": 0, "ask": 1, "deny": 2}
_ESCAPED = re.compile(r"\[([*?\[])\]")
_FILLS = ("", "\1", "\1 \1\1")
"""Stand-ins for an unknown part: only a star matches all of them."""


GRANT = "grant:"
"""Prefix of a grant's name in a dispatch, followed by the position of the answer that gave it."""

TREE = "tree"
"""Guard with the snapshot of the workspace."""


class Ruling(msgspec.Struct, frozen=True):
    """Decision on a call, the rule that made it, None if none did, and the places of the rules with a limited number of
    uses that allowed a part of the call.
    """

    decision: Decision
    rule: Rule | None = None
    bounded: tuple[int, ...] = ()


def evaluate(
    rules: Sequence[Rule],
    tool: str,
    parts: Sequence[Part] = _NOTHING,
    *,
    whole: str = "",
    age_s: float = 0.0,
    uses: Mapping[int, int] = _NEVER_USED,
) -> Ruling:
    """Return the ruling for a call of `tool` that does `parts`, written as `whole`.

    For each part the last matching rule wins, and without one it is allowed; the strictest ruling is the call's. A part
    that is not fully known needs an approval if a pattern might match it. A deny or ask pattern may also span several
    parts. `age_s` is the age of the session and `uses` the number of calls that each rule has allowed: a rule that is
    bounded by either no longer matches once it is used up.
    """
    live = [
        (at, rule) for at, rule in enumerate(rules) if is_about(rule, tool) and _holds(rule, age_s, uses.get(at, 0))
    ]
    if not live:
        return Ruling("allow")
    live.reverse()
    rulings = [*(_part_ruling(live, part, whole) for part in parts), _spanning(live, parts, whole)]
    bounded = {place: None for ruling in rulings for place in ruling.bounded}
    strictest = max(rulings, key=lambda each: _STRICTNESS[each.decision])
    return msgspec.structs.replace(strictest, bounded=tuple(bounded))


def _part_ruling(live: Sequence[tuple[int, Rule]], part: Part, whole: str) -> Ruling:
    least: Decision = "allow"
    for at, rule in live:
        if rule.decision == "allow":
            fits = _allows(rule.match, part, whole)
        else:
            fits = not rule.match or any(_covers(rule.match, text) for text in (*part.texts, *part.also))
            if not fits and UNKNOWN in part.texts[0] and _may_fit(rule.match, part.texts[0]):
                least = "ask"
        if fits:
            decision = least if rule.decision == "allow" else rule.decision
            return Ruling(decision, rule, () if rule.uses is None else (at,))
    return Ruling(least)


def _spanning(live: Sequence[tuple[int, Rule]], parts: Sequence[Part], whole: str) -> Ruling:
    """Return the ruling for the call as one text, by patterns that span several of its parts."""
    texts = {whole, " ".join(whole.split())}
    known = {text for part in parts for text in (*part.texts, *part.also)}
    for at, rule in live:
        if rule.decision == "allow" and all(_allows(rule.match, part, whole) for part in parts):
            break
        spans = rule.match and any(fnmatchcase(text, rule.match) for text in texts)
        if rule.decision != "allow" and spans and not any(fnmatchcase(text, rule.match) for text in known):
            return Ruling(rule.decision, rule, () if rule.uses is None else (at,))
    return Ruling("allow")


def _allows(pattern: str, part: Part, whole: str) -> bool:
    return not pattern or _is_same(pattern, whole) or any(_covers(pattern, text) for text in part.texts)


def _is_same(pattern: str, whole: str) -> bool:
    """Return True if a pattern without wildcards is the whole text: it cannot allow anything else."""
    literal = _ESCAPED.sub(r"\1", pattern)
    return literal == whole and not any(char in _ESCAPED.sub("", pattern) for char in "*?[")


def _covers(pattern: str, text: str) -> bool:
    """Return True if the pattern matches the text whatever its unknown parts are."""
    patterns = (pattern, normalized_pattern(pattern))
    texts = [text.replace(UNKNOWN, fill) for fill in _FILLS] if UNKNOWN in text else [text]
    return any(all(fnmatchcase(each, wanted) for each in texts) for wanted in patterns)


def _may_fit(pattern: str, text: str) -> bool:
    """Return False only if no values of the text's unknown parts match the pattern: a star matches any text."""
    tokens = re.findall(r"\[!?\]?[^\]]*\]|.", pattern, re.DOTALL)
    reached = {0}
    for char in [*text, ""]:
        reached = _past_stars(reached, tokens)
        if not char:
            break
        if char == UNKNOWN:
            reached = set(range(min(reached), len(tokens) + 1)) if reached else set()
        else:
            reached = {
                at if tokens[at] == "*" else at + 1
                for at in reached
                if at < len(tokens) and fnmatchcase(char, tokens[at])
            }
    return len(tokens) in reached


def _past_stars(reached: set[int], tokens: Sequence[str]) -> set[int]:
    found = set(reached)
    for at in sorted(reached):
        while at < len(tokens) and tokens[at] == "*":
            at += 1
            found.add(at)
    return found


def is_about(rule: Rule | Grant, tool: str) -> bool:
    """Return True if a rule judges calls of this tool: its main argument decides the rest."""
    return fnmatchcase(tool, rule.tool) or (
        isinstance(rule, Rule) and tool in _RUNS_LATER and fnmatchcase("bash", rule.tool)
    )


def _holds(rule: Rule | Grant, age_s: float, uses: int) -> bool:
    return (rule.for_s is None or age_s <= rule.for_s) and (rule.uses is None or uses < rule.uses)


def grants(grant: Grant, tool: str, parts: Sequence[Part], *, whole: str, age_s: float, uses: int) -> bool:
    """Return True if a user's grant, given `age_s` ago and used `uses` times, allows this call (S21)."""
    return _holds(grant, age_s, uses) and covers(grant, tool, parts, whole=whole)


def covers(grant: Grant, tool: str, parts: Sequence[Part], *, whole: str) -> bool:
    """Return True if a grant is for such a call, even if it is used up."""
    return is_about(grant, tool) and all(_allows(grant.match, part, whole) for part in parts)


def policy_digest(rules: Sequence[Rule]) -> str:
    """Return the SHA-256 hex of the rules: an approval given under other rules is void (S21)."""
    return hashlib.sha256(msgspec.json.encode(tuple(rules), order="sorted")).hexdigest()
