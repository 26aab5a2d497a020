"""State of a run over a list, and what follows from it: the audited sample and the forecast."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from holdfast.facts.items import ItemPurpose, Items, ItemsForecast, ItemsReduced
from holdfast.facts.session import SessionCreated
from holdfast.session.money import usd
from holdfast.session.state import State

QUARANTINE = "quarantine"
"""Breaker that opens when more items than allowed are quarantined."""


class ItemState(msgspec.Struct, gc=False, array_like=True):
    """One item of the list: number `place` of the `items.added` at `seq`.

    `child_id` is the session at work on it, `ended_seq` its latest result, `failed_seq` its latest failure. `index` is
    its position in the run's own list, from 0; -1 for an item that was added later. `cost_pico` is of all its tries,
    None if it is unknown.
    """

    seq: int
    place: int
    status: Literal["todo", "running", "submitted", "done", "quarantined"] = "todo"
    tries: int = 0
    child_id: str = ""
    ended_seq: int = 0
    failed_seq: int = 0
    index: int = -1
    cost_pico: int | None = 0


class Work(msgspec.Struct):
    """Work of a child. `keys` are the items whose outcome is still open.

    `finished_seq` is its report, 0 until it has one; `waits` means that the report asks for more budget. `cost_pico` is
    what the child had cost before, None for an unknown cost.
    """

    keys: list[str]
    attempt: int
    purpose: ItemPurpose
    seq: int
    at_us: int
    finished_seq: int = 0
    waits: bool = False
    cost_pico: int | None = 0


class ItemsState(msgspec.Struct):
    """State of a run over a list.

    `todo` are the items without a session, in order; `submitted` those whose results wait for an audit. `works` are the
    open works by child; `over` are children with a report that is not handled, `lost` those whose items were changed or
    removed, `idle` those of a rolling context that wait for an item, with their cost. `unwritten` are results that the
    output lacks; `rewrite` means that it holds one that no longer counts, or has another order. `written` means that
    there is a checkpoint. `accepted` quarantined items were accepted by a user. `spent_pico` and `busy_ms` are of all
    tries. `listed` counts the items of the run's own list. `raised_seq` is when the budget was raised last, `added` the
    times of the `items.added` by position.
    """

    items: dict[str, ItemState] = {}
    todo: dict[str, None] = {}
    submitted: dict[str, None] = {}
    works: dict[str, Work] = {}
    over: list[str] = []
    lost: list[str] = []
    idle: dict[str, int | None] = {}
    unwritten: list[int] = []
    rewrite: bool = False
    written: bool = False
    lines: int = 0
    size: int = 0
    sha256: str = ""
    done: int = 0
    quarantined: int = 0
    accepted: int = 0
    failed_tries: int = 0
    audited: int = 0
    refused: int = 0
    spent_pico: int = 0
    unpriced: bool = False
    ended: int = 0
    began_us: int = 0
    ended_us: int = 0
    listed: int = 0
    list_ended: bool = False
    list_problem: str = ""
    forecast: ItemsForecast | None = None
    reduced: ItemsReduced | None = None
    reductions: int = 0
    raised_seq: int = 0
    added: dict[int, int] = {}

    def spend(self, cost_pico: int | None) -> None:
        """Add the cost of a try, None for an unknown one."""
        self.unpriced = self.unpriced or cost_pico is None
        self.spent_pico += cost_pico or 0


def items_of(created: SessionCreated | None) -> Items:
    """Return the instructions of a run over a list."""
    assert created is not None
    assert created.items is not None
    return created.items


def items_state(state: State) -> ItemsState:
    """Return the state of a run over a list."""
    own = state.tenant.own
    assert isinstance(own, ItemsState)
    return own


def is_audited(key: str, run_id: str, share: float) -> bool:
    """Return True for an item of the audited sample, which is drawn by a digest of its key and the run."""
    drawn = int.from_bytes(hashlib.sha256(f"{run_id} {key}".encode()).digest()[:8], "big")
    return drawn < share * 2**64


# --- the forecast ------------------------------------------------------------------------------------

FORECAST_AFTER = 20
"""Items after which time and cost are forecast; a fifth of a short list."""


class Outlook(msgspec.Struct, frozen=True):
    """Expected rest of a run: seconds and pico-dollars, None if unknown."""

    seconds: float
    cost_pico: int | None


def forecast_after(count: int) -> int:
    """Return the number of items after which the rest is forecast."""
    return max(1, min(FORECAST_AFTER, count // 5))


def outlook(own: ItemsState) -> Outlook | None:
    """Return the expected rest of a run, from its pace so far; None before the first forecast."""
    left = len(own.items) - own.done - own.quarantined
    if own.ended < forecast_after(len(own.items)) or not own.ended:
        return None
    each_s = (own.ended_us - own.began_us) / own.ended / 1e6
    return Outlook(each_s * left, None if own.unpriced else own.spent_pico * left // own.ended)


def rest(own: ItemsState) -> str:
    """Describe the expected rest, such as `about 12 min and $0.50 to go`; empty without items left or a forecast."""
    found = outlook(own)
    if found is None or own.done + own.quarantined == len(own.items):
        return ""
    cost = f" and {usd(found.cost_pico)}" if found.cost_pico is not None else ""
    minutes = found.seconds / 60
    lasting = (
        f"{found.seconds:.0f} s" if minutes < 1.5 else f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
    )
    return f"about {lasting}{cost} to go"


def errors(own: ItemsState) -> tuple[float | None, float | None]:
    """Return the shares by which the forecast of time and cost was off, None where that is not known."""
    forecast = own.forecast
    if forecast is None or forecast.count != len(own.items) or own.done + own.quarantined < len(own.items):
        return None, None
    cost_pico = None if own.unpriced else forecast.cost_pico
    seconds = (own.ended_us - own.began_us) / 1e6
    return (
        seconds / forecast.seconds - 1 if forecast.seconds else None,
        own.spent_pico / cost_pico - 1 if cost_pico else None,
    )


def forecast_error(own: ItemsState) -> str:
    """Describe by how much the forecast was off; empty while that is not known."""
    seconds, cost = errors(own)
    if seconds is None:
        return ""
    of_cost = f", of the cost by {cost:+.0%}" if cost is not None else ""
    return f"the forecast of the time was off by {seconds:+.0%}{of_cost}"
