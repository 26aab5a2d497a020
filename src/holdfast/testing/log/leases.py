"""Checks of leases (S5)."""

from __future__ import annotations

from collections.abc import Awaitable

import anyio

from holdfast.errors import Fenced, HeadMoved, LeaseHeld, UnknownSession, UsageError
from holdfast.facts.shift import LeaseStolen, ShiftEnded, ShiftStarted
from holdfast.log.base import Lease
from holdfast.testing.log.rig import Check, Rig, Scenario


async def a_lease_begins_a_shift(rig: Rig) -> None:
    """`shift.started` stands under the next epoch, in the lease and in the log; the row names the holder."""
    case = Scenario(rig)
    await case.open()
    worker = rig.worker()
    lease = await case.take(worker=worker)
    assert (lease.session_id, lease.epoch, lease.worker_id) == ("ses_a", 1, worker)
    assert [type(event.fact) for event in lease.events] == [ShiftStarted]
    assert await rig.store.read("ses_a", after=1) == list(lease.events)
    assert await rig.store.holders() == {"ses_a": worker}
    assert (await case.row()).holder == worker
    await rig.store.renew(lease)


async def a_second_holder_is_refused(rig: Rig) -> None:
    """While the first lives nobody else gets it, not even its own worker; nothing is written."""
    case = Scenario(rig)
    lease = await case.started()
    error = await case.refused(LeaseHeld, case.take(), "ses_a")
    assert error.worker_id == lease.worker_id
    await case.refused(LeaseHeld, case.take(worker=lease.worker_id), "ses_a")
    await case.refused(UnknownSession, case.take("ses_none"))
    await case.refused(UsageError, rig.store.acquire("ses_a", case.result(), steal=True), "ses_a")


async def a_lease_can_be_a_decision(rig: Rig) -> None:
    """With a head it is refused once the session has moved, also a theft; nothing is written (S2)."""
    case = Scenario(rig)
    await case.open()
    await case.say("ses_a", "meanwhile")

    def reach(head: int, *, steal: bool = False) -> Awaitable[Lease]:
        return rig.store.acquire("ses_a", case.shift(rig.worker()), head=head, steal=steal)

    await case.refused(HeadMoved, reach(1), "ses_a")
    assert (await reach(2)).events[0].seq == 3
    await case.refused(HeadMoved, reach(2, steal=True), "ses_a")
    assert (await reach(3, steal=True)).epoch == 2


async def one_of_many_gets_it(rig: Rig) -> None:
    """Twenty workers reach for a session at once."""
    case = Scenario(rig)
    await case.open()
    got: list[Lease] = []
    held: list[str] = []

    async def reach() -> None:
        try:
            got.append(await case.take())
        except LeaseHeld as error:
            held.append(error.worker_id)

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(reach)
    assert len(got) == 1
    assert set(held) == {got[0].worker_id}
    assert len(held) == 19


async def a_dead_holder_is_followed(rig: Rig) -> None:
    """Gone with its process: the next epoch, no theft in the log, the old epoch fenced."""
    case = Scenario(rig)
    first = await case.started()
    rig.kill(first.worker_id)
    assert await rig.store.holders() == {}
    assert await rig.store.due(2**60) == ["ses_a"]
    second = await case.take()
    assert second.epoch == first.epoch + 1
    assert [type(event.fact) for event in second.events] == [ShiftStarted]
    await case.refused(Fenced, case.append(first, case.result()), "ses_a")
    await case.refused(Fenced, rig.store.renew(first))


async def a_lease_can_be_stolen(rig: Rig) -> None:
    """From a living holder: `lease.stolen` names it, before the shift, under the new epoch."""
    case = Scenario(rig)
    first = await case.started()
    second = await case.take(steal=True)
    stolen, started = second.events
    assert stolen.fact == LeaseStolen(from_worker_id=first.worker_id, from_epoch=1)
    assert isinstance(started.fact, ShiftStarted)
    assert {stolen.epoch, started.epoch, second.epoch} == {2}
    error = await case.refused(Fenced, rig.store.renew(first))
    assert (error.mine, error.current) == (1, 2)
    await case.refused(Fenced, case.append(first, case.parked()), "ses_a")
    await rig.store.release(first)
    assert await rig.store.holders() == {"ses_a": second.worker_id}
    await rig.store.renew(second)


async def stealing_from_nobody_is_taking(rig: Rig) -> None:
    """Without a living holder nothing is stolen."""
    case = Scenario(rig)
    await case.open()
    first = await case.take(steal=True)
    assert [type(event.fact) for event in first.events] == [ShiftStarted]
    rig.kill(first.worker_id)
    second = await case.take(steal=True)
    assert [type(event.fact) for event in second.events] == [ShiftStarted]


async def a_lease_is_given_back(rig: Rig) -> None:
    """Released: the shift ends in the log, the session is due, anybody may take it. Safe to repeat."""
    case = Scenario(rig)
    lease = await case.started()
    assert await rig.store.due(2**60) == []
    await rig.store.release(lease)
    await rig.store.release(lease)
    events = await rig.store.read("ses_a", after=2)
    assert [event.fact for event in events] == [ShiftEnded(status="released")]
    assert await rig.store.holders() == {}
    assert await rig.store.due(2**60) == ["ses_a"]
    await case.refused(Fenced, rig.store.renew(lease))
    assert (await case.take()).epoch == 2


async def the_end_of_a_shift_ends_the_lease(rig: Rig) -> None:
    """A brain that parks holds nothing any more; giving back after that writes nothing."""
    case = Scenario(rig)
    lease = await case.started()
    await case.append(lease, case.parked(), head=2)
    await rig.store.release(lease)
    assert (await case.row()).head == 3
    assert await rig.store.holders() == {}
    assert (await case.take()).epoch == 2


async def holders_are_per_session(rig: Rig) -> None:
    """One worker holds many sessions; its death ends all of them and no others."""
    case = Scenario(rig)
    mine, other = rig.worker(), rig.worker()
    for name in ("ses_a", "ses_b", "ses_c"):
        await case.open(name)
    await case.take("ses_a", worker=mine)
    await case.take("ses_b", worker=mine)
    await case.take("ses_c", worker=other)
    rig.kill(mine)
    assert await rig.store.holders() == {"ses_c": other}
    assert sorted(await rig.store.due(2**60)) == ["ses_a", "ses_b"]


CHECKS: tuple[Check, ...] = (
    a_lease_begins_a_shift,
    a_second_holder_is_refused,
    a_lease_can_be_a_decision,
    one_of_many_gets_it,
    a_dead_holder_is_followed,
    a_lease_can_be_stolen,
    stealing_from_nobody_is_taking,
    a_lease_is_given_back,
    the_end_of_a_shift_ends_the_lease,
    holders_are_per_session,
)
