"""The oracle: it brings a stripped module back byte for byte, whatever happens to its calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.facts.base import Usage
from holdfast.model.base import Finish, ModelRequest, StreamPart, TextDelta
from holdfast.proof.oracle.session import TRIES_MAX, OracleModel
from holdfast.proof.rebuild.strip import Manifest
from holdfast.session.context.conversation import Message, TextPart, ToolCallPart, ToolResultPart
from holdfast.session.tools import TOOLS
from tests.proof.made_library import MODULE, SUITE
from tests.proof.oracle_session import (
    FILE,
    GUTTERS,
    OUTPUT_CAP,
    RUN_SUITE,
    TROUBLES,
    Trouble,
    VirtualClock,
    calls_of,
    run_clean,
    session_in,
)


@pytest.mark.parametrize("gutter", GUTTERS)
def test_it_restores_the_module_byte_for_byte_and_says_so(gutter: str, tmp_path: Path) -> None:
    session = session_in(tmp_path, gutter)
    last = anyio.run(session.to_the_end)
    assert (tmp_path / FILE).read_text() == MODULE
    assert last == f"Done: 17 functions of {FILE} are restored and the whole suite passes."


def test_it_works_as_a_person_would(tmp_path: Path) -> None:
    session = run_clean(tmp_path)
    assert session.names[:3] == ["glob", "grep", "read"]
    assert session.names[-1] == "bash"
    assert session.names.count("bash") == 2, "once in between, once at the end"
    edits = [len([p for p in m.parts if isinstance(p, ToolCallPart) and p.name == "edit"]) for m in session.messages]
    assert {1, 2} <= set(edits)
    assert set(session.names) <= set(TOOLS)
    paths = [
        p.input["file_path"]
        for m in session.messages
        for p in m.parts
        if isinstance(p, ToolCallPart) and "file_path" in p.input
    ]
    assert set(paths) == {FILE}, "paths are relative to the workspace"


@pytest.fixture(scope="module")
def clean_calls(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many calls a run without trouble makes."""
    return run_clean(tmp_path_factory.mktemp("clean")).calls


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.faults)])
@pytest.mark.parametrize("kind", TROUBLES)
def test_trouble_with_any_one_call_changes_nothing_of_the_outcome(
    kind: str, stride: int, clean_calls: int, tmp_path: Path
) -> None:
    for at in range(len(kind) % stride, clean_calls, stride):
        folder = tmp_path / str(at)
        session = session_in(folder)
        session.before = lambda number, name, value, at=at: TROUBLES[kind] if number == at else None  # type: ignore[misc]
        last = anyio.run(session.to_the_end)
        assert (folder / FILE).read_text() == MODULE, f"{kind} at call {at}"
        assert last.startswith("Done:"), f"{kind} at call {at}: {last}"


def test_after_an_unknown_edit_it_looks_before_it_acts(tmp_path: Path) -> None:
    for kind in ("unknown, it ran", "unknown, it did not run"):
        session = session_in(tmp_path / kind)
        hit: list[int] = []

        def once(
            number: int, name: str, value: dict[str, Any], kind: str = kind, hit: list[int] = hit
        ) -> Trouble | None:
            if name == "edit" and not hit:
                hit.append(number)
                return TROUBLES[kind]
            return None

        session.before = once
        anyio.run(session.to_the_end)
        after = session.names[hit[0] + 1 :]
        assert after[0] == "read"
        edits = [
            p.input["new_string"]
            for m in session.messages
            for p in m.parts
            if isinstance(p, ToolCallPart) and p.name == "edit"
        ]
        assert len(edits) - len(set(edits)) == (0 if kind == "unknown, it ran" else 1)


def test_a_file_that_somebody_else_changed_is_read_again(tmp_path: Path) -> None:
    session = session_in(tmp_path)

    def somebody(number: int, name: str, value: dict[str, Any]) -> None:
        if number == 6:
            path = tmp_path / FILE
            path.write_text("# hello\n" + path.read_text())

    session.before = somebody
    anyio.run(session.to_the_end)
    assert (tmp_path / FILE).read_text() == "# hello\n" + MODULE
    assert session.names[6:8] == ["edit", "read"]


