"""`holdfast logs`: the events of a session."""

from __future__ import annotations

import argparse

from holdfast.app.call import Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.exits import name_of, next_step
from holdfast.app.running.drive import watch
from holdfast.app.screen.progress import in_detail, public
from holdfast.app.settings.config import nearest
from holdfast.brain.recall import recall
from holdfast.clock import rfc3339
from holdfast.errors import UsageError
from holdfast.facts.codec import Event
from holdfast.facts.union import FACT_TYPES
from holdfast.model.base import StreamPart

PAGE = 1_000


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", help="a session's id, key, or a unique beginning of either")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until nobody runs it any more")
    parser.add_argument("--after", metavar="SEQ", type=position, default=0, help="only events after this one")
    parser.add_argument("--type", metavar="T", nargs="+", default=[], help="only events of these types")
    parser.add_argument("--json", action="store_true", help="print JSON lines")


def position(text: str) -> int:
    """A sequence number, or 0."""
    if not text.isdecimal() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a sequence number, such as 40")
    return int(text)


async def run(call: Call) -> int:
    """Print them."""
    for name in call.args.type:
        if name not in FACT_TYPES:
            raise UsageError(f"--type {name}: no event has that type; {nearest(name, FACT_TYPES)}")
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        if call.args.follow:
            await watch(runtime, row.session_id, _Lines(call), call.args.after)
            await _ended(call, runtime, row.session_id)
            return 0
        seen, lines = call.args.after, _Lines(call)
        while events := await runtime.store.read(row.session_id, after=seen, limit=PAGE):
            lines.on_events(events)
            seen = events[-1].seq
    return 0


async def _ended(call: Call, runtime: Runtime, session_id: str) -> None:
    """Why there is nothing more to follow."""
    row = await runtime.store.find(session_id)
    state, _ = await recall(session_id, runtime.store, runtime.store, runtime.kinds)
    call.note(f"{name_of(row)} is {row.status}; nobody runs it now. {next_step(row, state, call.typed)}")


class _Lines:
    """An observer that prints every event that is asked for."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._types = frozenset(call.args.type)

    def on_events(self, events: list[Event]) -> None:
        """Print them."""
        for event in events:
            if self._types and event.type not in self._types:
                continue
            if self._call.json:
                self._call.emit(public(event))
            else:
                line = f"{event.seq:>6}  {rfc3339(event.at_us)[:23]}  {event.type:<24} {in_detail(event)}"
                self._call.say(line.rstrip())

    def on_delta(self, part: StreamPart) -> None:
        """Deltas are not events."""
