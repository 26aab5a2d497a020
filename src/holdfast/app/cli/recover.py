"""`holdfast recover`: go on after acknowledged events were lost."""

from __future__ import annotations

import argparse
from pathlib import Path

import anyio.to_thread
import msgspec

from holdfast.app import exits
from holdfast.app.call import Call
from holdfast.app.compose import open_runtime
from holdfast.app.home import open_home
from holdfast.app.recovering import check_alone, find_losses, keep_aside, lines, record
from holdfast.app.settings.config import database_path
from holdfast.log.sqlite.watermark import missing

_BUSY_TIMEOUT_S = 30.0


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this verb."""
    parser.add_argument("--yes", action="store_true", help="go on without what is missing (default: only show it)")
    parser.add_argument("--json", action="store_true", help="print JSON")


async def run(call: Call) -> int:
    """Show what is missing; with consent, record the loss in each session and open the home again."""
    database, home = database_path(call.settings), open_home(Path(call.settings.home))
    lost = await anyio.to_thread.run_sync(missing, database, _BUSY_TIMEOUT_S)
    if not lost:
        if call.json:
            call.emit({"missing": [], "sessions": [], "strays": {}, "recovered": False, "kept": ""})
        call.say("no acknowledged event is missing; nothing was changed")
        return exits.DONE
    check_alone(home)
    losses = await find_losses(database, home, lost)
    if not call.json:
        for line in lines(losses, lost):
            call.say(line)
    kept = ""
    if call.args.yes:
        kept = str(await anyio.to_thread.run_sync(keep_aside, database, home))
        async with open_runtime(call.settings, accept_loss=True) as runtime:
            check_alone(home, runtime.worker.worker_id)
            await record(runtime, database, losses, lost)
    if call.json:
        named = [{"session_id": mark.session_id, "seq": mark.seq, "at_us": mark.at_us} for mark in lost]
        call.emit({"missing": named, **msgspec.to_builtins(losses), "recovered": bool(kept), "kept": kept})
    if kept:
        call.note(f"the loss is recorded, and the home works again; the files as they were found are kept in {kept}")
        return exits.DONE
    call.note(
        "nothing was changed. Put the newest database and its -wal file back if you have them; to go on without what "
        f"is missing: `{call.typed('recover', '--yes')}`"
    )
    return exits.DAMAGED
