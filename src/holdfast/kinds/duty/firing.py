"""Firings: sessions that a duty opens. They may report values, and their last message is their report."""

from __future__ import annotations

import math
from typing import Annotated, Any

import msgspec

from holdfast.facts.base import Rule
from holdfast.facts.duty import Duty, Firing
from holdfast.session.state import State
from holdfast.session.tenant import Kind
from holdfast.session.tools import Tool

REPORT = "report"

RESERVED = frozenset({"outcome", "failures", "spend_usd", "true", "false", "null", "in"})
"""Words of alert expressions, which no value can have as its name."""


class ReportInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Input of `report`."""

    name: Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9_]{0,62}$")]
    value: float | bool
    unit: Annotated[str, msgspec.Meta(max_length=32)] = ""
    note: Annotated[str, msgspec.Meta(max_length=2_000)] = ""


TOOLS = {
    REPORT: Tool(
        REPORT,
        "Report a number of this firing, such as a count or a duration. It is kept with its time, shown to users, and "
        "compared with earlier ones. `name` has lower-case letters, digits, and _; use the same name and unit each "
        "time.",
        ReportInput,
        "retry",
        True,
        main="name",
        where="harness",
    )
}


def rules_of(mine: tuple[Rule, ...], duty: Duty) -> tuple[Rule, ...]:
    """Return the rules of a firing: those of the duty's agent, those of its definition, and that it may report."""
    return (*mine, *duty.rules, Rule(REPORT, "allow"))


def report_problem(firing: Firing, value: dict[str, Any]) -> str:
    """Return why a valid input of `report` is not accepted, as text for the model; empty if it is."""
    name, unit = value["name"], value.get("unit", "")
    if not math.isfinite(value["value"]):
        return "the value is not a finite number"
    if name in RESERVED:
        return f"{name} is a word of alert expressions; use another name"
    if firing.values and name not in firing.values:
        return f"this duty has no value {name}; it has {', '.join(firing.values)}"
    if firing.values and unit not in ("", firing.values[name]):
        return f"the unit of {name} is {firing.values[name] or 'none'}, not {unit}"
    return ""


class FiringKind(Kind[State]):
    """Kind of sessions that a duty opened."""

    name = "firing"
    sources = ("holdfast.kinds.duty.firing",)
    tools = TOOLS


KIND = FiringKind()
