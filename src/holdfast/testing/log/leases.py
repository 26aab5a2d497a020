"""Checks of leases and fencing (S5), of the emergency stop, and of waiting for a change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from holdfast.errors import EmergencyStop, Fenced, HeadMoved, LeaseHeld, UnknownSession, UsageError
from holdfast.facts.session import SessionCreated, SessionUpdated
from holdfast.facts.shift import EmergencyReleased, EmergencyStopped, LeaseStolen, ShiftEnded, ShiftStarted
from holdfast.log.base import Lease, Post
from holdfast.log.verify import verify
from holdfast.session.home import HOME
from holdfast.testing.log.rig import LATER_US, Rig, Scenario


async def a_lease_begins_a_shift(rig: Rig) -> None:
    """`shift.started` has the next epoch, in the lease and in the log; the row names the holder."""
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
    """While the holder lives, any acquire is refused, even the same worker's, and nothing is written."""
    case = Scenario(rig)
    lease = await case.started()
    error = await case.refused(LeaseHeld, case.take(), "ses_a")
    assert error.worker_id == lease.worker_id
    await case.refused(LeaseHeld, case.take(worker=lease.worker_id), "ses_a")
    await case.refused(UnknownSession, case.take("ses_none"))
    await case.refused(UsageError, rig.store.acquire("ses_a", case.result(), steal=True), "ses_a")


async def a_lease_can_be_a_decision(rig: Rig) -> None:
    """An acquire with a head is refused once the session has moved, even with `steal` (S2)."""
    case = Scenario(rig)
    await case.open()
    await case.say("ses_a", "meanwhile")

    def reach(head: int, *, steal: bool = False) -> Awaitable[Lease]:
        return rig.store.acquire("ses_a", case.shift(rig.worker()), head=head, steal=steal)

    await case.refused(HeadMoved, reach(1), "ses_a")
    assert (await reach(2)).events[0].seq == 3
    await case.refused(HeadMoved, reach(2, steal=True), "ses_a")
    assert (await reach(3, steal=True)).epoch == 2


async def an_append_names_its_holder(rig: Rig) -> None:
    """An append under the right epoch by another worker than its holder is refused, also after the shift ended."""
    case = Scenario(rig)
    lease = await case.started()

    def append(holder: str) -> Awaitable[object]:
        return rig.store.append("ses_a", lease.epoch, [case.result()], holder=holder)

    await append(lease.worker_id)
    await case.refused(Fenced, append(rig.worker()), "ses_a")
    await case.append(lease, case.parked("person"))
    await case.refused(Fenced, append(rig.worker()), "ses_a")


async def one_of_many_acquires(rig: Rig) -> None:
    """Twenty workers acquire a session at once; one succeeds."""
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


async def a_dead_holder_is_succeeded(rig: Rig) -> None:
    """After the holder's death, the next lease has the next epoch without a theft, and the old epoch is fenced."""
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
    """Stealing from a live holder appends `lease.stolen` before the shift, under the new epoch."""
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


async def stealing_without_a_holder_is_a_plain_acquire(rig: Rig) -> None:
    """`steal` without a live holder is a plain acquire."""
    case = Scenario(rig)
    await case.open()
    first = await case.take(steal=True)
    assert [type(event.fact) for event in first.events] == [ShiftStarted]
    rig.kill(first.worker_id)
    second = await case.take(steal=True)
    assert [type(event.fact) for event in second.events] == [ShiftStarted]


async def a_lease_is_given_back(rig: Rig) -> None:
    """A release ends the shift in the log and makes the session due. It is safe to repeat."""
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
    """Parking ends the lease; a release after that writes nothing."""
    case = Scenario(rig)
    lease = await case.started()
    await case.append(lease, case.parked(), head=2)
    await rig.store.release(lease)
    assert (await case.row()).head == 3
    assert await rig.store.holders() == {}
    assert (await case.take()).epoch == 2


async def holders_are_per_session(rig: Rig) -> None:
    """A worker can hold many sessions; its death ends those leases and no others."""
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


_SOON_S = 10.0


async def _rest(case: Scenario, quiet_s: float) -> int:
    """Wait until the log is unchanged for `quiet_s`; return the token."""
    token = await case.store.changed(0)
    while True:
        with anyio.move_on_after(quiet_s) as scope:
            token = await case.store.changed(token)
        if scope.cancelled_caught:
            return token


async def any_move_is_noticed(rig: Rig) -> None:
    """Posts, leases, appends, and new sessions all change the token, also between two waits."""
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
    """A move wakes every task that already waits."""
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