def test_work_that_was_undone_is_done_again(tmp_path: Path) -> None:
    session = session_in(tmp_path)
    stripped = (tmp_path / FILE).read_text()

    def somebody(number: int, name: str, value: dict[str, Any]) -> None:
        if number == 12:
            (tmp_path / FILE).write_text(stripped)

    session.before = somebody
    assert anyio.run(session.to_the_end).startswith("Done:")
    assert (tmp_path / FILE).read_text() == MODULE


def test_work_that_was_undone_before_the_last_suite_is_found_by_looking(tmp_path: Path) -> None:
    session = session_in(tmp_path)
    stripped = (tmp_path / FILE).read_text()

    def somebody(number: int, name: str, value: dict[str, Any]) -> None:
        if value.get("command") == RUN_SUITE and session.names.count("bash") == 1:
            (tmp_path / FILE).write_text(stripped)

    session.before = somebody
    assert anyio.run(session.to_the_end).startswith("Done:")
    assert (tmp_path / FILE).read_text() == MODULE
    assert "read" in session.names[session.names.index("bash") + 1 :]


def test_a_person_is_answered_and_the_work_goes_on(tmp_path: Path) -> None:
    session = session_in(tmp_path)
    session.says = {5: "Mind the\n commas, please."}
    last = anyio.run(session.to_the_end)
    assert session.words[5].startswith('Understood: "Mind the commas, please.".')
    assert [word for word in session.words if word.startswith("Understood")] == [session.words[5]]
    assert last.startswith("Done:")
    assert (tmp_path / FILE).read_text() == MODULE
    session.messages.append(Message("user", (TextPart("And now?"),)))
    assert anyio.run(session.to_the_end).startswith('Understood: "And now?". Done:')
    assert session.messages[-1].parts[1:] == (), "nothing more was asked for"


def test_the_goal_itself_is_no_interruption(tmp_path: Path) -> None:
    assert not run_clean(tmp_path).words[0].startswith("Understood")


@pytest.mark.parametrize("tool", ["read", "edit", "bash"])
def test_when_a_tool_always_fails_it_says_that_it_is_stuck(tool: str, tmp_path: Path) -> None:
    session = session_in(tmp_path)
    session.before = lambda number, name, value: TROUBLES["denied"] if name == tool else None
    last = anyio.run(session.to_the_end)
    assert last.startswith("I am stuck:")
    assert session.names.count(tool) <= 2 * TRIES_MAX
    session.before = lambda number, name, value: None
    session.messages.append(Message("user", (TextPart("It is allowed now."),)))
    assert anyio.run(session.to_the_end).startswith("Done:")
    assert (tmp_path / FILE).read_text() == MODULE


def test_when_the_suite_does_not_pass_it_does_not_claim_so(tmp_path: Path) -> None:
    session = session_in(tmp_path, suite=SUITE.replace("== 7", "== 8"))
    last = anyio.run(session.to_the_end)
    assert last.startswith("I am stuck: the test suite did not pass 3 times.")
    assert (tmp_path / FILE).read_text() == MODULE


LONG = (
    MODULE
    + "\n\n\n"
    + "\n\n".join(
        f"def function_{number}(value):\n    # {'x' * 60}\n"
        + "".join(f"    value += {step}  # {'y' * 50}\n" for step in range(12))
        + "    return value"
        for number in range(80)
    )
    + "\n"
)


def test_a_long_module_is_read_in_pieces_that_fit(tmp_path: Path) -> None:
    session = session_in(tmp_path, module=LONG)
    sizes: list[int] = []
    plain = session.tools.run

    def run(name: str, value: dict[str, Any]) -> tuple[bool, str]:
        ok, output = plain(name, value)
        if name == "read":
            assert ok, output
            sizes.append(len(output))
        return ok, output

    session.tools.run = run  # type: ignore[method-assign]
    session.before = lambda number, name, value: (
        TROUBLES["unknown, it ran"] if name == "edit" and number in (20, 50, 80) else None
    )
    assert anyio.run(session.to_the_end).startswith("Done:")
    assert (tmp_path / FILE).read_text() == LONG
    assert len(sizes) > 4
    assert max(sizes) < OUTPUT_CAP


