"""`holdfast mission replan`, `pause`, `cancel`: steer a mission."""

from __future__ import annotations

import argparse

from holdfast.app.call import SESSION, Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.exits import name_of
from holdfast.app.running.family import cancel
from holdfast.service import missions
from holdfast.service.event_lines import counted
from holdfast.session.rows import SessionRow


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments shared by these verbs."""
    parser.add_argument("session", metavar="ID", help=SESSION)
    parser.add_argument("--reason", metavar="TEXT", default="", help="The reason; the next planner reads it")
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def run(call: Call) -> int:
    """Carry out the subcommand."""
    if call.args.word == "cancel":
        return await cancel(call)
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        if call.args.word == "replan":
            return await _replan(call, runtime, row)
        return await _pause(call, runtime, row)


async def _replan(call: Call, runtime: Runtime, row: SessionRow) -> int:
    receipt = await missions.replan(runtime.intake, row, call.args.reason)
    if call.json:
        call.emit({"session_id": row.session_id, "seq": receipt.seq, "duplicate": receipt.duplicate})
    again = "the mission plans again at its next step"
    if row.session_id not in await runtime.store.holders():
        again = f"the mission plans again when it is woken: `{call.typed('wake', name_of(row))}`"
    call.say(f"recorded as event {receipt.seq} of {name_of(row)}; {again}")
    return 0


async def _pause(call: Call, runtime: Runtime, row: SessionRow) -> int:
    paused = await missions.pause(runtime.intake, row, call.args.reason)
    if call.json:
        call.emit({"session_id": row.session_id, "paused": [each.session_id for each in paused]})
    call.say(
        f"{name_of(row)} and {counted(len(paused) - 1, 'session')} below it pause at the end of their steps; "
        f"resume with `{call.typed('wake', name_of(row))}`"
    )
    return 0
