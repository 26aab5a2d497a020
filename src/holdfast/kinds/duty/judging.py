"""When an alert is raised and cleared: duration, hysteresis, and cooldown. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

from holdfast.kinds.duty.expressions import Expression, History, parse


class Condition(NamedTuple):
    """An alert's conditions: raised once `when` held for `hold_us`, cleared once `clear` held for `clear_hold_us`.

    `clear` is None for the opposite of `when`. It is not raised again within `cooldown_us` of its clearing.
    """

    when: Expression
    clear: Expression | None = None
    hold_us: int = 0
    clear_hold_us: int = 0
    cooldown_us: int = 0


class Standing(NamedTuple):
    """State of an alert: raised or not, and the time of its last clearing, None if it never was."""

    raised: bool = False
    cleared_us: int | None = None


class Judgment(NamedTuple):
    """Result: a change or none, and the next time at which it could be another; None if only news changes it."""

    change: Literal["raise", "clear", ""] = ""
    due_us: int | None = None


def condition(
    when: str, clear: str, hold_s: float, clear_hold_s: float, cooldown_s: float, values: tuple[str, ...]
) -> Condition:
    """Return the parsed conditions of an alert. Raises `ValueError`."""
    if min(hold_s, clear_hold_s, cooldown_s) < 0:
        raise ValueError("hold_s, clear_hold_s, and cooldown_s of an alert must not be negative")
    hold_us, clear_hold_us, cooldown_us = (round(each * 1_000_000) for each in (hold_s, clear_hold_s, cooldown_s))
    return Condition(parse(when, values), parse(clear, values) if clear else None, hold_us, clear_hold_us, cooldown_us)


def judge(wanted: Condition, history: History, standing: Standing, now_us: int) -> Judgment:
    """Return what becomes of an alert now.

    A condition that is not known changes nothing: an alert without data is neither raised nor cleared.
    """
    if standing.raised:
        expression, truth = (wanted.when, False) if wanted.clear is None else (wanted.clear, True)
        hold_us, earliest_us = wanted.clear_hold_us, now_us
    else:
        expression, truth, hold_us = wanted.when, True, wanted.hold_us
        earliest_us = now_us if standing.cleared_us is None else standing.cleared_us + wanted.cooldown_us
    following = next((at for at in expression.changes(history) if at > now_us), None)
    if expression.at(history, now_us) is not truth:
        return Judgment(due_us=following)
    changes_us = max(earliest_us, _since(expression, truth, history, now_us, hold_us) + hold_us)
    if changes_us <= now_us:
        return Judgment("clear" if standing.raised else "raise")
    return Judgment(due_us=changes_us if following is None else min(changes_us, following))


def _since(expression: Expression, truth: bool, history: History, now_us: int, most_us: int) -> int:
    """Return since when the expression has been what it is now; `most_us` ago is early enough."""
    since = now_us
    for at in reversed([at for at in expression.changes(history) if at < now_us]):
        if now_us - since >= most_us or expression.at(history, at) is not truth:
            break
        since = at
    return since
