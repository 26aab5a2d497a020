"""The log of a home, `ses_home`: emergency stops, shared caps, limits, and removed sessions. It never runs."""

from __future__ import annotations

import msgspec

from holdfast.facts.codec import Draft, Event
from holdfast.facts.people import NoticeSent
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import (
    BriefRead,
    BudgetSet,
    EmergencyReleased,
    EmergencyStopped,
    LimitSet,
    SessionsRemoved,
)
from holdfast.session import limits

HOME = "ses_home"
"""Session id of the home's log. It is never due, acquired, or listed."""

HOME_FACTS = (EmergencyStopped, EmergencyReleased, BudgetSet, LimitSet, NoticeSent, BriefRead, SessionsRemoved)
"""Facts that may be posted to the home's log."""


class Stop(msgspec.Struct, frozen=True):
    """Emergency stop in force: its position in the home's log, time, author, and reason."""

    seq: int
    at_us: int
    by: str
    reason: str = ""


def home_created() -> Draft:
    """Return the first event of the home's log, which is the same for every home."""
    fact = SessionCreated(
        goal="What concerns every session of this home: emergency stops and shared budgets. It never runs.",
        agent=Agent(model="", name="home", tools=()),
        workspace=Workspace(path=""),
    )
    return Draft("evt_00000000000000000000000000", "system", fact)


def home_changes(event: Event, detail: str, marks: str) -> dict[str, object]:
    """Return the changes that an event of the home's log makes to its row.

    Its `detail` holds the stop in force, and its `marks` the limits.
    """
    match event.fact:
        case EmergencyStopped(reason=reason):
            stop = Stop(event.seq, event.at_us, event.actor, reason)
            return {"detail": msgspec.json.encode(stop).decode()}
        case EmergencyReleased(stop_seq=seq):
            stopped = stop_in(detail)
            return {"detail": ""} if stopped is not None and stopped.seq == seq else {}
        case LimitSet() as fact:
            return {"marks": limits.encode(limits.after(limits.decode(marks), fact))}
        case _:
            return {}


def stop_in(detail: str) -> Stop | None:
    """Return the emergency stop in force according to the `detail` of the home's row."""
    return msgspec.json.decode(detail, type=Stop) if detail else None
