"""`holdfast loop` checks again what passed, does what it planned, and counts what commands report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.facts.base import Usage
from holdfast.kinds.loop.agent import plan_of
from holdfast.kinds.loop.plan import CHEAP_MS, STEP, LoopSpec, Means, Plan, Seen, Step, next_plan
from holdfast.kinds.loop.prompt import reported
from holdfast.model.base import ModelRequest
from holdfast.session.context.conversation import Message, TextPart, ToolResultPart
from tests.app.looping import DOES, loop, passes, plans, project, story
from tests.app.terminal import Type

pytestmark = pytest.mark.usefixtures("holdfast_home")

SPEC = LoopSpec(("true",), "prd.json", template="{{item}}")


def own_settings(tmp_path: Path, text: str) -> None:
    """The user's own settings."""
    mine = tmp_path / "config" / "holdfast"
    mine.mkdir(parents=True, mode=0o700, exist_ok=True)
    (mine / "holdfast.toml").write_text(text)


def test_what_a_later_iteration_breaks_is_not_done(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(1), story(2))
    breaks = f"{DOES}; [ $id = US-001 ] || rm -f US-001"
    said = loop(type, folder, command=breaks).went()
    assert "all 2 items of prd.json pass after 3 iterations" in said.out
    assert (folder / "US-001").exists()
    assert passes(folder) == {"US-001": True, "US-002": True}
    assert "- US-001: passed before and no longer does" in (folder / "progress.txt").read_text()


def test_what_is_broken_again_and_again_is_never_done(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(1), story(2))
    loop(type, folder, "--max-iterations", "4", command=f"rm -f US-00*; {DOES}").went(4)
    assert sum(passes(folder).values()) == 1


def test_marks_that_a_person_set_are_checked_before_the_end(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(1, passes=True), story(2, passes=True))
    (folder / "US-002").touch()
    said = loop(type, folder, "--max-iterations", "1").went()
    assert "after 1 iteration." in said.out
    assert (folder / "US-001").exists()
    assert "## All items checked again after iteration 0" in (folder / "progress.txt").read_text()


def test_checks_that_change_the_files_never_all_pass_on_the_same_ones(type: Type, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", story(1, check="date +%N > stamp"))
    loop(type, folder, "--session-id", "k").went(3)
    (item,) = type("inbox", "--json").lines
    assert "never passed on the same files" in json.dumps(item)
    type("approve", item["item_id"], "--no-wake").went()
    assert "their checks change the folder, which a person accepted" in type("wake", "k").went().out


def test_slow_checks_are_run_again_at_the_end_alone() -> None:
    items = [story(n, passes=n < 4) for n in range(1, 6)]
    seen = Seen({"prd.json": json.dumps({"userStories": items}).encode()}, "", "t")
    carried = Plan("rest", "", took_ms={"US-001": 10.0, "US-002": CHEAP_MS * 3})
    plan = next_plan(SPEC, carried, seen, Means(True, None, 0))
    assert plan.again == ("US-001",), "how long US-003 takes is not known yet"
    items[4]["passes"] = True
    seen = Seen({"prd.json": json.dumps({"userStories": items}).encode()}, "", "t")
    last = next_plan(SPEC, carried, seen, Means(True, None, 0))
    assert last.again == ("US-001", "US-002", "US-003", "US-005")
    assert [call.purpose for call in last.calls if call.purpose.startswith("again")] == [
        f"again:{name}:0" for name in last.again
    ]


# --- what was planned is done ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "done"), [("work", True), ("check", True), ("ask", True), ("rest", False), ("done", False)]
)
def test_a_note_after_a_plan_keeps_no_work_from_being_done(kind: Any, done: bool) -> None:
    plan = Plan(kind, "", (Step("bash", {"command": "true"}, "work"),))
    result = ToolResultPart("c", STEP, msgspec.json.encode(plan).decode(), False, "")
    request = ModelRequest("turn", "", (Message("user", (result, TextPart("It is ready."))),), (), 100, 1, 1)
    assert (plan_of(request) is not None) == done
    assert plan_of(msgspec.structs.replace(request, messages=(Message("user", (result,)),))) == plan


def test_a_note_on_the_environment_costs_no_iteration(type: Type, tmp_path: Path, holdfast_home: Path) -> None:
    own_settings(tmp_path, '[environment]\nsetup = ["true"]\n')
    folder = project(tmp_path / "p")
    loop(type, folder, "--until", "test $(wc -l < n) -ge 3", "--max-iterations", "3", command="echo x >> n").went()
    assert (folder / "n").read_text() == "x\n" * 3
    assert [plan["iteration"] for plan in plans(holdfast_home) if plan["kind"] == "work"] == [1, 2, 3]


def test_on_host_an_environment_of_the_user_is_left_out(type: Type, tmp_path: Path) -> None:
    own_settings(tmp_path, '[environment]\nsetup = ["touch made"]\n')
    folder = project(tmp_path / "p", story(1))
    said = loop(type, folder, "--on-host").went()
    assert "[environment] is ignored" in said.err
    assert passes(folder) == {"US-001": True}


# --- what it used ------------------------------------------------------------------------------------

CODEX = (
    '{"type":"thread.started","thread_id":"t"}\n{"type":"item.completed","item":{"type":"agent_message","text":"ok"}}\n'
    '{"type":"turn.completed","usage":{"input_tokens":1200,"cached_input_tokens":200,"output_tokens":30}}'
)
STEP_USED = '{"type":"step_finish","part":{"type":"step-finish","tokens":{"input":5,"output":2,"reasoning":1,"cache":'
OPENCODE = f'{STEP_USED}{{"read":9,"write":0}}}},"cost":0.25}}}}\n' * 2
CLAUDE = (
    '{"type":"result","total_cost_usd":0.5,"usage":{"input_tokens":7,"output_tokens":2,"cache_read_input_tokens":4}}'
)


@pytest.mark.parametrize(
    ("output", "cents", "usage"),
    [
        (CLAUDE, 50, Usage(7, 2, 4)),
        (CODEX, None, Usage(1000, 30, 200)),
        (OPENCODE, 50, Usage(10, 6, 18)),
        ("plain words", None, None),
        ('{"usage": "none"}', None, None),
        ('{"usage": {"input_tokens": -1, "output_tokens": true}}', None, None),
        (f"{STEP_USED}{{}}}}}}}}", None, Usage(5, 3)),
    ],
    ids=["claude", "codex", "opencode", "nothing", "no object", "no counts", "no cost"],
)
def test_usage_is_what_the_command_reports(output: str, cents: int | None, usage: Usage | None) -> None:
    found = reported(output)
    assert (found.cost_pico, found.usage) == (None if cents is None else cents * 10**10, usage)


@pytest.mark.parametrize(
    ("output", "tokens"), [(CODEX, {"input_tokens": 2000, "output_tokens": 60}), ("plain words", None)]
)
def test_unknown_usage_is_unknown_and_not_zero(
    type: Type, tmp_path: Path, output: str, tokens: dict[str, int] | None
) -> None:
    folder = project(tmp_path / "p", story(1), story(2))
    (folder / "said").write_text(output)
    result = loop(type, folder, "--json", "--session-id", "k", command=f"{DOES}; cat said").went().lines[-1]
    used = result["usage"]
    assert used is None if tokens is None else tokens.items() <= used.items()
    shown = type("show", "k").went().out
    assert ("unknown" if tokens is None else "2000 in, 60 out") in shown
