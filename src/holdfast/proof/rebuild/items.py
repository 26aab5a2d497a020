"""Group the bodies of a library into items of a contract, by the tests that need them.

Each step takes the cheapest test: of all tests that do not pass yet, the one that lacks the fewest lines. Steps of the
same files are merged up to a size, as long as no cycle results. A test then belongs to the item whose body it is most
specific to, and that item depends on the items with the other bodies that its tests need. So these tests pass as soon
as the dependencies are merged, even if other items are missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from holdfast.proof.rebuild.probe import Needs
from holdfast.proof.rebuild.stripped import Whole

ITEMS_WANTED = 16
"""Approximate number of items of a library; a small one gets fewer."""

BODIES_LEAST = 3
"""Minimum number of bodies in an item, if the order allows."""


class Cluster(msgspec.Struct, frozen=True):
    """Subject of one criterion: a class or the functions of a file, and their tests.

    With `rubric`, only a judge decides; the tests are then only for the report.
    """

    name: str
    tests: tuple[str, ...]
    rubric: bool = False


class WorkItem(msgspec.Struct, frozen=True):
    """Bodies that one worker writes, by number, and their tests. `depends` are names of other items."""

    name: str
    title: str
    bodies: tuple[int, ...]
    files: tuple[str, ...]
    depends: tuple[str, ...]
    clusters: tuple[Cluster, ...]


@dataclass
class _Step:
    """Item under construction."""

    bodies: set[int] = field(default_factory=set)
    founders: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)
    depends: set[int] = field(default_factory=set)
    lines: int = 0


def make_items(whole: Whole, needs: Needs, *, wanted: int = ITEMS_WANTED) -> tuple[WorkItem, ...]:
    """Make the items, each after its dependencies. Bodies that no test needs join their neighbors."""
    heights = [block.true.count("\n") + 1 for block in whole.bodies]
    steps = _merged(_steps(needs, heights), whole, heights, wanted)
    _rest(steps, whole)
    about = _assigned(steps, needs)
    order = _ordered(steps)
    names = {step: f"W{place:02d}" for place, step in enumerate(order, 1)}
    return tuple(_item(steps[step], names[step], names, whole, about) for step in order)


def _assigned(steps: Mapping[int, _Step], needs: Needs) -> dict[str, int]:
    """Assign each test to the step of the body that it is most specific to; return that body of each test.

    That is the body with the fewest tests or, if a cycle would result, the next best one. The test that founded a step
    stays there, so that every step has one.
    """
    owner = {body: step for step in steps for body in steps[step].bodies}
    telling: dict[str, list[int]] = {test: [] for test in needs.entered}
    for body, tests in sorted(needs.told.items(), key=lambda each: (len(each[1]), each[0])):
        for test in tests & telling.keys():
            telling[test].append(body)
    about: dict[str, int] = {}
    founded = {test: number for number, step in steps.items() for test in step.founders}
    for test in sorted(needs.entered, key=lambda test: (test not in founded, len(needs.entered[test]))):
        bodies = needs.entered[test]
        owners = {owner[body] for body in bodies}
        for body in [*telling[test], *sorted(bodies - set(telling[test]))]:
            step = owner[body]
            if founded.get(test, step) != step:
                continue
            if test in founded or not any(step in _closure(steps, other) for other in owners - {step}):
                about[test] = body
                steps[step].tests.append(test)
                steps[step].depends |= owners - {step}
                break
    return about


def _steps(needs: Needs, heights: list[int]) -> list[_Step]:
    """Make one step for each cheapest test."""
    lacking = {test: set(bodies) for test, bodies in needs.entered.items() if bodies}
    owner: dict[int, int] = {}
    steps: list[_Step] = []
    while lacking:
        cheapest = min(lacking, key=lambda test: sum(heights[body] for body in lacking[test]))
        step = _Step(set(lacking[cheapest]), [cheapest])
        for body in step.bodies:
            owner[body] = len(steps)
        for test in list(lacking):
            lacking[test] -= step.bodies
            if not lacking[test]:
                del lacking[test]
        step.depends = {owner[body] for body in needs.entered[cheapest]} - {len(steps)}
        step.lines = sum(heights[body] for body in step.bodies)
        steps.append(step)
    return steps


def _merged(steps: list[_Step], whole: Whole, heights: list[int], wanted: int) -> dict[int, _Step]:
    """Merge each step into an earlier one of the same file that is not full, if no cycle results."""
    cap = max(40, sum(heights) // max(1, wanted))
    kept: dict[int, _Step] = {}
    now: dict[int, int] = {}
    for number, step in enumerate(steps):
        depends = {now[other] for other in step.depends}
        files = Counter(whole.bodies[body].file for body in step.bodies)
        target = _target(kept, step, depends, files, whole, cap)
        if target is None:
            kept[number] = _Step(step.bodies, step.founders, [], depends, step.lines)
            now[number] = number
            continue
        into = kept[target]
        into.bodies |= step.bodies
        into.founders += step.founders
        into.depends |= depends - {target}
        into.lines += step.lines
        now[number] = target
    return kept


def _target(
    kept: Mapping[int, _Step], step: _Step, depends: set[int], files: Counter[str], whole: Whole, cap: int
) -> int | None:
    best: tuple[int, int] | None = None
    for number, other in kept.items():
        small = len(other.bodies) < BODIES_LEAST or len(step.bodies) == 1
        if other.lines + step.lines > (2 * cap if small else cap):
            continue
        if not files.keys() <= {whole.bodies[body].file for body in other.bodies}:
            continue
        if any(number in _closure(kept, each) for each in depends - {number}):
            continue
        added = len((depends - {number}) - _closure(kept, number))
        if best is None or (added, -number) < best:
            best = added, -number
    return None if best is None else -best[1]


def _closure(steps: Mapping[int, _Step], start: int) -> set[int]:
    found: set[int] = set()
    waiting = [start]
    while waiting:
        for other in steps[waiting.pop()].depends - found:
            found.add(other)
            waiting.append(other)
    return found


def _rest(steps: dict[int, _Step], whole: Whole) -> None:
    """Add bodies that no test needs to the step with the most bodies of their file."""
    owned = {body for step in steps.values() for body in step.bodies}
    for number, block in enumerate(whole.bodies):
        if number not in owned:
            shares = {
                place: sum(whole.bodies[body].file == block.file for body in step.bodies)
                for place, step in steps.items()
            }
            steps[max(shares, key=lambda place: (shares[place], place))].bodies.add(number)


def _ordered(steps: Mapping[int, _Step]) -> list[int]:
    """Sort the steps topologically; merging may have made an earlier one depend on a later one."""
    order: list[int] = []
    left = dict(steps)
    while left:
        ready = [number for number, step in left.items() if step.depends <= set(order)]
        order += ready
        for number in ready:
            del left[number]
    return order


def _item(step: _Step, name: str, names: Mapping[int, str], whole: Whole, about: Mapping[str, int]) -> WorkItem:
    bodies = tuple(sorted(step.bodies))
    files = tuple(sorted({whole.bodies[body].file for body in bodies}))
    found: dict[str, list[str]] = {}
    for test in step.tests:
        found.setdefault(_group(whole, about[test]), []).append(test)
    clusters = tuple(Cluster(group, tuple(tests)) for group, tests in found.items())
    depends = tuple(sorted(names[other] for other in step.depends))
    groups = list(dict.fromkeys(_group(whole, body) for body in bodies))
    return WorkItem(name, "; ".join(groups), bodies, files, depends, clusters)


def _group(whole: Whole, body: int) -> str:
    """Return the class of a body, or the functions of its file."""
    block = whole.bodies[body]
    first = block.functions[0]
    return f"{block.file}: {first.split('.')[0] if '.' in first else 'functions'}"


def there_with(item: WorkItem, items: Sequence[WorkItem]) -> set[int]:
    """Return all bodies that exist when an item is done: its own, and those of its transitive dependencies."""
    known = {each.name: each for each in items}
    names, waiting = {item.name}, [item]
    while waiting:
        for name in waiting.pop().depends:
            if name not in names:
                names.add(name)
                waiting.append(known[name])
    return {body for name in names for body in known[name].bodies}


def with_tests(item: WorkItem, tests: Collection[str]) -> WorkItem:
    """Return the item with these tests alone."""
    clusters = [
        msgspec.structs.replace(cluster, tests=tuple(test for test in cluster.tests if test in tests))
        for cluster in item.clusters
    ]
    return msgspec.structs.replace(item, clusters=tuple(cluster for cluster in clusters if cluster.tests))
