"""The written definition of done: items, their criteria, and how each is checked."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.facts.base import Fact


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number that a command prints on its last line, and what it has to be.

    `direction` says on which side of `target` is good; `tolerance` is how far off it may be, in the metric's own unit.
    """

    target: float
    tolerance: float = 0.0
    direction: Literal["at_least", "at_most", "equal"] = "at_least"


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command that tells whether a criterion is met: by its exit status, or by the number that it prints.

    `tests`, when there are any, are appended to the command. Checks with the same command can be run together then:
    when that passes, each of them does; when it does not, they are run one by one.

    `canary`, for a command whose runner is unknown, is a command that has to fail in the same tree: the same program on
    input that is wrong, named after `$CANARY`.
    """

    command: str
    tests: tuple[str, ...] = ()
    metric: Metric | None = None
    timeout_s: float = 600.0
    canary: str | msgspec.UnsetType = msgspec.UNSET


class Criterion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that has to hold. Without a check it is a rubric line, which a judge answers with evidence.

    A `guard` held before the work began and must go on to hold: an existing suite, say. With `needs_run` a
    judge cannot tell by reading: only a command that the judge ran shows that it holds.
    """

    id: str
    text: str
    check: Check | None = None
    guard: bool = False
    needs_run: bool = False


class Item(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of a feature list: what is wanted and when it counts as done. A lower `priority` comes first.

    `paths` are globs of what it is about, `depends` the ids of items that come before it; both may be empty.
    """

    id: str
    description: str
    category: str = ""
    steps: tuple[str, ...] = ()
    priority: int = 0
    criteria: tuple[Criterion, ...] = ()
    paths: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()


class Contract(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a mission has to reach. `protected` are globs of what no worker may change: tests, configuration of tests
    and CI, the contract itself. `source` is the path of the file it was read from, relative to the repository. What
    matches `hidden` is in no checkout of a worker, planner or judge; checks that name it are run with it.
    """

    goal: str
    items: tuple[Item, ...]
    protected: tuple[str, ...] = ()
    source: str = ""
    hidden: tuple[str, ...] = ()

    def criteria(self) -> dict[str, Criterion]:
        """All criteria by id, in the order of the items."""
        return {criterion.id: criterion for item in self.items for criterion in item.criteria}


class ContractSealed(Fact, frozen=True, tag="contract.sealed"):
    """The contract counts from here on. `digest` is over its canonical bytes, `pristine` over the protected files."""

    digest: str
    items: int
    criteria: int
    author: str = ""


class ContractAmended(Fact, frozen=True, tag="contract.amended"):
    """The contract was changed by a person, or made stricter. `weakened` are the criteria that became weaker or went.

    `item_id` is the item in the inbox by which a person allowed that.
    """

    wakes = True

    contract: Contract
    digest: str
    author: str
    reason: str = ""
    weakened: tuple[str, ...] = ()
    item_id: str = ""
