"""A brain from wake to park, on a stage."""

from __future__ import annotations

import gc

import anyio
import anyio.lowlevel
import pytest

from holdfast.clock import SystemClock
from holdfast.errors import Fenced, LeaseHeld, UnknownSession
from holdfast.facts.base import text_of
from holdfast.facts.hands import HandsLost
from holdfast.facts.model import AgentMessage, AgentToolUse, ModelRequestEnd, ModelRequestStart
from holdfast.facts.session import Limits, Rule, SessionUpdated, Workspace
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.hands.base import HandsSpec
from holdfast.hands.fake.calls import Files
from holdfast.hands.fake.provider import FakeProvider
from holdfast.model.base import StreamPart, ToolCallStart
from holdfast.session.context.conversation import ToolResultPart
from holdfast.session.state import State
from tests.brain.stage import Stage, turn

BASH = ("bash", {"command": "make"})
PRICE = {"input_per_mtok": 1.0, "output_per_mtok": 1.0}
SMALL = {"input_tokens": 100, "output_tokens": 10}


async def test_a_turn_with_a_tool_call_from_wake_to_done() -> None:
    stage = Stage([turn("I build.", BASH), turn("Built.")])
    outcome = await stage.run()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    types = await stage.types()
    assert types.index("tool.dispatched") < types.index("agent.tool_result")
    assert types.index("hands.provisioned") < types.index("tool.dispatched")
    assert types[-2:] == ["hands.released", "shift.ended"]
    assert stage.hands.alive() == []
    last = stage.model.requests[-1].messages[-1].parts[0]
    assert isinstance(last, ToolResultPart)


async def test_no_hands_are_made_for_a_session_that_only_talks() -> None:
    stage = Stage([turn("Hello.")])
    await stage.run()
    assert "hands.provisioned" not in await stage.types()


async def test_hands_are_made_while_the_model_still_answers() -> None:
    stage = Stage([turn("I build.", BASH), turn("Built.")])
    seen: list[str] = []

    async def on_part(part: StreamPart) -> None:
        if seen:
            return
        if isinstance(part, ToolCallStart):
            seen.append("call")
            return
        assert "hands.provisioned" not in await stage.types()

    async def hold(part: StreamPart) -> None:
        await on_part(part)
        if seen and not isinstance(part, ToolCallStart):
            await stage.until("hands.provisioned")

    stage.model.on_part = hold
    await stage.run()
    types = await stage.types()
    assert types.index("hands.provisioned") < types.index("agent.tool_use")


async def test_a_wake_with_nothing_to_do_appends_nothing() -> None:
    stage = Stage([turn("Hello.")])
    await stage.run()
    before = await stage.events()
    outcome = await stage.wake()
    assert outcome.idle
    assert await stage.events() == before


async def test_a_wake_leaves_no_state_to_a_collection_of_garbage() -> None:
    """It is freed when the wake ends: a worker that wakes hundreds a second would keep thousands of them."""
    stage = Stage([turn("I build.", BASH), turn("Built.")])
    gc.collect()
    gc.disable()
    try:
        before = states()
        await stage.run()
        assert states() == before
    finally:
        gc.enable()


def states() -> int:
    return sum(type(each) is State for each in gc.get_objects())


async def test_an_unknown_session_is_said_so() -> None:
    stage = Stage([turn("Hello.")])
    with pytest.raises(UnknownSession):
        await stage.wake()


async def test_a_message_to_a_finished_session_goes_on() -> None:
    stage = Stage([turn("Hello."), turn("And again.")])
    await stage.run()
    await stage.post("send", "more, please")
    outcome = await stage.wake()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    assert stage.model.requests[-1].responses == 1


async def test_hands_that_die_in_a_command_leave_an_unknown_outcome_that_the_model_is_told() -> None:
    runs: list[str] = []

    def effect(command: str, files: Files) -> tuple[int, str]:
        runs.append(command)
        return 0, "ran"

    stage = Stage([turn("", BASH), turn("I look.")], effect=effect, pace=lambda call_id, request: (0.0, 3600.0))
    await stage.open()
    async with anyio.create_task_group() as group:
        group.start_soon(stage.wake)
        await stage.until("tool.dispatched")
        while not runs:
            await anyio.lowlevel.checkpoint()
            stage.hands.settle()
        stage.hands.lose(stage.hands.alive()[0])
    assert runs == ["make"]
    (unknown,) = await stage.facts(ToolOutcomeUnknown)
    assert len(await stage.facts(ToolDispatched)) == 1
    assert len(await stage.facts(HandsLost)) == 1
    told = stage.model.requests[-1].messages[-1].parts[0]
    assert isinstance(told, ToolResultPart)
    assert told.content == unknown.content
    assert told.is_error


