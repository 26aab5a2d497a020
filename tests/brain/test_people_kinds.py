"""Questions, unknown outcomes, breakers, money and stops, from the brain that asks to the answer (S12, S15, S21)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import msgspec
import pytest

from holdfast.brain.doors import FIRST, Attempt, CustomResult
from holdfast.errors import UsageError
from holdfast.facts.people import ApprovalRequested, ApprovalSuperseded
from holdfast.facts.session import CustomTool, Limits, Rule
from holdfast.facts.shift import BudgetReached, BudgetSet
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.hands.base import ExecRequest
from holdfast.notify.fake import FakeTarget
from holdfast.service.answers import Answer
from holdfast.session.decide import is_idle
from tests.brain.people_stage import BASH, PRICE, USED, PeopleStage
from tests.brain.stage import turn

# --- the other kinds ------------------------------------------------------------------------------


async def test_the_agents_question_with_options() -> None:
    question = ("ask_person", {"question": "Which database?", "why": "Both fit.", "options": ["postgres", "sqlite"]})
    stage = PeopleStage([turn("", question), turn("Thanks.")], rules=(Rule("*", "ask"),))
    await stage.run()
    request = await stage.request()
    assert (request.kind, request.options, request.why) == ("question", ("postgres", "sqlite"), "Both fit.")
    with pytest.raises(UsageError, match="postgres; sqlite"):
        await stage.intake.approve(await stage.item())
    await stage.intake.approve(await stage.item(), "sqlite")
    await stage.wake()
    assert stage.shown() == "sqlite"
    assert len(await stage.facts(ApprovalRequested)) == 1


class Pay:
    """A function that dies with its process the first time."""

    spec = CustomTool("pay", "Pay.", {"type": "object"}, on_unknown="ask")

    def __init__(self) -> None:
        self.runs = 0
        self.begun = anyio.Event()

    async def run(self, call_id: str, value: dict[str, Any], key: str, attempt: Attempt = FIRST) -> CustomResult:
        self.runs += 1
        if self.runs == 1:
            self.begun.set()
            await anyio.sleep_forever()
        return CustomResult(True, "paid")

    async def probe(self, call_id: str, value: dict[str, Any], key: str, attempt: Attempt = FIRST) -> bool | None:
        return None


@pytest.mark.parametrize("verdict", ["approve", "deny"])
async def test_an_unknown_outcome_is_a_persons_to_decide(verdict: str) -> None:
    pay = Pay()
    stage = PeopleStage([turn("", ("pay", {})), turn("Done.")], rules=(), custom=(pay.spec,))
    stage.doors = replace(stage.doors, tools={"pay": pay})
    await stage.open()
    async with anyio.create_task_group() as group:
        group.start_soon(stage.wake)
        await pay.begun.wait()
        group.cancel_scope.cancel()
    outcome = await stage.wake("wrk_2")
    assert outcome.ended is not None
    assert outcome.ended.reason == "person"
    item = await stage.item()
    assert item.kind == "unknown"
    await (stage.intake.approve(item) if verdict == "approve" else stage.intake.deny(item))
    await stage.wake("wrk_3")
    if verdict == "approve":
        assert pay.runs == 2
        assert (await stage.facts(ToolDispatched))[-1].approval_id == item.item_id
        assert (await stage.facts(ToolResult))[-1].content == "paid"
    else:
        assert pay.runs == 1
        assert len(await stage.facts(ToolOutcomeUnknown)) == 1


@pytest.mark.parametrize("verdict", ["approve", "deny"])
async def test_an_escalation_goes_on_or_fails(verdict: str) -> None:
    from_limits = msgspec.structs.replace(Limits().breakers, tool_failures=2)
    bad = ("bash", {"command": "false"})
    stage = PeopleStage(
        [turn("", bad), turn("", bad), turn("Done.")],
        rules=(),
        limits=Limits(breakers=from_limits),
        effect=lambda command, files: (1, "no"),
    )
    outcome = await stage.run()
    assert outcome.ended is not None
    assert "tool_failures" in outcome.ended.detail
    item = await stage.item()
    await (stage.intake.approve(item) if verdict == "approve" else stage.intake.deny(item, "enough"))
    outcome = await stage.wake()
    assert outcome.ended is not None
    assert outcome.ended.status == ("done" if verdict == "approve" else "failed")
    assert (await stage.store.item(item.item_id)).status == ("approved" if verdict == "approve" else "denied")


async def _out_of_money() -> tuple[PeopleStage, FakeTarget]:
    target = FakeTarget("ops")
    stage = PeopleStage(
        [turn("One.", BASH, **USED), turn("Two.", **USED)],
        price=PRICE,
        rules=(),
        limits=Limits(budget_pico=1_500_000_000_000),
        targets=(target,),
    )
    outcome = await stage.run()
    assert outcome.ended is not None
    assert outcome.ended.reason == "budget"
    return stage, target


async def test_a_money_line_is_asked_and_told_and_approving_it_goes_on() -> None:
    stage, target = await _out_of_money()
    assert [notice.kind for notice in target.sent] == ["approval"]
    assert len(await stage.facts(BudgetReached)) == 1
    with pytest.raises(UsageError, match="has spent"):
        await stage.intake.answer(await stage.item(), Answer(verdict="approve", budget_pico=1))
    await stage.intake.approve(await stage.item())
    outcome = await stage.wake()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    account = await stage.store.account(stage.session_id)
    assert account is not None
    assert account.cap_pico == (await stage.request()).proposed_pico


async def test_a_denied_money_line_stays_parked_and_nobody_is_asked_again() -> None:
    stage, _ = await _out_of_money()
    await stage.intake.deny(await stage.item())
    outcome = await stage.wake()
    assert outcome.ended is not None
    assert (outcome.ended.reason, outcome.ended.due_us) == ("budget", None)
    assert await stage.store.items() == []
    row = await stage.store.find(stage.session_id)
    with pytest.raises(UsageError, match="has spent"):
        await stage.intake.set_cap(row, stage.session_id, "total", 1)
    await stage.intake.set_cap(row, stage.session_id, "total", None)
    outcome = await stage.wake()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    assert len(await stage.facts(BudgetSet)) == 1


async def test_a_raised_cap_closes_the_question_that_nobody_answered() -> None:
    stage, _ = await _out_of_money()
    item = await stage.item()
    await stage.intake.set_cap(await stage.store.find(stage.session_id), stage.session_id, "total", 10**13)
    await stage.wake()
    assert (await stage.store.item(item.item_id)).status == "superseded"
    assert [fact.reason for fact in await stage.facts(ApprovalSuperseded)] == ["there is money for it now"]


# --- steering -------------------------------------------------------------------------------------


async def test_a_pause_rests_and_a_resume_goes_on() -> None:
    stage = PeopleStage([turn("", BASH), turn("Done.")], rules=())
    await stage.open()
    row = await stage.store.find(stage.session_id)
    await stage.intake.pause(row, "lunch")
    outcome = await stage.wake()
    assert outcome.ended is not None
    assert outcome.ended.detail == "paused by a person"
    assert is_idle(outcome.state, stage.time.now_us())
    await stage.intake.resume(await stage.store.find(stage.session_id))
    outcome = await stage.wake()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"


async def test_the_emergency_stop_kills_what_runs_and_its_release_goes_on() -> None:
    began = anyio.Event()

    def forever(call_id: str, request: ExecRequest) -> tuple[float, float]:
        began.set()
        return 0.0, 3_600.0

    stage = PeopleStage([turn("", BASH), turn("Done.")], rules=(), pace=forever)
    await stage.open()
    async with anyio.create_task_group() as group:
        group.start_soon(stage.wake)
        await began.wait()
        first = await stage.intake.stop_all("fire")
        again = await stage.intake.stop_all("fire")
        await stage.until("shift.ended")
    assert (first.before, again.before) == (False, True)
    assert first.stop.seq == again.stop.seq
    types = await stage.types()
    assert types.count("user.pause") == 1
    assert (await stage.store.find(stage.session_id)).detail == "an emergency stop"
    stop, rows = await stage.intake.release()
    assert stop is not None
    assert [row.session_id for row in rows] == [stage.session_id]
    assert (await stage.intake.release())[0] is None
    outcome = await stage.wake()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
