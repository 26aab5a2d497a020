"""`holdfast stop`: the emergency stop for everything in a home."""

from __future__ import annotations

import argparse

import anyio

from holdfast.app.call import Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.detached import see_to
from holdfast.app.exits import name_of
from holdfast.app.news import end_jobs
from holdfast.app.running.answering import span
from holdfast.app.screen.progress import counted, one_line
from holdfast.brain.recall import recall
from holdfast.clock import rfc3339
from holdfast.errors import HoldfastError
from holdfast.log.base import Which
from holdfast.service.posting import person
from holdfast.session.rows import SessionRow
from holdfast.session.state import State

WAIT_S = 10.0
"""How long it stays to see what runs come to rest."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--all", action="store_true", help="stop everything: nothing starts, what runs comes to rest")
    which.add_argument("--release", action="store_true", help="lift the stop; what it rested goes on")
    parser.add_argument("--reason", metavar="TEXT", default="", help="why, for the log")
    parser.add_argument("--wait", metavar="TIME", type=span, default=WAIT_S, help="how long to watch it come to rest")
    parser.add_argument("--no-wake", action="store_true", help="with --release: start nothing")
    parser.add_argument("--json", action="store_true", help="print JSON lines")


async def run(call: Call) -> int:
    """Stop or release. Safe to repeat."""
    async with open_runtime(call.settings) as runtime:
        return await (_release(call, runtime) if call.args.release else _stop(call, runtime))


async def _stop(call: Call, runtime: Runtime) -> int:
    stopping = await runtime.intake.stop_all(call.args.reason)
    stop = stopping.stop
    again = f" already, since {rfc3339(stop.at_us)[:19]}Z by {person(stop.by)}" if stopping.before else ""
    call.say(f"everything is stopped{again}: nothing starts until `{call.typed('stop', '--release')}`")
    holders = await runtime.store.holders()
    running = [row for row in stopping.resting if row.session_id in holders]
    left = await _watch(call, runtime, running)
    for row in running:
        resting = row not in left
        if call.json:
            call.emit({"session_id": row.session_id, "stop_seq": stop.seq, "resting": resting})
        elif resting:
            call.say(f"{name_of(row)} rests")
        else:
            call.say(f"{name_of(row)} is not at rest yet: {await _doing(runtime, row)}")
    await _end_jobs(call, runtime)
    idle = len(stopping.resting) - len(running)
    if idle:
        call.note(f"{counted(idle, 'session')} that nobody ran {'stays' if idle == 1 else 'stay'} as they are")
    if not running:
        call.note("nothing was running")
    return 0


async def _end_jobs(call: Call, runtime: Runtime) -> None:
    """Jobs and services go on without a brain, so they are ended here."""
    for row in [row for status in ("runnable", "parked") for row in await runtime.store.sessions(Which(status=status))]:
        try:
            ended = await end_jobs(runtime, row.session_id)
        except HoldfastError as error:
            call.say(f"the jobs of {name_of(row)} could not be ended: {error}")
            continue
        if ended and not call.json:
            call.say(f"{counted(ended, 'command')} that {name_of(row)} left running ended")


async def _watch(call: Call, runtime: Runtime, running: list[SessionRow]) -> list[SessionRow]:
    """Wait until they rest, or until it takes too long. Returns those that still run."""
    left, token = running, 0
    with anyio.move_on_after(call.args.wait):
        while left:
            token = await runtime.store.changed(token)
            holders = await runtime.store.holders()
            left = [row for row in left if row.session_id in holders]
    return left


async def _doing(runtime: Runtime, row: SessionRow) -> str:
    state, _ = await recall(row.session_id, runtime.store, runtime.store, runtime.kinds)
    return f"{_step(state)}; should its process hang, it can start nothing new all the same"


def _step(state: State) -> str:
    out = [call for call in state.open_calls() if call.attempt]
    if out:
        return f"it ends its call of {out[0].name} ({one_line(out[0].argument, 60)})"
    if state.request is not None:
        return f"it ends its request to {state.request.model}"
    return "it is between two steps"


async def _release(call: Call, runtime: Runtime) -> int:
    stop, rows = await runtime.intake.release(call.args.reason)
    call.say("the emergency stop is lifted" if stop else "there is no emergency stop")
    for row in rows:
        if call.json:
            call.emit({"session_id": row.session_id, "released": True})
        call.note(await see_to(call, runtime, row.session_id, start=not call.args.no_wake))
    return 0
