"""The inbox as lines for the terminal and as data; `service.inbox` collects it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from holdfast.clock import rfc3339
from holdfast.facts.people import ApprovalRequested
from holdfast.service.event_lines import counted, one_line
from holdfast.service.inbox import GROUPS, Entry, Group, Shown, answered, answerers, expiry, span
from holdfast.session.context.text import visible, visible_line
from holdfast.session.money import usd_float
from holdfast.session.rows import TAINTED, WEAK, SessionRow
from holdfast.session.tools.policy import TREE

NAME_WIDTH = 24
"""Most columns that short names are filled up to."""

LISTED_WIDTH, LISTED_LINES = 100, 3
"""Maximum width and number of lines of an action in the list; the user must open a longer one."""


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
        wide = max((len(_name(entry)) for entry in mine if entry.item is None), default=0)
        for entry in mine:
            told += [f"  {line}" for line in entry_lines(entry, now_us, min(wide, NAME_WIDTH))]
        told.append("")
    return told[:-1]


def _name(entry: Entry) -> str:
    return one_line(entry.name or entry.row.key or entry.row.session_id, 60 if entry.row.parent else 30)


def entry_lines(entry: Entry, now_us: int, wide: int = NAME_WIDTH) -> list[str]:
    """One entry as one line, followed by the whole action, or by its size if the user must open it.

    `wide` is the width of the column of names.
    """
    age, name = span(now_us - entry.since_us), _name(entry)
    if entry.item is None:
        return [f"{name:<{wide}}  {age:>4}  {one_line(entry.title or entry.row.goal, 80)}"]
    item, request = entry.item.item, entry.item.request
    title = visible_line(request.title)
    title = title if len(title) <= LISTED_WIDTH else title[: LISTED_WIDTH - 1] + "…"
    head = f"{item.item_id}  {title}  ({name}, {age}{_overdue(request, now_us)})"
    if not is_listed_whole(entry.item):
        size = f"{counted(request.action.count(chr(10)) + 1, 'line')}, {counted(len(request.action), 'character')}"
        return [head, f"    not shown here: {size}; open it before you answer"]
    return [head, *(f"    | {line}" for line in visible(request.action).split("\n"))]


def is_listed_whole(shown: Shown) -> bool:
    """True if the list shows all of an item's title and action. Only then may the user answer it from the list."""
    action = visible(shown.request.action).split("\n")
    fits = len(action) <= LISTED_LINES and all(len(line) <= LISTED_WIDTH for line in action)
    return fits and len(visible_line(shown.request.title)) <= LISTED_WIDTH


def _overdue(request: ApprovalRequested, now_us: int) -> str:
    return ", overdue" if request.remind_us is not None and now_us >= request.remind_us else ""


def details(shown: Shown, row: SessionRow, now_us: int) -> list[str]:
    """Everything about an item: no part of the action is omitted or hidden.

    The agent writes part of it, so its lines follow a bar: none of them can imitate a line of Holdfast.
    """
    item, request = shown.item, shown.request
    told = [f"{item.item_id}  {visible_line(request.title)}"]
    asked = f"asked {span(now_us - item.opened_us)} ago{_overdue(request, now_us)}, {shown.costs} so far"
    told.append(_field("session", f"{one_line(row.key or row.session_id)}: {one_line(row.goal, 80)}"))
    told.append(_field("", asked))
    if row.marks:
        told.append(_field("", " and ".join(_MARKS[mark] for mark in row.marks.split() if mark in _MARKS)))
    if item.status != "open":
        told.append(_field("stands", visible_line(answered(shown)) or item.status))
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
    told.append(_field("expires", expiry(item, request)))
    if request.kind == "egress":
        told.append(_field("approved", "until what the session may talk to changes; --uses 1 or --for 2h bounds it"))
    told.append(_field("who", answerers(shown, now_us)))
    if request.action_digest:
        told.append(_field("digest", request.action_digest))
    return told


_MARKS = {WEAK: "ITS HANDS ARE WEAKLY ISOLATED", TAINTED: "it has read what strangers may have written"}


WORD_MAX = 32
"""Longest word that `folded` takes to the next row; a longer one is broken."""


def folded(line: str, width: int, measure: Callable[[str], int], *, indents: bool = True) -> list[str]:
    """A line of details as rows of less than `width` columns, with nothing omitted.

    Continuation rows are indented below the text, behind the same bar, so they cannot imitate a line of Holdfast.
    """
    lead = f"{'':<9} | " if line[9:12] == " | " else f"{'':<10}"
    if width <= 2 * len(lead) or not indents:
        lead = ""
    rows, row, cells = [], "", 0
    for char in line.expandtabs(4):
        wide = measure(char)
        if row and cells + wide >= width:
            space = max(row.rfind(each, len(lead) + 1) for each in " /") + 1 if indents and char != " " else 0
            if space <= max(len(lead), len(row) - WORD_MAX):
                space = len(row)
            rows.append(row[:space])
            row = lead + row[space:]
            cells = sum(map(measure, row))
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
        **shown.costs.fields(),
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
        "answered": answered(shown),
        "proof": getattr(shown.closing and shown.closing.fact, "proof", ""),
    }
