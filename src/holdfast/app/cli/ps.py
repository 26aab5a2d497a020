"""`holdfast ps`: sessions, newest first, all or those that pass a filter."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from holdfast.app.call import Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.exits import short_name
from holdfast.app.wrap import columns, table, terminal_width
from holdfast.brain.recall import recall
from holdfast.clock import SystemClock, rfc3339
from holdfast.errors import UsageError
from holdfast.kinds import ITEMS
from holdfast.log.base import WorkerRow
from holdfast.service.event_lines import counted, one_line
from holdfast.service.filters import SYNTAX, matching, parse
from holdfast.service.inbox import span
from holdfast.service.items.runs import progress
from holdfast.service.sessions import SHOWN, UNFINISHED_SHOWN, Session, Store, latest, sessions, standing, trees
from holdfast.session.costs import Costs
from holdfast.session.rows import TAINTED, WEAK, SessionRow


def ps_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ps`."""
    parser.add_argument("filter", nargs="*", help=f"List the sessions that pass all filters: {SYNTAX}")
    parser.add_argument(
        "--all",
        action="store_true",
        help=f"List all sessions (default: the latest {SHOWN}, and {UNFINISHED_SHOWN} unfinished)",
    )
    parser.add_argument("--tree", action="store_true", help="Children under the sessions that opened them")
    parser.add_argument(
        "--workers", action="store_true", help="List the workers that serve the log, on all machines that share it"
    )
    parser.add_argument("--json", action="store_true", help="Print JSON lines")


async def ps_run(call: Call) -> int:
    """List the sessions."""
    async with open_runtime(call.settings) as runtime:
        if call.args.workers:
            return _say_workers(call, await runtime.fleet())
        chosen = await _chosen(call, runtime.store)
        total = await runtime.store.count()
        done = {each.row.session_id: await _progress(runtime, each.row) for each in chosen if each.row.name == ITEMS}
    if call.json:
        for each in chosen:
            call.emit(public(each.row, each.costs, running=each.running))
        return 0
    if not chosen and total:
        call.say(f"none of {counted(total, 'session')} passes: {' '.join(call.args.filter)}")
        return 0
    if not chosen:
        call.say('no sessions yet; start one: holdfast run "fix the failing test" --model scripted:FILE')
        return 0
    for line in listed(chosen, tree=call.args.tree, progress=done):
        call.say(line)
    if len(chosen) < total and not call.args.filter:
        call.note(f"and {counted(total - len(chosen), 'more session')}: `{call.typed('ps', '--all')}`")
    return 0


def _say_workers(call: Call, fleet: list[WorkerRow]) -> int:
    """List workers."""
    if call.args.filter or call.args.tree or call.args.all:
        raise UsageError("--workers lists no sessions. Leave the other arguments out")
    if call.json:
        for each in fleet:
            call.emit(each._asdict())
    elif not fleet:
        call.say(f"no worker serves this log; start one: {call.typed('worker')}")
    else:
        lines = [("WORKER", "HOME", "HOST", "SESSIONS", "BEAT", "PROGRAM")]
        for each in fleet:
            holds = f"{each.holds} of {each.capacity}" if each.capacity else f"{each.holds}"
            ends = [text[-8:] for text in (each.worker_id, each.place)]
            beat = f"{each.beat_us / 1e6:.0f}s ago" if each.place else "-"
            lines.append((ends[0], ends[1] or "this", one_line(each.host, 20), holds, beat, each.program))
        for line in table(lines, (3, 4)):
            call.say(line)
    return 0


async def _progress(runtime: Runtime, row: SessionRow) -> str:
    """Return the progress of a run over a list. One that is done says so in its row."""
    if row.status == "done":
        return row.detail
    state, _ = await recall(row.session_id, runtime.store, runtime.store, runtime.kinds)
    return progress(state)


def listed(
    sessions: Iterable[Session], *, tree: bool = False, progress: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """A heading, and a line per session; with `tree`, children are indented. A terminal's width is kept.

    `progress` is that of runs over lists, by session.
    """
    now_us, width = SystemClock().now_us(), terminal_width(1)
    lines = [("SESSION", "STATE", "AGE", "COST", "GOAL")]
    for each in sessions:
        row = each.row
        name = one_line(short_name(row), 30)
        if tree:
            name = "  " * row.depth + name
        state = standing(row, running=each.running)
        if row.status == "parked" and row.due_us is not None and not each.running:
            state += f" {span(row.due_us - now_us)}" if row.due_us > now_us else " now"
        told = [_MARKS[mark] for mark in row.marks.split() if mark in _MARKS]
        told += [done] if (done := progress.get(row.session_id)) else []
        goal = f"{row.name}: {row.goal}" if row.parent and row.name not in ("", "agent") else row.goal
        goal = f"[{', '.join(told)}] {goal}" if told else goal
        lines.append((name, state, span(now_us - row.created_us), each.costs.tree.short, one_line(goal, 200)))
    heads = table([line[:4] for line in lines], (2, 3))
    room = 50 if width is None else max(1, width - max(map(columns, heads)) - 2)
    return [f"{head}  {one_line(line[4], room)}" for head, line in zip(heads, lines, strict=True)]


async def _chosen(call: Call, store: Store) -> list[Session]:
    """Return the sessions that the arguments select."""
    args = call.args
    wanted = parse(args.filter)
    if args.filter and args.tree:
        raise UsageError("--tree lists whole trees and takes no filters. Leave one of them out")
    if args.filter:
        return (await matching(store, wanted, SystemClock().now_us())).found
    if args.tree:
        return await trees(store, whole=args.all)
    return await (sessions(store) if args.all else latest(store))


_MARKS = {WEAK: "WEAK", TAINTED: "tainted"}


def public(row: SessionRow, costs: Costs, *, running: bool) -> dict[str, Any]:
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
        **costs.fields(),
        "parent": row.parent or None,
        "root": row.root,
        "depth": row.depth,
        "name": row.name,
        "owner": row.owner or None,
        "due_at": rfc3339(row.due_us) if row.due_us is not None else None,
        "marks": row.marks.split(),
    }
