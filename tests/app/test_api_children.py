"""Children that a function of the program opens: each call finds its own again, also after the program was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.facts.session import SessionCreated
from holdfast.facts.shift import ChildFinished, ChildOpened
from holdfast.facts.tool import ToolResult
from tests.app.api_program import call, types
from tests.app.parenting import functions
from tests.app.terminal import script, turn

ROOT = Path(__file__).parents[2]


async def test_a_function_opens_a_child_and_gets_its_result(hf: holdfast.Holdfast, tmp_path: Path) -> None:
    """The child has the same model: its first call is to a tool that it lacks, and its second turn is its result."""
    model = script(tmp_path / "m.json", call("review"), turn(text="Reviewed."))
    results: list[holdfast.Result] = []

    async def review(where: holdfast.ToolContext) -> str:
        """Have it reviewed."""
        for _ in range(2):
            results.append(await where.child("Review it.", key="review", name="reviewer", tools=[], max_turns=7))
        return results[0].text

    parent = await hf.run(holdfast.Agent(model, tools=[review]), "x", key="k")
    child, again = results
    assert (parent.ok, child.ok, child.text, child.name) == (True, True, "Reviewed.", "reviewer")
    assert again == child, "a key names one child"
    assert {each.session_id for each in await hf.sessions()} == {parent.session_id, child.session_id}
    seen = await types(hf, "k")
    order = ["tool.dispatched", "child.opened", "child.finished", "agent.tool_result"]
    assert [each for each in seen if each in order] == order
    (first, *_) = [event.fact async for event in hf.events(child.session_id)]
    assert isinstance(first, SessionCreated)
    assert first.limits.max_turns == 7


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"key": ""}, "UsageError: a child needs a key"),
        ({"key": "a", "tools": ["rm"]}, "UsageError: No child was opened: you do not have rm"),
        ({"key": "a", "max_turns": 0}, "UsageError: no child was opened: Expected `int` >= 1"),
    ],
)
async def test_a_child_that_may_not_be_opened_is_an_error_of_the_function(
    hf: holdfast.Holdfast, tmp_path: Path, options: dict[str, Any], why: str
) -> None:
    model = script(tmp_path / "m.json", call("review"), turn(text="I see."))

    async def review(where: holdfast.ToolContext) -> str:
        """Have it reviewed."""
        return (await where.child("Review it.", **options)).text

    parent = await hf.run(holdfast.Agent(model, tools=[review]), "x", key="k")
    (result,) = [event.fact async for event in hf.events("k") if isinstance(event.fact, ToolResult)]
    assert result.content.startswith(why)
    assert (parent.text, len(await hf.sessions())) == ("I see.", 1)


async def test_a_paused_session_opens_no_child(hf: holdfast.Holdfast, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", call("review"), turn(text="I see."))

    async def review(where: holdfast.ToolContext) -> str:
        """Have it reviewed."""
        await hf.pause(where.session_id)
        return (await where.child("Review it.", key="review")).text

    parent = await hf.run(holdfast.Agent(model, tools=[review]), "x", key="k")
    (result,) = [event.fact async for event in hf.events("k") if isinstance(event.fact, ToolResult)]
    assert result.content == "UsageError: No child was opened: the session was paused or stopped."
    assert (parent.status, len(await hf.sessions())) == ("parked", 1)


def killed(folder: Path, model: str) -> None:
    """Run the program until its child is inside a function, and kill it there."""
    paths = os.pathsep.join([str(ROOT), os.environ["PYTHONPATH"]])
    command = [sys.executable, "-m", "tests.app.parenting", str(folder), model]
    environment = {**os.environ, "PYTHONPATH": paths}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "begun\n"
        program.kill()
    (folder / "go").touch()


async def test_a_repeated_call_finds_the_child_that_the_killed_program_opened(tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", call("review"), call("hold"), turn(text="All done."))
    killed(tmp_path, model)
    async with holdfast.open(tmp_path / "home", tools=functions(tmp_path)) as hf:
        parent = await hf.resume("k")
        facts = [event.fact async for event in hf.events("k")]
        opened = [fact for fact in facts if isinstance(fact, ChildOpened)]
        finished = [fact for fact in facts if isinstance(fact, ChildFinished)]
        results = [fact.content for fact in facts if isinstance(fact, ToolResult)]
        assert (parent.ok, len(opened), len(finished)) == (True, 1, 1)
        assert opened[0].child_id == finished[0].child_id
        assert results == ["All done.", "held"]
        assert len(await hf.sessions()) == 2
