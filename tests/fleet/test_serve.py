"""A process that serves: side by side up to a limit, after errors, under an emergency stop, and when it is stopped."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from holdfast.brain.wake import wake
from holdfast.errors import HandsError, LeaseHeld, LogUnavailable, NeedsProgram
from holdfast.facts.session import Agent, SessionCreated, Workspace
from holdfast.fleet.dispatch import FIRST_REST_S, LONGEST_REST_S
from holdfast.fleet.serve import LIST_S, Service, Share
from holdfast.log.memory import MemoryStore
from holdfast.session.rows import Uptime
from tests.brain.stage import Stage, turn
from tests.fleet.clock import ManualClock, settle
from tests.fleet.served import served
from tests.support.waiting import PATIENCE_S


async def more(stage: Stage, number: int) -> list[str]:
    """Further sessions in the same log."""
    opened = []
    for _ in range(number):
        session_id = stage.intake.new_session_id()
        created = SessionCreated(goal="g", agent=Agent(model="scripted"), workspace=Workspace("/w"))
        await stage.intake.open(session_id, created)
        opened.append(session_id)
    return opened


async def test_due_sessions_run_side_by_side_up_to_the_limit() -> None:
    clock = ManualClock()
    stage = Stage([turn("ok")], clock=clock)
    sessions = await more(stage, 5)
    go, working, most = anyio.Event(), 0, 0

    async def handle(session_id: str) -> None:
        nonlocal working, most
        working += 1
        most = max(most, working)
        await go.wait()
        await wake(session_id, stage.doors)
        working -= 1

    async with served(stage, clock, limit=3, handler=handle) as seen:
        await settle()
        assert (working, len(seen.looked_at)) == (3, 3)
        go.set()
        await settle()
        assert sorted(seen.looked_at) == sorted(sessions)
        assert most == 3
    assert {row.status for row in await stage.store.sessions()} == {"done"}


async def test_a_session_that_fails_rests_longer_each_time_and_the_others_go_on() -> None:
    clock = ManualClock()
    stage = Stage([turn("ok")], clock=clock)
    bad, good = await more(stage, 2)

    async def handle(session_id: str) -> None:
        if session_id == bad:
            raise HandsError("no hands today")
        await wake(session_id, stage.doors)

    async with served(stage, clock, handler=handle) as seen:
        await settle()
        assert (await stage.store.find(good)).status == "done"
        assert seen.looked_at.count(bad) == 1
        for tries in range(1, 12):
            pause_s = min(LONGEST_REST_S, FIRST_REST_S * 2 ** (tries - 1))
            assert seen.errors[-1] == (bad, "no hands today", pause_s)
            await clock.pass_(pause_s - 0.5)
            assert seen.looked_at.count(bad) == tries, "not before its rest is over"
            await clock.pass_(0.5)
            assert seen.looked_at.count(bad) == tries + 1
        (late,) = await more(stage, 1)
        await settle()
        assert (await stage.store.find(late)).status == "done"


async def test_after_a_success_the_rest_begins_small_again() -> None:
    clock = ManualClock()
    stage = Stage([turn("ok")], clock=clock)
    (session_id,) = await more(stage, 1)
    fails = iter([True, True, False, True, False])

    async def handle(session_id: str) -> None:
        if next(fails):
            raise HandsError("not now")
        await wake(session_id, stage.doors)

    async with served(stage, clock, handler=handle) as seen:
        await clock.pass_(3.1)
        await stage.intake.send(await stage.store.find(session_id), "again")
        await settle()
        assert [again_s for *_, again_s in seen.errors] == [1.0, 2.0, 1.0]


async def test_a_session_that_is_not_for_this_process_is_told_of_once_and_left() -> None:
    clock = ManualClock()
    stage = Stage([], clock=clock)
    (session_id,) = await more(stage, 1)

    async def handle(session_id: str) -> None:
        raise NeedsProgram("it needs functions of another program")

    async with served(stage, clock, handler=handle) as seen:
        await clock.pass_(1_000)
        assert seen.errors == [(session_id, "it needs functions of another program", None)]
        assert seen.looked_at == [session_id]
    assert (await stage.store.find(session_id)).status == "runnable"


async def test_a_session_that_another_process_holds_is_left_to_it_until_it_is_free() -> None:
    clock = ManualClock()
    stage = Stage([turn("ok")], clock=clock)
    (session_id,) = await more(stage, 1)
    held = True

    async def handle(session_id: str) -> None:
        if held:
            raise LeaseHeld("held", worker_id="wrk_2")
        await wake(session_id, stage.doors)

    async with served(stage, clock, handler=handle) as seen:
        await clock.pass_(0.5)
        assert (len(seen.looked_at), seen.errors) == (1, [])
        held = False
        await clock.pass_(1)
        assert (await stage.store.find(session_id)).status == "done"


async def test_an_emergency_stop_lets_nothing_start_and_the_service_stays() -> None:
    clock = ManualClock()
    stage = Stage([turn("ok")], clock=clock)
    async with served(stage, clock) as seen:
        (asleep,) = await more(stage, 1)
        await stage.intake.stop_all("enough")
        await clock.pass_(30)
        assert (await stage.store.find(asleep)).status == "runnable"
        assert seen.errors == []
        looked = len(seen.looked_at)
        assert looked <= 1, "nothing is tried while the stop holds"
        await stage.intake.release()
        await settle()
        assert len(seen.looked_at) > looked
        assert (await stage.store.find(asleep)).status == "done"


async def test_whoever_is_at_work_is_let_go_when_the_service_is_stopped() -> None:
    clock = ManualClock()
    stage = Stage([turn("", delay_s=1_000.0)], clock=clock)
    await stage.open()
    async with served(stage, clock):
        await stage.until("span.model_request_start")
    row = await stage.store.find(stage.session_id)
    assert (row.status, row.detail) == ("runnable", "the process was asked to stop")
    assert await stage.store.holders() == {}


class Flaky(MemoryStore):
    """A log that cannot be read for a while."""

    broken = False

    async def due(self, now_us: int, up: Uptime | None = None) -> list[str]:
        """What is due, when the log can be read."""
        if self.broken:
            raise LogUnavailable("the disk is away")
        return await super().due(now_us, up)


async def test_a_log_in_trouble_is_looked_at_every_few_seconds_and_then_served_again() -> None:
    clock = ManualClock()
    stage = Stage([turn("ok")], clock=clock)
    store = Flaky(clock)
    told: list[tuple[str, float | None]] = []
    woken: list[str] = []

    async def handle(session_id: str) -> None:
        woken.append(session_id)
        await anyio.lowlevel.checkpoint()

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            store.broken = True
            service = Service(
                store,
                clock,
                boot_id="boot",
                limit=2,
                on_error=lambda name, error, again_s: told.append((name, again_s)),
            )
            group.start_soon(service.run, handle)
            await clock.pass_(20)
            assert told == [("", 1.0), ("", 2.0), *[("", 4.0)] * 5]
            store.broken = False
            await store.post(
                stage.intake.drafted(
                    "ses_x", SessionCreated(goal="g", agent=Agent(model="m"), workspace=Workspace("/w")), "created"
                ),
                create=True,
            )
            await settle()
            assert woken[:1] == ["ses_x"]
            group.cancel_scope.cancel()


@pytest.mark.parametrize("limit", [1, 16])
async def test_a_still_log_is_hardly_looked_at(limit: int) -> None:
    clock = ManualClock()
    looks = 0

    class Counted(MemoryStore):
        async def due(self, now_us: int, up: Uptime | None = None) -> list[str]:
            nonlocal looks
            looks += 1
            return await super().due(now_us, up)

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            service = Service(Counted(clock), clock, boot_id="boot", limit=limit, on_error=lambda *_: None)

            async def handle(session_id: str) -> None:
                raise AssertionError(session_id)

            group.start_soon(service.run, handle)
            await clock.pass_(300)
            group.cancel_scope.cancel()
    assert looks <= 300 / 3 + 3


async def test_a_worker_that_joins_gets_its_share_within_a_second() -> None:
    """While sessions are due: the sessions of its share would be started twice, and once in vain."""
    clock, alive, lists = ManualClock(), ["a"], 0

    async def workers() -> tuple[list[str], list[str]]:
        nonlocal lists
        lists += 1
        return alive, alive

    share = Share("a", workers, clock)
    due = [f"ses_{number}" for number in range(20)]
    assert await share.split(due) == (due, [])
    alive = ["a", "b"]
    for _ in range(4):
        await clock.pass_(LIST_S / 4)
        await share.split([])
    assert lists == 1
    mine, others = await share.split(due)
    assert (0 < len(mine) < 20, others, lists) == (True, [], 2)
    assert [each for each in due if share.has(each, free=False)] == mine
