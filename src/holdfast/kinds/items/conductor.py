"""Decision of a run over a list: its next action. It is code and calls no model. Pure.

Each decision costs the same for a long list as for a short one: it looks at the works under way and at the next items.
"""

from __future__ import annotations

import math
from itertools import islice

import msgspec

from holdfast.facts.items import ItemPurpose, Items
from holdfast.facts.shift import BreakerClosed, ParkReason
from holdfast.kinds.items.state import QUARANTINE, ItemsState, forecast_after, items_of, items_state
from holdfast.session.actions import Action, CancelChildren, End, Escalate, Record
from holdfast.session.decide import end, providers, waits
from holdfast.session.decide.waits import standing
from holdfast.session.state import State


class Opening(msgspec.Struct, frozen=True):
    """Work to give to a child: a new one, or the idle `child_id` of a rolling context."""

    keys: tuple[str, ...]
    attempt: int
    purpose: ItemPurpose = "work"
    child_id: str = ""


class Advance(msgspec.Struct, frozen=True):
    """Record the outcomes of the children in `over`, and open sessions for more items, in one transaction."""

    over: tuple[str, ...]
    openings: tuple[Opening, ...]


class RunListCommand(msgspec.Struct, frozen=True):
    """Run the command that prints the list, in a sandbox, and add its items."""


class Forecast(msgspec.Struct, frozen=True):
    """Record a forecast of time and cost."""


class Checkpoint(msgspec.Struct, frozen=True):
    """Add the new results to the output, and record that."""


class Reduce(msgspec.Struct, frozen=True):
    """Run the command that reduces the results, in a sandbox."""


class Raise(msgspec.Struct, frozen=True):
    """Let children go on that parked for the budget."""

    child_ids: tuple[str, ...]


class Wait(msgspec.Struct, frozen=True):
    """Wait for the report of a child; park if none comes for a moment."""


ItemsAction = Advance | RunListCommand | Forecast | Checkpoint | Reduce | Raise | Wait


def decide(state: State, now_us: int, *, waited: bool = False) -> Action | ItemsAction:
    """Return the next action. `waited` means that the previous one was `Wait`, and nothing arrived."""
    own, items = items_state(state), items_of(state.created)
    if state.cancelled:
        return _at_rest(own, waits.cancel_first(state) or end(state, "cancelled", detail="cancelled by a person"))
    if state.paused:
        return _at_rest(own, end(state, "parked", "person", waits.STOPPED if state.stop_seq else waits.PAUSED))
    action = waits.expire_or_notify(state, now_us) or _before_the_items(state, own, items)
    if action is not None:
        return action
    if own.lost:
        return CancelChildren(tuple(own.lost))
    stopped = _too_many(state, own, items, now_us)
    return _step(state, own, items, stopped) or _rest(state, own, items, stopped, waited=waited)


def _step(state: State, own: ItemsState, items: Items, stopped: Action | None) -> Action | ItemsAction | None:
    """Return what can be done now; None if the run has to wait, or is over."""
    raised = tuple(name for name, work in own.works.items() if work.waits and work.finished_seq < own.raised_seq)
    if raised:
        return Raise(raised)
    opens = stopped is None and not any(work.waits for work in own.works.values())
    advance = _advance(own, items, opens=opens)
    if advance is not None:
        return advance
    if own.forecast is None and forecast_after(len(own.items)) <= own.ended < len(own.items):
        return Forecast()
    if len(own.unwritten) >= items.every:
        return Checkpoint()
    return stopped if isinstance(stopped, Escalate | Record) else None


def _rest(state: State, own: ItemsState, items: Items, stopped: Action | None, *, waited: bool) -> Action | ItemsAction:
    """Wait for children, the budget, or a user; or finish."""
    working = [name for name, work in own.works.items() if not work.waits]
    if working and not waited:
        return Wait()
    if working:
        names = [state.children[each].name for each in working[:3] if each in state.children]
        return _park(state, "child", f"{len(working)} at work ({', '.join(names)})")
    if stopped is not None:
        return _at_rest(own, stopped)
    if own.works:
        return _at_rest(own, _park(state, "budget", f"the budget is used up: {len(own.works)} items wait for more"))
    return _finish(state, own, items)


