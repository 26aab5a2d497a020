"""Lines for the events of runs over a list, as in `event_lines`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.facts import items
from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.session.money import usd

LINES: dict[type[Fact], Callable[[Any, Event], str]] = {
    items.ItemsAdded: lambda fact, _: f"{len(fact.items)} items {'changed or added' if fact.replace else 'added'}",
    items.ItemsListed: lambda fact, _: f"the list cannot be used: {fact.problem}" if fact.problem else "",
    items.ItemsRemoved: lambda fact, _: f"{len(fact.keys)} items removed",
    items.ItemsRetried: lambda fact, _: f"{len(fact.keys) or 'all'} quarantined items are tried again",
    items.ItemStarted: lambda fact, _: "",
    items.ItemEnded: lambda fact, _: f"{fact.key}: {fact.result}",
    items.ItemFailed: lambda fact, _: f"{fact.key}: try {fact.attempt} failed: {fact.reason}",
    items.ItemQuarantined: lambda fact, _: f"{fact.key} is quarantined after {fact.attempt} tries: {fact.reason}",
    items.ItemAudited: lambda fact, _: (
        f"audit of {fact.key}: {'not judged' if fact.unknown else 'good' if fact.ok else 'refused'}: {fact.why}"
    ),
    items.ItemsCheckpoint: lambda fact, _: f"checkpoint: {fact.lines} results, {fact.quarantined} quarantined",
    items.ItemsForecast: lambda fact, _: (
        f"forecast after {fact.after} of {fact.count} items: {fact.seconds:.0f} s"
        + (f", {usd(fact.cost_pico)}" if fact.cost_pico is not None else "")
    ),
    items.ItemsReduced: lambda fact, _: f"reduced: {fact.result}" if fact.ok else f"not reduced: {fact.detail}",
}
"""Event type → line; an empty line is not shown."""
