"""Checks of the home's own log: the emergency stop, and what may stand there."""

from __future__ import annotations

from holdfast.errors import EmergencyStop, UnknownSession, UsageError
from holdfast.facts.home import EmergencyReleased, EmergencyStopped
from holdfast.facts.session import SessionCreated, SessionUpdated
from holdfast.log.base import Post
from holdfast.log.verify import verify
from holdfast.session.home import HOME
from holdfast.testing.log.rig import Check, Rig, Scenario


async def the_first_post_opens_it(rig: Rig) -> None:
    """A log like any other, whose first event says what it is; walked by verify, and in no list."""
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


async def it_takes_only_what_concerns_all(rig: Rig) -> None:
    """It never runs, hears no message and cannot be opened by hand; a stop stands nowhere else."""
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


async def a_stop_lets_nothing_start(rig: Rig) -> None:
    """No lease, no new session, no child; what runs goes on to its next boundary, and people are heard."""
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


async def a_release_lifts_the_stop_that_it_names(rig: Rig) -> None:
    """Not a later one; after it everything goes on."""
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


CHECKS: tuple[Check, ...] = (
    the_first_post_opens_it,
    it_takes_only_what_concerns_all,
    a_stop_lets_nothing_start,
    a_release_lifts_the_stop_that_it_names,
)
