"""Contract of a mission on a stripped library: items of bodies, with their tests as checks."""

from __future__ import annotations

import random
import shlex
from collections.abc import Collection, Sequence

import msgspec

from holdfast.facts.mission import Check, Contract, Criterion, Item
from holdfast.kinds.mission.contract.protected import protected
from holdfast.proof.rebuild.items import WorkItem
from holdfast.proof.rebuild.library import Library, suite_prefix

CHECK_TIMEOUT_S = 300.0


class Criteria(msgspec.Struct, frozen=True):
    """Criterion with the tests that prove it. With `rubric` it has no check, and a judge decides."""

    id: str
    item: str
    name: str
    tests: tuple[str, ...]
    rubric: bool


def make_criteria(items: Sequence[WorkItem], rubric_share: float, seed: int) -> tuple[Criteria, ...]:
    """Make a criterion for each cluster of tests; `rubric_share` of them without a check."""
    places = [(item, number) for item in items for number in range(len(item.clusters))]
    chosen = set(random.Random(f"{seed}|rubric").sample(range(len(places)), round(rubric_share * len(places))))
    return tuple(
        Criteria(
            f"{item.name}.{number + 1}",
            item.name,
            item.clusters[number].name,
            item.clusters[number].tests,
            place in chosen,
        )
        for place, (item, number) in enumerate(places)
    )


def make_contract(
    library: Library,
    items: Sequence[WorkItem],
    criteria: Sequence[Criteria],
    known: Collection[str],
    guards: Sequence[str],
) -> Contract:
    """Make the contract. `known` are all tests of the suite, so that names can be shortened; `guards` pass already."""
    prefix = suite_prefix(library)
    made: list[Item] = []
    for item in items:
        own = tuple(_criterion(each, prefix, known) for each in criteria if each.item == item.name)
        if own:
            made.append(
                Item(
                    id=item.name,
                    description=f"{item.name}: write the missing bodies of {item.title}",
                    category="functional",
                    criteria=own,
                    paths=item.files,
                    depends=_closed(item, items, criteria),
                    priority=len(made) + 1,
                )
            )
    if guards and made:
        guard = Criterion("G.1", "What passed before goes on to pass", Check(prefix, shortened(guards, known)), True)
        made[0] = msgspec.structs.replace(made[0], criteria=(*made[0].criteria, guard))
    return Contract(
        goal=f"Every function of the library {library.name} {library.version} has lost its body. Write them again, so "
        "that the library's own tests pass.",
        items=tuple(made),
        protected=protected(more=(f"{library.layout.tests_root}/**",)),
    )


def _criterion(each: Criteria, prefix: str, known: Collection[str]) -> Criterion:
    if each.rubric:
        return Criterion(
            each.id, f"{each.name}: each function does what its name, its docstring and its callers ask for"
        )
    check = Check(prefix, shortened(each.tests, known), timeout_s=CHECK_TIMEOUT_S)
    return Criterion(each.id, f"{each.name}: its {len(each.tests)} tests pass", check)


def _closed(item: WorkItem, items: Sequence[WorkItem], criteria: Sequence[Criteria]) -> tuple[str, ...]:
    """Return the dependencies of an item that have criteria."""
    named = {each.item for each in criteria}
    return tuple(name for name in item.depends if name in named)


def shortened(tests: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """Return the shortest list of names for these tests: a test's name covers all its parameters."""
    wanted = set(tests)
    groups: dict[str, list[str]] = {}
    for test in known:
        groups.setdefault(_plain(test), []).append(test)
    found: dict[str, None] = {}
    for test in tests:
        plain = _plain(test)
        found[plain if wanted.issuperset(groups.get(plain, [test])) else test] = None
    return tuple(found)


def _plain(test: str) -> str:
    return test.partition("[")[0]


def commands(library: Library, items: Sequence[WorkItem], known: Collection[str]) -> dict[str, str]:
    """Return the final command of each item's worker: all tests of the item."""
    tests = {item.name: [test for cluster in item.clusters for test in cluster.tests] for item in items}
    return {name: f"{suite_prefix(library)} {shlex.join(shortened(own, known))}" for name, own in tests.items() if own}
