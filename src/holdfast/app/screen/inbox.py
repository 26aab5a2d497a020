"""The inbox: the sessions and items that need a user, in four groups, from rows and items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from holdfast.app.compose import Runtime
from holdfast.app.screen.events import counted, describe, one_line
from holdfast.clock import SystemClock, rfc3339
from holdfast.facts.people import ApprovalRequested
from holdfast.facts.shift import ParkReason
from holdfast.log.base import Index, Which
from holdfast.session.context.text import visible, visible_line
from holdfast.session.money import usd, usd_float
from holdfast.session.rows import TAINTED, WEAK, ItemRow, SessionRow
from holdfast.session.state import State
from holdfast.session.tools.policy import TREE

Group = Literal["needs you", "errors", "finished", "running"]

GROUPS: tuple[Group, ...] = ("needs you", "errors", "finished", "running")

FINISHED_US = 7 * 86_400 * 1_000_000
"""Age in microseconds from which ended sessions are left out: `holdfast ps --all` lists them."""

LISTED_WIDTH, LISTED_LINES = 100, 3
"""Maximum width and number of lines of an action in the list; the user must open a longer one."""

STOPPED_BY_HAND = "the process was asked to stop"
"""The detail of a shift that a signal ended: no error."""


@dataclass(frozen=True)
class Shown:
    """An item with its full request, and the users who may answer it now (empty: everyone).

    For a closed item, `answered` gives the answer and its author, and `proof` the evidence of the author's identity.
    """

    item: ItemRow
    request: ApprovalRequested
    names: tuple[str, ...] = ()
    answered: str = ""
    proof: str = ""


@dataclass(frozen=True)
class Entry:
    """One line of the inbox. `since_us` is the time of its latest change, `name` the display name of the session."""

    group: Group
    row: SessionRow
    title: str
    since_us: int
    item: Shown | None = None
    name: str = ""


def build(rows: Iterable[SessionRow], items: Iterable[Shown], holders: Mapping[str, str], now_us: int) -> list[Entry]:
    """All entries, by group; in each group the oldest item and the newest session first."""
    by_session: dict[str, list[Shown]] = {}
    for shown in items:
        by_session.setdefault(shown.item.session_id, []).append(shown)
    entries: list[Entry] = []
    rows = list(rows)
    known = {row.session_id: row for row in rows}
    for row in rows:
        name = _called(row, known.get(row.root))
        asked = by_session.get(row.session_id, [])
        entries += [Entry("needs you", row, each.item.title, each.item.opened_us, each, name) for each in asked]
        standing = _standing(row, row.session_id in holders, now_us)
        if standing is not None and not (asked and standing[0] == "needs you"):
            entries.append(Entry(standing[0], row, standing[1], row.updated_us, name=name))
    asked_first = sorted((each for each in entries if each.item), key=lambda each: each.since_us)
    others = sorted((each for each in entries if not each.item), key=lambda each: -each.since_us)
    return [each for group in GROUPS for each in (*asked_first, *others) if each.group == group]


def _called(row: SessionRow, top: SessionRow | None) -> str:
    """The display name. A child has the name of the root session of its tree, which the user knows."""
    own = row.key or row.session_id
    if top is None or top.session_id == row.session_id:
        return own
    return f"{top.key or top.session_id} > {row.name if row.name not in ('', 'agent') else own}"


def _standing(row: SessionRow, running: bool, now_us: int) -> tuple[Group, str] | None:
    """The group and the status text of a session; None if it is too old to show."""
    detail = row.detail or row.reason
    if running:
        return "running", "running"
    match row.status:
        case "parked":
            waits = row.due_us is not None or row.reason in ("timer", "provider", "child", "job")
            until = f" until {minute(row.due_us)}" if row.due_us is not None else ""
            if waits and row.reason != "person":
                return "running", f"waits{until}: {detail}"
            return "needs you", detail
        case "runnable":
            failed = row.detail and row.detail != STOPPED_BY_HAND
            return ("errors", row.detail) if failed else ("running", "no process is running it")
    if now_us - row.updated_us > FINISHED_US:
        return None
    if row.status == "failed":
        return "errors", f"failed: {detail}" if detail else "failed"
    return "finished", row.status


def counts(entries: Iterable[Entry]) -> dict[Group, int]:
    """The number of entries in each group."""
    found = dict.fromkeys(GROUPS, 0)
    for entry in entries:
        found[entry.group] += 1
    return found


def lines(entries: list[Entry], now_us: int) -> list[str]:
    """The inbox as plain lines."""
    told: list[str] = []
    for group in GROUPS:
        mine = [entry for entry in entries if entry.group == group]
        told.append(f"{group.upper()} ({len(mine)})")
        for entry in mine:
            told += [f"  {line}" for line in entry_lines(entry, now_us)]
        told.append("")
    return told[:-1]


def entry_lines(entry: Entry, now_us: int) -> list[str]:
    """One entry as one line, followed by the whole action, or by its size if the user must open it."""
    age = span(now_us - entry.since_us)
    name = one_line(entry.name or entry.row.key or entry.row.session_id, 60 if entry.row.parent else 30)
    if entry.item is None:
        return [f"{name:<30} {age:>6}  {one_line(entry.title or entry.row.goal, 80)}"]
    item, request = entry.item.item, entry.item.request
    head = f"{item.item_id}  {_title(request)}  ({name}, {age}{_overdue(request, now_us)})"
    if not is_listed_whole(entry.item):
        size = f"{counted(request.action.count(chr(10)) + 1, 'line')}, {counted(len(request.action), 'character')}"
        return [head, f"    not shown here: {size}; open it before you answer"]
    return [head, *(f"    | {line}" for line in visible(request.action).split("\n"))]


def is_listed_whole(shown: Shown) -> bool:
    """True if the list shows all of an item's title and action. Only then may the user answer it from the list."""
    action = visible(shown.request.action).split("\n")
    fits = len(action) <= LISTED_LINES and all(len(line) <= LISTED_WIDTH for line in action)
    return fits and len(visible_line(shown.request.title)) <= LISTED_WIDTH


