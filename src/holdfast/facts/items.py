"""Work by the item: a list, the tries at each item, results, checkpoints, and the reduction at the end."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.task import Run

ItemContext = Literal["fresh", "rolling"]
"""Context of an item: a session of its own, or one that goes on from item to item and hands off when it is full."""

ItemPurpose = Literal["work", "audit", "reduce"]


class Items(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Instructions of a run over a list of `count` items.

    `each` is the prompt of an item, with its fields in braces. `schema` is the JSON schema of a result, empty for text.
    `run` are the checks of an item's session. `workers` items are worked on at a time, `batch` in one session, each at
    most `tries` times. A checkpoint follows `every` results: they are added to the file `out`. The run parks once more
    than the share `max_quarantine` is quarantined. A `judge`, or without one the agent's model, audits the share
    `audit` of the results. `command` prints the list in a sandbox. At the end, `reduce` is the prompt of an agent, or
    `reduce_command` a command, with all results in its folder. `own_workspace` gives each session a new folder.
    """

    each: str
    count: int = 0
    out: str = ""
    schema: dict[str, Any] = {}
    key: str = ""
    run: Run = Run()
    workers: int = 4
    batch: int = 1
    tries: int = 3
    every: int = 50
    max_quarantine: float = 0.05
    context: ItemContext = "fresh"
    audit: float = 0.0
    judge: str = ""
    command: str = ""
    reduce: str = ""
    reduce_command: str = ""
    own_workspace: bool = True


class ItemWork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Work of a session for a run over a list: its items, or the audit or reduction that it does.

    `schema` is the complete JSON schema of its output, empty for none.
    """

    run_id: str
    purpose: ItemPurpose = "work"
    keys: tuple[str, ...] = ()
    schema: dict[str, Any] = {}


class ItemData(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One item of the list: its key, unique in the run, and its fields."""

    key: str
    fields: dict[str, Any]


class ItemsAdded(Fact, frozen=True, tag="items.added"):
    """Items were added. With `replace`, an item whose key exists is changed and worked on again; otherwise it stays.

    `listed` marks the items of the run's own list, of which there are `Items.count`, or those that its command printed.
    """

    wakes = True
    reopens = True

    items: tuple[ItemData, ...]
    replace: bool = False
    listed: bool = False


class ItemsListed(Fact, frozen=True, tag="items.listed"):
    """The command of the list ended with that number of items, or could not be used because of `problem`."""

    count: int = 0
    problem: str = ""


class ItemsRemoved(Fact, frozen=True, tag="items.removed"):
    """Items were removed from the list. Results of theirs leave the output at the next checkpoint."""

    wakes = True
    reopens = True

    keys: tuple[str, ...]


class ItemsRetried(Fact, frozen=True, tag="items.retried"):
    """Quarantined items are tried again, with all their tries; no keys means all of them."""

    wakes = True
    reopens = True

    keys: tuple[str, ...] = ()


class ItemStarted(Fact, frozen=True, tag="item.started"):
    """A session was opened for items, or got them as its next ones, in the same transaction. `attempt` counts from 1.

    Without keys, it reduces the results.
    """

    child_id: str
    attempt: int
    purpose: ItemPurpose
    keys: tuple[str, ...] = ()


class ItemEnded(Fact, frozen=True, tag="item.ended"):
    """An item has a valid result. With `audit`, a judge looks at it before it counts."""

    key: str
    child_id: str
    attempt: int
    result: Any
    cost_pico: int | None = None
    duration_ms: int = 0
    audit: bool = False


class ItemFailed(Fact, frozen=True, tag="item.failed"):
    """A try at an item failed; the item is tried again unless it was changed or removed meanwhile."""

    key: str
    child_id: str
    attempt: int
    reason: str
    cost_pico: int | None = None


class ItemQuarantined(Fact, frozen=True, tag="item.quarantined"):
    """The last try at an item failed; the run goes on without it."""

    key: str
    child_id: str
    attempt: int
    reason: str
    cost_pico: int | None = None


class ItemAudited(Fact, frozen=True, tag="item.audited"):
    """A judge looked at the result of an item. A refused result does not count, and the item is tried again.

    `unknown` means that the judge gave no verdict; the result then counts.
    """

    key: str
    child_id: str
    ok: bool
    why: str = ""
    unknown: bool = False
    cost_pico: int | None = None


class ItemsCheckpoint(Fact, frozen=True, tag="items.checkpoint"):
    """The output holds every result up to `through_seq`, one on a line; `sha256` is its digest in hex."""

    through_seq: int
    lines: int
    size: int
    sha256: str
    quarantined: int = 0


class ItemsForecast(Fact, frozen=True, tag="items.forecast"):
    """Forecast for the whole list after the first `after` items; the cost is None if it is unknown."""

    after: int
    count: int
    seconds: float
    cost_pico: int | None = None


class ItemsReduced(Fact, frozen=True, tag="items.reduced"):
    """The reduction ended: its result, or why it failed."""

    ok: bool
    result: str = ""
    detail: str = ""
    child_id: str = ""
    cost_pico: int | None = None