async def refusals_move_nothing(rig: Rig) -> None:
    """Duplicates and refusals wake no waiter."""
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
    """`next_due` is the earliest later due time of a parked session, None without one."""
    case = Scenario(rig)
    assert await rig.store.next_due(0) is None
    for name, due in (("ses_a", LATER_US + 3), ("ses_b", LATER_US + 1), ("ses_c", None)):
        lease = await case.started(name)
        await case.append(lease, case.parked("timer" if due else "person", due))
    found = [await rig.store.next_due(LATER_US + after) for after in (0, 1, 2, 3)]
    assert found == [LATER_US + 1, LATER_US + 3, LATER_US + 3, None]
    await case.take("ses_a")
    assert await rig.store.next_due(LATER_US + 1) is None, "a session at work has no due time"


async def the_first_post_opens_the_home(rig: Rig) -> None:
    """The home's log opens with its first post; verify walks it, and lists leave it out."""
    case = Scenario(rig)
    await case.open("ses_hot")
    assert await rig.store.stopped() is None
    receipt = await case.set_cap("project:web", 10)
    assert receipt.seq == 2
    assert (await case.set_cap("project:web", 20)).seq == 3
    first, *_ = await rig.store.read(HOME)
    assert isinstance(first.fact, SessionCreated)
    assert first.fact.goal
    assert [row.session_id for row in await rig.store.sessions()] == ["ses_hot"]
    assert {row.session_id for row in await rig.store.sessions(home=True)} == {"ses_hot", HOME}
    assert (await rig.store.find("ses_ho")).session_id == "ses_hot"
    assert (await rig.store.find(HOME)).session_id == HOME
    await case.refused(UnknownSession, rig.store.find("ses_hom"))
    assert await rig.store.due(2**60) == ["ses_hot"]
    assert [name for name, *_ in await case.books()] == ["project:web", "ses_hot"]
    assert (await verify(rig.store)).sessions == 2
    await case.whole()


async def the_home_takes_only_home_events(rig: Rig) -> None:
    """The home's log accepts no lease, message, or create; emergency events are appended nowhere else."""
    case = Scenario(rig)
    await case.open()
    await case.refused(UsageError, case.open(HOME), "ses_a")
    await case.set_cap("ses_a", 10)
    await case.refused(UsageError, case.take(HOME), HOME)
    await case.refused(UsageError, case.take(HOME, steal=True), HOME)
    for fact in (case.message(), case.draft(SessionUpdated(max_turns=3))):
        await case.refused(UsageError, rig.store.post(Post(HOME, "m", fact)), HOME)
    for stop in (EmergencyStopped(), EmergencyReleased(stop_seq=1)):
        await case.refused(UsageError, rig.store.post(Post("ses_a", "m", case.draft(stop))), "ses_a")
    assert (await case.row(HOME)).due_us is None


async def a_stop_prevents_starts(rig: Rig) -> None:
    """A stop refuses leases, new sessions, and children; running shifts continue to their next boundary."""
    case = Scenario(rig)
    lease = await case.started(cap=100)
    await case.open("ses_b")
    before = await case.stop("the disk smells")
    stop = await rig.store.stopped()
    assert stop is not None
    assert (stop.seq, stop.by, stop.reason) == (before.seq, "user:ann", "the disk smells")
    assert stop.at_us == (await rig.store.read(HOME))[-1].at_us
    error = await case.refused(EmergencyStop, case.take("ses_b"), "ses_a", "ses_b")
    for word in ("ann", "the disk smells", "holdfast stop --release"):
        assert word in str(error)
    assert error.exit_code == 3
    await case.refused(EmergencyStop, case.take("ses_a", steal=True), "ses_a")
    await case.refused(EmergencyStop, case.open("ses_c"), "ses_a")
    spawn = Post("ses_c", "created", case.created(accounts=("ses_c", "ses_a")))
    await case.refused(EmergencyStop, case.append(lease, case.result(), posts=[spawn]), "ses_a")
    assert (await case.open("ses_b")).duplicate
    await case.say("ses_b", "m")
    await case.append(lease, case.result(), case.request(5))
    await rig.store.release(lease)
    await case.whole()


async def a_release_lifts_the_stop_it_names(rig: Rig) -> None:
    """A release lifts only the stop it names."""
    case = Scenario(rig)
    await case.open()
    first = await case.stop("one")
    second = await case.stop("two")
    await case.go_on(first.seq)
    stop = await rig.store.stopped()
    assert stop is not None
    assert (stop.seq, stop.reason) == (second.seq, "two")
    await case.refused(EmergencyStop, case.take(), "ses_a")
    await case.go_on(second.seq)
    assert await rig.store.stopped() is None
    await case.take()
    await case.open("ses_b")
    await case.whole()
