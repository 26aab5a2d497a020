"""Lines of progress: the agent's words wrapped, output bounded, no counters, no internals of a loop."""

from __future__ import annotations

import pytest

from holdfast.app.screen.progress import INTERNAL, PlainProgress
from holdfast.clock import SystemClock
from holdfast.facts.base import Text
from holdfast.facts.model import AgentMessage, AgentToolUse
from holdfast.facts.tool import ToolResult
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
    head, *lines = told(ToolResult("c", "ok", output), width=width)
    assert head == "  → ok"
    assert [line.split()[:2] for line in lines] == [["line", "1"], ["…", "6"], ["line", "8"], ["line", "9"]]


def test_internals_of_a_loop_are_hidden_unless_they_fail() -> None:
    assert {LOOK, RESTORE, STEP} == INTERNAL
    calls = [AgentToolUse(1, str(number), "loop_look", {}) for number in range(2)]
    lines = told(*calls, ToolResult("0", "ok", "seen"), ToolResult("1", "error", "gone"), width=80)
    assert lines == ["  → error: gone"]
