"""Signs of context anxiety: work is wrapped up early because the context seems to run out. Pure.

What is compared are the latest turns with the earlier ones of the same context. An earlier habit is no sign:
an agent that always writes little, always defers tests, or often says "for brevity" is only that.
"""

from __future__ import annotations

from statistics import median, quantiles

import msgspec

from holdfast.session.digests import CHECKS, MUTATES, PROSE, READS
from holdfast.session.novelty import CHANGE, Turn
from holdfast.session.phrases import BRIEF, LEFT, LIMIT, SKIP, STOP, STUB

ANXIOUS_FROM = 0.4
"""Below this part of the context line there is no anxiety: the reports place it near a believed limit."""

RECENT = 5
"""Turns that are compared with those before them."""

BASE_MIN = 6
"""Fewer earlier turns say nothing about what is usual."""

POINTS, POINTS_STRONG, POINTS_AT_END = 5, 4, 3
"""So many points are a sign, when at least two kinds of evidence gave them; fewer when some is strong, or it stops."""

STRONG = 3
"""A finding of so many points is strong; so are two of two points, and three kinds with one of two."""

SPOKEN = 8
"""Turns whose words are looked at: phrases are rarer than turns."""

HABIT = 5.0
"""A phrase counts when it is so many times as frequent as it was; else it is a habit."""

_WORTH = {LIMIT: 3, LEFT: 3, STOP: 1, BRIEF: 1, SKIP: 1, STUB: 1}
_SAID = {
    LIMIT: "speaks of a limit of its context",
    LEFT: "leaves work over",
    STOP: "wraps up",
    BRIEF: "cuts short",
    SKIP: "skips checks",
    STUB: "leaves placeholders",
}


class _Finding(msgspec.Struct, frozen=True):
    points: int
    what: str


def anxiety(every: list[Turn], first: int) -> tuple[str, tuple[int, ...]] | None:
    """What shows it, and where; `first` is the index of the first turn after the last boundary."""
    recent = every[first:][-RECENT:]
    base = every[: len(every) - len(recent)]
    last = recent[-1]
    stops = not last.step.count
    if stops and last.step.marks & (LIMIT | LEFT):
        return "the agent stops and says that work is left", (last.step.seq,)
    spoken = every[first:][-SPOKEN:]
    findings = _phrases(spoken, every[: len(every) - len(spoken)])
    if len(base) >= BASE_MIN and len(recent) >= 3:
        working = recent[:-1] if stops else recent  # the last words are of another kind
        findings += _shorter(working, base) + _fewer_calls(working, base) + _unchecked(every, base)
    if stops and len(base) >= BASE_MIN:
        findings += _stops(every, base)
    if not _enough(sorted((finding.points for finding in findings), reverse=True), stops):
        return None
    said = ", ".join(finding.what for finding in findings)
    return f"the agent {said}{' and stops' if stops else ''}", tuple(turn.step.seq for turn in recent)


def _enough(points: list[int], stops: bool) -> bool:
    """Whether findings of these points, the largest first, are a sign together."""
    total = sum(points)
    if len(points) < 2:
        return total >= POINTS_STRONG
    if stops:
        return total >= POINTS_AT_END
    strong = points[0] >= STRONG or points[1] >= 2 or (len(points) >= 3 and points[0] >= 2)
    return total >= (POINTS_STRONG if strong else POINTS)


def _phrases(latest: list[Turn], before: list[Turn]) -> list[_Finding]:
    out = []
    for flag, worth in _WORTH.items():
        if len(before) < BASE_MIN and not flag & (LIMIT | LEFT):
            continue  # nothing to tell a habit by
        said = sum(bool(turn.step.marks & flag) for turn in latest)
        usual = (sum(bool(turn.step.marks & flag) for turn in before) + 0.3) / (len(before) + 6)
        if said and said / len(latest) >= HABIT * usual:
            points = worth + said - 1
            if flag == STUB and said >= 3:
                points += 1  # placeholders are deeds, not words
            out.append(_Finding(points, _SAID[flag]))
    return out


def _shorter(recent: list[Turn], base: list[Turn]) -> list[_Finding]:
    """All of the latest are shorter than three in four were: the middle alone follows the kind of work."""
    usual = [turn.step.text + turn.step.thinking for turn in base]
    now = [turn.step.text + turn.step.thinking for turn in recent]
    if median(usual) < 60:
        return []
    share = median(now) / median(usual)
    if share >= 0.6:
        return []
    lower, lowest = quantiles(usual, n=4)[0], quantiles(usual, n=10)[0]
    points = 1 + (sorted(now)[-2] < lower and share < 0.45)
    if len(base) >= 2 * BASE_MIN and len(now) == RECENT and max(now) < lowest and share < 0.45:
        points = STRONG
    return [_Finding(points, f"writes {share:.0%} of what it wrote a turn")]


def _fewer_calls(recent: list[Turn], base: list[Turn]) -> list[_Finding]:
    usual = sum(turn.step.count for turn in base) / len(base)
    if usual < 1:
        return []
    share = sum(turn.step.count for turn in recent) / len(recent) / usual
    if share >= 0.6:
        return []
    return [_Finding(2 if share < 0.4 else 1, f"makes {share:.0%} of the calls it made a turn")]


def _stops(every: list[Turn], base: list[Turn]) -> list[_Finding]:
    """What is said and left unchecked at the end."""
    out = []
    if every[-1].step.marks:
        out.append(_Finding(1, "says so at the end"))
    if any(turn.step.marks & STUB for turn in every[-SPOKEN:]):
        out.append(_Finding(1, "stops with placeholders left"))
    now = _since_check(every)
    if now and sum(turn.step.has(CHECKS) for turn in base) >= 2:
        out.append(_Finding(2, f"stops with {now} unchecked changes"))
    return out


def _unchecked(every: list[Turn], base: list[Turn]) -> list[_Finding]:
    """Changes of code with no command run after them, when it used to check its changes."""
    longest, run = 0, 0
    for turn in base:
        run = 0 if _verifies(turn) else run + _changes(turn)
        longest = max(longest, run)
    now = _since_check(every)
    checks = sum(turn.step.has(CHECKS) for turn in base)
    if checks < 3 or now < 4 or now <= 1.5 * longest:
        return []
    points = 1 + (now >= 5 and now > 2 * longest) + (now >= 6 and now > 2.5 * longest)
    return [_Finding(points, f"made {now} changes without a check, where it made {longest} at most")]


def _since_check(every: list[Turn]) -> int:
    now = 0
    for turn in reversed(every):
        if _verifies(turn):
            break
        now += _changes(turn)
    return now


def _verifies(turn: Turn) -> bool:
    """Any command may be how this work is verified; only those that alter things by themselves are not."""
    return any(call.name not in _WRITERS and not call.kind & (READS | MUTATES) for call in turn.step.calls)


def _changes(turn: Turn) -> bool:
    return turn.brought == CHANGE and not turn.step.has(PROSE)


_WRITERS = frozenset({"write", "edit"})
