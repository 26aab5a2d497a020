"""The Python API on top of a finished session: forks, briefs, and costs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import holdfast
from tests.app.api_program import call, publish
from tests.app.terminal import PRICE, bash, script, turn


@pytest.fixture
async def done(hf: holdfast.Holdfast, tmp_path: Path) -> holdfast.Result:
    """A session that wrote a file twice, and published."""
    turns = [bash("echo one > a.txt"), bash("echo two > a.txt"), call("publish", page="a"), turn(text="Over.")]
    model = script(tmp_path / "m.json", *turns, price=PRICE)
    return await hf.run(holdfast.Agent(model, tools=["bash", publish]), "x", key="first", budget_usd=50)


async def test_a_fork_has_the_files_of_its_event_and_runs(hf: holdfast.Holdfast, done: holdfast.Result) -> None:
    results = [event.seq async for event in hf.events("first") if event.type == "agent.tool_result"]
    fork = await hf.fork("first", results[0], key="other", budget_usd="7.50")
    assert (fork.key, fork.status, fork.goal, fork.own_cost_usd) == ("other", "parked", "x", Decimal(0))
    assert (fork.workspace / "a.txt").read_text() == "one\n"
    assert (done.workspace / "a.txt").read_text() == "two\n"
    assert await hf.fork("first", results[0], key="other") == fork, "the same key is the same fork"
    ended = await hf.resume("other")
    assert (ended.status, ended.text) == ("done", "Over.")
    assert (ended.workspace / "a.txt").read_text() == "two\n"


@pytest.mark.parametrize(
    ("at", "options", "message"),
    [
        (9_999, {}, "has the events 1 to"),
        (0, {}, "at: "),
        (1, {"key": "first"}, "already names session"),
        (5, {"budget_usd": "no"}, "is not an amount"),
        (5, {"key": "-k"}, "key="),
    ],
)
async def test_forks_that_are_refused(
    hf: holdfast.Holdfast, done: holdfast.Result, at: int, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(holdfast.UsageError, match=message) as refusal:
        await hf.fork("first", at, **options)
    assert "--" not in str(refusal.value), "callers of Python have no flags"
    assert [each.session_id for each in await hf.sessions()] == [done.session_id]


async def test_a_brief_covers_the_whole_session(hf: holdfast.Holdfast, done: holdfast.Result) -> None:
    brief = await hf.brief("first")
    assert brief.session_id == done.session_id
    assert brief.through_seq == done.events
    assert brief.headline in brief.markdown
    assert "done" in brief.headline
    later = await hf.brief("first", since=datetime.now(UTC) + timedelta(days=1))
    assert later.markdown != brief.markdown


async def test_costs_add_up_whatever_they_are_listed_by(hf: holdfast.Holdfast, done: holdfast.Result) -> None:
    for by, label in (("day", None), ("model", done.model), ("session", "first"), ("project", None)):
        (line,) = await hf.cost(by)  # type: ignore[arg-type]  # one of its values
        assert (line.known_usd, line.complete) == (done.cost_usd, True)
        assert label in (None, line.label)
        assert line.sessions == (0 if by == "day" else 1)
    assert done.cost_usd is not None
    assert done.cost_usd > Decimal("0.25")
    with pytest.raises(holdfast.UsageError, match="is not one of day, model, session, project"):
        await hf.cost("week")  # type: ignore[arg-type]  # that is the point
