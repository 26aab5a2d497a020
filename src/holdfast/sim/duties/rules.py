"""Rules that the log of each simulated duty has to keep, checked without the code of duties."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.duty import (
    MANUAL,
    SCHEDULE,
    Duty,
    FiringEnded,
    ScheduleRewound,
    TriggerDead,
    TriggerFired,
    TriggerMissed,
    TriggerOffered,
    TriggerReplayed,
    TriggerSkipped,
)
from holdfast.facts.people import ApprovalDecided, ApprovalSuperseded, UserPause, UserResume
from holdfast.facts.shift import ChildCancelled, ChildFinished, ShiftEnded, ShiftStarted
from holdfast.sim.duties.calendar import SECOND_US, true_instants

SLACK_US = 4_200 * SECOND_US
"""Most time between something that is due and its event: a brain may be frozen, and held leases are waited for."""

YEAR_US = 365 * 86_400 * SECOND_US
"""Step of the clock in some worlds: what seems to have taken longer did not."""

STEP_US = 61 * SECOND_US
"""Step back of the clock that a schedule waits for."""

MANY = 2_000
"""Instants of a cron expression that one decision handles; later ones follow."""

Found = Iterator[tuple[str, str]]


def judge(duty: Duty, duty_id: str, log: Sequence[Event], accepted: set[str], end_us: int) -> list[str]:
    """Return the violations of one duty, each as rule and words."""
    walk = _Walk(duty, log[0].at_us)
    found: list[str] = []
    for event in log:
        found += [f"{rule}: {duty.name} event {event.seq}: {words}" for rule, words in walk.take(event)]
    found += [f"{rule}: {duty.name}: {words}" for rule, words in walk.close(accepted, end_us)]
    return found


class _Walk:
    """State of the rules along one log. `instants` maps a handled instant to its event."""

    def __init__(self, duty: Duty, since_us: int) -> None:
        self.duty, self.since_us = duty, since_us
        self.floor_us = since_us
        self.instants: dict[int, str] = {}
        self.queue: dict[str, tuple[str, int]] = {}
        self.gone: dict[str, str] = {}
        self.dead: set[str] = set()
        self.running: TriggerFired | None = None
        self.opened_us = self.finished_us = 0
        self.boot = self.opened_boot = ""
        self.failures, self.item, self.held, self.paused = 0, "", False, False
        self.batch: list[Fact] = []
        self.cancelled = self.crowded = False
        self.at_us = self.before_us = self.began_us = since_us

    def take(self, event: Event) -> Found:
        """Follow one more event, and report what it breaks."""
        if event.at_us != self.at_us:  # events of one decision have one time
            self.before_us, self.at_us = self.at_us, event.at_us
        match event.fact:
            case TriggerOffered() as fact:
                yield from self._offered(fact, event)
            case TriggerSkipped() as fact:
                yield from self._skipped(fact)
            case TriggerMissed() as fact:
                self.crowded = self.crowded or len(self._waiting()) >= self.duty.queue_max
                yield from self._missed(fact, event)
            case TriggerFired() as fact:
                yield from self._fired(fact, event)
            case FiringEnded() as fact:
                yield from self._ended(fact)
            case ShiftStarted(boot_id=boot_id):
                self.batch, self.crowded, self.boot, self.began_us = [], False, boot_id, event.at_us
            case ShiftEnded() as fact:
                yield from self._parked(fact, event)
            case _:
                self._follow(event)
        if isinstance(event.fact, TriggerOffered | TriggerSkipped | TriggerMissed):
            self.batch.append(event.fact)

    def _follow(self, event: Event) -> None:
        match event.fact:
            case ScheduleRewound(to_us=to_us):
                self.floor_us = to_us
            case ChildFinished(child_id=child_id) if self.running and child_id == self.running.child_id:
                self.finished_us = self.finished_us or event.at_us
            case ChildCancelled():
                self.cancelled = True
            case TriggerDead(keys=keys):
                self.dead |= set(keys)
                for key in keys:
                    self.queue.pop(key, None)
            case TriggerReplayed(keys=keys):
                for key in set(keys) & self.dead:
                    self.dead.discard(key)
                    self.gone.pop(key, None)
                    self.queue[key] = ("hook", event.at_us)
            case UserPause():
                self.paused = True
            case UserResume():
                self.paused = self.held = False
                self.failures = 0
                self.floor_us = max(self.floor_us, event.at_us)
            case ApprovalDecided(item_id=item_id, verdict=verdict) if item_id == self.item:
                self.item, self.failures, self.held = "", 0, verdict == "deny"
                self.floor_us = max(self.floor_us, event.at_us)
            case ApprovalSuperseded(item_id=item_id) if item_id == self.item:
                self.item = ""
            case _:
                pass

    # --- instants ---

    def _handle(self, instant_us: int, how: str) -> Found:
        schedule = self.duty.schedule
        assert schedule is not None
        if true_instants(schedule, self.since_us, instant_us - 1, instant_us) != [instant_us]:
            yield "calendar", f"{instant_us} is no instant of {self.duty.schedule}"
        if instant_us in self.instants:
            yield "once", f"the instant {instant_us} was {self.instants[instant_us]} and is now {how}"
        self.instants[instant_us] = how

    def _offered(self, fact: TriggerOffered, event: Event) -> Found:
        if fact.key in self.queue or fact.key in self.gone:
            yield "once", f"{fact.key} was offered before"
        queued = self._waiting()
        self.queue[fact.key] = (fact.trigger, event.at_us)
        if fact.trigger != SCHEDULE:
            return
        yield from self._handle(fact.time_us, "offered")
        schedule = self.duty.schedule
        assert schedule is not None
        late_us = event.at_us - fact.time_us
        timely = late_us <= schedule.grace_s * SECOND_US
        if late_us < 0:
            yield "early", f"{fact.time_us} fires {-late_us} us before its time"
        decided_late_us = self.before_us - fact.time_us  # at least: a brain may be frozen before it appends (S2)
        too_late = (
            decided_late_us > (schedule.grace_s + 60) * SECOND_US or late_us > schedule.grace_s * SECOND_US + SLACK_US
        )
        if not timely and schedule.misfire == "skip" and too_late:
            yield "misfire", f"{fact.time_us} fires {late_us / 1e6:.0f} s late in spite of skip"
        if not timely and schedule.misfire == "once":
            decided_us = min(event.at_us, max(self.before_us, self.began_us))  # at least, as above
            missed_us = decided_us - int((schedule.grace_s + 400) * SECOND_US)
            later = true_instants(schedule, self.since_us, fact.time_us, missed_us)
            if [each for each in later if each not in self.instants]:
                yield "misfire", f"{fact.time_us} stands for missed instants, and later ones were missed too"
        if len(queued) >= self.duty.queue_max:
            yield "queue", f"{len(queued) + 1} triggers wait, and {self.duty.queue_max} is the bound"
        if timely and self.duty.overlap == "skip" and (self.running is not None or queued):
            yield "overlap", f"{fact.time_us} is queued during a firing"

    def _waiting(self) -> list[str]:
        return [key for key, (trigger, _) in self.queue.items() if trigger == SCHEDULE]

    def _skipped(self, fact: TriggerSkipped) -> Found:
        if self.instants.get(fact.time_us) == "offered" and str(fact.time_us) in self.queue:
            self.queue.pop(str(fact.time_us))  # replaced by a later instant
            self.gone[str(fact.time_us)] = "skipped"
            if self.duty.overlap != "cancel":
                yield "overlap", f"{fact.time_us} was queued, and is skipped"
            return
        yield from self._handle(fact.time_us, "skipped")
        busy = self.running is not None or self._waiting() or self.duty.overlap == "cancel" or self.batch
        if fact.reason == "overlap" and not busy:
            yield "overlap", f"{fact.time_us} is skipped, and nothing was under way"
        if fact.reason == "queue" and len(self._waiting()) < self.duty.queue_max:
            yield "queue", f"{fact.time_us} is skipped for a full queue with {len(self._waiting())} in it"

    def _missed(self, fact: TriggerMissed, event: Event) -> Found:
        schedule = self.duty.schedule
        assert schedule is not None
        span = true_instants(schedule, self.since_us, fact.first_us - 1, fact.last_us)
        new = [each for each in span if each not in self.instants]
        if len(new) != fact.count:
            yield "counts", f"{fact.count} instants missed from {fact.first_us}, and there were {len(new)}"
        if event.at_us - fact.last_us <= schedule.grace_s * SECOND_US:
            yield "misfire", f"{fact.last_us} counts as missed, and was reached in time"
        self.floor_us = max(self.floor_us, fact.last_us)

    # --- firings ---

    def _fired(self, fact: TriggerFired, event: Event) -> Found:
        if self.running is not None:
            yield "one", f"firing {fact.firing} begins during firing {self.running.firing}"
        if self.held or self.failures >= self.duty.failures_max:
            yield "held", f"firing {fact.firing} begins, and an approver was to be asked"
        if self.paused:
            yield "held", f"firing {fact.firing} begins during a pause"
        if len(fact.keys) > self.duty.batch and fact.trigger not in (SCHEDULE, MANUAL):
            yield "batch", f"firing {fact.firing} has {len(fact.keys)} events"
        oldest = min((self.queue[key][1] for key in fact.keys if key in self.queue), default=0)
        full = len(fact.keys) >= self.duty.batch or fact.trigger in (SCHEDULE, MANUAL)
        if not full and event.at_us < oldest + self.duty.batch_s * SECOND_US:
            yield "batch", f"firing {fact.firing} does not wait for its batch"
        first = next((key for key, (trigger, _) in self.queue.items() if trigger == fact.trigger), "")
        if fact.trigger not in (SCHEDULE, MANUAL) and first not in fact.keys:
            yield (
                "order",
                f"firing {fact.firing} of {fact.trigger or 'no trigger'} leaves out {first}, which waits longer",
            )
        for key in fact.keys:
            if key not in self.queue:
                yield "fired", f"{key} fires, and was {self.gone.get(key, 'never offered')}"
            self.queue.pop(key, None)
            self.gone[key] = "fired"
        self.running, self.opened_us, self.finished_us, self.cancelled = fact, event.at_us, 0, False
        self.opened_boot = self.boot

    def _ended(self, fact: FiringEnded) -> Found:
        running = self.running
        if running is None or running.firing != fact.firing:
            yield "one", f"firing {fact.firing} ends, and was not at work"
            return
        good, silent = fact.outcome == "done", fact.outcome not in ("done", "cancelled")
        if silent and not fact.item_id:
            yield "silent", f"firing {fact.firing} ended {fact.outcome} without an inbox item"
        if good and not fact.summary:
            yield "silent", f"firing {fact.firing} ended without a report"
        if silent and running.trigger not in (SCHEDULE, MANUAL) and not set(running.keys) <= self.dead:
            yield "dead", f"the events of firing {fact.firing} are lost"
        took_us = self.finished_us - self.opened_us
        late = YEAR_US / 2 > took_us > self.duty.timeout_s * SECOND_US + 2 * SLACK_US
        if fact.outcome == "done" and late and self.boot == self.opened_boot:  # a machine that is off cancels nothing
            yield "timeout", f"firing {fact.firing} worked for {took_us / 1e6:.0f} s"
        self.failures = 0 if good else self.failures + (fact.outcome != "cancelled")
        self.item = "" if good else fact.item_id or self.item
        self.running = None

    # --- rest ---

    def _parked(self, fact: ShiftEnded, event: Event) -> Found:
        """Check that all that was due is handled, and that the wake is not later than what is due next."""
        schedule = self.duty.schedule
        if fact.status != "parked":
            return
        if self.running is not None and not self.finished_us and not self.cancelled:
            latest = self.opened_us + int(self.duty.timeout_s * SECOND_US)
            if event.at_us < latest and (fact.due_us is None or fact.due_us > latest):
                yield "timeout", f"firing {self.running.firing} may hang, and nothing looks at its time limit"
        if schedule is None or fact.reason == "person":
            return
        if self.held or self.failures >= self.duty.failures_max:
            return
        jitter_us = int(schedule.jitter_s * SECOND_US)
        due = true_instants(schedule, self.since_us, self.floor_us, event.at_us - jitter_us - SLACK_US)
        left = [each for each in due if each not in self.instants]
        if left:
            yield "handled", f"{len(left)} instants from {left[0]} on were due, and nothing became of them"
        if any(isinstance(each, TriggerMissed) for each in self.batch):
            yield from self._one_for_all(schedule.misfire)
        from_us = max(event.at_us, min(self.floor_us, event.at_us + STEP_US))
        after = true_instants(schedule, self.since_us, from_us, event.at_us + 9 * 86_400 * SECOND_US)
        ahead = next((each for each in after if each not in self.instants), None)
        if ahead is not None and (fact.due_us is None or fact.due_us > ahead + jitter_us):
            yield "wake", f"the next instant is {ahead}, and the session sleeps until {fact.due_us}"
        waiting = [at_us for trigger, at_us in self.queue.values() if trigger not in (SCHEDULE, MANUAL)]
        if waiting and self.running is None:
            latest = min(waiting) + int(self.duty.batch_s * SECOND_US)
            if fact.due_us is None or fact.due_us > latest:
                yield "wake", f"events wait since {min(waiting)}, and the session sleeps until {fact.due_us}"

    def _one_for_all(self, misfire: str) -> Found:
        """Check that one firing stands for all that was missed, if the policy says so."""
        if misfire != "once":
            return
        big = any(isinstance(each, TriggerMissed) and each.count >= MANY for each in self.batch)
        other: list[Any] = [each for each in self.batch if not isinstance(each, TriggerMissed)]
        if not other and not big and not self.crowded:
            yield "misfire", "instants were missed, and no firing stands for them"

    def close(self, accepted: set[str], end_us: int) -> Found:
        """Check what has to be true at the end."""
        lost = [key for key in accepted if key not in self.queue and key not in self.gone and key not in self.dead]
        if lost:
            yield "lost", f"{len(lost)} accepted triggers are gone, such as {lost[0]}"
        if self.finished_us and self.running is not None and end_us - self.finished_us > SLACK_US:
            yield "ended", f"firing {self.running.firing} is over, and its end was never recorded"
        stuck = [key for key, (_, at_us) in self.queue.items() if end_us - at_us > SLACK_US]
        free = self.running is None and not (self.paused or self.held or self.failures >= self.duty.failures_max)
        since_us = max(self.opened_us + self.duty.timeout_s * SECOND_US, self.floor_us)  # a user may free it at the end
        if stuck and free and end_us - since_us > SLACK_US:
            yield "stuck", f"{len(stuck)} triggers wait, and nothing is at work"
