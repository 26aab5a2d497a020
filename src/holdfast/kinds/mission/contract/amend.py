"""What becomes of a sealed contract when it is changed: which criteria become weaker or go, which stricter. Pure.

A change counts as weaker unless it can be seen to demand no less: whoever weakens is a person, and a word too many
asked of them costs less than a criterion that went unseen.
"""

from __future__ import annotations

import math

import msgspec

from holdfast.facts.contract import Check, Contract, Criterion, Item, Metric

GOAL = "goal"
PROTECTED = "protected "
HIDDEN = "hidden "
"""Before a glob: the name under which a part of the contract stands that is no criterion."""


class Amendment(msgspec.Struct, frozen=True):
    """What a change does. `weaker` and `stricter` map criteria to what it is that changed; `added` are new criteria.

    Beside ids of criteria there may be `goal`, and `protected GLOB`. `reworded` are items and criteria whose words
    alone are others.
    """

    weaker: dict[str, str]
    stricter: dict[str, str]
    added: tuple[str, ...] = ()
    reworded: tuple[str, ...] = ()

    @property
    def needs_person(self) -> bool:
        """Whether a person has to allow it."""
        return bool(self.weaker)

    @property
    def changes(self) -> bool:
        """Whether anything is another at all, but for the order of work."""
        return bool(self.weaker or self.stricter or self.added or self.reworded)


def compare(before: Contract, after: Contract) -> Amendment:
    """What the second contract demands less and more than the first."""
    old, new = before.criteria(), after.criteria()
    weaker: dict[str, str] = {}
    stricter: dict[str, str] = {}
    reworded: list[str] = []
    for name, criterion in old.items():
        if name not in new:
            weaker[name] = "it is gone"
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
        weaker[GOAL] = "the goal is another"
    gone = [glob for glob in before.protected if glob not in after.protected]
    weaker |= {f"{PROTECTED}{glob}": "it is protected no more" for glob in gone}
    fresh = [glob for glob in after.protected if glob not in before.protected]
    stricter |= {f"{PROTECTED}{glob}": "it is protected" for glob in fresh}
    weaker |= {f"{HIDDEN}{glob}": "it is hidden no more" for glob in before.hidden if glob not in after.hidden}
    stricter |= {f"{HIDDEN}{glob}": "it is hidden" for glob in after.hidden if glob not in before.hidden}
    return Amendment(weaker, stricter, tuple(name for name in new if name not in old), tuple(reworded))


def _items(before: Contract, after: Contract, weaker: dict[str, str], reworded: list[str]) -> None:
    """A judge reads what an item says: other words there may ask less of each of its rubric lines."""
    now = {item.id: item for item in after.items}
    for item in before.items:
        other = now.get(item.id)
        if other is None or _words(item) == _words(other):
            continue
        lines = [each.id for each in item.criteria if each.check is None and each.id not in weaker]
        weaker.update(dict.fromkeys(lines, f"the words of {item.id} are others"))
        if not lines:
            reworded.append(item.id)


def _words(item: Item) -> tuple[str, tuple[str, ...]]:
    return item.description, item.steps


def _criterion(before: Criterion, after: Criterion) -> tuple[str, str]:
    """What makes a criterion weaker, and what stricter; empty for nothing of that kind."""
    if before.guard != after.guard:
        return "it is no guard any more" if before.guard else "it is taken for granted now, as a guard", ""
    if before.check is None or after.check is None:
        if before.check is not None:
            return "its check is gone", ""
        if after.check is not None:
            return "a command decides now and no judge", ""
        if before.needs_run and not after.needs_run:
            return "a judge may pass it without running anything", ""
        return ("its text is another", "") if before.text != after.text else ("", "")
    return _check(before.check, after.check)


def _check(before: Check, after: Check) -> tuple[str, str]:
    if before.command != after.command:
        return "its command is another", ""
    if before.tests != after.tests:
        lost = [test for test in before.tests if test not in after.tests]
        if lost or not before.tests:
            return f"tests are left out: {', '.join(lost)}" if lost else "only some of its tests count", ""
    less, more = _metric(before.metric, after.metric)
    if less:
        return less, ""
    if after.timeout_s > before.timeout_s:
        return f"it may take {after.timeout_s:g} s instead of {before.timeout_s:g}", ""
    if len(after.tests) > len(before.tests):
        more = more or "more tests count"
    if after.timeout_s < before.timeout_s:
        more = more or f"it may take {after.timeout_s:g} s and no longer {before.timeout_s:g}"
    return "", more


def _metric(before: Metric | None, after: Metric | None) -> tuple[str, str]:
    if before is None or after is None:
        return ("its number does not count any more", "") if before else ("", "a number counts too" if after else "")
    (low, high), (new_low, new_high) = _range(before), _range(after)
    if new_low < low or new_high > high:
        return "more values of its number are good enough", ""
    return "", "fewer values of its number are good enough" if (low, high) != (new_low, new_high) else ""


def _range(metric: Metric) -> tuple[float, float]:
    """The values that are good enough."""
    low, high = metric.target - metric.tolerance, metric.target + metric.tolerance
    if metric.direction == "at_least":
        return low, math.inf
    return (-math.inf, high) if metric.direction == "at_most" else (low, high)
