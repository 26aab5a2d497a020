"""What holds for all sessions of a home: its own log, `ses_home`, which never runs."""

from __future__ import annotations

import msgspec

from holdfast.facts.codec import Draft, Event
from holdfast.facts.people import NoticeSent
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import BriefRead, BudgetSet, EmergencyReleased, EmergencyStopped

HOME = "ses_home"
"""The session whose log holds what concerns them all. It is never due, never acquired, never listed."""

HOME_FACTS = (EmergencyStopped, EmergencyReleased, BudgetSet, NoticeSent, BriefRead)
"""What may be posted there."""


class Stop(msgspec.Struct, frozen=True):
    """The emergency stop in force: who said so, when, where it stands in the home's log, and why."""

    seq: int
    at_us: int
    by: str
    reason: str = ""


def home_created() -> Draft:
    """The first event of the home's log. Every home has the same, so whoever posts first may write it."""
    fact = SessionCreated(
        goal="What concerns every session of this home: emergency stops and shared budgets. It never runs.",
        agent=Agent(model="", name="home", tools=()),
        workspace=Workspace(path=""),
    )
    return Draft("evt_00000000000000000000000000", "system", fact)


def home_changes(event: Event, detail: str) -> dict[str, object]:
    """What an event of the home's log changes in its row, whose `detail` holds the stop in force."""
    match event.fact:
        case EmergencyStopped(reason=reason):
            stop = Stop(event.seq, event.at_us, event.actor, reason)
            return {"detail": msgspec.json.encode(stop).decode()}
        case EmergencyReleased(stop_seq=seq):
            stopped = stop_in(detail)
            return {"detail": ""} if stopped is not None and stopped.seq == seq else {}
        case _:
            return {}


def stop_in(detail: str) -> Stop | None:
    """The stop in force by the `detail` of the home's row, None when there is none."""
    return msgspec.json.decode(detail, type=Stop) if detail else None
