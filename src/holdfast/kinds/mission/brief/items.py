"""Parts of the brief of a run over a list: how it stands, its output, and its quarantined items. Pure."""

from __future__ import annotations

from holdfast.facts.base import Fact
from holdfast.facts.items import (
    ItemAudited,
    ItemEnded,
    ItemFailed,
    ItemQuarantined,
    ItemsAdded,
    ItemsCheckpoint,
    ItemsForecast,
    ItemsReduced,
    ItemsRemoved,
    ItemsRetried,
)
from holdfast.kinds.items.state import ItemsState, forecast_error, items_of, rest
from holdfast.kinds.mission.brief.document import Example, Line, Option, Tree, counted, lined, of, plain
from holdfast.session.state import State

MOVES = (ItemsAdded, ItemsRemoved, ItemsRetried, ItemEnded, ItemFailed, ItemQuarantined, ItemAudited)
"""Events that change how many items are done, quarantined, or left."""


def run_of(state: State) -> ItemsState | None:
    """Return the state of a run over a list; None for another session."""
    own = state.tenant.own
    return own if isinstance(own, ItemsState) else None


def stands(tree: Tree, state: State, own: ItemsState) -> tuple[Line, ...]:
    """Return the counts of items, the forecast, the output, and the reduction."""
    left = numbers(own)["items_left"]
    text = f"{own.done} of {counted(len(own.items), 'item')} done, {own.quarantined} quarantined, {left} left"
    text += f"; {own.failed_tries} tries failed" if own.failed_tries else ""
    text += f"; {own.audited} audited, {own.refused} of them refused" if own.audited else ""
    more = ("items", "show", tree.name)
    found = [Line("items", text, evidence=tuple(of(event) for event in tree.events(*MOVES)[-1:]), more=more)]
    texts: dict[type[Fact], str] = {
        ItemsForecast: rest(own) or forecast_error(own),
        ItemsCheckpoint: f"{counted(own.lines, 'result')} in {plain(items_of(state.created).out)}",
        ItemsReduced: "" if own.reduced is None else f"reduced: {plain(own.reduced.result, 200)}",
    }
    if own.reduced is not None and not own.reduced.ok:
        texts[ItemsReduced] = f"not reduced: {plain(own.reduced.detail, 200)}"
    for kind, text in texts.items():
        if text and (events := tree.events(kind)):
            found.append(Line("items", text, evidence=(of(events[-1]),), more=more))
    return tuple(line for line in found if line.evidence)


def quarantined(tree: Tree, own: ItemsState) -> tuple[Line, ...]:
    """Return the quarantined items with their reasons."""
    examples = []
    for key, item in own.items.items():
        event = tree.top.at(item.failed_seq) if item.status == "quarantined" else None
        if event is not None:
            why = event.fact.why if isinstance(event.fact, ItemAudited) else getattr(event.fact, "reason", "")
            examples.append(Example(f"{plain(key, 60)}: {why} ({counted(item.tries, 'try', 'tries')})", (of(event),)))
    return lined("quarantined", "quarantined items", examples, ("items", "show", tree.name))


def again(tree: Tree) -> Option:
    """Return the option of a run that asks because too many items are quarantined."""
    commands = (("items", "retry", tree.name, "--quarantined"), ("wake", tree.name))
    return Option("try again", commands, "it tries all quarantined items again")


def numbers(own: ItemsState) -> dict[str, int | None]:
    """Return the counts of items."""
    left = len(own.items) - own.done - own.quarantined
    return {
        "items": len(own.items), "items_done": own.done, "items_quarantined": own.quarantined, "items_left": left,
        "items_failed_tries": own.failed_tries,
    }  # fmt: skip
