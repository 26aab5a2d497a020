"""Five kinds of loop: the same call, ping-pong, paraphrase, growing output, a cycle of errors. Pure.

Thresholds are in occurrences, so that the cost of a loop is bounded. The known rule of thumb is four equal actions with
equal results, three that fail, six turns of ping-pong. These thresholds are as strict, but apply to the latest `WINDOW`
turns and allow harmless calls in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise

from holdfast.session.signs.features import CHECKS, MUTATES, READS, WRITERS, alike
from holdfast.session.signs.trace import CHANGE, ERROR, INFORMATION, NOT_RUN, NOTHING, OPEN, UNKNOWN, CallNote, Turn

WINDOW = 14
"""Number of latest turns to search for loops."""

SAME, SAME_WITHIN = 4, 8
"""Occurrences of the same call with the same result, and the number of latest turns that they must be in."""

SAME_ANYWHERE = 5
"""Occurrences in the whole window; for tests, only those after the latest new change was tried."""

READ, READ_ON, READ_ON_WITHIN = 5, 6, 8
"""Reads of the same thing with nothing new in between; and reads, within so many turns, where something new arrived: a
look back during further reading is cheap."""

GROWN, REWORDED = 4, 4
"""Occurrences of the same call with a result that only grows; occurrences of the same request in other words."""

SAME_SHAPE = 5
"""Occurrences of the same call with a result that differs in numbers only."""

LIKE = 4
"""Occurrences of calls about the same thing with mostly equal lines in the result."""

ROUNDS = 3
"""Occurrences of a cycle of two to `PERIOD_MAX` turns."""

PERIOD_MAX = 4

AGAIN, AGAIN_WITHIN, AGAIN_CALLS = 5, 9, 4
"""Number of latest turns that only repeat earlier ones, the range of turns that they are in, and the maximum of
different calls in them, each of which occurs at least twice: a single second look is not a loop."""

ERRORS, ERRORS_AGAIN = 7, 5
"""Number of turns that failed, and of those that failed in a way seen before in the same stretch."""

NOVEL_SHARE = 0.4
"""Share of turns in between with something new above which there is no loop."""

Found = tuple[str, tuple[int, ...]]

_FAILED = frozenset({ERROR, NOT_RUN, UNKNOWN})


def loop(recent: list[Turn]) -> Found | None:
    """Return the loop in the latest turns: its description and its positions."""
    window = recent[-WINDOW:]
    turns = _unbroken(window)
    if len(turns) < 2 or not turns[-1].step.calls:
        return None
    for find in (_repeated, _cycle, _reworded, _errors):
        found = find(turns)
        if found is not None:
            return found
    return _again(window, turns)


def _unbroken(recent: list[Turn]) -> list[Turn]:
    for index in range(len(recent) - 1, -1, -1):
        if recent[index].brought == CHANGE or recent[index].waits:
            return recent[index + 1 :]
    return recent


def _repeated(turns: list[Turn]) -> Found | None:
    for call in turns[-1].step.calls:
        same = _occurrences(turns, partial(_same_value, call))
        same = [turn for turn in same if turn is same[0] or turn.brought == NOTHING]
        if _often(turns, same, call) and _dull(turns, same):
            return f"{call.name} was called {len(same)} times with the same input and the same result", _seqs(same)
        shaped = _occurrences(turns, partial(_same_shape, call))
        if not _dull(turns, shaped):
            continue
        lengths = [_length(turn, call) for turn in shaped]
        if len(shaped) >= GROWN and all(one < two for one, two in pairwise(lengths)):
            what = (
                f"{call.name} was called {len(shaped)} times with the same input, and its output only grew by more of"
            )
            return f"{what} the same", _seqs(shaped)
        if len(shaped) >= SAME_SHAPE and _often(turns, shaped, call):
            what = f"{call.name} was called {len(shaped)} times with the same input, and only numbers changed in the"
            return f"{what} result", _seqs(shaped)
    return None


def _often(turns: list[Turn], same: list[Turn], call: CallNote) -> bool:
    if call.kind & READS:
        return _among(_since_news(turns, same), same) >= READ or _among(turns[-READ_ON_WITHIN:], same) >= READ_ON
    if call.kind & CHECKS:
        return _among(_since_tried(turns), same) >= SAME_ANYWHERE
    return len(same) >= SAME_ANYWHERE or _among(turns[-SAME_WITHIN:], same) >= SAME


def _among(turns: list[Turn], same: list[Turn]) -> int:
    positions = {turn.step.seq for turn in turns}
    return sum(turn.step.seq in positions for turn in same)


def _since_news(turns: list[Turn], same: list[Turn]) -> list[Turn]:
    """Return the turns after the latest with new information, not counting those in `same`."""
    positions = {turn.step.seq for turn in same}
    for index in range(len(turns) - 1, -1, -1):
        if turns[index].brought == INFORMATION and turns[index].step.seq not in positions:
            return turns[index + 1 :]
    return turns


def _since_tried(turns: list[Turn]) -> list[Turn]:
    """Return the turns after the latest that tried a new change, even a failed one."""
    tried: set[int] = set()
    latest = 0
    for index, turn in enumerate(turns):
        for call in turn.step.calls:
            if (call.name in WRITERS or call.kind & MUTATES) and call.call not in tried:
                tried.add(call.call)
                latest = index + 1
    return turns[latest:]


def _cycle(turns: list[Turn]) -> Found | None:
    marks = [tuple((call.call, call.outcome, call.shape) for call in turn.step.calls) for turn in turns]
    for period in range(2, PERIOD_MAX + 1):
        length = period * ROUNDS
        if len(marks) < length:
            break
        tail = marks[-length:]
        if all(tail[index] == tail[index - period] for index in range(period, length)):
            part = turns[-length:]
            failed = all(_failed(turn) for turn in part)
            kind = "calls that all fail in the same ways" if failed else "calls with the same results"
            return f"{ROUNDS} rounds of the same {period} {kind}", _seqs(part)
    return None


def _again(window: list[Turn], turns: list[Turn]) -> Found | None:
    """Find a cycle with other calls in between, or in changing order. The first occurrences may precede `turns`."""
    seen: set[tuple[int, int, int]] = set()
    again: list[Turn] = []
    calls: Counter[int] = Counter()
    from_seq = turns[-AGAIN_WITHIN:][0].step.seq
    for turn in window:
        marks = {(call.call, call.outcome, call.shape) for call in turn.step.calls}
        if marks and marks <= seen and turn.step.seq >= from_seq:
            again.append(turn)
            calls.update({call.call for call in turn.step.calls})
        seen |= marks
    if (
        len(again) < AGAIN
        or again[-1] is not turns[-1]
        or not 2 <= len(calls) <= AGAIN_CALLS
        or min(calls.values()) < 2
        or not _dull(turns, again)
    ):
        return None
    return f"{len(again)} turns only repeated {len(calls)} earlier calls, with the same results", _seqs(again)


def _reworded(turns: list[Turn]) -> Found | None:
    for call in turns[-1].step.calls:
        same = _occurrences(turns, partial(_same_answer, call))
        if len(same) >= REWORDED and _dull(turns, same) and _different(call, same):
            return f"the same thing was asked {len(same)} times in other words, with the same result", _seqs(same)
        like = _occurrences(turns, partial(_like_answer, call))
        if len(like) >= LIKE and _dull(turns, like) and _different(call, like):
            return f"the same thing was asked {len(like)} times in other words, and showed much the same", _seqs(like)
    return None


def _errors(turns: list[Turn]) -> Found | None:
    seen: set[tuple[str, int]] = set()
    failed: list[Turn] = []
    again = 0
    latest_again = False
    for turn in turns:
        latest_again = False
        if not _failed(turn):
            continue
        failed.append(turn)
        ways = {(call.name, call.shape) for call in turn.step.calls}
        latest_again = ways <= seen
        again += latest_again
        seen |= ways
    if not latest_again or len(failed) < ERRORS or again < ERRORS_AGAIN:
        return None
    stretch = turns[turns.index(failed[0]) :]
    if len(failed) < (1 - NOVEL_SHARE) * len(stretch):
        return None
    return f"{len(failed)} turns failed, {again} of them in ways seen before", _seqs(failed)


def _occurrences(turns: list[Turn], fits: Callable[[CallNote], bool]) -> list[Turn]:
    """Return the turns with such a call. A later one counts only if nothing else in it may have shown something new."""
    found = [turn for turn in turns if any(call.outcome != OPEN and fits(call) for call in turn.step.calls)]
    return [turn for turn in found if turn is found[0] or turn.brought == NOTHING or len(turn.step.calls) == 1]


def _same_value(call: CallNote, other: CallNote) -> bool:
    return other.call == call.call and other.value == call.value


def _same_shape(call: CallNote, other: CallNote) -> bool:
    return other.call == call.call and other.shape == call.shape


def _same_answer(call: CallNote, other: CallNote) -> bool:
    return _about_same(call, other) and other.value == call.value


def _like_answer(call: CallNote, other: CallNote) -> bool:
    return _about_same(call, other) and _like_result(call, other)


def _dull(turns: list[Turn], same: list[Turn]) -> bool:
    """Return True if the turns between the first and the last of `same` show little that is new."""
    if len(same) < 2:
        return False
    positions = {turn.step.seq for turn in same}
    first = same[0].step.seq
    between = [turn for turn in turns if turn.step.seq > first]
    novel = sum(turn.brought == INFORMATION and turn.step.seq not in positions for turn in between)
    return novel <= NOVEL_SHARE * len(between)


def _about_same(call: CallNote, other: CallNote) -> bool:
    return other.outcome == call.outcome and alike(other.words, call.words, 0.33)


def _like_result(call: CallNote, other: CallNote) -> bool:
    return min(len(call.sketch), len(other.sketch)) >= 3 and alike(call.sketch, other.sketch, 0.6)


def _different(call: CallNote, same: list[Turn]) -> bool:
    """Return True if the words differ in at least two of the turns."""
    return sum(all(each.call != call.call for each in turn.step.calls) for turn in same) >= 2


def _failed(turn: Turn) -> bool:
    return bool(turn.step.calls) and all(call.outcome in _FAILED for call in turn.step.calls)


def _length(turn: Turn, call: CallNote) -> int:
    return next(each.length for each in turn.step.calls if each.call == call.call and each.shape == call.shape)


def _seqs(turns: list[Turn]) -> tuple[int, ...]:
    return tuple(turn.step.seq for turn in turns)
