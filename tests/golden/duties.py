"""What schema 9 added for duties."""

from __future__ import annotations

from holdfast.facts.duty import (
    Alert,
    AlertAcknowledged,
    AlertCleared,
    AlertRaised,
    Duty,
    DutyChanged,
    Firing,
    FiringEnded,
    Schedule,
    ScheduleRewound,
    SourcePolled,
    Trigger,
    TriggerDead,
    TriggerFired,
    TriggerMissed,
    TriggerOffered,
    TriggerReplayed,
    TriggerSkipped,
    ValueReported,
)
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.union import AnyFact

AT_US = 1_795_000_000_000_000


def duty(odd: str) -> Duty:
    """A definition with everything set."""
    return Duty(
        name="errors",
        schedule=Schedule(0, "30 2 * * *", "Europe/Berlin", "all", 30.5, 12.5),
        overlap="queue",
        queue_max=7,
        batch=3,
        batch_s=1.5,
        budget_pico=10**12,
        max_turns=9,
        timeout_s=60.5,
        failures_max=2,
        values={"errors": "lines"},
        triggers=(Trigger("inbox", "directory", 30.5, {"path": odd}),),
        alerts=(Alert("many", "errors > 3", "errors < 1", 1.5, 2.5, 3.5, "critical", ("push",)),),
    )


def created(odd: str) -> SessionCreated:
    """A duty with everything set."""
    return SessionCreated(goal=odd, agent=Agent("m"), workspace=Workspace("/srv/work"), duty=duty(odd))


def firing() -> SessionCreated:
    """A firing."""
    return SessionCreated(
        goal="g", agent=Agent("m"), workspace=Workspace("/w"), firing=Firing("ses_duty_full", 1, {"errors": "lines"})
    )


def full(odd: str) -> list[AnyFact]:
    """What a brain appends, everything set."""
    return [
        TriggerOffered(trigger="inbox", key=odd, time_us=AT_US, data={"text": odd, "n": 1}),
        TriggerFired(firing=1, child_id="ses_f", trigger="inbox", keys=(odd,), time_us=AT_US),
        TriggerSkipped(time_us=AT_US, reason="overlap"),
        TriggerMissed(first_us=AT_US, last_us=AT_US + 1, count=2, policy="skip"),
        TriggerDead(keys=(odd,), reason=odd, firing=1),
        ScheduleRewound(from_us=AT_US, to_us=AT_US - 1),
        SourcePolled(trigger="inbox", cursor=odd, failure=odd, more=True, notes=(odd,)),
        FiringEnded(
            firing=1,
            child_id="ses_f",
            outcome="timeout",
            summary=odd,
            detail=odd,
            cost_pico=7,
            turns=2,
            item_id="itm_1",
        ),
        AlertRaised(alert="many", severity="critical", detail=odd, item_id="itm_2"),
        AlertCleared(alert="many", detail=odd),
    ]


def bare() -> list[AnyFact]:
    """What a brain appends, nothing set that can be left out."""
    return [
        TriggerOffered(trigger="schedule", key="1", time_us=AT_US),
        TriggerDead(keys=("k",), reason="r"),
        SourcePolled(trigger="inbox"),
        FiringEnded(firing=1, child_id="ses_f", outcome="done"),
        AlertRaised(alert="a", severity="info", detail=""),
        AlertCleared(alert="a"),
    ]


def posts(odd: str, end: str) -> list[tuple[str, AnyFact]]:
    """What is posted, under its key."""
    whole = end == "full"
    value = ValueReported(firing=1, name="errors", value=1.5)
    if whole:
        value = ValueReported(firing=1, name="errors", value=1.5, unit="lines", note=odd)
    return [
        ("value:ses_f:2.0", value),
        ("changed", DutyChanged(duty=duty(odd), goal=odd) if whole else DutyChanged(duty=Duty("errors"))),
        ("replayed", TriggerReplayed(keys=("k",))),
        ("acknowledged", AlertAcknowledged(alert="many", note=odd) if whole else AlertAcknowledged(alert="many")),
    ]