def _title(request: ApprovalRequested) -> str:
    title = visible_line(request.title)
    return title if len(title) <= LISTED_WIDTH else title[: LISTED_WIDTH - 1] + "…"


def _overdue(request: ApprovalRequested, now_us: int) -> str:
    return ", overdue" if request.remind_us is not None and now_us >= request.remind_us else ""


def details(shown: Shown, row: SessionRow, now_us: int) -> list[str]:
    """Everything about an item: no part of the action is omitted or hidden.

    The agent writes part of it, so its lines follow a bar: none of them can imitate a line of Holdfast.
    """
    item, request = shown.item, shown.request
    told = [f"{item.item_id}  {visible_line(request.title)}"]
    asked = f"asked {span(now_us - item.opened_us)} ago{_overdue(request, now_us)}, {_cost(request.cost_pico)} so far"
    told.append(_field("session", f"{one_line(row.key or row.session_id)}: {one_line(row.goal, 80)}"))
    told.append(_field("", asked))
    if row.marks:
        told.append(_field("", " and ".join(_MARKS[mark] for mark in row.marks.split() if mark in _MARKS)))
    if item.status != "open":
        told.append(_field("stands", visible_line(shown.answered) or item.status))
    told += block("action", request.action)
    told += block("why", request.why)
    for number, option in enumerate(request.options, 1):
        told += block(f"answer {number}", option)
    if request.touches:
        told.append(_field("reaches", visible_line(request.touches)))
    if request.guards:
        guards = ("workspace files" if name == TREE else name.removeprefix("file:") for name in request.guards)
        told.append(_field("bound to", ", ".join(map(visible_line, guards))))
    if request.replaces:
        told.append(_field("replaces", f"{request.replaces}: what that was bound to has changed"))
    if request.evidence:
        events = ", ".join(map(str, request.evidence))
        told.append(_field("evidence", f"event {events} of {row.session_id}"))
    told.append(_field("expires", _expiry(item, request)))
    if request.kind == "egress":
        told.append(_field("approved", "until what the session may talk to changes; --uses 1 or --for 2h bounds it"))
    told.append(_field("who", _who(shown, now_us)))
    if request.action_digest:
        told.append(_field("digest", request.action_digest))
    return told


_MARKS = {WEAK: "ITS HANDS ARE WEAKLY ISOLATED", TAINTED: "it has read what strangers may have written"}


def _cost(pico: int | None) -> str:
    return "at unknown cost" if pico is None else usd(pico)


def folded(line: str, width: int, measure: Callable[[str], int]) -> list[str]:
    """A line of details as rows of less than `width` columns, with nothing omitted.

    Continuation rows are indented below the text, behind the same bar, so they cannot imitate a line of Holdfast.
    """
    lead = f"{'':<9} | " if line[9:12] == " | " else f"{'':<10}"
    if width <= 2 * len(lead):
        lead = ""
    rows, row, cells = [], "", 0
    for char in line.expandtabs(4):
        wide = measure(char)
        if row and cells + wide >= width:
            rows.append(row)
            row, cells = lead, len(lead)
        row += char
        cells += wide
    return [*rows, row]


def _field(name: str, value: str) -> str:
    return f"{name:<9} {value}"


def block(name: str, text: str) -> list[str]:
    """Format a text that an agent may have written: whole, behind a bar."""
    if not text:
        return []
    return [f"{name if not place else '':<9} | {line}" for place, line in enumerate(visible(text).split("\n"))]


