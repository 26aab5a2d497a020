"""Briefs: of one session or mission, and of all recent activity, in the inbox's groups."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from holdfast.app.call import Call
from holdfast.app.compose import Runtime
from holdfast.app.exits import name_of
from holdfast.app.screen.events import counted, one_line
from holdfast.app.screen.inbox import GROUPS, Entry, look, minute
from holdfast.app.screen.inbox import SHOWN as LOOKED_AT
from holdfast.app.screen.inbox import public as public_entry
from holdfast.app.screen.progress import known_cost
from holdfast.app.settings.values import duration_s
from holdfast.clock import SystemClock, rfc3339
from holdfast.errors import SnapshotFailed, UnknownSession, UsageError
from holdfast.facts.codec import Event
from holdfast.facts.hands import WorkspaceSnapshotted
from holdfast.facts.shift import BriefRead
from holdfast.kinds.mission.brief.brief import Brief, brief
from holdfast.kinds.mission.brief.document import markdown
from holdfast.log.base import Which
from holdfast.session.fold import empty, fold
from holdfast.session.home import HOME
from holdfast.session.money import usd, usd_float
from holdfast.session.rows import SessionRow

EXAMPLES = "8h, 2d, 2026-11-20 or 2026-11-20T08:00"


async def brief_of(runtime: Runtime, row: SessionRow, *, since_us: int | None = None) -> Brief:
    """The brief of a session and its descendants, from `since_us` on if given."""
    events = await runtime.store.read(row.session_id)
    state = fold(empty(row.session_id, runtime.kinds), events)
    running = row.session_id in await runtime.store.holders()
    changed = await _changed(runtime, events) if state.tenant.kind.branch(state) is None else ()
    return brief(events, state, await logs_below(runtime, row), since_us=since_us, running=running, changed=changed)


async def _changed(runtime: Runtime, events: Sequence[Event]) -> tuple[str, ...]:
    """The files that differ between the first and the last workspace snapshot of a session."""
    kept = [event.fact.snapshot for event in events if isinstance(event.fact, WorkspaceSnapshotted)]
    names = [snapshot for snapshot in kept if snapshot]
    if len(names) < 2 or names[0] == names[-1] or runtime.shelf is None:
        return ()
    try:
        found = await runtime.shelf.changes(names[0], names[-1])
    except SnapshotFailed:
        return ()
    return tuple(each.path for each in found if not each.ignored)


async def pull_request_body(runtime: Runtime, row: SessionRow) -> str:
    """The brief of a mission for the reviewers of its branch.

    It contains nothing specific to this machine; text by an agent in it mentions no user and closes no issue.
    """
    told = await brief_of(runtime, row)
    text = markdown(msgspec.structs.replace(told, repo=""))
    return re.sub(r"([@#])(?=\w)", r"\1 ", text)


async def logs_below(runtime: Runtime, row: SessionRow) -> list[Sequence[Event]]:
    """The logs of all sessions below one, oldest first."""
    rows = list(reversed(await runtime.store.sessions(Which(root=row.root))))
    below: list[Sequence[Event]] = []
    parents = {row.session_id}
    for each in rows:  # a child is always younger than its parent
        if each.parent in parents:
            parents.add(each.session_id)
            below.append(await runtime.store.read(each.session_id))
    return below


async def since_of(runtime: Runtime, row: SessionRow, text: str) -> int:
    """The time of --since in microseconds since 1970. A bare number is an event of the session."""
    if not text.isdecimal():
        return moment(text, SystemClock().now_us())
    seq = int(text) if len(text) <= 18 else 0
    found = await runtime.store.read(row.session_id, after=seq - 1, limit=1) if 0 < seq <= row.head else []
    if not found:
        raise UsageError(
            f"--since {text}: {name_of(row)} has no such event, its last one is {row.head}; or name a time: {EXAMPLES}"
        )
    return found[0].at_us


def moment(text: str, now_us: int) -> int:
    """Convert a time to microseconds since 1970: a span before now, or a day or time, in UTC without a zone."""
    if re.fullmatch(r"\d+(\.\d+)?[smhdw]?", text) and not text.isdecimal():
        return now_us - int(_stretch(text) * 1_000_000)
    try:
        value = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--since {text}: that is no time; write one such as {EXAMPLES}") from error
    at_us = int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1_000_000)
    if at_us > now_us:
        raise UsageError(f"--since {text}: that is yet to come, so nothing has happened since; for example: {EXAMPLES}")
    return at_us


def _stretch(text: str) -> float:
    try:
        return duration_s(text)
    except ValueError as error:
        raise UsageError(f"--since {text}: {error}; write it such as {EXAMPLES}") from error


DEFAULT_US = 24 * 3_600 * 1_000_000
"""Default period that the brief covers, in microseconds."""

SHOWN = 12
"""Maximum number of entries shown per group."""


async def show_all(call: Call, runtime: Runtime) -> int:
    """Print the recent activity by group."""
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
    if not call.args.since:  # --since may skip activity that the user has not read yet
        await runtime.intake.post(HOME, BriefRead(through_us=now_us))
    return 0


async def _asked(runtime: Runtime) -> int | None:
    """The time up to which this user has read briefs, None if never."""
    try:
        events = await runtime.store.read(HOME)
    except UnknownSession:  # the home has no events yet
        return None
    mine = (event.fact for event in reversed(events) if event.actor == runtime.intake.actor)
    return next((fact.through_us for fact in mine if isinstance(fact, BriefRead)), None)


def _which(call: Call, asked_us: int | None) -> str:
    if call.args.since:
        return ""
    return ", when you last asked" if asked_us else ", the last 24 hours: you have not asked before"


async def _entries(runtime: Runtime, since_us: int, limit: int | None) -> list[Entry]:
    """Open items, and the root sessions of trees that changed. Their descendants are in their own briefs."""
    return [
        entry
        for entry in await look(runtime, since_us, limit=limit)
        if entry.item is not None
        or (not entry.row.parent and max(row.updated_us for row in await _family(runtime, entry)) > since_us)
    ]


async def _family(runtime: Runtime, entry: Entry) -> list[SessionRow]:
    """The session of an entry and, if it is a root, all sessions below it."""
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
