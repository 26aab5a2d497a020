"""`holdfast logs`: the events of a session."""

from __future__ import annotations

import argparse

import anyio

from holdfast.app.call import Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.drive import LOOK_S
from holdfast.app.progress import describe, public
from holdfast.clock import rfc3339
from holdfast.errors import UsageError
from holdfast.facts.codec import Event
from holdfast.facts.union import FACT_TYPES

PAGE = 1_000


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", help="a session's id, key, or a unique beginning of either")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until nobody runs it any more")
    parser.add_argument("--after", metavar="SEQ", type=int, default=0, help="only events after this one")
    parser.add_argument("--type", metavar="T", nargs="+", default=[], help="only events of these types")
    parser.add_argument("--json", action="store_true", help="print JSON lines")


async def run(call: Call) -> int:
    """Print them."""
    for name in call.args.type:
        if name not in FACT_TYPES:
            raise UsageError(f"--type {name}: no event has that type; they are {', '.join(FACT_TYPES)}")
    if call.args.after < 0:
        raise UsageError("--after has to be 0 or more; an example is: holdfast logs 7f3k --after 40")
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        seen = await _print_after(call, runtime, row.session_id, call.args.after)
        while call.args.follow and row.session_id in await runtime.store.holders():
            with anyio.move_on_after(LOOK_S):
                await runtime.store.wait(row.session_id, seen)
            seen = await _print_after(call, runtime, row.session_id, seen)
    return 0


async def _print_after(call: Call, runtime: Runtime, session_id: str, seen: int) -> int:
    while events := await runtime.store.read(session_id, after=seen, limit=PAGE):
        for event in events:
            _print(call, event)
        seen = events[-1].seq
    return seen


def _print(call: Call, event: Event) -> None:
    if call.args.type and event.type not in call.args.type:
        return
    if call.json:
        call.emit(public(event))
    else:
        call.say(f"{event.seq:>6}  {rfc3339(event.at_us)[:23]}  {event.type:<26} {describe(event)}")