def test_every_piece_of_work_is_whole_in_one_piece_of_reading(tmp_path: Path) -> None:
    session = session_in(tmp_path, module=LONG)
    text = (tmp_path / FILE).read_text().split("\n")
    anyio.run(session.one_response)
    for done in (False, True):
        if done:
            text = LONG.split("\n")
            session.messages += _all_edited(session.manifest)
        calls = calls_of(anyio.run(session.parts), 0)
        ranges = [call.input["view_range"] for call in calls]
        assert len(ranges) > 2 or not done
        assert (ranges[0][0], ranges[-1][1]) == (1, -1)
        pieces = ["\n".join(text[first - 1 : last if last > 0 else None]) for first, last in ranges]
        for block in session.manifest.blocks:
            assert any((block.true if done else block.stub) in piece for piece in pieces), block.functions


def _all_edited(manifest: Manifest) -> list[Message]:
    """A conversation in which everything was restored and then something went wrong with the suite."""
    calls: list[tuple[str, dict[str, Any], bool]] = []
    for block in manifest.blocks:
        calls.append(("edit", {"file_path": FILE, "old_string": block.stub, "new_string": block.true}, True))
    calls.append(("bash", {"command": RUN_SUITE}, False))
    asked = tuple(ToolCallPart(f"9.{number}", name, value) for number, (name, value, _) in enumerate(calls))
    ended = tuple(ToolResultPart(f"9.{number}", name, "", not ok) for number, (name, _, ok) in enumerate(calls))
    return [Message("assistant", asked), Message("user", ended)]


# --- purity, streaming, money ---


@settings(max_examples=25)
@given(plan=st.dictionaries(st.integers(0, 40), st.sampled_from(sorted(TROUBLES)), max_size=6))
def test_any_plan_of_troubles_ends_with_the_truth_or_says_that_it_is_stuck(
    plan: dict[int, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("plan")
    session = session_in(folder)
    session.before = lambda number, name, value: TROUBLES[plan[number]] if number in plan else None
    last = anyio.run(session.to_the_end)
    if last.startswith("Done:"):
        assert (folder / FILE).read_text() == MODULE
    else:
        assert last.startswith("I am stuck:")
        assert len(plan) >= TRIES_MAX


def test_a_response_is_a_function_of_the_conversation(tmp_path: Path) -> None:
    session = run_clean(tmp_path)
    for length in range(1, len(session.messages), 2):
        asked = ModelRequest("turn", "system", tuple(session.messages[:length]), (), 8192, 0, 1)

        async def parts(model: OracleModel, asked: ModelRequest = asked) -> list[StreamPart]:
            return [part async for part in model.stream(asked)]

        model = session.model()
        assert anyio.run(parts, model) == anyio.run(parts, model) == anyio.run(parts, session.model())


def test_it_streams_in_pieces_with_the_asked_pause(tmp_path: Path) -> None:
    session = session_in(tmp_path)
    clock = VirtualClock()
    model = OracleModel(session.manifest, RUN_SUITE, clock, delta_s=0.5)

    async def first() -> list[StreamPart]:
        return [part async for part in model.stream(session.request())]

    parts = anyio.run(first)
    assert model.name == "oracle:made"
    assert sum(isinstance(part, TextDelta) for part in parts) > 1
    assert isinstance(parts[-1], Finish)
    assert sum(isinstance(part, Finish) for part in parts) == 1
    assert clock.slept == 0.5 * (len(parts) - 1)


def test_money_moves_and_the_worst_case_bounds_it(tmp_path: Path) -> None:
    session = session_in(tmp_path)
    finish = anyio.run(session.parts)[-1]
    assert isinstance(finish, Finish)
    model = session.model()
    cost = model.cost_pico(finish.usage)
    worst = model.worst_case_pico(session.request())
    assert cost is not None
    assert worst is not None
    assert 0 < cost < worst
    longest = Usage(input_tokens=finish.usage.input_tokens, output_tokens=8192)
    assert worst == model.cost_pico(longest)
