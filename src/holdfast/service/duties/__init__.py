"""Use cases about duties: list, show, history, and requests of users."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from holdfast.brain.recall import recall
from holdfast.errors import UsageError
from holdfast.facts.codec import Event
from holdfast.facts.duty import (
    MANUAL,
    AlertAcknowledged,
    Duty,
    DutyChanged,
    FiringEnded,
    TriggerFired,
    TriggerMissed,
    TriggerOffered,
    TriggerReplayed,
    TriggerSkipped,
    ValueReported,
)
from holdfast.kinds import DUTY
from holdfast.kinds.duty.conductor import held_detail, is_held, next_us
from holdfast.kinds.duty.fold import DutyState, duty_of
from holdfast.log.base import Index, Log, Snapshots, Which, each_session
from holdfast.log.base import PostReceipt as Receipt
from holdfast.service.intake import Intake
from holdfast.session.rows import SessionRow
from holdfast.session.state import Kinds

PAGE = 1_000


class Value(msgspec.Struct, frozen=True):
    """A reported value."""

    at_us: int
    firing: int
    name: str
    value: float
    unit: str
    note: str


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a history: a firing, or instants that did not fire.

    `outcome` is that of a firing, `running` while it works, and `skipped` or `missed` for instants; `count` is their
    number. `late_us` is how much later than its instant or event a firing was opened.
    """

    at_us: int
    outcome: str
    firing: int = 0
    child_id: str = ""
    trigger: str = ""
    late_us: int = 0
    took_us: int = 0
    count: int = 1
    summary: str = ""
    detail: str = ""
    cost_pico: int | None = None
    values: tuple[Value, ...] = ()


class Overview(msgspec.Struct, frozen=True):
    """A duty in a list: its row, definition, next instant, last outcome, and why it does not fire, if it does not."""

    row: SessionRow
    duty: Duty
    next_us: int | None
    last: str
    last_us: int
    fired: int
    waiting: int
    held: str


async def duty_rows(index: Index, *, ended: bool = False) -> AsyncIterator[SessionRow]:
    """Iterate over the duties, newest first; with `ended`, also those that were removed."""
    async for row in each_session(index, Which(top=True, words=(DUTY,))):
        if row.name == DUTY and not row.origin and (ended or row.status not in ("cancelled", "done", "failed")):
            yield row


async def find_duty(index: Index, name: str) -> SessionRow:
    """Return the duty of that name or id. Raises `UnknownSession`, or `UsageError` for another kind of session."""
    row = await index.find(name)
    if row.name != DUTY or row.parent or row.origin:
        raise UsageError(f"{row.key or row.session_id} is not a duty; `holdfast duty list` lists them")
    return row


async def state_of_duty(log: Log, snapshots: Snapshots, kinds: Kinds, row: SessionRow) -> DutyState:
    """Return the folded state of a duty."""
    state, _ = await recall(row.session_id, log, snapshots, kinds)
    own = duty_of(state)
    if own is None:
        raise UsageError(f"{row.key or row.session_id} is not a duty; `holdfast duty list` lists them")
    return own


async def overview(log: Log, snapshots: Snapshots, kinds: Kinds, row: SessionRow) -> Overview:
    """Return a duty as lists show it."""
    own = await state_of_duty(log, snapshots, kinds, row)
    last = own.ended[-1] if own.ended else None
    idle = row.status not in ("runnable", "parked") or row.reason == "person" or is_held(own)
    return Overview(
        row=row,
        duty=own.duty,
        next_us=None if idle else next_us(own, row.session_id),
        last=last.outcome if last else "",
        last_us=last.at_us if last else 0,
        fired=own.fired,
        waiting=len(own.queue),
        held=held_detail(own) if is_held(own) else row.detail if row.reason == "person" else "",
    )


async def history(log: Log, row: SessionRow, limit: int) -> list[Entry]:
    """Return the latest firings, and the instants between them that did not fire; oldest first."""
    events: list[Event] = []
    last = row.head
    while last > 0:
        first = max(0, last - PAGE)
        events = [*await log.read(row.session_id, after=first, limit=last - first), *events]
        last = first
        if sum(isinstance(event.fact, TriggerFired | TriggerMissed) for event in events) > limit:
            break
    return _entries(events)[-limit:]