@pytest.mark.parametrize(("happened", "outcome"), [(True, "checked"), (False, "done again")])
async def test_an_edit_that_lost_its_hands_is_settled_by_looking_at_the_file(happened: bool, outcome: str) -> None:
    pace = (0.0, 3600.0) if happened else (3600.0, 0.0)
    slow = {"first": True}

    def paced(call_id: str, request: object) -> tuple[float, float]:
        if getattr(request, "tool", "") == "edit" and slow.pop("first", False):
            return pace
        return 0.0, 0.0

    edit = ("edit", {"file_path": "a.txt", "old_string": "old", "new_string": "new"})
    stage = Stage([turn("", ("read", {"file_path": "a.txt"})), turn("", edit), turn("Done.")], pace=paced)
    stage.hands.files("/w")["/workspace/a.txt"] = b"old"
    await stage.open()
    async with anyio.create_task_group() as group:
        group.start_soon(stage.wake)
        while len(await stage.facts(ToolDispatched)) < 2:
            await anyio.lowlevel.checkpoint()
        while happened and stage.hands.files("/w")["/workspace/a.txt"] != b"new":
            await anyio.lowlevel.checkpoint()
            stage.hands.settle()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        stage.hands.lose(stage.hands.alive()[0])
    assert stage.hands.files("/w")["/workspace/a.txt"] == b"new"
    assert not await stage.facts(ToolOutcomeUnknown)
    dispatched = [fact for fact in await stage.facts(ToolDispatched) if fact.on_unknown == "probe"]
    assert len(dispatched) == (1 if outcome == "checked" else 2)
    (result,) = [fact for fact in await stage.facts(ToolResult) if fact.call_id == dispatched[0].call_id]
    assert result.outcome == "ok"


async def test_an_interrupt_in_the_stream_keeps_the_words_and_drops_the_call() -> None:
    stage = Stage([turn("I will build it now.", BASH)])

    async def interrupt(part: StreamPart) -> None:
        if isinstance(part, ToolCallStart):
            await stage.post("interrupt")
            await anyio.sleep_forever()

    stage.model.on_part = interrupt
    outcome = await stage.run()
    assert outcome.ended is not None
    assert (outcome.ended.status, outcome.ended.reason) == ("parked", "person")
    assert not await stage.facts(AgentToolUse)
    (said,) = await stage.facts(AgentMessage)
    assert text_of(said.content) == "I will build it now."
    (end,) = await stage.facts(ModelRequestEnd)
    assert end.outcome == "cancelled"


async def test_an_interrupt_in_a_command_kills_it_and_records_what_the_journal_says() -> None:
    stage = Stage([turn("", BASH), turn("Later.")], pace=lambda call_id, request: (3600.0, 0.0))
    await stage.open()
    async with anyio.create_task_group() as group:
        group.start_soon(stage.wake)
        await stage.until("tool.dispatched")
        await stage.post("interrupt")
    (result,) = await stage.facts(ToolResult)
    assert result.outcome == "cancelled"
    row = await stage.store.find(stage.session_id)
    assert (row.status, row.reason) == ("parked", "person")
    assert stage.hands.alive() == []
    await stage.post("send", "go on")
    outcome = await stage.wake()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"


async def test_a_cancel_ends_the_session_for_good() -> None:
    stage = Stage([turn("", BASH)], pace=lambda call_id, request: (3600.0, 0.0))
    await stage.open()
    async with anyio.create_task_group() as group:
        group.start_soon(stage.wake)
        await stage.until("tool.dispatched")
        await stage.post("cancel")
    assert (await stage.store.find(stage.session_id)).status == "cancelled"
    assert (await stage.wake()).idle


async def test_money_is_reserved_before_it_is_spent_and_a_raise_goes_on() -> None:
    turns = [turn("", BASH, usage=SMALL), turn("Done.", usage=SMALL)]
    stage = Stage(turns, price=PRICE, limits=Limits(budget_pico=150_000_000))
    outcome = await stage.run()
    assert outcome.ended is not None
    assert outcome.ended.reason == "budget"
    (account,) = await stage.store.accounts()
    assert (account.spent_pico, account.reserved_pico) == (110_000_000, 0)
    row = await stage.store.find(stage.session_id)
    await stage.intake.update(row, SessionUpdated(budget_pico=300_000_000))
    outcome = await stage.wake()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    (account,) = await stage.store.accounts()
    assert (account.spent_pico, account.reserved_pico) == (220_000_000, 0)


