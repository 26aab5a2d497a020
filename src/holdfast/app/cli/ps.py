"""`holdfast ps`: sessions, newest first."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from holdfast.app.call import Call
from holdfast.app.compose import open_runtime
from holdfast.app.screen.events import counted, one_line
from holdfast.app.screen.progress import known_cost
from holdfast.clock import SystemClock, rfc3339
from holdfast.log.base import EVERY, Index, Which
from holdfast.session.decide.waits import PAUSED, STOPPED
from holdfast.session.money import usd, usd_float
from holdfast.session.rows import TAINTED, WEAK, RowStatus, SessionRow

UNFINISHED: tuple[RowStatus, ...] = ("runnable", "parked")

SHOWN = 20
"""Number of latest sessions listed without --all, in addition to unfinished ones."""

UNFINISHED_SHOWN = 100
"""Number of latest unfinished sessions of each status that are listed without --all."""


def ps_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ps`."""
    parser.add_argument(
        "--all",
        action="store_true",
        help=f"List all sessions (default: the latest {SHOWN}, and {UNFINISHED_SHOWN} unfinished)",
    )
    parser.add_argument("--tree", action="store_true", help="Children under the sessions that opened them")
    parser.add_argument("--json", action="store_true", help="Print JSON lines")


async def ps_run(call: Call) -> int:
    """List the sessions."""
    async with open_runtime(call.settings) as runtime:
        store = runtime.store
        holders = await store.holders()
        chosen = await (_trees(store, call.args.all) if call.args.tree else _latest(store, call.args.all))
        total = await store.count()
    if call.json:
        for row in chosen:
            call.emit(public(row, running=row.session_id in holders))
        return 0
    if not chosen:
        call.say('no sessions yet; start one: holdfast run "fix the failing test" --model scripted:FILE')
        return 0
    names = [_name(row, tree=call.args.tree) for row in chosen]
    width = max(30, *(len(name) for name in names))
    call.say(f"{'SESSION':<{width}} {'STATE':<19} {'DUE':>7} {'AGE':>5} {'TURNS':>5} {'COST':>9}  GOAL")
    now_us = SystemClock().now_us()
    for name, row in zip(names, chosen, strict=True):
        running = row.session_id in holders
        due, age = due_in(row, now_us, running=running), _age((now_us - row.created_us) / 1_000_000)
        cost, goal = usd(known_cost(row)), one_line(row.goal, 50)
        goal = f"{marked(row)}{goal}"
        call.say(
            f"{name:<{width}} {standing(row, running=running):<19} {due:>7} {age:>5} {row.turns:>5} {cost:>9}  {goal}"
        )
        if row.status == "parked" and row.detail not in ("", PAUSED, STOPPED) and not running:
            call.say(f"{'':<{width}} {one_line(row.detail, 90)}")
    if len(chosen) < total:
        call.note(f"and {counted(total - len(chosen), 'more session')}: `{call.typed('ps', '--all')}`")
    return 0


async def _latest(index: Index, whole: bool, which: Which = EVERY) -> list[SessionRow]:
    """The latest sessions and the latest unfinished ones, newest first; with `whole` all of them."""
    if whole:
        return await index.sessions(which)
    found = {row.session_id: row for row in await index.sessions(which, limit=SHOWN)}
    for status in UNFINISHED:
        of_status = msgspec.structs.replace(which, status=status)
        found |= {row.session_id: row for row in await index.sessions(of_status, limit=UNFINISHED_SHOWN)}
    return sorted(found.values(), key=lambda row: (row.created_us, row.session_id), reverse=True)


async def _trees(index: Index, whole: bool) -> list[SessionRow]:
    """Whole trees, newest first; in each tree the children follow their parent, oldest first."""
    tops = await _latest(index, whole, Which(top=True))
    roots = dict.fromkeys(row.session_id for row in tops)
    if not whole:
        roots |= dict.fromkeys(row.root for row in await _latest(index, False) if row.status in UNFINISHED)
    rows = (
        await index.sessions() if whole else [row for root in roots for row in await index.sessions(Which(root=root))]
    )
    below: dict[str, list[SessionRow]] = {}
    known = {row.session_id for row in rows}
    for row in sorted(rows, key=lambda row: (row.created_us, row.session_id)):
        below.setdefault(row.parent if row.parent in known else "", []).append(row)
    listed: list[SessionRow] = []

    def add(row: SessionRow) -> None:
        listed.append(row)
        for child in below.get(row.session_id, []):
            add(child)

    for top in reversed(below.get("", [])):
        add(top)
    return listed


def _name(row: SessionRow, *, tree: bool) -> str:
    name = one_line(row.key, 30) if row.key else row.session_id
    if not tree or not row.depth:
        return name
    own = f" {one_line(row.name, 20)}" if row.name not in ("", "agent") else ""
    return f"{'  ' * row.depth}{name}{own}"


def standing(row: SessionRow, *, running: bool) -> str:
    """The status of a session in a few words."""
    if running:
        return "running"
    if row.status == "parked" and row.detail in (PAUSED, STOPPED):
        return "paused" if row.detail == PAUSED else "stopped"
    return row.status + (f" ({row.reason})" if row.reason else "")


def marked(row: SessionRow) -> str:
    """Warnings about a session, in brackets before its goal; empty without any."""
    words = {WEAK: "WEAK", TAINTED: "tainted"}
    told = [words[each] for each in row.marks.split() if each in words]
    return f"[{', '.join(told)}] " if told else ""


def due_in(row: SessionRow, now_us: int, *, running: bool = False) -> str:
    """The time until a parked session is due; empty if no time is set."""
    if running or row.status != "parked" or row.due_us is None:
        return ""
    return f"in {_age((row.due_us - now_us) / 1_000_000)}" if row.due_us > now_us else "now"


def _age(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def public(row: SessionRow, *, running: bool) -> dict[str, Any]:
    """A session's row for scripts."""
    return {
        "session_id": row.session_id,
        "key": row.key,
        "state": "running" if running else row.status,
        "reason": row.reason,
        "detail": row.detail,
        "goal": row.goal,
        "model": row.model,
        "workspace": row.workspace,
        "created_at": rfc3339(row.created_us),
        "updated_at": rfc3339(row.updated_us),
        "events": row.head,
        "epoch": row.epoch,
        "turns": row.turns,
        "input_tokens": row.input_tokens,
        "output_tokens": row.output_tokens,
        "cost_usd": usd_float(known_cost(row)),
        "parent": row.parent or None,
        "root": row.root,
        "depth": row.depth,
        "name": row.name,
        "owner": row.owner or None,
        "due_at": rfc3339(row.due_us) if row.due_us is not None else None,
        "marks": row.marks.split(),
    }
