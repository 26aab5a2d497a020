"""Waits on the wake rows: sleeping, a provider's limit, questions; while clocks jump and machines sleep."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from holdfast.facts.people import ApprovalExpired, NoticeSent
from holdfast.facts.session import Agent, People, Rule, SessionCreated, Workspace
from tests.brain.stage import Stage, turn
from tests.fleet.clock import HOUR_S, ManualClock, settle
from tests.fleet.served import Served, served

WAIT_S = 600.0

LOOK_S = 3.0
"""A service looks at the wall clock at least this often."""


def sleeper(clock: ManualClock) -> Stage:
    """A session that sleeps for ten minutes."""
    turns = [turn("", ("sleep", {"seconds": WAIT_S})), turn("up again")]
    return Stage(turns, clock=clock, tools=("sleep",))


def limited(clock: ManualClock) -> Stage:
    """A session whose provider asks to wait for ten minutes."""
    return Stage([turn("here", error="rate_limited", retry_after_s=WAIT_S)], clock=clock)


WAITS = [pytest.param(sleeper, "parked timer", id="sleep"), pytest.param(limited, "parked provider", id="retry-after")]
Maker = Callable[[ManualClock], Stage]


@pytest.mark.parametrize(("make", "waits"), WAITS)
async def test_a_wait_is_over_when_its_time_has_come(make: Maker, waits: str) -> None:
    clock = ManualClock()
    stage = make(clock)
    await stage.open()
    async with served(stage, clock) as seen:
        assert await seen.stands() == waits
        await clock.pass_(WAIT_S - 30)
        assert await seen.stands() == waits
        assert len(seen.looked_at) == 1
        await clock.pass_(31)
        assert await seen.stands() == "done"
        assert len(seen.looked_at) == 2


@pytest.mark.parametrize(("make", "waits"), WAITS)
async def test_a_machine_that_slept_is_caught_up_with(make: Maker, waits: str) -> None:
    clock = ManualClock()
    stage = make(clock)
    await stage.open()
    async with served(stage, clock) as seen:
        assert await seen.stands() == waits
        clock.jump(2 * HOUR_S)
        await settle()
        assert (await seen.row()).status == "parked", "nobody has looked yet"
        await clock.pass_(LOOK_S)
        assert await seen.stands() == "done"


@pytest.mark.parametrize("back_s", [0.3 * WAIT_S, 3 * HOUR_S, 100 * HOUR_S])
@pytest.mark.parametrize(("make", "waits"), WAITS)
async def test_a_clock_that_goes_back_makes_no_wait_longer(make: Maker, waits: str, back_s: float) -> None:
    clock = ManualClock()
    stage = make(clock)
    await stage.open()
    async with served(stage, clock) as seen:
        assert await seen.stands() == waits
        clock.jump(-back_s)
        await clock.pass_(LOOK_S)
        assert await seen.stands() == waits
        row = await seen.row()
        assert row.due_us is not None
        assert row.due_us - clock.now_us() <= WAIT_S * 1_000_000
        await clock.pass_(WAIT_S - LOOK_S - 1)
        assert await seen.stands() == waits, "and none shorter than it would be from here"
        await clock.pass_(2 * LOOK_S)
        assert await seen.stands() == "done"
        assert len(seen.looked_at) == 3


async def test_a_service_that_begins_after_the_clock_went_back_sees_it_too() -> None:
    clock = ManualClock()
    stage = sleeper(clock)
    await stage.run()
    clock.jump(-5 * HOUR_S)
    async with served(stage, clock) as seen:
        await settle()
        row = await seen.row()
        assert row.due_us is not None
        assert row.due_us - clock.now_us() <= WAIT_S * 1_000_000
        await clock.pass_(WAIT_S + LOOK_S)
        assert await seen.stands() == "done"


async def test_what_was_posted_before_the_clock_went_back_is_still_due() -> None:
    clock = ManualClock()
    stage = sleeper(clock)
    await stage.open()
    clock.jump(-5 * HOUR_S)
    async with served(stage, clock) as seen:
        await settle()
        assert seen.looked_at == [stage.session_id]


async def test_a_small_step_back_disturbs_nobody() -> None:
    clock = ManualClock()
    stage = sleeper(clock)
    await stage.open()
    async with served(stage, clock) as seen:
        await settle()
        for _ in range(5):
            clock.jump(-0.5)
            await clock.pass_(2 * LOOK_S)
        assert seen.looked_at == [stage.session_id]


# --- questions -----------------------------------------------------------------------------------

PEOPLE = People(expires_s=2 * WAIT_S, remind_s=WAIT_S, escalate_s=0.0, notify=("phone",))


async def asking(clock: ManualClock) -> Stage:
    """A session that asks whether bash may run; somebody has seen it. Its target `phone` does not exist here."""
    stage = Stage([turn("", ("bash", {"command": "ls"})), turn("ok")], clock=clock)
    created = SessionCreated(
        goal="g",
        agent=Agent(model="scripted", rules=(Rule("bash", "ask"),)),
        workspace=Workspace("/w"),
        people=PEOPLE,
    )
    await stage.intake.open(stage.session_id, created)
    return stage


async def see(stage: Stage) -> None:
    """Somebody looks at the question."""
    (item,) = await stage.store.items()
    assert await stage.intake.seen(item) is not None


async def rounds(seen: Served) -> list[str]:
    """The messages that went out, or would have."""
    return [fact.round for fact in await seen.stage.facts(NoticeSent)]


async def expired(seen: Served) -> int:
    """How often the default was applied."""
    return len(await seen.stage.facts(ApprovalExpired))


async def still(clock: ManualClock) -> None:
    """Nothing happens to the clock."""
    await settle()


async def forward(clock: ManualClock) -> None:
    """The machine sleeps for two days."""
    clock.jump(48 * HOUR_S)
    await clock.pass_(LOOK_S)


async def back(clock: ManualClock) -> None:
    """The clock is set back by three hours."""
    clock.jump(-3 * HOUR_S)
    await clock.pass_(LOOK_S)


@pytest.mark.parametrize("change", [still, back])
async def test_a_reminder_goes_out_once_and_in_time(change: Callable[[ManualClock], Awaitable[None]]) -> None:
    clock = ManualClock()
    stage = await asking(clock)
    async with served(stage, clock) as seen:
        assert await seen.stands() == "parked person"
        assert await rounds(seen) == ["first"]
        await change(clock)
        await clock.pass_(WAIT_S - 70)
        assert await rounds(seen) == ["first"]
        await clock.pass_(75)
        assert await rounds(seen) == ["first", "reminder"]
        await clock.pass_(3 * WAIT_S)
        assert await rounds(seen) == ["first", "reminder"]
        assert await expired(seen) == 0, "nobody has seen it"


@pytest.mark.parametrize("change", [still, back])
async def test_a_question_that_was_seen_expires_in_time(change: Callable[[ManualClock], Awaitable[None]]) -> None:
    clock = ManualClock()
    stage = await asking(clock)
    async with served(stage, clock) as seen:
        await settle()
        await see(stage)
        await settle()
        await change(clock)
        await clock.pass_(HOUR_S - 120)
        assert await expired(seen) == 0, "whoever sees it has an hour"
        await clock.pass_(WAIT_S + 240)
        assert await expired(seen) == 1
        assert await seen.stands() == "done"


async def test_after_a_long_sleep_a_question_that_was_seen_has_expired_and_an_unseen_one_has_not() -> None:
    for is_seen in (True, False):
        clock = ManualClock()
        stage = await asking(clock)
        async with served(stage, clock) as seen:
            await settle()
            if is_seen:
                await see(stage)
            await forward(clock)
            assert await expired(seen) == int(is_seen)
            assert await rounds(seen) == (["first"] if is_seen else ["first", "reminder"])
