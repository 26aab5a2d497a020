"""Waiting on a call in the hands and on the log at once."""

from __future__ import annotations

import anyio

from holdfast.brain.acts import egress as egress_act
from holdfast.brain.alongside import alongside
from holdfast.brain.shift import Shift
from holdfast.hands.base import ExecResult, Hands


async def wait(shift: Shift, hands: Hands, call_id: str) -> ExecResult:
    """The end of a call; a person's stop ends it (S14). Raises `HandsLost`."""

    async def kill_when_stopped() -> None:
        await shift.until_stopped()
        await hands.kill(shift.epoch, call_id)

    async def watch() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(kill_when_stopped)
            group.start_soon(egress_act.keep_pushed, shift)

    return await alongside(lambda: hands.wait(shift.epoch, call_id), watch)
