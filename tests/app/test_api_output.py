"""Typed output: submitted, checked against its type by any process, sent back when it is wrong."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

import holdfast
from holdfast.session.tools.output import SUBMIT_OUTPUT, schema_problem
from tests.app.api_program import call
from tests.app.terminal import Type, script, turn


class Report(msgspec.Struct):
    """What was found."""

    title: str
    pages: int
    tags: list[str] = []


@dataclasses.dataclass
class Point:
    """A point."""

    x: int
    y: float = 0.0


class Row(TypedDict):
    """A row."""

    name: str


def submit(output: Any) -> dict[str, Any]:
    """A turn that submits an output."""
    return call(SUBMIT_OUTPUT, output=output)


@pytest.mark.parametrize(
    ("kind", "given", "output"),
    [
        (Report, {"title": "a", "pages": 2}, Report("a", 2)),
        (Point, {"x": 1, "y": 2}, Point(1, 2.0)),
        (Row, {"name": "n"}, {"name": "n"}),
        (list[str], ["a", "b"], ["a", "b"]),
        (int, 7, 7),
    ],
)
async def test_an_output_has_its_type(
    hf: holdfast.Holdfast, tmp_path: Path, kind: type[Any], given: Any, output: Any
) -> None:
    model = script(tmp_path / "m.json", submit(given), turn(text="Over."))
    result = await hf.run(holdfast.Agent(model, tools=[], output_type=kind), "x", key="k")
    assert (result.status, result.output, type(result.output)) == ("done", output, type(output))
    assert (await hf.show("k")).output == given
    assert (await hf.show("k", output_type=kind)).output == output


async def test_wrong_outputs_go_back_to_the_model(hf: holdfast.Holdfast, tmp_path: Path) -> None:
    turns = [submit({"title": "a"}), turn(text="Done!"), submit({"title": "a", "pages": "3"}), submit(None)]
    model = script(tmp_path / "m.json", *turns, submit({"title": "a", "pages": 3}), turn(text="Over."))
    result = await hf.run(holdfast.Agent(model, tools=[], output_type=Report), "x")
    assert (result.status, result.output) == ("done", Report("a", 3))
    told = [getattr(event.fact, "content", "") async for event in hf.events(result.session_id)]
    for words in ("has no 'pages'", "no output is submitted", "must be of the type integer, not '3'", "type object"):
        assert any(words in each for each in told), words


async def test_after_five_of_them_a_user_is_asked(hf: holdfast.Holdfast, tmp_path: Path) -> None:
    turns = [turn(text="Done!") for _ in range(3)] + [submit(1) for _ in range(3)]
    model = script(tmp_path / "m.json", *turns, submit(["a"]), turn(text="Over."))
    agent = holdfast.Agent(model, tools=[], output_type=list[str])
    waiting = await hf.run(agent, "x", key="k")
    assert (waiting.status, waiting.reason, waiting.output, waiting.turns) == ("parked", "person", None, 6)
    (item,) = waiting.items
    assert (item.kind, item.item_id) == ("escalation", (await hf.inbox())[0].item_id)
    await hf.approve(item, "A list of text.")
    result = await hf.resume("k", output_type=list[str])
    assert (result.status, result.output) == ("done", ["a"])


async def test_another_goal_needs_another_output(hf: holdfast.Holdfast, tmp_path: Path) -> None:
    turns = [submit(1), turn(text="One."), turn(text="Two."), submit(2), turn(text="Two.")]
    agent = holdfast.Agent(script(tmp_path / "m.json", *turns), tools=[], output_type=int)
    assert (await hf.run(agent, "one", key="k")).output == 1
    assert (await hf.run(agent, "two", key="k")).output == 2
    other = holdfast.Agent(agent.model, tools=[], output_type=str)
    with pytest.raises(holdfast.UsageError, match="its output_type differ"):
        await hf.run(other, "three", key="k")


async def test_children_do_not_submit_it(hf: holdfast.Holdfast, tmp_path: Path) -> None:
    turns = [call("spawn", goal="a part"), submit(1), call("wait_for_children"), turn(text="Over.")]
    agent = holdfast.Agent(script(tmp_path / "m.json", *turns), tools=["spawn", "wait_for_children"], output_type=int)
    result = await hf.run(agent, "x", max_turns=10)
    assert (result.status, result.output) == ("done", 1)
    children = [each for each in await hf.sessions() if each.parent]
    assert {each.status for each in children} == {"done"}
    for each in children:
        assert (await hf.show(each.session_id)).output is None
        told = [getattr(event.fact, "content", "") async for event in hf.events(each.session_id)]
        assert any("there is no tool named 'submit_output'" in words for words in told if isinstance(words, str))


PROGRAM = """
import anyio, os, sys, holdfast
async def main():
    async with holdfast.open() as hf:
        agent = holdfast.Agent(sys.argv[1], tools=[], output_type=list[str])
        async for event in hf.stream(agent, "x", key="k"):
            if event.type == "agent.tool_use":
                os.kill(os.getpid(), 9)
