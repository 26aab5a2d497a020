"""`holdfast ps`: sessions, newest first."""

from __future__ import annotations

import argparse
from typing import Any

from holdfast.app.call import Call
from holdfast.app.compose import open_runtime
from holdfast.app.progress import counted, known_cost, one_line
from holdfast.clock import SystemClock, rfc3339
from holdfast.session.money import usd, usd_float
from holdfast.session.rows import SessionRow

SHOWN = 20
"""Sessions listed without --all, beside every unfinished one."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("--all", action="store_true", help=f"all of them, not the unfinished and the latest {SHOWN}")
    parser.add_argument("--json", action="store_true", help="print JSON lines")


async def run(call: Call) -> int:
    """List them."""
    async with open_runtime(call.settings) as runtime:
        holders = await runtime.store.holders()
        rows = await runtime.store.sessions()
    unfinished = ("runnable", "parked")
    chosen = [row for place, row in enumerate(rows) if call.args.all or place < SHOWN or row.status in unfinished]
    if call.json:
        for row in chosen:
            call.emit(public(row, running=row.session_id in holders))
        return 0
    if not chosen:
        call.say('no sessions yet; start one: holdfast run "fix the failing test" --model scripted:FILE')
        return 0
    call.say(f"{'SESSION':<30} {'STATE':<19} {'AGE':>5} {'TURNS':>5} {'COST':>9}  GOAL")
    now_us = SystemClock().now_us()
    for row in chosen:
        state = "running" if row.session_id in holders else row.status + (f" ({row.reason})" if row.reason else "")
        name = one_line(row.key, 30) if row.key else row.session_id
        age = _age((now_us - row.created_us) / 1_000_000)
        cost = usd(known_cost(row))
        call.say(f"{name:<30} {state:<19} {age:>5} {row.turns:>5} {cost:>9}  {one_line(row.goal, 60)}")
    if len(chosen) < len(rows):
        call.note(f"and {counted(len(rows) - len(chosen), 'older session')}: `{call.typed('ps', '--all')}`")
    return 0


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
    }
