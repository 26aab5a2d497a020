"""Arguments that are nested too deep: the model hears of it as the result of that call, and the session goes on."""

from __future__ import annotations

import json

import pytest

from holdfast.facts.bounded_json import TOO_DEEP, too_deep
from holdfast.facts.model import AgentToolUse
from holdfast.facts.tool import ToolDispatched, ToolResult
from holdfast.model.direct.wire import PRUNED_FROM, pruned
from tests.brain.stage import Stage
from tests.facts.test_bounded_json import deep
from tests.model.rigs import Rig, tool_turn
from tests.support.fault_proxy import Fault

pytestmark = pytest.mark.filterwarnings("ignore:.* is not a valid FinishReason")

DEEP = [("arrays", 66), ("arrays", 1_100), ("objects", 1_100), ("both", 5_000), ("brackets in text", 20_000)]

MARK = "MARK"


async def check(stage: Stage, requests: int) -> None:
    """One malformed call with an error that says why; one more request; the session is done."""
    (use,) = await stage.facts(AgentToolUse)
    assert use.input == {}
    assert use.malformed
    (result,) = await stage.facts(ToolResult)
    assert result.outcome == "error"
    assert TOO_DEEP in result.content
    assert await stage.facts(ToolDispatched) == []
    assert (await stage.types())[-1] == "shift.ended"
    assert (await stage.store.find(stage.session_id)).status == "done"
    assert (await stage.types()).count("span.model_request_start") == requests


@pytest.mark.parametrize(("shape", "levels"), DEEP)
async def test_through_each_provider(rig: Rig, shape: str, levels: int) -> None:
    whole = f'{{"command":{deep(shape, levels)}}}'
    turns = tool_turn(toolCalls=[{"name": "bash", "arguments": {"command": MARK}, "id": "call_1"}])
    rig.server.load(*turns)
    marks = {"google": (json.dumps({"command": MARK}, separators=(",", ":")), whole)}
    before, after = marks.get(rig.family, (json.dumps(f'{{"command":"{MARK}"}}')[1:-1], json.dumps(whole)[1:-1]))

    def rewrite(body: bytes) -> bytes:
        assert before.encode() in body
        return body.replace(before.encode(), after.encode())

    rig.proxy.faults = [Fault(rewrite=rewrite)]
    await rig.run()
    await check(rig.stage, 2)
    await rig.check_books()


@pytest.mark.parametrize(("shape", "levels"), DEEP)
async def test_through_a_script(shape: str, levels: int) -> None:
    call = {"name": "bash", "malformed": f'{{"command":{deep(shape, levels)}}}'}
    stage = Stage([{"tool_calls": [call]}, {"text": "Flatter, then."}])
    await stage.run()
    await check(stage, 2)


@pytest.mark.parametrize(("shape", "levels"), DEEP)
def test_a_line_is_pruned_to_what_a_library_can_read_and_stays_too_deep(shape: str, levels: int) -> None:
    line = f'data: {{"deep":{deep(shape, levels)},"after":["x"]}}'.encode()
    value = json.loads(pruned(line).removeprefix(b"data: "))
    assert value["after"] == ["x"]
    assert too_deep(value["deep"])
    assert len(pruned(line)) <= max(len(line) if levels < PRUNED_FROM else 0, 20 * PRUNED_FROM)


@pytest.mark.parametrize("line", [b"data: " + b"[" * 500, b"data: " + b"]" * 500, b'data: "' + b"[" * 500, b": ping"])
def test_a_line_that_is_not_json_is_let_be(line: bytes) -> None:
    assert pruned(line) == line
