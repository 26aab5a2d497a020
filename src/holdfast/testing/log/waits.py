"""Checks of waiting for anything at all, and of what is due next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from holdfast.errors import UnknownSession
from holdfast.log.base import Post
from holdfast.testing.log.rig import LATER_US, Check, Rig, Scenario

_SOON_S = 10.0


async def _rest(case: Scenario, quiet_s: float) -> int:
    """A token after which nothing moves, as far as so much quiet shows."""
    token = await case.store.changed(0)
    while True:
        with anyio.move_on_after(quiet_s) as scope:
            token = await case.store.changed(token)
        if scope.cancelled_caught:
            return token


async def any_move_is_noticed(rig: Rig) -> None:
    """A post, a lease, an append, a new session; between two looks nothing is missed."""
    case = Scenario(rig)
    lease = await case.started()
    moves: list[Callable[[], Awaitable[object]]] = [
        lambda: case.say("ses_a", "one"),
        lambda: case.append(lease, case.result()),
        lambda: case.open("ses_b"),
        lambda: case.take("ses_b"),
        case.stop,
        lambda: rig.store.release(lease),
    ]
    for move in moves:
        token = await _rest(case, 0.05)
        await move()
        with anyio.fail_after(_SOON_S):
            assert await rig.store.changed(token) > token


async def a_waiter_is_woken(rig: Rig) -> None:
    """Whoever waits already when it moves; all of them."""
    case = Scenario(rig)
    await case.open()
    token = await _rest(case, 0.5)
    woken: list[int] = []

    async def wait(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        task_status.started()
        woken.append(await rig.store.changed(token))

    with anyio.fail_after(_SOON_S):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                await group.start(wait)
            await anyio.wait_all_tasks_blocked()
            assert woken == []
            await case.say("ses_a", "now")
    assert all(one > token for one in woken)


async def what_was_refused_moves_nothing(rig: Rig) -> None:
    """A duplicate or a refusal leaves the waiter waiting."""
    case = Scenario(rig)
    await case.open()
    await case.say("ses_a", "one")
    token = await _rest(case, 0.5)
    await case.say("ses_a", "one")
    await case.refused(UnknownSession, rig.store.post(Post("ses_none", "k", case.message())), "ses_a")
    with anyio.move_on_after(0.3) as scope:
        await rig.store.changed(token)
    assert scope.cancelled_caught


async def the_next_wake_is_known(rig: Rig) -> None:
    """The earliest time after now of what is parked; None when no timer runs."""
    case = Scenario(rig)
    assert await rig.store.next_due(0) is None
    for name, due in (("ses_a", LATER_US + 3), ("ses_b", LATER_US + 1), ("ses_c", None)):
        lease = await case.started(name)
        await case.append(lease, case.parked("timer" if due else "person", due))
    found = [await rig.store.next_due(LATER_US + after) for after in (0, 1, 2, 3)]
    assert found == [LATER_US + 1, LATER_US + 3, LATER_US + 3, None]
    await case.take("ses_a")
    assert await rig.store.next_due(LATER_US + 1) is None, "who is at work is due now or never"


CHECKS: tuple[Check, ...] = (
    any_move_is_noticed,
    a_waiter_is_woken,
    what_was_refused_moves_nothing,
    the_next_wake_is_known,
)
