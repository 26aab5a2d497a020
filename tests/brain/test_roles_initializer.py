"""An initializer: what of its contract counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.facts.mission import Role, WorkSubmitted
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.facts.tool import ToolResult
from holdfast.session.state import State
from tests.brain.stage import Stage, turn

pytestmark = pytest.mark.anyio

FEATURE = {
    "id": "add",
    "description": "a user can add two numbers",
    "acceptance": ["`calc 1 2` prints 3"],
    "check": "test $(./calc 1 2) = 3",
}
GOOD: dict[str, Any] = {"features": [FEATURE], "init_sh": "true\n", "why": "two parts"}


async def run(*submitted: dict[str, Any]) -> tuple[Stage, State, list[ToolResult]]:
    """An initializer that hands these in, one after the other."""
    stage = Stage([turn("", ("submit_contract", each)) for each in submitted])
    stage.doors = replace(stage.doors, prompts={**stage.doors.prompts, "initializer": "an initializer"})
    agent = Agent(model="scripted", tools=("bash", "read", "submit_contract"))
    created = SessionCreated(goal="the goal", agent=agent, workspace=Workspace("/w"), role=Role("initializer"))
    await stage.intake.open(stage.session_id, created)
    outcome = await stage.wake()
    return stage, outcome.state, await stage.facts(ToolResult)


async def test_a_contract_is_handed_in_and_ends_the_session() -> None:
    stage, state, results = await run(GOOD)
    assert [result.outcome for result in results] == ["ok"]
    assert state.ended is not None
    assert state.ended.status == "done"
    (handed,) = await stage.facts(WorkSubmitted)
    assert (handed.kind, handed.body) == ("initializer", GOOD)
    assert stage.model.requests[0].system.startswith("an initializer")


async def test_that_a_plain_run_would_do_needs_a_reason_and_no_feature() -> None:
    _, state, results = await run({"plain_run_would_do": True}, {"plain_run_would_do": True, "why": "one file"})
    assert [result.outcome for result in results] == ["error", "ok"]
    assert "Say in `why`" in results[0].content
    assert state.ended is not None
    assert state.ended.status == "done"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, "It has no features"),
        ({"features": [{"id": "x"}]}, "description"),
        ({"features": [FEATURE, FEATURE]}, "add"),
    ],
)
async def test_a_contract_that_cannot_be_sealed_comes_back_with_what_is_wrong(
    wrong: dict[str, Any], words: str
) -> None:
    _, _, results = await run(wrong, GOOD)
    assert [result.outcome for result in results] == ["error", "ok"]
    assert words in results[0].content
