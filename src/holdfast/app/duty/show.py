"""`holdfast duty list`, `show`, `history`: duties, and what they did."""

from __future__ import annotations

import argparse

import msgspec

from holdfast.app.call import Call, positive
from holdfast.app.compose import open_runtime
from holdfast.app.duty.steer import named
from holdfast.app.wrap import table
from holdfast.clock import SystemClock, local_time
from holdfast.errors import HoldfastError
from holdfast.facts.duty import WEBHOOK, Schedule
from holdfast.kinds.duty.briefing import NOTES
from holdfast.kinds.duty.fold import DutyState
from holdfast.service import duties
from holdfast.service.duties import Entry, Overview
from holdfast.service.event_lines import counted, one_line
from holdfast.service.inbox import span
from holdfast.service.sessions import costs_of
from holdfast.session.money import usd

NOTES_BYTES, NOTES_LINES = 20_000, 40
"""Most of a duty's notes that `show` prints."""

BARS = "▁▂▃▄▅▆▇█"
SPARK_POINTS = 40


def list_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `duty list`."""
    parser.add_argument("--all", action="store_true", help="List removed duties too")
    parser.add_argument("--json", action="store_true", help="Print JSON lines")


async def list_run(call: Call) -> int:
    """List the duties."""
    async with open_runtime(call.settings) as runtime:
        rows = [row async for row in duties.duty_rows(runtime.store, ended=call.args.all)]
        found = [await duties.overview(runtime.store, runtime.store, runtime.kinds, row) for row in rows]
    now_us = SystemClock().now_us()
    if call.json:
        for each in found:
            call.emit(_public(each))
        return 0
    if not found:
        call.say('no duties yet; add one: holdfast every 6h "Check the backups"')
        return 0
    lines = [("DUTY", "SCHEDULE", "NEXT", "LAST", "FIRINGS")]
    for each in found:
        lines.append(
            (
                one_line(each.row.key or each.row.session_id, 32),
                schedule_text(each.duty.schedule),
                _next(each, now_us),
                f"{each.last}, {span(now_us - each.last_us)} ago" if each.last else "-",
                str(each.fired),
            )
        )
    for line in table(lines, (4,)):
        call.say(line)
    return 0


UNTOUCHED = "due"
"""Said of a duty that no process has run yet: it is due, but not late."""


def _next(each: Overview, now_us: int) -> str:
    if each.row.status not in ("runnable", "parked"):
        return "removed"
    if each.held:
        return "stopped"
    if each.next_us is None:
        return "on an event"
    if each.next_us > now_us:
        return f"in {span(each.next_us - now_us)}"
    return f"{span(now_us - each.next_us)} late" if each.row.epoch else UNTOUCHED


def schedule_text(schedule: Schedule | None) -> str:
    """Describe a schedule in a few words."""
    if schedule is None:
        return "events"
    return f"every {span(schedule.every_s * 1_000_000)}" if schedule.every_s else f"{schedule.cron} {schedule.zone}"


def _public(each: Overview) -> dict[str, object]:
    return {
        "session_id": each.row.session_id,
        "name": each.row.key,
        "status": each.row.status,
        "held": each.held,
        "next_us": each.next_us,
        "last": each.last,
        "last_us": each.last_us or None,
        "fired": each.fired,
        "waiting": each.waiting,
        "duty": msgspec.to_builtins(each.duty),
    }


def show_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `duty show`."""
    named(parser)


