"""Duties: standing orders whose firings are child sessions, with what they report and the alerts about it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.facts.base import Fact, Rule

Misfire = Literal["skip", "once", "all"]
"""Treatment of instants that were missed because nothing ran: none fires, one firing for all, each fires."""

Overlap = Literal["skip", "queue", "cancel"]
"""Treatment of an instant that is due during a firing: it is skipped, it waits, or the firing is cancelled for it."""

Severity = Literal["info", "warning", "critical"]

WEBHOOK = "webhook"
"""Kind of a trigger whose events are sent to the server, signed with its secret."""

SCHEDULE, MANUAL, MESSAGE = "schedule", "run-now", "message"
"""Triggers that every duty may have: its schedule, `duty run-now`, and a message of a user."""


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Instants at which a duty is due: every `every_s` seconds since it was added, or a `cron` expression in `zone`.

    An instant that is reached more than `grace_s` late was missed, and `misfire` applies. `jitter_s` delays each
    instant by up to that, always the same for one instant.
    """

    every_s: int = 0
    cron: str = ""
    zone: str = "UTC"
    misfire: Misfire = "once"
    grace_s: float = 60.0
    jitter_s: float = 0.0


class Trigger(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A source of events: `kind` names it, `settings` are its own. It is polled every `every_s`; 0 for never."""

    name: str
    kind: str
    every_s: float = 60.0
    settings: dict[str, Any] = {}


class Alert(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Condition on reported values, outcomes, and spend.

    The alert is raised once `when` held for `hold_s`, and cleared once `clear` held for `clear_hold_s`; an empty
    `clear` means that `when` is false. It is not raised again within `cooldown_s`. `route` are the targets to notify.
    """

    name: str
    when: str
    clear: str = ""
    hold_s: float = 0.0
    clear_hold_s: float = 0.0
    cooldown_s: float = 0.0
    severity: Severity = "warning"
    route: tuple[str, ...] = ("inbox",)


class Duty(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Definition of a duty. `schedule` is None for one that only events trigger.

    At most `queue_max` triggers wait; `batch` events make one firing, or fewer once the oldest waited `batch_s`. A
    firing has a budget and turns of its own, and ends after `timeout_s`. The duty stops for an approver after
    `failures_max` failed firings in a row. `values` maps the names that firings may report to their units; empty
    allows any. `rules` judge the calls of firings, after the rules of the agent; the last match wins.
    """

    name: str
    schedule: Schedule | None = None
    overlap: Overlap = "skip"
    queue_max: int = 100
    batch: int = 1
    batch_s: float = 0.0
    budget_pico: int | None = None
    max_turns: int = 100
    timeout_s: float = 21_600.0
    failures_max: int = 3
    values: dict[str, str] = {}
    triggers: tuple[Trigger, ...] = ()
    alerts: tuple[Alert, ...] = ()
    rules: tuple[Rule, ...] = ()


class Firing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Place of a firing: its duty, its number there, and the values that it may report, as in `Duty`."""

    duty_id: str
    number: int
    values: dict[str, str] = {}


class DutyChanged(Fact, frozen=True, tag="duty.changed"):
    """A user changed the definition of a duty. It holds from the next firing on; `goal` is empty if unchanged."""

    wakes = True

    duty: Duty
    goal: str = ""


class TriggerOffered(Fact, frozen=True, tag="trigger.offered"):
    """A trigger waits for a firing: an instant of the schedule, an event of a source, or a request of a user.

    `key` identifies it within the duty. `time_us` is the instant, or the time of the event; `data` is its content.
    """

    wakes = True

    trigger: str
    key: str
    time_us: int
    data: dict[str, Any] = {}


class TriggerFired(Fact, frozen=True, tag="trigger.fired"):
    """A firing was opened for these waiting triggers, in the same transaction as its session (S4)."""

    firing: int
    child_id: str
    trigger: str
    keys: tuple[str, ...]
    time_us: int


class TriggerSkipped(Fact, frozen=True, tag="trigger.skipped"):
    """An instant of the schedule was due in time but did not fire: a firing was under way, or the queue was full."""

    time_us: int
    reason: Literal["overlap", "queue"]


class TriggerMissed(Fact, frozen=True, tag="trigger.missed"):
    """Instants of the schedule from `first_us` to `last_us` were reached too late and do not fire, by `policy`."""

    first_us: int
    last_us: int
    count: int
    policy: Misfire


class TriggerDead(Fact, frozen=True, tag="trigger.dead"):
    """Events that no firing handled, with the reason. A user may replay them."""

    keys: tuple[str, ...]
    reason: str
    firing: int = 0


class TriggerReplayed(Fact, frozen=True, tag="trigger.replayed"):
    """A user put dead events back into the queue."""

    wakes = True

    keys: tuple[str, ...]


class ScheduleRewound(Fact, frozen=True, tag="schedule.rewound"):
    """The clock was set back from `from_us` to `to_us`: the schedule goes on from there; no instant fires twice."""

    from_us: int
    to_us: int


class SourcePolled(Fact, frozen=True, tag="source.polled"):
    """A source was read up to `cursor`, in the same transaction as its events; or `failure` says why not.

    `more` means that other events wait in the source. `notes` tell of what it delivered and that is no event.
    """

    trigger: str
    cursor: str = ""
    failure: str = ""
    more: bool = False
    notes: tuple[str, ...] = ()


class FiringEnded(Fact, frozen=True, tag="firing.ended"):
    """A firing is over: with a report, or with an inbox item about its failure.

    `summary` is the last message of the agent, as data; `detail` the reason of a failure, `item_id` the inbox item.
    """

    firing: int
    child_id: str
    outcome: Literal["done", "failed", "cancelled", "timeout", "stopped", "silent"]
    summary: str = ""
    detail: str = ""
    cost_pico: int | None = None
    turns: int = 0
    item_id: str = ""


class ValueReported(Fact, frozen=True, tag="value.reported"):
    """A firing reported a value. Posted by the transaction that answered its call, once per call."""

    wakes = True

    firing: int
    name: str
    value: float
    unit: str = ""
    note: str = ""


class AlertRaised(Fact, frozen=True, tag="alert.raised"):
    """The condition of an alert holds. `item_id` is its inbox item, empty without one."""

    alert: str
    severity: Severity
    detail: str
    item_id: str = ""


class AlertCleared(Fact, frozen=True, tag="alert.cleared"):
    """The condition of an alert no longer holds."""

    alert: str
    detail: str = ""


class AlertAcknowledged(Fact, frozen=True, tag="alert.acknowledged"):
    """A user acknowledged an alert: it stays silent until it was cleared."""

    wakes = True

    alert: str
    note: str = ""
