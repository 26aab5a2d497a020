"""Waits on the wake rows: sleeping, a provider's limit, questions; while clocks jump and machines sleep."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from holdfast.brain.wake import wake
from holdfast.facts.people import ApprovalExpired, NoticeSent
from holdfast.facts.session import Agent, People, Rule, SessionCreated, Workspace
from holdfast.fleet.dispatch import InlineDispatcher
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


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("back_s", [45.0, HOUR_S, 365 * 24 * HOUR_S])
async def test_a_crew_smaller_than_the_due_list_wakes_them_all_in_time(limit: int, back_s: float) -> None:
    clock = ManualClock()
    first = sleeper(clock)
    await first.open()
    others = [f"ses_other{number}" for number in range(5)]
    for name in others:
        created = SessionCreated(goal="g", agent=Agent(model="scripted", tools=("sleep",)), workspace=Workspace("/w"))
        await first.intake.open(name, created)
    async with served(first, clock, limit=limit) as seen:
        await settle(2_000)
        rows = await first.store.sessions()
        assert {(row.status, row.reason) for row in rows} == {("parked", "timer")}
        clock.jump(-back_s)
        await clock.pass_(WAIT_S - 30)
        assert {row.reason for row in await first.store.sessions()} == {"timer"}
        await clock.pass_(30 + 2 * LOOK_S)
        await settle(2_000)
        assert {row.status for row in await first.store.sessions()} == {"done"}
        assert not seen.errors


@pytest.mark.parametrize(("age_s", "back_s"), [(0.5, 0.1), (0.7, 0.5), (0.9, 0.85), (0.99, 0.5), (0.3, 0.3)])
async def test_a_wait_older_than_the_jump_is_not_longer(age_s: float, back_s: float) -> None:
    clock = ManualClock()
    stage = sleeper(clock)
    await stage.open()
    async with served(stage, clock) as seen:
        assert await seen.stands() == "parked timer"
        await clock.pass_(age_s * WAIT_S)
        clock.jump(-back_s * WAIT_S)
        await clock.pass_((1 - age_s) * WAIT_S - 2)
        assert await seen.stands() == "parked timer"
        await clock.pass_(2 + LOOK_S)
        assert await seen.stands() == "done"


@pytest.mark.parametrize("back_s", [0.5 * WAIT_S, HOUR_S])
async def test_nobody_has_to_see_the_clock_go_back(back_s: float) -> None:
    """The session parked, the clock was set, and only then a process comes to look."""
    clock = ManualClock()
    stage = sleeper(clock)
    await stage.run()
    clock.wall_us += round(0.6 * WAIT_S * 1_000_000)
    clock.mono_s += 0.6 * WAIT_S
    clock.jump(-back_s)
    async with served(stage, clock) as seen:
        await clock.pass_(0.4 * WAIT_S - 5)
        assert await seen.stands() == "parked timer"
        await clock.pass_(5 + LOOK_S)
        assert await seen.stands() == "done"


async def inline(stage: Stage) -> list[str]:
    """One run of the inline dispatcher; the sessions that it woke."""
    woken: list[str] = []

    async def handle(session_id: str) -> None:
        woken.append(session_id)
        await wake(session_id, stage.doors)

    dispatcher = InlineDispatcher(stage.store, stage.doors.clock, boot_id=stage.doors.worker.boot_id)
    await dispatcher.run(handle)
    return woken


@pytest.mark.parametrize("back_s", [2.0, HOUR_S, 365 * 24 * HOUR_S])
async def test_the_inline_dispatcher_runs_what_can_run_under_any_clock(back_s: float) -> None:
    clock = ManualClock()
    stage = sleeper(clock)
    await stage.open()
    clock.jump(-back_s)
    assert await inline(stage) == [stage.session_id]
    row = await stage.store.find(stage.session_id)
    assert (row.status, row.reason) == ("parked", "timer")


@pytest.mark.parametrize("back_s", [0.5 * WAIT_S, HOUR_S])
async def test_the_inline_dispatcher_sees_that_a_wait_is_over(back_s: float) -> None:
    clock = ManualClock()
    stage = sleeper(clock)
    await stage.run()
    clock.jump(-back_s)
    await inline(stage)
    clock.wall_us += round((WAIT_S - 1) * 1_000_000)
    clock.mono_s += WAIT_S - 1
    await inline(stage)
    assert (await stage.store.find(stage.session_id)).status == "parked"
    clock.wall_us += 2_000_000
    clock.mono_s += 2
    assert await inline(stage) == [stage.session_id]
    assert (await stage.store.find(stage.session_id)).status == "done"


async def test_a_clock_set_back_within_a_shift_makes_the_wait_at_its_end_no_longer() -> None:
    """The provider's answer comes under the new clock; what it asks to wait for is decided by the old one's times."""
    clock = ManualClock()
    turns = [turn("", ("sleep", {"seconds": WAIT_S}), delay_s=20.0), turn("up again")]
    stage = Stage(turns, clock=clock, tools=("sleep",))
    await stage.open()
    async with served(stage, clock) as seen:
        await clock.pass_(10)
        clock.jump(-5 * HOUR_S)
        await clock.pass_(10 + WAIT_S - 5)
        assert await seen.stands() == "parked timer"
        await clock.pass_(5 + 2 * LOOK_S)
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


async def test_the_inline_dispatcher_runs_what_became_due_while_it_asked_who_holds_what(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another process held it when due sessions were looked for, and had let go when holders were."""
    clock = ManualClock()
    stage = sleeper(clock)
    await stage.run()
    whole, woken = stage.store.holders, list[str]()

    async def holders() -> dict[str, str]:
        clock.jump(2 * WAIT_S)
        return await whole()

    async def handle(session_id: str) -> None:
        woken.append(session_id)
        await wake(session_id, stage.doors)

    monkeypatch.setattr(stage.store, "holders", holders)
    boot_id = stage.doors.worker.boot_id
    await InlineDispatcher(stage.store, stage.doors.clock, boot_id=boot_id, only=stage.session_id).run(handle)
    assert woken == [stage.session_id]
