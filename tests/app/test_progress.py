"""Lines of progress: the agent's words wrapped, output bounded, no counters, no internals of a loop."""

from __future__ import annotations

import pytest

from holdfast.app.screen.progress import INTERNAL, Acts, PlainProgress
from holdfast.clock import SystemClock
from holdfast.facts.base import Text
from holdfast.facts.mission import ContractSealed, MissionOpened
from holdfast.facts.model import AgentMessage, AgentToolUse
from holdfast.facts.task import RepoCommitted, RepoMerged
from holdfast.facts.tool import ToolDispatched, ToolResult
from holdfast.facts.union import AnyFact
from holdfast.kinds.loop.plan import LOOK, RESTORE, STEP
from tests.app.test_painter import event

WORDS = "I look at the repository first, then run the tests that fail, and only then change the code that is wrong."


def told(*facts: AnyFact, width: int) -> list[str]:
    """The lines of these events without their times."""
    progress = PlainProgress(SystemClock(), lambda line: None)
    lines = progress.told([event(seq, fact) for seq, fact in enumerate(facts, 2)], width)
    assert all(len(line) < width for line in lines)
    return [line[9:] for line in lines]


@pytest.mark.parametrize("width", [80, 60])
def test_words_are_wrapped_and_complete(width: int) -> None:
    lines = told(AgentMessage(1, (Text(WORDS),)), width=width)
    assert len(lines) > 1
    assert " ".join(lines) == WORDS


@pytest.mark.parametrize("width", [80, 60])
def test_output_shows_its_first_and_last_lines(width: int) -> None:
    output = "\n".join(f"line {number} {'x' * 90}" for number in range(1, 10))
    call, head, *lines = told(*called("c", "make test"), ToolResult("c", "ok", output), width=width)
    assert (call, head) == ("bash: make test", "  → ok")
    assert [line.split()[:2] for line in lines] == [["line", "1"], ["…", "6"], ["line", "8"], ["line", "9"]]


def called(call_id: str, command: str, *, dispatched: bool = True) -> list[AnyFact]:
    """A call, and its dispatch."""
    dispatch = ToolDispatched(call_id, 1, "h", "", "retry", 9.0)
    return [AgentToolUse(1, call_id, "bash", {"command": command}), *([dispatch] if dispatched else [])]


def test_an_outcome_stands_beside_its_call() -> None:
    two = [*called("a", "make one"), *called("b", "make two"), *called("c", "rm -rf /", dispatched=False)]
    ends = [
        ToolResult("b", "ok", "[no output]"),
        ToolResult("a", "error", "x\nbroken", exit_code=2),
        ToolResult("c", "denied", "no"),
    ]
    assert told(*two, *ends, width=80) == [
        "bash: make one",
        "bash: make two",
        "  → ok",
        "bash: make one  → error, exit status 2",
        "    x",
        "    broken",
        "bash: rm -rf /  → denied: no",
    ]


def test_a_failure_without_output_has_its_status_alone() -> None:
    *_, line = told(*called("a", "false"), ToolResult("a", "error", "[exit status 1]", exit_code=1), width=80)
    assert line == "  → error, exit status 1"


def test_internals_of_a_loop_are_hidden_unless_they_fail() -> None:
    assert {LOOK, RESTORE, STEP} == INTERNAL
    calls = [AgentToolUse(1, str(number), "loop_look", {}) for number in range(2)]
    lines = told(*calls, ToolResult("0", "ok", "seen"), ToolResult("1", "error", "gone"), width=80)
    assert lines == ["  → error: gone"]


@pytest.mark.parametrize("width", [80, 60])
def test_each_call_of_a_child_is_one_line(width: int) -> None:
    lines: list[str] = []
    acts = Acts("worker hello", lines.append, width)
    acts.on_events(
        [event(2, AgentMessage(1, (Text(WORDS),))), event(3, AgentToolUse(1, "c", "bash", {"command": WORDS}))]
    )
    acts.on_events([event(4, AgentToolUse(1, "d", "loop_look", {})), event(5, ToolResult("c", "ok", "seen"))])
    said, line = lines
    assert said.startswith("worker hello: I look at the repository")
    assert line.startswith("worker hello: bash: I look at the repository")
    assert len(line) == width - 1
    assert line.endswith("…")


def test_progress_of_a_mission_has_no_refs_and_no_digests() -> None:
    lines = told(
        ContractSealed("a" * 64, 2, 3),
        MissionOpened("m", "refs/heads/holdfast/m/main", "b" * 40, "d" * 40),
        RepoCommitted(ref="refs/heads/holdfast/m/hello", commit="c" * 40, tree="d" * 40, parent="b" * 40),
        RepoMerged(1, "refs/heads/holdfast/m/main", "c" * 40, "d" * 40, "b" * 40, ("hello",), ("hello.check",)),
        width=80,
    )
    assert lines == ["contract sealed: 2 items, 0 of 3 criteria met", "merged hello; 1 met"]
