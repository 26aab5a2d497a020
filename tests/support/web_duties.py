"""A duty with a history of firings, values, and an instant that was missed, for a home of pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.facts.duty import (
    SCHEDULE,
    Duty,
    FiringEnded,
    Schedule,
    TriggerFired,
    TriggerMissed,
    TriggerOffered,
    ValueReported,
)
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.shift import ShiftEnded
from holdfast.kinds import DUTY
from holdfast.session.money import HOME_ACCOUNT, PICO

if TYPE_CHECKING:
    from tests.support.web_home import WebHome

HOUR_US = 3_600 * 1_000_000

SIZES_GB = (41.2, 41.9, 0.0, 42.6, 43.1, 44.0)
"""Size of the backup that each firing reports; the one without a backup fails."""


async def write_duty(made: WebHome) -> None:
    """Write a duty that fired every six hours. Its sessions are removed; its next instant is hours away."""
    duty = Duty("nightly-backups", schedule=Schedule(every_s=6 * 3_600), values={"size": "GB"})
    first_us = made.now_us - 44 * HOUR_US
    made.clock.at_us = first_us
    created = SessionCreated(
        goal="Check that the last backup of each database restores, and report its size",
        agent=Agent("anthropic:claude-sonnet-5", DUTY),
        workspace=Workspace("/srv/backups"),
        key=duty.name,
        duty=duty,
        accounts=("ses_backups", HOME_ACCOUNT),
    )
    duty_id = await made.create("ses_backups", created)
    for number, size in enumerate(SIZES_GB, 1):
        instant_us = first_us + 1_000_000 + 6 * (number + (number > 4)) * HOUR_US  # the fifth instant is missed
        made.clock.at_us = instant_us
        child, key = f"ses_backup{number}", str(instant_us)
        await made.tell(duty_id, TriggerOffered(trigger=SCHEDULE, key=key, time_us=instant_us))
        fired = TriggerFired(firing=number, child_id=child, trigger=SCHEDULE, keys=(key,), time_us=instant_us)
        await made.tell(duty_id, fired)
        made.clock.at_us += (40 + 7 * number) * 1_000_000
        if size:
            await made.tell(duty_id, ValueReported(firing=number, name="size", value=size, unit="GB"))
        ended = FiringEnded(
            firing=number,
            child_id=child,
            outcome="done" if size else "failed",
            summary="All three databases restore." if size else "",
            detail="" if size else "the model refused 3 requests in a row: invalid_request",
            cost_pico=PICO // 25,
            turns=4,
        )
        await made.tell(duty_id, ended)
        if number == 4:
            late_us = instant_us + 6 * HOUR_US
            await made.tell(duty_id, TriggerMissed(first_us=late_us, last_us=late_us, count=1, policy="once"))
    due_us = first_us + 1_000_000 + 6 * (len(SIZES_GB) + 2) * HOUR_US
    await made.tell(
        duty_id, ShiftEnded(status="parked", reason="timer", detail="waits for its next instant", due_us=due_us)
    )
    await made.store.release(made.leases.pop(duty_id))
