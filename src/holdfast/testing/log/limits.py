"""Checks of limits (S15): sessions that run at a time, and requests in a minute, of an account or a model."""

from __future__ import annotations

import anyio

from holdfast.errors import BudgetRefused, TooMany, TooSoon, UsageError
from holdfast.facts.shift import LimitSet
from holdfast.log.base import Lease, Post
from holdfast.session.home import HOME
from holdfast.testing.log.rig import LATER_US, Rig, Scenario

_WEB = "project:web"


async def _set(case: Scenario, fact: LimitSet) -> None:
    draft = case.draft(fact, "user:ann")
    await case.store.post(Post(HOME, draft.id, draft))


async def _of_web(case: Scenario, *names: str) -> None:
    for name in names:
        await case.open(name, accounts=(name, _WEB))


async def as_many_run_as_the_limit_allows(rig: Rig) -> None:
    """One more is refused and not due; it is due once another one ended, or its process. Others are not affected."""
    case = Scenario(rig)
    await _of_web(case, "ses_a", "ses_b", "ses_c", "ses_d")
    await case.open("ses_x")
    await _set(case, LimitSet(scope="account", name=_WEB, running=2))
    assert await rig.store.due(LATER_US) == ["ses_a", "ses_x", "ses_b"]
    worker = rig.worker()
    first, _ = await case.take("ses_a"), await case.take("ses_b", worker=worker)
    assert await rig.store.due(LATER_US) == ["ses_x"]
    await case.refused(TooMany, case.take("ses_c"), "ses_c")
    await case.take("ses_x")
    await case.append(first, case.parked("person"))
    assert await rig.store.due(LATER_US) == ["ses_c"]
    await case.take("ses_c")
    rig.kill(worker)
    assert await rig.store.due(LATER_US) == ["ses_d"]  # it has been due for longer than ses_b
    await case.take("ses_b")  # after a crash, its own shift is not one of the others
    await case.refused(TooMany, case.take("ses_d"), "ses_d")
    await _set(case, LimitSet(scope="account", name=_WEB))
    assert await rig.store.due(LATER_US) == ["ses_d"]
    await case.take("ses_d")
    await case.whole()


async def a_limit_holds_for_many_at_once(rig: Rig) -> None:
    """Twenty workers that begin twenty sessions of one model at once begin as many as it allows."""
    case = Scenario(rig)
    names = [f"ses_{number:02d}" for number in range(20)]
    for name in names:
        await case.open(name)
    await _set(case, LimitSet(scope="model", name="scripted:x", running=3))
    began: list[str] = []

    async def begin(name: str) -> None:
        try:
            await case.take(name)
            began.append(name)
        except TooMany:
            pass

    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(begin, name)
    assert len(began) == 3
    assert await rig.store.due(LATER_US) == []


async def requests_keep_to_their_rate(rig: Rig) -> None:
    """A burst begins at once, then one each step; the error says when. A request that is refused counts nothing."""
    case = Scenario(rig)
    lease = await case.started(cap=100)
    await _set(case, LimitSet(scope="model", name="m", per_minute=60, burst=3))
    for _ in range(3):
        await case.append(lease, case.request(None))
    error = await case.refused(TooSoon, case.append(lease, case.request(None)), "ses_a")
    begun_us = (await case.row("ses_a")).updated_us
    assert 0 < error.next_us - begun_us <= 1_000_000
    rig.advance(2)
    await case.refused(BudgetRefused, case.append(lease, case.request(101)), "ses_a")
    for _ in range(2):
        await case.append(lease, case.request(10))
    await case.refused(TooSoon, case.append(lease, case.request(None)), "ses_a")
    rig.advance(3600)
    for _ in range(3):
        await case.append(lease, case.request(None))
    await case.refused(TooSoon, case.append(lease, case.request(None)), "ses_a")
    await case.append(lease, case.result())  # nothing else waits for a rate
    await case.whole()


async def a_rate_is_shared_by_all_who_draw_on_an_account(rig: Rig) -> None:
    """Forty requests of an account's sessions at once: as many begin as its burst."""
    case = Scenario(rig)
    leases: list[Lease] = []
    for number in range(8):
        await _of_web(case, f"ses_{number}")
        leases.append(await case.take(f"ses_{number}"))
    await _set(case, LimitSet(scope="account", name=_WEB, per_minute=1, burst=5))
    began: list[int] = []

    async def ask(lease: Lease) -> None:
        for _ in range(5):
            try:
                (event,) = await case.append(lease, case.request(1))
                began.append(event.at_us)
            except TooSoon:
                pass

    async with anyio.create_task_group() as group:
        for lease in leases:
            group.start_soon(ask, lease)
    assert len(began) == 5
    other = await case.started("ses_other")
    await case.append(other, case.request(1))


async def a_clock_that_was_set_back_blocks_no_rate(rig: Rig) -> None:
    """Use that was counted under a clock far ahead is forgotten."""
    case = Scenario(rig)
    lease = await case.started()
    await _set(case, LimitSet(scope="model", name="m", per_minute=60, burst=2))
    rig.advance(10 * 86_400)
    await case.append(lease, case.request(None), case.request(None))
    await case.refused(TooSoon, case.append(lease, case.request(None)), "ses_a")
    rig.advance(-10 * 86_400)
    await case.append(lease, case.request(None), case.request(None))
    await case.refused(TooSoon, case.append(lease, case.request(None)), "ses_a")


async def a_limit_belongs_to_the_home(rig: Rig) -> None:
    """A limit that is posted to a session is refused."""
    case = Scenario(rig)
    await case.open("ses_a")
    draft = case.draft(LimitSet(scope="model", name="m", running=1), "user:ann")
    await case.refused(UsageError, rig.store.post(Post("ses_a", "limit", draft)), "ses_a")
