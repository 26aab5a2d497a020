"""The Python API: the context of a tool's call, forks, briefs, costs, and models that do not exist."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

import holdfast
from tests.app.terminal import PRICE, script, turn

SEEN: list[holdfast.ToolContext] = []


@holdfast.tool(on_unknown="probe")
def note(text: str, context: holdfast.ToolContext) -> str:
    """Write a note.

    Args:
        text: What to write.
    """
    SEEN.append(context)
    return context.call_id


@note.probe
def noted(context: holdfast.ToolContext) -> bool:
    """Whether a call with this context was made."""
    return context in SEEN


@pytest.fixture
def model(tmp_path: Path) -> str:
    """It notes something, then ends."""
    call = turn(tool_calls=[{"name": "note", "input": {"text": "x"}}])
    return script(tmp_path / "m.json", call, turn(text="Done."), price=PRICE)


async def test_a_tool_knows_its_call(model: str, holdfast_home: Path) -> None:
    assert list(note.spec.input_schema["properties"]) == ["text"], "the model does not see it"
    SEEN.clear()
    async with holdfast.open() as hf:
        result = await hf.run(holdfast.Agent(model, tools=[note]), "x", key="k")
    (context,) = SEEN
    assert context.session_id == result.session_id
    assert context.idempotency_key == f"{result.session_id}:{context.call_id}"
    runner = note.runner
    assert await runner.probe(context.call_id, {"text": "x"}, context.idempotency_key) is True
    assert await runner.probe("99.0", {"text": "x"}, "ses_other:99.0") is False
    again = await runner.run(context.call_id, {"text": "x"}, context.idempotency_key)
    assert (again.content, SEEN[0]) == (context.call_id, SEEN[1]), "the same context each time a call is tried"
    refused = await runner.run("3.0", {"text": "x", "context": {}}, "ses_x:3.0")
    assert not refused.ok, "the model cannot fill it in"


async def test_forks_briefs_and_costs(model: str, holdfast_home: Path) -> None:
    async with holdfast.open(tools=[note]) as hf:
        first = await hf.run(holdfast.Agent(model, tools=[note, "bash"]), "x", key="k", sandbox=False)
        assert first.cost_usd == first.own_cost_usd == Decimal("0.63")
        assert "Done." in await hf.brief("k") or "done" in await hf.brief("k")
        (day,) = await hf.cost()
        assert (day.usd, day.complete, day.sessions) == (Decimal("0.63"), True, 0)
        assert [(line.label, line.usd) for line in await hf.cost("session")] == [("k", Decimal("0.63"))]
        with pytest.raises(holdfast.CannotRunSafely, match="no snapshot"):
            await hf.fork("k", first.events)
        with pytest.raises(holdfast.UsageError, match="has the events 1 to"):
            await hf.fork("k", 999)


async def test_a_fork_has_the_files_of_its_point(tmp_path: Path, holdfast_home: Path) -> None:
    calls = [turn(tool_calls=[{"name": "bash", "input": {"command": f"echo {n} > f"}}]) for n in "ab"]
    model = script(tmp_path / "m.json", *calls, turn(text="Done."))
    async with holdfast.open() as hf:
        await hf.run(holdfast.Agent(model), "x", key="k", sandbox=False)
        results = [event.seq async for event in hf.events("k") if event.type == "agent.tool_result"]
        fork = await hf.fork("k", results[0], key="other", by="anna")
        assert (fork.status, fork.key) == ("parked", "other")
        assert (fork.workspace / "f").read_text() == "a\n"
        assert (await hf.fork("k", results[0], key="other")).session_id == fork.session_id
        (opened,) = [event async for event in hf.events("other") if event.type == "session.forked"]
        assert opened.actor == "user:anna"


@pytest.mark.parametrize("given", [{"model": "anthropc:x"}, {"model": "gpt-5"}, {"fallbacks": ["nobody:x"]}])
def test_a_model_that_does_not_exist(given: dict[str, object]) -> None:
    with pytest.raises(holdfast.UsageError, match="unknown model") as caught:
        holdfast.Agent(**given)  # type: ignore[arg-type]
    assert json.dumps(str(caught.value)).count("anthropic:NAME") == 1
