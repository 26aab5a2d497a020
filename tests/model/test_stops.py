"""Somebody stops an answer in the middle: what is kept, what it costs, and that nothing stays open."""

from __future__ import annotations

from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from holdfast.brain.doors import NoObserver
from holdfast.facts.base import text_of
from holdfast.facts.model import AgentMessage, AgentThinking, AgentToolUse
from holdfast.facts.tool import ToolDispatched
from holdfast.model.base import StreamPart, TextDelta
from tests.model.rigs import Rig, request, tool_turn, user
from tests.model.test_wire_faults import within_the_call
from tests.support.fault_proxy import Fault
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.filterwarnings("ignore:.* is not a valid FinishReason")


async def until_stalling(rig: Rig, count: int) -> None:
    """Wait until so many connections hang."""
    with anyio.fail_after(PATIENCE_S):
        while rig.proxy.stalling != count:
            await anyio.lowlevel.checkpoint()


class Words(NoObserver):
    """Sees when words have arrived."""

    def __init__(self) -> None:
        self.came = anyio.Event()

    def on_delta(self, part: StreamPart) -> None:
        """They have."""
        if isinstance(part, TextDelta):
            self.came.set()


async def test_an_interrupt_keeps_the_words_and_closes_the_connection(rig: Rig) -> None:
    rig.server.load(*tool_turn(reasoning="Where is it?", reasoningSignature="c2lnbmVk"))
    rig.proxy.faults = [Fault(stall_at=within_the_call(rig, reasoning=True))]
    words = Words()
    rig.stage.doors = replace(rig.stage.doors, observer=words)
    await rig.stage.open()
    async with anyio.create_task_group() as group:
        group.start_soon(rig.stage.wake)
        await words.came.wait()
        await until_stalling(rig, 1)
        await rig.stage.post("interrupt")
    await until_stalling(rig, 0)
    (end,) = await rig.ends()
    assert end.outcome == "cancelled"
    assert end.cost_pico
    assert [text_of(fact.content) for fact in await rig.stage.facts(AgentMessage)] == ["I build."]
    assert not await rig.stage.facts(AgentToolUse)
    assert not await rig.stage.facts(ToolDispatched)
    thoughts = await rig.stage.facts(AgentThinking)
    assert all(thought.signature and thought.provider == rig.family for thought in thoughts)
    assert bool(thoughts) is (rig.family in ("anthropic", "openai"))
    await rig.check_books()
    rig.proxy.seen.clear()
    await rig.stage.post("send", "go on")
    await rig.stage.wake()
    assert "I build." in rig.proxy.seen[0].body.decode()


async def test_a_cancelled_task_closes_the_connection(rig: Rig) -> None:
    rig.server.load(*tool_turn())
    rig.proxy.faults = [Fault(stall_at=-1), Fault(stall_at=within_the_call(rig))]
    for _ in range(2):
        async with anyio.create_task_group() as group:
            group.start_soon(rig.ask, request(user()))
            await until_stalling(rig, 1)
            group.cancel_scope.cancel()
        await until_stalling(rig, 0)
