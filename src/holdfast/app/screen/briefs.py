"""Briefs: of one session or mission, and of all recent activity, in the inbox's groups."""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from holdfast.app.call import Call
from holdfast.app.compose import Runtime
from holdfast.app.exits import name_of
from holdfast.app.screen.inbox import public
from holdfast.app.settings.values import duration_s
from holdfast.clock import SystemClock
from holdfast.errors import UsageError
from holdfast.facts.shift import BriefRead
from holdfast.kinds.mission.brief.document import markdown
from holdfast.service.briefs import Moved, brief_of, moved, read_through
from holdfast.service.event_lines import counted, one_line
from holdfast.service.inbox import GROUPS, minute
from holdfast.service.inbox import SHOWN as LOOKED_AT
from holdfast.session.home import HOME
from holdfast.session.rows import SessionRow

EXAMPLES = "8h, 2d, 2026-11-20 or 2026-11-20T08:00"


async def pull_request_body(runtime: Runtime, row: SessionRow) -> str:
    """The brief of a mission for the reviewers of its branch.

    It contains nothing specific to this machine; text by an agent in it mentions no user and closes no issue.
    """
    told = await brief_of(runtime.store, runtime.kinds, runtime.shelf, row)
    text = markdown(msgspec.structs.replace(told, repo=""))
    return re.sub(r"([@#])(?=\w)", r"\1 ", text)


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
    """Convert a time to microseconds since 1970: a span before now, or a day or time, in local time without a zone."""
    if re.fullmatch(r"\d+(\.\d+)?[smhdw]?", text) and not text.isdecimal():
        try:
            return now_us - int(duration_s(text) * 1_000_000)
        except ValueError as error:
            raise UsageError(f"--since {text}: {error}; write it such as {EXAMPLES}") from error
    try:
        value = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--since {text}: that is no time; write one such as {EXAMPLES}") from error
    at_us = int(value.timestamp() * 1_000_000)
    if at_us > now_us:
        raise UsageError(f"--since {text}: that is yet to come, so nothing has happened since; for example: {EXAMPLES}")
    return at_us


DEFAULT_US = 24 * 3_600 * 1_000_000
"""Default period that the brief covers, in microseconds."""

SHOWN = 12
"""Maximum number of entries shown per group."""


async def show_all(call: Call, runtime: Runtime) -> int:
    """Print the recent activity by group."""
    now_us = SystemClock().now_us()
    asked_us = None if call.args.since else await read_through(runtime.store, runtime.intake.actor)
    since_us = moment(call.args.since, now_us) if call.args.since else asked_us or now_us - DEFAULT_US
    found = await moved(runtime.store, now_us, since_us, limit=None if call.json else LOOKED_AT)
    if call.json:
        for each in found:
            cost = each.costs.fields()
            call.emit({**public(each.entry), "type": "brief", "events": each.entry.row.head, **cost})
        return 0
    which = ", when you last asked" if asked_us else ", the last 24 hours: this is your first brief"
    call.say(f"# Changes since {minute(since_us)}{'' if call.args.since else which}")
    for group in GROUPS:
        mine = [each for each in found if each.entry.group == group]
        if not mine:
            continue
        call.say(f"\n## {group.capitalize()} ({len(mine)})\n")
        for each in mine[:SHOWN]:
            call.say(f"- {_line(call, each)}")
        if len(mine) > SHOWN:
            more = call.typed("ps", "--all") if group != "needs you" else call.typed("inbox")
            call.say(f"- and {len(mine) - SHOWN} more: `{more}`")
    if not found:
        call.say(f"\nNo session changed. `{call.typed('ps', '--all')}` lists all sessions.")
    if not call.args.since:  # --since may skip activity that the user has not read yet
        await runtime.intake.post(HOME, BriefRead(through_us=now_us))
    return 0


def _line(call: Call, moved: Moved) -> str:
    entry, family = moved.entry, moved.family
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
        f"{name}: {one_line(entry.title, 60)}, {size}{moved.costs.tree}; {one_line(row.goal, 60)} "
        f"[{row.session_id} e{row.head}, {minute(row.updated_us)}] `{call.typed('brief', name_of(row))}`"
    )
