"""`holdfast mission replan`, `pause`, `cancel`: a word from a person to a mission."""

from __future__ import annotations

import argparse

from holdfast.app.call import Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.exits import name_of
from holdfast.app.running.family import cancel
from holdfast.service import missions
from holdfast.session.rows import SessionRow


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of each of them."""
    parser.add_argument("session", metavar="ID", help="a mission's id, key, or a unique beginning of either")
    parser.add_argument("--reason", metavar="TEXT", default="", help="why; the next planner reads it")
    parser.add_argument("--json", action="store_true", help="print JSON")


async def run(call: Call) -> int:
    """Post what was said."""
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
    again = "it plans anew at its next step"
    if row.session_id not in await runtime.store.holders():
        again = f"it plans anew when it is woken: `{call.typed('wake', name_of(row))}`"
    call.say(f"noted as event {receipt.seq} of {name_of(row)}; {again}")
    return 0


async def _pause(call: Call, runtime: Runtime, row: SessionRow) -> int:
    resting = await missions.pause(runtime.intake, row, call.args.reason)
    if call.json:
        call.emit({"session_id": row.session_id, "paused": [each.session_id for each in resting]})
    call.say(
        f"{name_of(row)} rests with {len(resting) - 1} sessions below it as soon as each step has ended; lift it with "
        f"`{call.typed('wake', name_of(row))}`"
    )
    return 0
