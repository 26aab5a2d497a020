"""Running one session to its next stop, from the command line."""

from __future__ import annotations

import sys
from typing import Any

import anyio

from holdfast.app import exits
from holdfast.app.call import Call
from holdfast.app.compose import Runtime
from holdfast.app.progress import JsonProgress, PlainProgress
from holdfast.brain.doors import Doors, Observer
from holdfast.brain.recall import recall
from holdfast.brain.wake import wake
from holdfast.clock import SystemClock
from holdfast.errors import LeaseHeld
from holdfast.facts.base import text_of
from holdfast.facts.model import AgentMessage
from holdfast.fleet.dispatch import InlineDispatcher
from holdfast.session.money import usd, usd_float
from holdfast.session.rows import SessionRow
from holdfast.session.state import State

LOOK_S = 1.0
"""How often an attached command looks whether the holder still lives."""


def observer_for(call: Call) -> Observer:
    """Plain lines for people, JSON lines for scripts."""
    return JsonProgress(call.emit) if call.json else PlainProgress(SystemClock(), call.note)


async def drive(call: Call, runtime: Runtime, session_id: str, doors: Doors, *, steal: bool = False) -> int:
    """Wake the session and stay with it until it stops; attach while another process runs it."""
    clock = SystemClock()
    began_s = clock.monotonic_s()
    dispatcher = InlineDispatcher(runtime.store, clock, only=session_id)

    async def handle(session_id: str) -> None:
        nonlocal steal
        try:
            outcome = await wake(session_id, doors, steal=steal)
            elsewhere = "was taken over by another process" if outcome.fenced else ""
        except LeaseHeld as held:
            elsewhere = f"is running in another process ({held.worker_id})"
        steal = False
        if elsewhere:
            call.note(f"{session_id} {elsewhere}; watching it")
            await _watch(runtime, session_id, doors.observer)
            await dispatcher.ring(session_id)

    await dispatcher.ring(session_id)
    await dispatcher.run(handle)
    row = await runtime.store.find(session_id)
    await _report(call, runtime, row, clock.monotonic_s() - began_s)
    return exits.exit_code(row.status, row.reason)


async def _watch(runtime: Runtime, session_id: str, observer: Observer) -> None:
    """Show what another process does with the session, until nobody holds it."""
    seen = (await runtime.store.find(session_id)).head
    while session_id in await runtime.store.holders():
        with anyio.move_on_after(LOOK_S):
            await runtime.store.wait(session_id, seen)
        events = await runtime.store.read(session_id, after=seen)
        observer.on_events(events)
        seen += len(events)


async def _report(call: Call, runtime: Runtime, row: SessionRow, wall_s: float) -> None:
    state, _ = await recall(row.session_id, runtime.store, runtime.store)
    if call.json:
        call.emit(result_line(row, state, wall_s))
        return
    answer = await last_message(runtime, state)
    if answer:
        print(answer, file=sys.stdout, flush=True)
    why = f" ({row.reason})" if row.reason else ""
    detail = f": {row.detail}" if row.detail else ""
    cost = usd(None if state.unpriced else state.cost_pico)
    call.note(f"{row.session_id} {row.status}{why}{detail} — {row.head} events, {row.turns} turns, {cost}")
    step = exits.next_step(row)
    if step:
        call.note(step)


async def last_message(runtime: Runtime, state: State) -> str:
    """The model's latest words; empty when there are none."""
    events = await runtime.store.read(state.session_id, after=max(0, state.seq - 200))
    for event in reversed(events):
        if isinstance(event.fact, AgentMessage):
            return text_of(event.fact.content)
    return ""


def result_line(row: SessionRow, state: State, wall_s: float) -> dict[str, Any]:
    """The last line of `--json` (CLI reference)."""
    usage = state.usage
    return {
        "type": "result",
        "session_id": row.session_id,
        "status": row.status,
        "stop_reason": row.reason or row.status,
        "exit_code": exits.exit_code(row.status, row.reason),
        "usage": {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cache_read_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "cost_usd": None if state.unpriced else usd_float(state.cost_pico),
        "events": row.head,
        "wall_s": round(wall_s, 3),
    }
