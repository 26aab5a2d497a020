"""Signs of context anxiety: the agent wraps up early because the context seems to run out. Pure.

The latest turns are compared with the earlier ones of the same context. An earlier habit is not a sign, for example of
an agent that always writes little, always defers tests, or often says "for brevity".
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.session.signs.features import (
    BRIEF,
    CHECKS,
    KEEPS,
    LEFT,
    LIMIT,
    MUTATES,
    PROSE,
    READS,
    SKIP,
    STOP,
    STUB,
    WRITERS,
    alike,
)
from holdfast.session.signs.trace import CHANGE, OK, CallNote, Turn

ANXIOUS_FROM = 0.4
"""Share of the context limit below which nothing counts as anxiety: reports place it near a believed limit."""

RECENT = 5
"""Number of latest turns to compare with the earlier ones."""

BASE_MIN = 6
"""Minimum number of earlier turns that show a habit."""

POINTS, POINTS_BACKED = 4, 3
"""Points that make a sign. Fewer suffice with two kinds of evidence if one of them is a phrase or an unchecked change,
and with three kinds: shorter turns and an occasional placeholder are ordinary."""

NEAR = 6
"""Number of earlier changes to compare a change with, to detect one edit made in many files."""

LOWEST = 3
"""Points for turns that are all shorter than nearly every earlier one."""

SPOKEN = 8
"""Number of turns to search for phrases, which are rarer than turns."""

HABIT = 5.0
"""Factor by which a phrase must be more frequent than before to count; otherwise it is a habit."""

_WORDS = LIMIT | LEFT | STOP | BRIEF | SKIP
_UNCHECKED = 64

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
    """One kind of evidence. `flag` is the flag of the phrase, or `_UNCHECKED`."""

    points: int
    what: str
    flag: int = 0


def anxiety(every: list[Turn], first: int) -> tuple[str, tuple[int, ...]] | None:
    """Return a description of the anxiety and its positions; `first` is the first turn after the last boundary."""
    recent = every[first:][-RECENT:]
    base = every[: len(every) - len(recent)]
    last = recent[-1]
    stops = not last.step.count
    if stops and last.step.marks & (LIMIT | LEFT):
        return "the agent stops and says that work is left", (last.step.seq,)
    spoken = every[first:][-SPOKEN:]
    findings = _phrases(spoken, every[: len(every) - len(spoken)])
    if len(base) >= BASE_MIN and len(recent) >= 3:
        working = recent[:-1] if stops else recent  # the last message is of another kind
        findings += _shorter(working, base) + _fewer_calls(working, base) + _unchecked(every, base)
    if stops and len(base) >= BASE_MIN:
        findings += _stops(every, base)
    if not _enough(findings, stops):
        return None
    said = ", ".join(finding.what for finding in findings)
    return f"the agent {said}{' and stops' if stops else ''}", tuple(turn.step.seq for turn in recent)


def _enough(findings: list[_Finding], stops: bool) -> bool:
    """Return True if these findings together are a sign."""
    flags = [finding.flag for finding in findings]
    total = sum(finding.points for finding in findings)
    spoken = sum(bool(flag & _WORDS) for flag in flags)
    unchecked = _UNCHECKED in flags
    if stops and any(flag & (LIMIT | LEFT) for flag in flags):
        return True
    if len(findings) < 2:
        return total >= POINTS
    if spoken >= 2 or (spoken and unchecked):
        return True
    backed = spoken or unchecked or len(findings) >= 3 or (stops and STUB in flags)
    return total >= (POINTS_BACKED if backed else POINTS)


def _phrases(latest: list[Turn], before: list[Turn]) -> list[_Finding]:
    out = []
    for flag, worth in _WORTH.items():
        if len(before) < BASE_MIN and not flag & (LIMIT | LEFT):
            continue  # too few turns to show a habit
        said = sum(bool(turn.step.marks & flag) for turn in latest)
        usual = (sum(bool(turn.step.marks & flag) for turn in before) + 0.3) / (len(before) + 6)
        if said and said / len(latest) >= HABIT * usual:
            points = worth + said - 1
            if flag == STUB and said >= 3:
                points += 1  # placeholders are actions, not just words
            out.append(_Finding(points, _SAID[flag], flag))
    return out


def _quantile(values: Sequence[int], parts: int) -> float:
    """Return the first of the cuts that divide values into equal parts: the median for 2, the lower quartile for 4.

    It is `quantiles(values, n=parts)[0]` of `statistics`, which would make every start of Holdfast slower.
    """
    data = sorted(values)
    if len(data) == 1:
        return data[0]
    at = min(max((len(data) + 1) // parts, 1), len(data) - 1)
    rest = len(data) + 1 - at * parts
    return (data[at - 1] * (parts - rest) + data[at] * rest) / parts


def _shorter(recent: list[Turn], base: list[Turn]) -> list[_Finding]:
    """Compare lengths with the lower quartile of earlier turns: the median alone depends on the kind of work."""
    usual = [turn.step.text + turn.step.thinking for turn in base]
    now = [turn.step.text + turn.step.thinking for turn in recent]
    middle = _quantile(usual, 2)
    if middle < 60:
        return []
    share = _quantile(now, 2) / middle
    if share >= 0.6:
        return []
    lower, lowest = _quantile(usual, 4), _quantile(usual, 10)
    points = 1 + (sorted(now)[-2] < lower and share < 0.45)
    if len(base) >= 2 * BASE_MIN and len(now) == RECENT and max(now) < lowest and share < 0.45:
        points = LOWEST
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
    """Return the findings about phrases and unchecked changes at the end."""
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
    """Find code changes without a command after them, in a session that used to check its changes."""
    now = _since_check(every)
    if now < 4 or sum(turn.step.has(CHECKS) for turn in base) < 3:
        return []
    longest = 0
    run: list[CallNote] = []
    for turn in base:
        if _verifies(turn):
            run = []
        _add_change(run, turn)
        longest = max(longest, len(run))
    if now <= 1.5 * longest:
        return []
    points = 1 + (now >= 5 and now > 2 * longest) + (now >= 6 and now > 2.5 * longest)
    what = f"made {now} changes without a check, where it made {longest} at most"
    return [_Finding(points, what, _UNCHECKED)]


def _since_check(every: list[Turn]) -> int:
    since = next((index for index in range(len(every), 0, -1) if _verifies(every[index - 1])), 0)
    run: list[CallNote] = []
    for turn in every[since:]:
        _add_change(run, turn)
    return len(run)


def _verifies(turn: Turn) -> bool:
    """Return True if a turn may verify the work: any command may, except those that only read or only change things."""
    return any(call.name not in WRITERS and not call.kind & (READS | MUTATES) for call in turn.step.calls)


def _add_change(run: list[CallNote], turn: Turn) -> None:
    """Add a turn's code change unless it resembles a recent one: one edit in many files is one change."""
    if turn.brought != CHANGE or turn.step.has(PROSE) or _verifies(turn):
        return
    for call in turn.step.calls:
        alters = (call.name in WRITERS or call.kind & MUTATES) and not call.kind & KEEPS and call.outcome == OK
        if alters and not any(_same_edit(call, each) for each in run[-NEAR:]):
            run.append(call)
            return


def _same_edit(call: CallNote, other: CallNote) -> bool:
    one, two = call.words[1:], other.words[1:]  # without the file
    return call.name == other.name == "edit" and bool(one) and alike(one, two, 0.33)
