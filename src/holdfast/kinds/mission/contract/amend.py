"""Comparison of a sealed contract with its amendment: weaker, stricter, added and reworded criteria. Pure.

A change counts as weaker unless it provably demands no less: a needless question to the user costs less than a
criterion that disappears unnoticed.
"""

from __future__ import annotations

import math

import msgspec

from holdfast.facts.mission import Check, Contract, Criterion, Metric

GOAL = "goal"
PROTECTED = "protected "
HIDDEN = "hidden "
"""Prefixes that name a protected or hidden glob where other entries name a criterion."""


class Amendment(msgspec.Struct, frozen=True):
    """Effect of a change. `weaker` and `stricter` map ids of criteria to a description; `added` are new criteria.

    The keys may also be `goal`, `protected GLOB` and `hidden GLOB`. `reworded` are items and criteria whose text alone
    changed.
    """

    weaker: dict[str, str]
    stricter: dict[str, str]
    added: tuple[str, ...] = ()
    reworded: tuple[str, ...] = ()

    @property
    def needs_person(self) -> bool:
        """True if a user must allow the change."""
        return bool(self.weaker)

    @property
    def changes(self) -> bool:
        """True if anything but the order of work changed."""
        return bool(self.weaker or self.stricter or self.added or self.reworded)


def compare(before: Contract, after: Contract) -> Amendment:
    """Compare two versions of a contract."""
    old, new = before.criteria(), after.criteria()
    weaker: dict[str, str] = {}
    stricter: dict[str, str] = {}
    reworded: list[str] = []
    for name, criterion in old.items():
        if name not in new:
            weaker[name] = "removed"
            continue
        less, more = _criterion(criterion, new[name])
        if less:
            weaker[name] = less
        elif more:
            stricter[name] = more
        elif criterion != new[name]:
            reworded.append(name)
    _items(before, after, weaker, reworded)
    if before.goal != after.goal:
        weaker[GOAL] = "the goal changed"
    gone = [glob for glob in before.protected if glob not in after.protected]
    weaker |= {f"{PROTECTED}{glob}": "no longer protected" for glob in gone}
    fresh = [glob for glob in after.protected if glob not in before.protected]
    stricter |= {f"{PROTECTED}{glob}": "now protected" for glob in fresh}
    weaker |= {f"{HIDDEN}{glob}": "no longer hidden" for glob in before.hidden if glob not in after.hidden}
    stricter |= {f"{HIDDEN}{glob}": "now hidden" for glob in after.hidden if glob not in before.hidden}
    return Amendment(weaker, stricter, tuple(name for name in new if name not in old), tuple(reworded))


def _items(before: Contract, after: Contract, weaker: dict[str, str], reworded: list[str]) -> None:
    """Record items with a changed text. A judge reads that text, so each rubric line of the item may demand less."""
    now = {item.id: item for item in after.items}
    for item in before.items:
        other = now.get(item.id)
        if other is None or (item.description, item.steps) == (other.description, other.steps):
            continue
        lines = [each.id for each in item.criteria if each.check is None and each.id not in weaker]
        weaker.update(dict.fromkeys(lines, f"the text of item {item.id} changed"))
        if not lines:
            reworded.append(item.id)


def _criterion(before: Criterion, after: Criterion) -> tuple[str, str]:
    """Describe how a criterion became weaker and how it became stricter; each is empty if it did not."""
    if before.guard != after.guard:
        return "no longer a guard" if before.guard else "now a guard, which has to pass already", ""
    if before.check is None or after.check is None:
        if before.check is not None:
            return "its check was removed", ""
        if after.check is not None:
            return "a command decides now, not a judge", ""
        if before.needs_run and not after.needs_run:
            return "a judge may now pass it without running anything", ""
        return ("its text changed", "") if before.text != after.text else ("", "")
    return _check(before.check, after.check)


def _check(before: Check, after: Check) -> tuple[str, str]:
    if before.command != after.command:
        return "its command changed", ""
    if before.tests != after.tests:
        lost = [test for test in before.tests if test not in after.tests]
        if lost or not before.tests:
            return f"tests were removed: {', '.join(lost)}" if lost else "only some of its tests count now", ""
    less, more = _metric(before.metric, after.metric)
    if less:
        return less, ""
    if after.timeout_s > before.timeout_s:
        return f"its timeout rose from {before.timeout_s:g} s to {after.timeout_s:g} s", ""
    if len(after.tests) > len(before.tests):
        more = more or "more tests count"
    if after.timeout_s < before.timeout_s:
        more = more or f"its timeout fell from {before.timeout_s:g} s to {after.timeout_s:g} s"
    return "", more


def _metric(before: Metric | None, after: Metric | None) -> tuple[str, str]:
    if before is None or after is None:
        return ("its metric was removed", "") if before else ("", "a metric was added" if after else "")
    (low, high), (new_low, new_high) = _range(before), _range(after)
    if new_low < low or new_high > high:
        return "more values of its metric pass", ""
    return "", "fewer values of its metric pass" if (low, high) != (new_low, new_high) else ""


def _range(metric: Metric) -> tuple[float, float]:
    """Return the interval of values that pass."""
    low, high = metric.target - metric.tolerance, metric.target + metric.tolerance
    if metric.direction == "at_least":
        return low, math.inf
    return (-math.inf, high) if metric.direction == "at_most" else (low, high)
