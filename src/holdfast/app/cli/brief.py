"""`holdfast brief`: what happened while you were away, from the log."""

from __future__ import annotations

import argparse

import msgspec

from holdfast.app.call import Call
from holdfast.app.compose import open_runtime
from holdfast.app.screen.brief_rounds import show_all
from holdfast.app.screen.briefs import brief_of, since_of
from holdfast.kinds.mission.brief.text import markdown


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument(
        "session", metavar="ID", nargs="?", default="", help="a session or mission; all that moved when left out"
    )
    parser.add_argument(
        "--since", metavar="WHEN", default="", help="8h, 2d, 2026-11-20, 2026-11-20T08:00, or with an ID an event"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with nothing left out")


async def run(call: Call) -> int:
    """Tell it."""
    async with open_runtime(call.settings) as runtime:
        if not call.args.session:
            return await show_all(call, runtime)
        row = await runtime.store.find(call.args.session)
        since_us = await since_of(runtime, row, call.args.since) if call.args.since else None
        told = await brief_of(runtime, row, since_us=since_us)
        if call.json:
            call.emit({"type": "brief", **msgspec.to_builtins(told)})
        else:
            call.say(markdown(told, call.typed).rstrip())
    return 0