def allowed(own: ItemsState, items: Items) -> int:
    """Return how many items may be quarantined before the run parks."""
    return own.accepted + math.floor(items.max_quarantine * len(own.items) + 1e-9)


def summary(own: ItemsState) -> str:
    """Describe the outcome of the run in a few words."""
    parts = [f"{own.done} of {len(own.items)} items done"]
    if own.quarantined:
        parts.append(f"{own.quarantined} quarantined")
    if own.audited:
        parts.append(f"{own.audited} audited, {own.refused} of them refused")
    if own.reduced is not None and not own.reduced.ok:
        parts.append(f"not reduced: {own.reduced.detail}")
    return ", ".join(parts)


def _before_the_items(state: State, own: ItemsState, items: Items) -> Action | ItemsAction | None:
    """Complete the list: all its parts have to be in the log, or its command has to run first."""
    if own.list_problem:
        return end(state, "failed", detail=f"the list cannot be used: {own.list_problem}")
    if items.command and not own.list_ended:
        return RunListCommand()
    if own.listed < items.count:
        detail = f"its list is incomplete ({own.listed} of {items.count} items): run the same command again"
        return end(state, "parked", "person", detail)
    return None


def _too_many(state: State, own: ItemsState, items: Items, now_us: int) -> Action | None:
    """Return the action while too many items are quarantined: ask a user, and wait for the answer."""
    over = own.quarantined > allowed(own, items)
    if state.breaker == QUARANTINE and not over:
        why = "quarantined items are tried again"
        return Record((BreakerClosed(breaker=QUARANTINE, detail=why), *standing(state, "escalation", why)))
    if state.breaker:
        return providers.check_breakers(state, now_us)
    if not over:
        return None
    share = f"{own.quarantined} of {len(own.items)} items are quarantined"
    return Escalate(QUARANTINE, f"{share}, more than {items.max_quarantine * 100:.3g}% of them; no item is lost")


def _advance(own: ItemsState, items: Items, *, opens: bool) -> Advance | None:
    """Return the children to settle, and the works to open in the places that they leave."""
    over = tuple(own.over)
    rolls = items.context == "rolling"
    openings: list[Opening] = []
    room = items.workers - (len(own.works) - len(over)) if opens and not (rolls and over) else 0
    if room > 0:
        openings += [Opening((key,), 1, "audit") for key in islice(own.submitted, room)]
        idle = list(own.idle) if rolls else []
        keys = iter(own.todo)
        while len(openings) < room and (key := next(keys, None)) is not None:
            item = own.items[key]
            several = [key]
            if not item.tries:  # an item that failed in a batch is tried again alone
                several += [each for each in islice(keys, items.batch - 1) if not own.items[each].tries]
            child_id = idle.pop(0) if idle else ""
            openings.append(Opening(tuple(several), item.tries + 1, child_id=child_id))
    return Advance(over, tuple(openings)) if over or openings else None


def _finish(state: State, own: ItemsState, items: Items) -> Action | ItemsAction:
    if own.unwritten or own.rewrite or not own.written:
        return Checkpoint()
    if own.reduced is None and own.done and items.reduce_command:
        return Reduce()
    if own.reduced is None and own.done and items.reduce:
        return Advance((), (Opening((), own.reductions + 1, "reduce"),))
    return end(state, "done", detail=summary(own))


def _at_rest(own: ItemsState, action: Action) -> Action | Checkpoint:
    """Write the results so far before the run stops for long."""
    return Checkpoint() if isinstance(action, End) and (own.unwritten or own.rewrite) else action


def _park(state: State, reason: ParkReason, detail: str) -> End:
    return end(state, "parked", reason, detail, waits.deadline_us(state))