def _expiry(item: ItemRow, request: ApprovalRequested) -> str:
    if item.expires_us is None or request.default is None:
        return "never: it waits for an answer"
    done = "approved" if request.default == "approve" else "denied"
    unseen = "" if item.seen_us is not None else ", after a user has seen it"
    return f"{minute(item.expires_us)}, then it counts as {done}{unseen}"


def _who(shown: Shown, now_us: int) -> str:
    request = shown.request
    who = "anybody may answer" if not shown.names else f"{' or '.join(shown.names)} may answer"
    if request.second and shown.names and request.escalate_us is not None and now_us < request.escalate_us:
        who += f"; {' or '.join(request.second)} too from {minute(request.escalate_us)}"
    return who


def public(entry: Entry) -> dict[str, Any]:
    """An entry as JSON data."""
    row = entry.row
    told: dict[str, Any] = {
        "group": entry.group,
        "session_id": row.session_id,
        "key": row.key,
        "root": row.root,
        "title": entry.title,
        "since": rfc3339(entry.since_us),
        "status": row.status,
        "reason": row.reason,
        "item_id": None,
    }
    return {**told, **public_item(entry.item)} if entry.item else told


def public_item(shown: Shown) -> dict[str, Any]:
    """A complete item as JSON data."""
    item, request = shown.item, shown.request
    return {
        "item_id": item.item_id,
        "session_id": item.session_id,
        "seq": item.seq,
        "kind": item.kind,
        "status": item.status,
        "title": request.title,
        "action": request.action,
        "action_digest": request.action_digest,
        "guards": dict(request.guards),
        "why": request.why,
        "touches": request.touches,
        "cost_usd": usd_float(request.cost_pico),
        "evidence": list(request.evidence),
        "options": list(request.options),
        "default": request.default,
        "opened_at": rfc3339(item.opened_us),
        "expires_at": None if item.expires_us is None else rfc3339(item.expires_us),
        "seen_at": None if item.seen_us is None else rfc3339(item.seen_us),
        "may_answer": list(shown.names),
        "account_id": request.account_id,
        "proposed_usd": usd_float(request.proposed_pico),
        "replaces": request.replaces,
        "answered": shown.answered,
        "proof": shown.proof,
    }


def minute(at_us: int) -> str:
    """Format a time, to the minute."""
    return rfc3339(at_us)[:16].replace("T", " ") + " UTC"


def span(us: int) -> str:
    """Format a time span: `5s`, `3m`, `2h`, `4d`."""
    seconds = max(0, us) // 1_000_000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


SHOWN = 100
"""Maximum number of items, and of sessions of each status, shown to a user. A script gets all of them."""


async def look(runtime: Runtime, since_us: int | None = None, *, limit: int | None = None) -> list[Entry]:
    """The current inbox; with a `limit`, that many of the oldest items and of the latest sessions of each status.

    Leaves out sessions that ended before `since_us`, by default a week ago.
    """
    store, now_us = runtime.store, SystemClock().now_us()
    items = [await shown_of(runtime, item) for item in await store.items(limit=limit)]
    since_us = now_us - FINISHED_US if since_us is None else since_us
    rows = await _around(store, {shown.item.session_id for shown in items}, since_us, limit)
    return build(rows, items, await store.holders(), since_us + FINISHED_US)


async def _around(index: Index, named: set[str], since_us: int, limit: int | None) -> list[SessionRow]:
    """The latest sessions of each status, the named ones, and the roots of their trees."""
    filters = [Which(status="runnable"), *(Which(reason=each) for each in get_args(ParkReason))]
    filters += [Which(status=each, updated_us=since_us) for each in ("failed", "done", "cancelled")]
    found = {row.session_id: row for each in filters for row in await index.sessions(each, limit=limit)}
    wanted = named | {row.root for row in found.values()}
    while missing := wanted - found.keys():
        for session_id in missing:
            found[session_id] = await index.find(session_id)
            wanted.add(found[session_id].root)
    return sorted(found.values(), key=lambda row: (row.created_us, row.session_id), reverse=True)


async def shown_of(runtime: Runtime, item: ItemRow) -> Shown:
    """An item with its full request, the users who may answer it, and its answer if it has one."""
    shown = Shown(item, await runtime.intake.asked(item), await runtime.intake.who(item))
    if item.closed_seq is None:
        return shown
    (event,) = await runtime.store.read(item.session_id, after=item.closed_seq - 1, limit=1)
    return replace(shown, answered=describe(event), proof=getattr(event.fact, "proof", ""))


async def counting_answers(runtime: Runtime, state: State) -> list[str]:
    """The answers of a session that still allow or deny further calls: their authors, and the evidence of identity."""
    seqs = {grant.seq for grant in state.grants} | {ask.decided_seq for ask in state.asks.values() if ask.verdict}
    found = [await runtime.store.read(state.session_id, after=seq - 1, limit=1) for seq in sorted(seqs)]
    return [describe(event) for (event,) in found]
