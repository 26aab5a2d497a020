"""How roles come to their end when they do not simply hand in."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.facts.mission import WorkSubmitted
from holdfast.facts.people import ApprovalRequested
from holdfast.facts.session import Breakers, Limits
from holdfast.facts.shift import BreakerOpened, ChildFinished
from holdfast.facts.tool import ToolDispatched, ToolResult
from holdfast.kinds.mission.role.kind import REFUSED_MAX
from tests.brain.stage import turn
from tests.brain.test_roles import HAND_IN, READ, WRITE, opened

pytestmark = pytest.mark.anyio

EMPTY = ("hand_in", {"status": "done", "notes": " "})


async def ended(turns: list[dict[str, Any]], **more: Any) -> tuple[Any, Any, str]:
    """A worker that has come to rest: its stage, its mission's report of it, its id."""
    stage = await opened({"worker core": turns}, **more)
    child_id = await stage.named("worker core")
    await stage.wake("worker core")
    (report,) = await stage.facts(ChildFinished)
    return stage, report, child_id


async def test_a_role_whose_work_is_refused_time_and_again_has_failed() -> None:
    stage, report, _ = await ended([turn("", EMPTY)] * 20)
    assert (report.status, report.submitted) == ("failed", {})
    assert f"refused {REFUSED_MAX} times" in report.detail
    asked = [each for each in stage.models["worker core"].requests if each.purpose == "turn"]
    assert len(asked) == REFUSED_MAX


async def test_calls_behind_the_one_that_handed_in_are_not_run() -> None:
    stage, report, child_id = await ended([turn("", READ), turn("", HAND_IN, WRITE, HAND_IN)])
    assert report.status == "done"
    assert report.commit == stage.base.commit
    assert [each.outcome for each in await stage.facts(ToolResult, child_id)] == ["ok", "ok", "skipped", "skipped"]
    assert len(await stage.facts(ToolDispatched, child_id)) == 1
    assert len(await stage.facts(WorkSubmitted, child_id)) == 1


async def test_a_role_whose_calls_keep_failing_has_failed_and_nobody_is_asked() -> None:
    bad = ("edit", {"file_path": "none.py", "old_string": "a", "new_string": "b"})
    stage, report, child_id = await ended([turn("", bad)] * 20, limits=Limits(breakers=Breakers(tool_failures=3)))
    assert report.status == "failed"
    assert "it made no progress: 3 tool calls failed in a row" in report.detail
    assert await stage.facts(ApprovalRequested, child_id) == []
    assert await stage.facts(BreakerOpened, child_id) == []
