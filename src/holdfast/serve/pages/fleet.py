"""The fleet: counts by state, spend by day, and pages of all sessions that pass a filter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import PurePath

import msgspec

from holdfast.clock import DAY, local_time
from holdfast.errors import UsageError
from holdfast.kinds import ITEMS
from holdfast.log.base import Which, WorkerRow
from holdfast.serve.pages.drawings import Bar, bars
from holdfast.serve.pages.frame import Sees, href
from holdfast.service.filters import Filter, matching, parse
from holdfast.service.sessions import UNFINISHED, Session, Store, standing
from holdfast.service.spending import OWN
from holdfast.session.money import HOME_ACCOUNT, HOUR_US, usd
from holdfast.session.rows import SessionRow

ROWS = 100
"""Number of sessions on a page."""

SCANNED = 2_000
"""Number of rows that one page looks through for a filter that no index answers."""

DAYS = 8

Progress = Callable[[SessionRow], Awaitable[str]]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A session in the list. `waits` is the reason or detail of its state."""

    session_id: str
    name: str
    goal: str
    state: str
    waits: str
    project: str
    agent: str
    cost: str
    updated_us: int
    marks: tuple[str, ...] = ()
    href: str = ""
    depth: int = 0


class Count(msgspec.Struct, frozen=True):
    """A number of sessions in one state, and the filter that lists them."""

    label: str
    query: str
    number: int


class Day(msgspec.Struct, frozen=True):
    """A day's spend."""

    day: str
    pico: int


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the fleet. `after` is the cursor of the next page, empty at the end; `wrong` an invalid filter.

    `looked` is the number of rows looked through when that bound ended the page early, 0 otherwise.
    """

    rows: tuple[Row, ...]
    after: str
    query: str
    wrong: str = ""
    looked: int = 0
    counts: tuple[Count, ...] = ()
    days: tuple[Day, ...] = ()
    bars: tuple[Bar, ...] = ()
    workers: int = 0
    machines: tuple[WorkerRow, ...] = ()
    next_due_us: int | None = None


async def page(
    store: Store,
    now_us: int,
    query: str = "",
    after: str = "",
    *,
    progress: Progress,
    sees: Sees | None = None,
    top: bool = False,
    machines: Sequence[WorkerRow] = (),
) -> Fleet:
    """Return a page of sessions that pass the filter `query`, newest first, after the session `after`.

    `sees` limits it to sessions that the viewer may see; then counts and spend, which are the home's, are left out.
    `progress` is asked how far an unfinished run over a list is. With `top`, lists missions only. `machines` are
    the workers of all machines that share the log.
    """
    wrong = ""
    try:
        wanted = parse(query.split())
    except UsageError as error:
        wanted, wrong = Filter(), str(error)

    async def keeps(row: SessionRow) -> bool:
        return (not top or row.name == "mission") and (sees is None or await sees(row))

    listed = await matching(store, wanted, now_us, after=after, limit=ROWS, most=SCANNED, keeps=keeps, top=top)
    rows = tuple([await _with_progress(row_of(each), each.row, progress) for each in listed.found])
    if sees is not None or top:
        return Fleet(rows=rows, after=listed.after, query=query, wrong=wrong, looked=listed.looked)
    days = await _days(store, now_us)
    return Fleet(
        rows=rows,
        after=listed.after,
        query=query,
        wrong=wrong,
        looked=listed.looked,
        counts=await counts(store),
        days=days,
        bars=bars([(each.day[5:], each.pico, usd(each.pico)) for each in days]),
        machines=tuple(machines),
        workers=len(set((await store.holders()).values())),
        next_due_us=await store.next_due(now_us),
    )


async def _with_progress(shown: Row, row: SessionRow, progress: Progress) -> Row:
    """Add to a run over a list how far it is, unless it is over: then its detail says so."""
    if row.name != ITEMS or row.parent or row.status not in UNFINISHED:
        return shown
    parts = (await progress(row), shown.waits)
    return msgspec.structs.replace(shown, waits="; ".join(part for part in parts if part))


def row_of(session: Session) -> Row:
    """Return a session as a row of a list."""
    row = session.row
    own = row.session_id in PurePath(row.workspace).parts
    state = standing(row, running=session.running)
    return Row(
        session_id=row.session_id,
        name=row.key or row.session_id[-8:],
        goal=row.goal,
        state=state.partition(" (")[0],
        waits="" if session.running else row.detail or (f"waits for {_FOR[row.reason]}" if row.reason in _FOR else ""),
        project=OWN if own else PurePath(row.workspace).name,
        agent=row.name if row.name not in ("", "agent") else row.model.partition(":")[2] or row.model,
        cost=session.costs.tree.short,
        updated_us=row.updated_us,
        marks=tuple(row.marks.split()),
        href=href(row),
        depth=row.depth,
    )


_FOR = {
    "person": "you",
    "budget": "budget",
    "cap": "a higher cap",
    "timer": "its timer",
    "provider": "the provider",
    "child": "its sessions",
    "context": "room in its context",
    "job": "its jobs",
}
"""Reason of a parked session → what it waits for."""


async def counts(store: Store) -> tuple[Count, ...]:
    """Return the numbers of sessions by state."""
    running = len(await store.holders())
    runnable = await store.count(Which(status="runnable"))
    parked = await store.count(Which(status="parked"))
    person = await store.count(Which(reason="person"))
    return (
        Count("running", "is:running", running),
        Count("due", "is:runnable", max(0, runnable - running)),
        Count("wait for you", "for:approval", person),
        Count("wait otherwise", "is:parked", parked - person),
        Count("failed", "is:failed", await store.count(Which(status="failed"))),
        Count("done", "is:done", await store.count(Which(status="done"))),
        Count("cancelled", "is:cancelled", await store.count(Which(status="cancelled"))),
    )


async def _days(store: Store, now_us: int) -> tuple[Day, ...]:
    account = await store.account(HOME_ACCOUNT)
    spent: dict[str, int] = {}
    for number, pico in account.spend.hours if account is not None else ():
        day = local_time(number * HOUR_US, DAY)
        spent[day] = spent.get(day, 0) + pico
    days = [local_time(now_us - ago * 24 * HOUR_US, DAY) for ago in reversed(range(DAYS))]
    return tuple(Day(day, spent.get(day, 0)) for day in days)
