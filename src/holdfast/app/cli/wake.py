"""`holdfast wake` (and `resume`): go on from the log."""

from __future__ import annotations

import argparse

from holdfast.app.call import Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.running.drive import drive, observer_for
from holdfast.app.running.sweeping import sweep
from holdfast.brain.recall import recall
from holdfast.service import missions
from holdfast.session.fold.fork import RESTING
from holdfast.session.rows import SessionRow


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", help="a session's id, key, or a unique beginning of either")
    parser.add_argument("--prompts", metavar="DIR", help="a folder with prompts of your own, such as worker.md")
    parser.add_argument("--steal", action="store_true", help="take it from a process that still holds it")
    parser.add_argument("--keep-pause", action="store_true", help="leave it resting when it is paused or a new fork")
    parser.add_argument("--leave-jobs", action="store_true", help="end when nothing but jobs is left to wait for")
    parser.add_argument("--plain", action="store_true", help="lines only, nothing redrawn, also on a terminal")
    parser.add_argument("--json", action="store_true", help="print events and the result as JSON lines")


async def run(call: Call) -> int:
    """Wake it and stay with it until it stops. Whoever types this lifts a pause."""
    async with open_runtime(call.settings) as runtime:
        await sweep(runtime)
        row = await runtime.store.find(call.args.session)
        if not call.args.keep_pause and await _paused(runtime, row):
            await _lift(runtime, row)
        doors = await runtime.doors_for(row.session_id, observer=observer_for(call, row))
        return await drive(call, runtime, row.session_id, doors, steal=call.args.steal)


async def _lift(runtime: Runtime, row: SessionRow) -> None:
    """Lift the pause: a mission was paused with all below it."""
    state, _ = await recall(row.session_id, runtime.store, runtime.store, runtime.kinds)
    if state.created is not None and state.created.mission is not None:
        await missions.resume(runtime.intake, row, "woken")
    else:
        await runtime.intake.resume(row, "woken")


async def _paused(runtime: Runtime, row: SessionRow) -> bool:
    """Whether it rests because a person paused it, forked it and has said nothing yet, or because its wakes failed.

    While everything is stopped, only the release lifts that.
    """
    state, _ = await recall(row.session_id, runtime.store, runtime.store, runtime.kinds)
    waits = state.tenant.kind.awaits_wake(state)
    failed = state.ended is not None and state.failing.repeated()
    return (bool(state.paused) or state.ended == RESTING or failed or waits) and await runtime.store.stopped() is None
