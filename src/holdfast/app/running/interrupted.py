"""After Ctrl-C: name the commands that still run under their supervisor, and end them on a second Ctrl-C."""

from __future__ import annotations

import os
import signal

import anyio
import msgspec

from holdfast.app.call import Call
from holdfast.app.compose import Runtime
from holdfast.app.exits import name_of
from holdfast.brain.recall import recall
from holdfast.errors import HoldfastError
from holdfast.facts.hands import HandsProvisioned
from holdfast.hands.base import Hands
from holdfast.log.base import Which
from holdfast.service.event_lines import counted, one_line
from holdfast.session.rows import SessionRow

WINDOW_S = 10.0
"""Time for the second Ctrl-C, in seconds."""


class _Running(msgspec.Struct, frozen=True):
    """A tool call that runs in hands while no brain runs its session."""

    row: SessionRow
    hands: HandsProvisioned
    fence: int
    call_id: str
    line: str


async def offer_to_end(call: Call, runtime: Runtime, session_id: str) -> None:
    """Name the commands of this session and all below it that still run. On a terminal, a second Ctrl-C ends them.

    Their results are kept otherwise, and the next wake takes them.
    """
    running = await _running(runtime, session_id)
    if not running:
        return
    for each in running:
        call.note(f"{name_of(each.row)}: still running under its supervisor: {each.line}")
    if call.json or not os.isatty(2):
        return
    which = "it" if len(running) == 1 else "them"
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        call.note(f"Ctrl-C within {WINDOW_S:.0f} s ends {which}; otherwise the next wake takes the result.")
        with anyio.move_on_after(WINDOW_S):
            if await anext(signals) == signal.SIGINT:
                ended = [await _ended(runtime, each) for each in running]
                call.note(f"Ended {counted(sum(ended), 'command')}.")


async def _running(runtime: Runtime, session_id: str) -> list[_Running]:
    found = []
    top = await runtime.store.find(session_id)
    holders = await runtime.store.holders()
    for row in await runtime.store.sessions(Which(root=top.root)):
        if row.session_id in holders or row.status not in ("runnable", "parked"):
            continue
        state, _ = await recall(row.session_id, runtime.store, runtime.store, runtime.kinds)
        for each in state.open_calls():
            hands = state.hands_known.get(each.hands_id)
            if each.attempt and hands is not None:
                line = one_line(f"{each.name} {each.argument}", 60)
                running = _Running(row, hands, state.fence, each.call_id, line)
                found += [running] if await _runs(runtime, running) else []
    return found


async def _runs(runtime: Runtime, each: _Running) -> bool:
    """True if the call runs in its hands. One that was dispatched may not have started: the next wake starts it."""
    try:
        return (await (await _hands(runtime, each)).status(each.fence, each.call_id)).state == "running"
    except HoldfastError:
        return False


async def _ended(runtime: Runtime, each: _Running) -> bool:
    """Kill a call in its hands; the journal keeps that for the next wake. False if that was not possible."""
    try:
        await (await _hands(runtime, each)).kill(each.fence, each.call_id)
    except HoldfastError:
        return False
    return True


async def _hands(runtime: Runtime, each: _Running) -> Hands:
    return await runtime.providers.named(each.hands.provider, accept_weak=True).attach(each.hands)