async def show_run(call: Call) -> int:
    """Show one duty."""
    async with open_runtime(call.settings) as runtime:
        row = await duties.find_duty(runtime.store, call.args.name)
        each = await duties.overview(runtime.store, runtime.store, runtime.kinds, row)
        own = await duties.state_of_duty(runtime.store, runtime.store, runtime.kinds, row)
        cost = (await costs_of(runtime.store, row))[row.session_id]
        notes = ""
        if runtime.shelf is not None:
            kept = (await runtime.shelf.kept(row.session_id)).get(row.session_id, [])
            try:
                notes = (await runtime.shelf.content(kept[-1], NOTES, NOTES_BYTES)).decode(errors="replace")
            except (HoldfastError, IndexError):
                notes = ""  # no firing wrote any yet
    if call.json:
        dead = [{"key": offer.key, "trigger": offer.trigger} for offer in own.dead.values()]
        watched = {"sources": msgspec.to_builtins(own.sources), "alerts": msgspec.to_builtins(own.alerts)}
        call.emit(
            {**_public(each), **watched, "notes": notes, "dead": dead, "missed": own.missed, "skipped": own.skipped}
        )
        return 0
    now_us = SystemClock().now_us()
    misfire = each.duty.schedule.misfire if each.duty.schedule is not None else "-"
    call.say(f"{row.key or row.session_id}  {row.session_id}  definition {own.version}")
    call.say(f"goal      {one_line(own.goal, 200)}")
    call.say(f"schedule  {schedule_text(own.duty.schedule)}; misfire {misfire}; overlap {own.duty.overlap}")
    next_, start = _next(each, now_us), f"`{call.typed('serve')}` or `{call.typed('worker')}`"
    why = each.held or (f"no process has run it yet; start {start}" if next_ == UNTOUCHED else "")
    call.say(f"next      {next_}{f': {why}' if why else ''}")
    call.say(f"firings   {own.fired}; {own.skipped} instants skipped, {own.missed} missed; {len(own.queue)} waiting")
    call.say(f"cost      {cost}")
    for offer in list(own.dead.values())[-10:]:
        call.say(f"dead      {offer.key} of {offer.trigger}; again with: {call.typed('duty', 'replay', row.key)}")
    for line in _watched(own, now_us):
        call.say(line)
    for name, series in own.series.items():
        last = series.points[-1]
        call.say(
            f"{name}  {sparkline([point.value for point in series.points])}  {last.value:g} {series.unit}".rstrip()
        )
    if notes:
        call.say(f"{NOTES}:")
        for line in notes.splitlines()[:NOTES_LINES]:
            call.say(f"  {line}")
    return 0


def _watched(own: DutyState, now_us: int) -> list[str]:
    """Describe the sources of events and the alerts of a duty."""
    lines = []
    for trigger in own.duty.triggers:
        source = own.sources.get(trigger.name)
        read = "takes deliveries" if trigger.kind == WEBHOOK else "not read yet"
        if source is not None:
            read = f"read {span(now_us - source.polled_us)} ago"
            read += f"; {counted(source.failures, 'failure')} in a row: {source.failure}" if source.failure else ""
        lines.append(f"source    {trigger.name} ({trigger.kind}): {one_line(read, 300)}")
    for alert in own.duty.alerts:
        found = own.alerts.get(alert.name)
        said = "not raised"
        if found is not None and found.raised:
            said = f"raised {span(now_us - found.raised_us)} ago, {found.detail}"
            said += "; acknowledged" if found.acknowledged else ""
        lines.append(f"alert     {alert.name}: {one_line(said, 300)}")
    return lines


def history_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `duty history`."""
    named(parser)
    parser.add_argument("--limit", metavar="N", type=positive, default=20, help="Lines to show (default: 20)")


async def history_run(call: Call) -> int:
    """Show the firings of a duty as a table, and each series of values as a line."""
    async with open_runtime(call.settings) as runtime:
        row = await duties.find_duty(runtime.store, call.args.name)
        entries = await duties.history(runtime.store, row, call.args.limit)
        own = await duties.state_of_duty(runtime.store, runtime.store, runtime.kinds, row)
    if call.json:
        for entry in entries:
            call.emit(msgspec.to_builtins(entry))
        return 0
    if not entries:
        call.say(f"{row.key or row.session_id} has not fired yet")
        return 0
    lines: list[tuple[str, ...]] = [("AT", "FIRING", "OUTCOME", "LATE", "TOOK", "COST", "VALUES")]
    lines += [_line(entry) for entry in entries]
    for line in table(lines, (1, 3, 4, 5)):
        call.say(line)
    for name, series in own.series.items():
        values = [point.value for point in series.points]
        call.say(f"{name}  {sparkline(values)}  {min(values):g} to {max(values):g} {series.unit}".rstrip())
    last = entries[-1]
    if text := last.summary or last.detail:
        call.say(f"the last one said: {one_line(text, 400)}")
    return 0


def _line(entry: Entry) -> tuple[str, ...]:
    at = local_time(entry.at_us, "%Y-%m-%d %H:%M:%S")
    if not entry.firing:
        return (at, "-", f"{entry.count} {entry.outcome} ({entry.detail})", "", "", "", "")
    values = ", ".join(f"{each.name}={each.value:g}{each.unit and f' {each.unit}'}" for each in entry.values)
    took = span(entry.took_us) if entry.took_us else ""
    cost = usd(entry.cost_pico) if entry.cost_pico is not None else "-"
    return (at, str(entry.firing), entry.outcome, span(entry.late_us), took, cost, one_line(values, 60))


def sparkline(values: list[float]) -> str:
    """Draw the latest values as a line of bars."""
    shown = values[-SPARK_POINTS:]
    low, high = min(shown), max(shown)
    if low == high:
        return BARS[0] * len(shown)
    return "".join(BARS[round((value - low) / (high - low) * (len(BARS) - 1))] for value in shown)
