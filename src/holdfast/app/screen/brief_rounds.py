"""`holdfast brief` without a session: everything that moved since, in the inbox's four groups."""

from __future__ import annotations

from holdfast.app.call import Call
from holdfast.app.compose import Runtime
from holdfast.app.exits import name_of
from holdfast.app.screen.briefs import moment
from holdfast.app.screen.inbox import GROUPS, Entry, minute
from holdfast.app.screen.inbox import public as public_entry
from holdfast.app.screen.looking import SHOWN as LOOKED_AT
from holdfast.app.screen.looking import look
from holdfast.app.screen.progress import counted, known_cost, one_line
from holdfast.clock import SystemClock, rfc3339
from holdfast.errors import UnknownSession
from holdfast.facts.shift import BriefRead
from holdfast.log.base import Which
from holdfast.session.home import HOME
from holdfast.session.money import usd, usd_float
from holdfast.session.rows import SessionRow

DEFAULT_US = 24 * 3_600 * 1_000_000
"""How far back it looks when nobody says."""

SHOWN = 12
"""So many entries of a group are shown."""


async def show_all(call: Call, runtime: Runtime) -> int:
    """Tell what moved, by group."""
    now_us = SystemClock().now_us()
    asked_us = None if call.args.since else await _asked(runtime)
    since_us = moment(call.args.since, now_us) if call.args.since else asked_us or now_us - DEFAULT_US
    entries = await _entries(runtime, since_us, limit=None if call.json else LOOKED_AT)
    if call.json:
        for entry in entries:
            cost = _usd(await _family(runtime, entry))
            call.emit({**public_entry(entry), "type": "brief", "events": entry.row.head, "cost_usd": cost})
        return 0
    call.say(f"# What moved since {minute(since_us)}{_which(call, asked_us)}")
    for group in GROUPS:
        mine = [entry for entry in entries if entry.group == group]
        if not mine:
            continue
        call.say(f"\n## {group.capitalize()} ({len(mine)})\n")
        for entry in mine[:SHOWN]:
            call.say(f"- {_line(call, entry, await _family(runtime, entry))}")
        if len(mine) > SHOWN:
            more = call.typed("ps", "--all") if group != "needs you" else call.typed("inbox")
            call.say(f"- and {len(mine) - SHOWN} more: `{more}`")
    if not entries:
        call.say(f"\nNothing did. `{call.typed('ps', '--all')}` lists all sessions.")
    if not call.args.since:  # a script that looks has told nobody, and who names a time may skip some
        await runtime.intake.post(HOME, BriefRead(through_us=now_us))
    return 0


async def _asked(runtime: Runtime) -> int | None:
    """When this person was last told, None for never."""
    try:
        events = await runtime.store.read(HOME)
    except UnknownSession:  # nothing has concerned the home yet
        return None
    mine = (event.fact for event in reversed(events) if event.actor == runtime.intake.actor)
    return next((fact.through_us for fact in mine if isinstance(fact, BriefRead)), None)


def _which(call: Call, asked_us: int | None) -> str:
    if call.args.since:
        return ""
    return ", when you last asked" if asked_us else ", the last 24 hours: you have not asked before"


async def _entries(runtime: Runtime, since_us: int, limit: int | None) -> list[Entry]:
    """What waits for a user, and the tops of trees that moved: what is below them is in their own briefs."""
    return [
        entry
        for entry in await look(runtime, since_us, limit=limit)
        if entry.item is not None
        or (not entry.row.parent and max(row.updated_us for row in await _family(runtime, entry)) > since_us)
    ]


async def _family(runtime: Runtime, entry: Entry) -> list[SessionRow]:
    """The session of an entry and, where it is a top, all sessions below it."""
    return await runtime.store.sessions(Which(root=entry.row.session_id)) or [entry.row]


def _line(call: Call, entry: Entry, family: list[SessionRow]) -> str:
    row = entry.row
    name = one_line(entry.name or name_of(row), 60)
    if entry.item is not None:
        item = entry.item.item
        return (
            f"{name}: {one_line(entry.item.request.title, 90)} [{row.session_id} e{item.seq}] "
            f"`{call.typed('approve', item.item_id)}`"
        )
    size = f"{counted(len(family), 'session')}, " if len(family) > 1 else ""
    return (
        f"{name}: {one_line(entry.title, 60)}, {size}{_cost(family)}; {one_line(row.goal, 60)} "
        f"[{row.session_id} e{row.head}, {rfc3339(row.updated_us)[:16]}Z] `{call.typed('brief', name_of(row))}`"
    )


def _cost(family: list[SessionRow]) -> str:
    known = [cost for row in family if (cost := known_cost(row)) is not None]
    if len(known) == len(family):
        return usd(sum(known))
    return f"at least {usd(sum(known))}" if sum(known) else "unknown cost"


def _usd(family: list[SessionRow]) -> float | None:
    known = [known_cost(row) for row in family]
    return usd_float(None if None in known else sum(cost or 0 for cost in known))
