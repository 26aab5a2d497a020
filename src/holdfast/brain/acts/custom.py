"""Calls of the embedding program's own functions, which run in the brain's process."""

from __future__ import annotations

from typing import Literal

import anyio

from holdfast.brain.alongside import first_error
from holdfast.brain.custom import CustomResult, ToolRunner
from holdfast.brain.shift import Shift
from holdfast.errors import UsageError
from holdfast.facts.model import AgentToolUse
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.session.state import Call


def runner(shift: Shift, name: str) -> ToolRunner:
    """The function behind a tool. Raises `UsageError` when this program does not bring it."""
    found = shift.doors.tools.get(name)
    if found is None:
        raise UsageError(
            f"session {shift.state.session_id} uses the tool {name!r}, a function that this program does not have; "
            "nothing was run: wake it from the program that defines it"
        )
    return found


def key_of(shift: Shift, call_id: str) -> str:
    """The idempotency key of a call: the same for each time it is tried."""
    return f"{shift.state.session_id}:{call_id}"


async def run_all(shift: Shift, uses: list[AgentToolUse]) -> None:
    """Run dispatched calls, side by side, and record how each ended."""
    try:
        async with anyio.create_task_group() as group:
            for use in uses:
                group.start_soon(_run, shift, use)
    except BaseExceptionGroup as error:
        raise first_error(error) from None


async def _run(shift: Shift, use: AgentToolUse) -> None:
    """A person's stop does not end a function in the middle: nobody would know what it did."""
    began_s = shift.doors.clock.monotonic_s()
    found = runner(shift, use.name)
    result = await found.run(use.call_id, use.input, key_of(shift, use.call_id) if found.spec.keyed else "")
    call = shift.state.call(use.call_id)
    if result.unknown:
        await shift.fact(_unknown(call, result))
        return
    duration_ms = round((shift.doors.clock.monotonic_s() - began_s) * 1000, 3)
    await shift.fact(settled(call, "ok" if result.ok else "error", result.content, duration_ms=duration_ms))


async def probe(shift: Shift, use: AgentToolUse) -> bool | None:
    """Whether a call of a dead process happened, by the tool's own probe."""
    found = runner(shift, use.name)
    return await found.probe(use.call_id, use.input, key_of(shift, use.call_id))


def settled(
    call: Call,
    outcome: Literal["ok", "error"],
    content: str,
    *,
    duration_ms: float | None = None,
    reconciled: bool = False,
) -> ToolResult:
    """The end of a call, with what it cost."""
    priced = call.reserved_pico is not None
    return ToolResult(
        call_id=call.call_id,
        outcome=outcome,
        content=content,
        duration_ms=duration_ms,
        reconciled=reconciled,
        dispatch_seq=call.dispatch_seq if priced else 0,
        cost_pico=call.reserved_pico,
    )


def _unknown(call: Call, result: CustomResult) -> ToolOutcomeUnknown:
    priced = call.reserved_pico is not None
    return ToolOutcomeUnknown(
        call_id=call.call_id,
        reason=result.content,
        content=f"The outcome of this call is unknown: {result.content}. Look at the actual state before you go on.",
        dispatch_seq=call.dispatch_seq if priced else 0,
        cost_pico=call.reserved_pico,
    )
