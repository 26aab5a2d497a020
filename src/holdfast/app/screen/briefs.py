"""Briefs of sessions: which logs they are made from, and since when."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from holdfast.app.compose import Runtime
from holdfast.app.exits import name_of
from holdfast.app.settings.config import duration_s
from holdfast.clock import SystemClock
from holdfast.errors import SnapshotFailed, UsageError
from holdfast.facts.codec import Event
from holdfast.facts.hands import WorkspaceSnapshotted
from holdfast.kinds.mission.brief.brief import Brief, brief
from holdfast.kinds.mission.brief.document import markdown
from holdfast.log.base import Which
from holdfast.session.fold import empty, fold
from holdfast.session.rows import SessionRow

EXAMPLES = "8h, 2d, 2026-11-20 or 2026-11-20T08:00"


async def brief_of(runtime: Runtime, row: SessionRow, *, since_us: int | None = None) -> Brief:
    """What happened in a session and all below it, after `since_us` if that is set."""
    events = await runtime.store.read(row.session_id)
    state = fold(empty(row.session_id, runtime.kinds), events)
    running = row.session_id in await runtime.store.holders()
    changed = await _changed(runtime, events) if state.tenant.kind.branch(state) is None else ()
    return brief(events, state, await logs_below(runtime, row), since_us=since_us, running=running, changed=changed)


async def _changed(runtime: Runtime, events: Sequence[Event]) -> tuple[str, ...]:
    """The files that differ between the first and the last kept workspace of a session."""
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
    """The brief of a mission as whoever reviews its branch reads it.

    Nothing in it is of this machine, and nothing that an agent wrote calls a person or closes an issue.
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
    """What --since of one session means, in microseconds since 1970. A bare number is an event of it."""
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
    """A time as written, in microseconds since 1970: a stretch before now, or a day or time, UTC unless it says."""
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