anyio.run(main)
"""


def test_the_command_line_continues_it_in_the_same_way(type: Type, tmp_path: Path) -> None:
    model = script(tmp_path / "m.json", submit(1), turn(text="Done!"), submit(["a"]), turn(text="Over."))
    died = subprocess.run([sys.executable, "-c", PROGRAM, model], check=False)
    assert died.returncode == -9
    assert type("wake", "k", "--json").went().lines[-1]["status"] == "done"
    shown = type("logs", "k", "--json").went().out
    assert "must be of the type array" in shown
    assert "no output is submitted" in shown


@pytest.mark.parametrize("kind", [object, holdfast.Agent, set[object], "Report"])
def test_types_that_no_schema_describes_are_refused(kind: Any) -> None:
    with pytest.raises(holdfast.UsageError, match="output_type="):
        holdfast.Agent("scripted:/m", output_type=kind)


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"type": "integer"}, True, "of the type integer"),
        ({"type": "number"}, 3, ""),
        ({"type": "integer", "minimum": 1}, 0, "at least 1"),
        ({"type": "string", "pattern": "^a"}, "b", "that matches ^a"),
        ({"enum": ["a", "b"]}, "c", "one of 'a', 'b'"),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, None, ""),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, 1, "type null, not 1 or "),
        ({"type": "array", "items": {"type": "string"}}, ["a", 2], "v[1] must be"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": "b"}, "v.a must be"),
        ({"type": "object", "properties": {}, "additionalProperties": False}, {"a": 1}, "an unknown 'a'"),
    ],
)
def test_values_are_checked_against_a_schema(schema: dict[str, Any], value: Any, problem: str) -> None:
    found = schema_problem(value, schema, "v")
    assert problem in found
    assert bool(found) == bool(problem)


TYPED = """
import holdfast
async def main(hf: holdfast.Holdfast) -> None:
    result = await hf.run(holdfast.Agent("m:m", output_type=list[str]), "x")
    reveal_type(result.output)
    agent = holdfast.Agent("m:m")
    plain = await hf.run(agent, "x")
    reveal_type(plain.output)
    again = await hf.resume("k", output_type=int)
    reveal_type(again.output)
"""


def test_the_type_checker_knows_the_output(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", ".mypy_cache", str(tmp_path / "typed.py")]
    root = Path(__file__).parents[2]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    revealed = [line.partition("Revealed type is ")[2] for line in found.stdout.splitlines() if "Revealed" in line]
    assert "error" not in found.stdout
    plain = [each.replace("builtins.", "").strip('"') for each in revealed]
    assert plain == ["list[str] | None", "Any | None", "int | None"]


@pytest.mark.parametrize(
    "kind",
    [Annotated[int, msgspec.Meta(multiple_of=5)], list[Annotated[dict[str, int], msgspec.Meta(max_length=1)]]],
)
def test_a_constraint_that_other_processes_cannot_check_is_refused(kind: Any) -> None:
    with pytest.raises(holdfast.UsageError, match=r"constraint (multipleOf|maxProperties)"):
        holdfast.Agent("scripted:m.json", output_type=kind)
