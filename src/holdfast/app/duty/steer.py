"""`holdfast duty run-now`, `pause`, `resume`, `remove`, `replay`: requests of users to a duty."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.app.call import Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.service import duties
from holdfast.service.event_lines import counted
from holdfast.session.rows import SessionRow


def named(parser: argparse.ArgumentParser) -> None:
    """Add the name of a duty to the arguments."""
    parser.add_argument("name", metavar="NAME", help="Name or ID of the duty")
    parser.add_argument("--json", action="store_true", help="Print JSON lines")


@asynccontextmanager
async def _found(call: Call) -> AsyncIterator[tuple[Runtime, SessionRow]]:
    async with open_runtime(call.settings) as runtime:
        row = await duties.find_duty(runtime.store, call.args.name)
        yield runtime, row


async def _say(call: Call, runtime: Runtime, row: SessionRow, done: str) -> int:
    if call.json:
        call.emit({"session_id": row.session_id, "name": row.key, "done": done})
    call.say(f"the duty {row.key or row.session_id} {done}")
    if not await runtime.is_served(row.session_id):
        call.note(f"nothing runs sessions here yet; start: {call.typed('serve')} (or {call.typed('worker')})")
    return 0


async def run_now(call: Call) -> int:
    """Ask for a firing now."""
    async with _found(call) as (runtime, row):
        await duties.run_now(runtime.intake, row)
        return await _say(call, runtime, row, "fires once now, after a firing that is at work")


async def pause(call: Call) -> int:
    """Pause a duty."""
    async with _found(call) as (runtime, row):
        await runtime.intake.pause(row)
        return await _say(call, runtime, row, "is paused")


async def resume(call: Call) -> int:
    """Resume a duty that a user or an approver stopped."""
    async with _found(call) as (runtime, row):
        await runtime.intake.resume(row)
        return await _say(call, runtime, row, "goes on with its next instant")


async def remove(call: Call) -> int:
    """End a duty for good."""
    async with _found(call) as (runtime, row):
        await runtime.intake.cancel(row)
        return await _say(call, runtime, row, "is removed")


def ack_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `duty ack`."""
    named(parser)
    parser.add_argument("alerts", metavar="ALERT", nargs="*", help="Alerts to acknowledge (default: all raised ones)")
    parser.add_argument("-m", "--note", metavar="TEXT", default="", help="Note for other users")


async def ack(call: Call) -> int:
    """Acknowledge alerts."""
    async with _found(call) as (runtime, row):
        own = await duties.state_of_duty(runtime.store, runtime.store, runtime.kinds, row)
        done = await duties.acknowledge(runtime.intake, row, own, call.args.alerts, call.args.note)
        return await _say(call, runtime, row, f"keeps silent about {', '.join(done)} until cleared")


def replay_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `duty replay`."""
    named(parser)
    parser.add_argument("keys", metavar="KEY", nargs="*", help="Keys of dead events (default: all)")


async def replay(call: Call) -> int:
    """Put dead events back into the queue."""
    async with _found(call) as (runtime, row):
        own = await duties.state_of_duty(runtime.store, runtime.store, runtime.kinds, row)
        keys = await duties.replay(runtime.intake, row, own, call.args.keys)
        return await _say(call, runtime, row, f"handles {counted(len(keys), 'dead event')} again")