async def test_each_attempt_is_an_event_with_its_own_reservation() -> None:
    stage = Stage([turn("Hello.", error="overloaded", retry_after_s=0.001, usage=SMALL)], price=PRICE)
    await stage.run()
    starts = await stage.facts(ModelRequestStart)
    ends = await stage.facts(ModelRequestEnd)
    assert [start.attempt for start in starts] == [1, 2]
    assert [end.outcome for end in ends] == ["error", "ok"]
    assert all(start.reserved_pico == 110_000_000 for start in starts)


async def test_a_request_that_died_with_its_brain_is_presumed() -> None:
    stage = Stage([turn("Hello.", usage=SMALL)], price=PRICE)

    class Died(BaseException):
        pass

    async def die(part: StreamPart) -> None:
        raise Died

    stage.model.on_part = die
    await stage.open()
    with pytest.raises(Died):
        await stage.wake()
    stage.model.on_part = None
    await stage.wake("wrk_2")
    presumed, ok = await stage.facts(ModelRequestEnd)
    assert (presumed.outcome, presumed.cost_pico) == ("presumed", 110_000_000)
    assert ok.outcome == "ok"


async def test_a_second_brain_is_refused_until_it_steals_and_then_the_first_appends_nothing() -> None:
    stage = Stage([turn("Hello."), turn("Hello.")])
    held, go = anyio.Event(), anyio.Event()

    async def hold(part: StreamPart) -> None:
        if not held.is_set():
            held.set()
            await go.wait()

    stage.model.on_part = hold
    await stage.open()
    outcomes = []

    async def first() -> None:
        outcomes.append(await stage.wake())

    async with anyio.create_task_group() as group:
        group.start_soon(first)
        await held.wait()
        with pytest.raises(LeaseHeld):
            await stage.wake("wrk_2")
        outcome = await stage.wake("wrk_2", steal=True)
        assert outcome.ended is not None
        assert outcome.ended.status == "done"
        go.set()
    assert outcomes[0].fenced
    events = await stage.events()
    assert "lease.stolen" in [event.type for event in events]
    stolen = next(event.seq for event in events if event.type == "lease.stolen")
    assert all(event.epoch == 2 for event in events if event.seq >= stolen)


async def test_two_shifts_that_were_given_one_epoch_cannot_both_use_the_hands() -> None:
    """As after a failover of the database that lost commits: it gives an epoch again."""
    started = []
    for stage in (Stage([turn("Hello.")]), Stage([turn("Hello.")])):
        stage.session_id = "ses_same"
        await stage.run()
        started += [event for event in await stage.events() if event.type == "shift.started"]
    assert [event.epoch for event in started] == [1, 1]
    low, high = sorted(event.fence for event in started)
    assert 1 << 32 <= low < high < 2 << 32
    hands = await FakeProvider(SystemClock()).provision(HandsSpec("ses_same", "hnd_1", Workspace("/w")), low)
    await hands.fence(high)
    with pytest.raises(Fenced):
        await hands.status(low, "1.0")


async def test_a_denied_call_never_reaches_the_hands() -> None:
    ran: list[str] = []

    def effect(command: str, files: Files) -> tuple[int, str]:
        ran.append(command)
        return 0, ""

    stage = Stage([turn("", BASH), turn("Fine.")], rules=(Rule("bash", "deny"),), effect=effect)
    await stage.run()
    (result,) = await stage.facts(ToolResult)
    assert result.outcome == "denied"
    assert not await stage.facts(ToolDispatched)
    assert ran == []


async def test_an_edit_of_a_file_that_was_not_read_or_has_changed_is_refused() -> None:
    edit = ("edit", {"file_path": "a.txt", "old_string": "one", "new_string": "two"})
    touch = ("bash", {"command": "touch"})

    def effect(command: str, files: Files) -> tuple[int, str]:
        files["/workspace/a.txt"] = b"one more"
        return 0, ""

    read = ("read", {"file_path": "a.txt"})
    stage = Stage([turn("", edit), turn("", read), turn("", touch), turn("", edit), turn("Hm.")], effect=effect)
    stage.hands.files("/w")["/workspace/a.txt"] = b"one"
    await stage.run()
    first, _, _, second = await stage.facts(ToolResult)
    assert first.outcome == second.outcome == "error"
    assert first.content != second.content
    assert stage.hands.files("/w")["/workspace/a.txt"] == b"one more"
