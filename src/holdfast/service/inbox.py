"""Query of the inbox: the sessions and items that need a user, in four groups, from rows and items."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

import msgspec

from holdfast.clock import local_time
from holdfast.facts.codec import Event
from holdfast.facts.people import ApprovalRequested
from holdfast.facts.shift import ParkReason
from holdfast.kinds import ITEMS
from holdfast.log.base import View, Which
from holdfast.service.answers import names_of
from holdfast.service.event_lines import describe
from holdfast.service.sessions import UNFINISHED, Store, newest_first
from holdfast.session.costs import Costs, costs
from holdfast.session.rows import ItemRow, SessionRow

Group = Literal["needs you", "errors", "finished", "running"]

BY_THEMSELVES: tuple[ParkReason, ...] = ("timer", "provider", "child", "job")
"""Reasons of waits that end without a user."""

GROUPS: tuple[Group, ...] = get_args(Group)

FINISHED_US = 7 * 86_400 * 1_000_000
"""Age in microseconds from which ended sessions are left out: `holdfast ps --all` lists them."""

OVERDUE_US = 60 * 1_000_000
"""Time after which a session that is due and not running is not expected to run by itself."""

SHOWN = 100
"""Maximum number of items, and of sessions of each status, shown to a user. A script gets all of them."""

SHORT = 8
"""Characters at the end of an id that stand for a session without a key; each verb takes them."""

STOPPED_BY_HAND = "the process was asked to stop"
"""The detail of a shift that a signal ended: no error."""


class Shown(msgspec.Struct, frozen=True):
    """An item with its full request, and the users who may answer it now (empty: everyone).

    `closing` is the event that closed it; `costs` are those of its session, now.
    """

    item: ItemRow
    request: ApprovalRequested
    names: tuple[str, ...] = ()
    closing: Event | None = None
    costs: Costs = Costs()


class Entry(msgspec.Struct, frozen=True):
    """One line of the inbox. `since_us` is the time of its latest change, `name` the display name of the session."""

    group: Group
    row: SessionRow
    title: str
    since_us: int
    item: Shown | None = None
    name: str = ""


async def inbox(store: Store, now_us: int, *, since_us: int | None = None, limit: int | None = None) -> list[Entry]:
    """Return the current inbox; with a `limit`, that many of the oldest items and latest sessions of each status.

    Leaves out sessions that ended before `since_us`, by default a week ago.
    """
    since_us = now_us - FINISHED_US if since_us is None else since_us

    def look(view: View) -> tuple[list[SessionRow], list[Shown], dict[str, str]]:
        holders = view.holders()
        found = _shown(view, view.items(open_only=True, limit=limit), now_us)
        return _around(view, {each.item.session_id for each in found}, since_us, limit), found, holders

    return build(*await store.view(look), since_us + FINISHED_US)


async def items(
    store: Store, now_us: int, *, session_id: str = "", open_only: bool = True, limit: int | None = None
) -> list[Shown]:
    """Return the items of all sessions or of one, oldest first; without `open_only` also the closed ones."""

    def look(view: View) -> list[Shown]:
        found = view.items(open_only=open_only, limit=limit)
        return _shown(view, [item for item in found if session_id in ("", item.session_id)], now_us)

    return await store.view(look)


async def waiting(store: Store, now_us: int, limit: int) -> int:
    """Return how many entries of the inbox need a user. A number above `limit` means that many or more."""
    due = frozenset((await store.due(now_us))[: limit + 1])
    filters = [Which(reason=each) for each in get_args(ParkReason) if each not in BY_THEMSELVES]
    filters += [Which(ids=due)] if due else []

    def look(view: View) -> int:
        found = view.items(open_only=True, limit=limit + 1)
        asked, holders = {item.session_id for item in found}, view.holders()
        rows = {row.session_id: row for each in filters for row in view.sessions(each, home=False, limit=limit + 1)}
        standings = [_standing(row, name in holders, now_us) for name, row in rows.items() if name not in asked]
        return len(found) + sum(standing is not None and standing[0] == "needs you" for standing in standings)

    return await store.view(look)


async def shown(store: Store, item: ItemRow, now_us: int) -> Shown:
    """Return an item with its full request, the users who may answer it, and the event that closed it."""
    return (await store.view(lambda view: _shown(view, [item], now_us)))[0]


def _shown(view: View, found: Sequence[ItemRow], now_us: int) -> list[Shown]:
    if not found:
        return []
    named = ((item.session_id, seq) for item in found for seq in (1, item.seq, item.closed_seq) if seq is not None)
    places = [*dict.fromkeys(named)]
    events = dict(zip(places, view.at(places), strict=True))
    ids = frozenset(item.session_id for item in found)
    rows = {row.session_id: row for row in view.sessions(Which(ids=ids), home=True)}
    spent = costs(view.sessions(Which(roots=frozenset(row.root for row in rows.values())), home=False))
    shown = []
    for item in found:
        first, request = events[item.session_id, 1], events[item.session_id, item.seq].fact
        assert isinstance(request, ApprovalRequested)
        names = names_of(first, rows[item.session_id], request, now_us)
        closing = events.get((item.session_id, item.closed_seq or 0))
        shown.append(Shown(item, request, names, closing, spent.get(item.session_id, Costs())))
    return shown


def _around(view: View, named: set[str], since_us: int, limit: int | None) -> list[SessionRow]:
    """The latest sessions of each status, the named ones, and the roots of their trees."""
    filters = [Which(status="runnable"), *(Which(reason=each) for each in get_args(ParkReason))]
    filters += [
        Which(status=each, updated_us=since_us, top=top)
        for each in ("failed", "done", "cancelled")
        for top in (False, True)  # the many sessions of a run do not crowd out the others
    ]
    found = {row.session_id: row for each in filters for row in view.sessions(each, home=False, limit=limit)}
    wanted = named | {row.root for row in found.values()}
    while missing := wanted.difference(found):
        rows = view.sessions(Which(ids=frozenset(missing)), home=True)
        found |= {row.session_id: row for row in rows}
        wanted = {row.root for row in rows}
    return newest_first(found.values())


def build(rows: Iterable[SessionRow], items: Iterable[Shown], holders: Mapping[str, str], now_us: int) -> list[Entry]:
    """Return all entries, by group; in each group the oldest item and the newest session first.

    Ended sessions of a run over a list are left out: the run says what became of its items.
    """
    by_session: dict[str, list[Shown]] = {}
    for each in items:
        by_session.setdefault(each.item.session_id, []).append(each)
    entries: list[Entry] = []
    rows = list(rows)
    known = {row.session_id: row for row in rows}
    for row in rows:
        top = known.get(row.root)
        name = _called(row, top)
        open_items = by_session.get(row.session_id, [])
        entries += [Entry("needs you", row, each.item.title, each.item.opened_us, each, name) for each in open_items]
        standing = _standing(row, row.session_id in holders, now_us)
        is_try = bool(row.parent) and top is not None and top.name == ITEMS and row.status not in UNFINISHED
        if standing is not None and not is_try and not (open_items and standing[0] == "needs you"):
            entries.append(Entry(standing[0], row, standing[1], row.updated_us, name=name))
    asked_first = sorted((each for each in entries if each.item), key=lambda each: each.since_us)
    others = sorted((each for each in entries if not each.item), key=lambda each: -each.since_us)
    return [each for group in GROUPS for each in (*asked_first, *others) if each.group == group]


def _called(row: SessionRow, top: SessionRow | None) -> str:
    """The display name. A child has the name of the root session of its tree, which the user knows."""
    own = row.key or row.session_id[-SHORT:]
    if top is None or top.session_id == row.session_id:
        return own
    return f"{top.key or top.session_id[-SHORT:]} > {row.name if row.name not in ('', 'agent') else own}"


def _standing(row: SessionRow, running: bool, now_us: int) -> tuple[Group, str] | None:
    """The group and the status text of a session; None if it is too old to show."""
    detail = row.detail or row.reason
    if running:
        return "running", f"running: {row.goal}"
    resume = f"resume it with `{shlex.join(('holdfast', 'wake', row.key or row.session_id))}`"
    match row.status:
        case "parked":
            waits = row.due_us is not None or row.reason in BY_THEMSELVES
            until = f" until {minute(row.due_us)}" if row.due_us is not None else ""
            if row.due_us is not None and now_us > row.due_us + OVERDUE_US:
                return "needs you", f"was due at {minute(row.due_us)}, and no process runs it; {resume}"
            if waits and row.reason != "person":
                return "running", f"waits{until}: {detail}"
            return "needs you", detail
        case "runnable":
            if row.detail and row.detail != STOPPED_BY_HAND:
                return "errors", row.detail
            if row.holder:
                return "needs you", f"its process died; {resume}"
            if row.detail or now_us > row.updated_us + OVERDUE_US:
                return "needs you", f"no process runs it; {resume}"
            return "running", "no process is running it yet"
    if now_us - row.updated_us > FINISHED_US:
        return None
    if row.status == "failed":
        return "errors", f"failed: {detail}" if detail else "failed"
    return "finished", row.status


def minute(at_us: int) -> str:
    """Format a time in local time, to the minute."""
    return local_time(at_us, "%Y-%m-%d %H:%M %Z")


def span(us: int) -> str:
    """Format a time span: `5s`, `3m`, `2h`, `4d`."""
    seconds = max(0, us) // 1_000_000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def answered(shown: Shown) -> str:
    """The answer to a closed item and its author; empty for an open one."""
    return describe(shown.closing) if shown.closing is not None else ""


def expiry(item: ItemRow, request: ApprovalRequested) -> str:
    """The time at which an item expires, and the default that applies then."""
    if item.expires_us is None or request.default is None:
        return "never: it waits for an answer"
    done = "approved" if request.default == "approve" else "denied"
    unseen = "" if item.seen_us is not None else ", after a user has seen it"
    return f"{minute(item.expires_us)}, then it counts as {done}{unseen}"


def answerers(shown: Shown, now_us: int) -> str:
    """The users who may answer an item, as a sentence."""
    request = shown.request
    who = "anybody may answer" if not shown.names else f"{' or '.join(shown.names)} may answer"
    if request.second and shown.names and request.escalate_us is not None and now_us < request.escalate_us:
        who += f"; {' or '.join(request.second)} too from {minute(request.escalate_us)}"
    return who