def _entries(events: Sequence[Event]) -> list[Entry]:
    entries: list[Entry] = []
    place: dict[int, int] = {}
    for event in events:
        match event.fact:
            case TriggerFired() as fired:
                place[fired.firing] = len(entries)
                entries.append(
                    Entry(
                        at_us=event.at_us,
                        outcome="running",
                        firing=fired.firing,
                        child_id=fired.child_id,
                        trigger=fired.trigger,
                        late_us=max(0, event.at_us - fired.time_us),
                        count=len(fired.keys),
                    )
                )
            case ValueReported() as fact if fact.firing in place:
                entry = entries[place[fact.firing]]
                value = Value(event.at_us, fact.firing, fact.name, fact.value, fact.unit, fact.note)
                entries[place[fact.firing]] = msgspec.structs.replace(entry, values=(*entry.values, value))
            case FiringEnded() as ended if ended.firing in place:
                entry = entries[place[ended.firing]]
                entries[place[ended.firing]] = msgspec.structs.replace(
                    entry,
                    outcome=ended.outcome,
                    summary=ended.summary,
                    detail=ended.detail,
                    cost_pico=ended.cost_pico,
                    took_us=max(0, event.at_us - entry.at_us),
                )
            case TriggerSkipped(time_us=at_us, reason=reason):
                before = entries[-1] if entries else None
                if before is not None and (before.outcome, before.detail) == ("skipped", reason):
                    entries[-1] = msgspec.structs.replace(before, count=before.count + 1)
                else:
                    entries.append(Entry(at_us=at_us, outcome="skipped", detail=reason))
            case TriggerMissed(first_us=first_us, count=count, policy=policy):
                entries.append(Entry(at_us=first_us, outcome="missed", count=count, detail=f"misfire {policy}"))
            case _:
                pass
    return entries


# --- requests of users -------------------------------------------------------------------------------------


async def run_now(intake: Intake, row: SessionRow, key: str = "") -> Receipt:
    """Ask for a firing now. With a `key`, a second request of that key is dropped."""
    _check_active(row)
    now_us = intake.clock.now_us()
    fact = TriggerOffered(trigger=MANUAL, key=f"{MANUAL}:{key or now_us}", time_us=now_us)
    return await intake.post(row.session_id, fact, f"offer:{MANUAL}:{key}" if key else "")


async def change(intake: Intake, row: SessionRow, duty: Duty, goal: str) -> Receipt:
    """Change the definition of a duty; it holds from the next firing on."""
    _check_active(row)
    return await intake.post(row.session_id, DutyChanged(duty=duty, goal=goal))


async def acknowledge(
    intake: Intake, row: SessionRow, own: DutyState, alerts: Sequence[str], note: str
) -> tuple[str, ...]:
    """Acknowledge these alerts, or all that are raised and not acknowledged yet. Return their names."""
    raised = [name for name, alert in own.alerts.items() if alert.raised]
    unknown = [name for name in alerts if name not in raised]
    if unknown or not raised:
        said = f"has no raised alert {unknown[0]!r}" if unknown else "has no raised alert"
        raise UsageError(f"{row.key} {said}; nothing was changed. See: holdfast duty show {row.key}")
    chosen = tuple(alerts or raised)
    for name in chosen:
        await intake.post(row.session_id, AlertAcknowledged(alert=name, note=note))
    return chosen


async def replay(intake: Intake, row: SessionRow, own: DutyState, keys: Sequence[str]) -> tuple[str, ...]:
    """Put dead events back into the queue: those of `keys`, or all that fit. Return their keys."""
    _check_active(row)
    unknown = [key for key in keys if key not in own.dead]
    if unknown:
        raise UsageError(f"{row.key} has no dead event {unknown[0]!r}; `holdfast duty show {row.key}` lists them")
    room = max(0, own.duty.queue_max - len(own.queue))
    chosen = tuple(keys or own.dead)[:room]
    if not chosen:
        raise UsageError(f"{row.key} has {'no dead events' if not own.dead else 'a full queue'}; nothing was changed")
    await intake.post(row.session_id, TriggerReplayed(keys=chosen))
    return chosen


def _check_active(row: SessionRow) -> None:
    if row.status in ("cancelled", "done", "failed"):
        raise UsageError(f"the duty {row.key or row.session_id} was removed; add it again under another name")
