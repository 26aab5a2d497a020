"""Checks of what lies beside the events: rows, names, snapshots, and their rebuilding (S19, S20)."""

from __future__ import annotations

from holdfast.errors import UnknownSession
from holdfast.facts.codec import encode_body
from holdfast.facts.session import SessionUpdated
from holdfast.facts.shift import ShiftEnded
from holdfast.log.base import Post, Snapshot
from holdfast.log.verify import rebuild, verify
from holdfast.session.rows import Uptime
from holdfast.session.state import CLOCK_STEP_US
from holdfast.testing.log.rig import LATER_US, Check, Rig, Scenario


async def rows_follow_from_events(rig: Rig) -> None:
    """After leases, theft, money, posts, children and ends: what is rebuilt is what is there (S20)."""
    await _long_story(rig)
    assert await rebuild(rig.store) == await rig.store.beside()
    done = await verify(rig.store)
    assert done.findings == ()
    assert (done.sessions, done.events) == (3, sum(row.head for row in await rig.store.sessions()))


async def verify_names_the_first_bad_event(rig: Rig) -> None:
    """One session's damage is found, with its sequence number, and no other's."""
    case = Scenario(rig)
    await _long_story(rig)
    await rig.rewrite("ses_a", 3, encode_body(case.message("never said")))
    done = await verify(rig.store)
    assert [(finding.session_id, finding.seq) for finding in done.findings] == [("ses_a", 3)]
    assert (await verify(rig.store, "ses_b")).findings == ()
    assert [finding.seq for finding in (await verify(rig.store, "ses_a")).findings] == [3]


async def verify_bears_tombstones(rig: Rig) -> None:
    """An erased body is no damage."""
    await _long_story(rig)
    await rig.rewrite("ses_a", 3, None)
    assert (await verify(rig.store)).findings == ()


async def sessions_are_found_by_name(rig: Rig) -> None:
    """By id, by key, by a unique prefix of either; several or none is an error that says so."""
    case = Scenario(rig)
    await case.open("ses_abc", key="nightly-1")
    await case.open("ses_abd", key="weekly")
    for name in ("ses_abc", "nightly-1", "ses_abc", "night"):
        assert (await rig.store.find(name)).session_id == "ses_abc"
    assert (await rig.store.find("ses_abd")).key == "weekly"
    error = await case.refused(UnknownSession, rig.store.find("ses_ab"))
    assert "ses_abc" in str(error)
    for name in ("", "nothing", "SES_ABC", "%", "ses_abcd"):
        await case.refused(UnknownSession, rig.store.find(name))
    assert {row.session_id for row in await rig.store.sessions()} == {"ses_abc", "ses_abd"}


async def an_exact_name_goes_before_a_prefix(rig: Rig) -> None:
    """A key that begins another one still names its own session."""
    case = Scenario(rig)
    await case.open("ses_a", key="job")
    await case.open("ses_b", key="job-2")
    assert (await rig.store.find("job")).session_id == "ses_a"
    assert (await rig.store.find("job-")).session_id == "ses_b"


async def due_sessions_come_longest_due_first(rig: Rig) -> None:
    """Not before their time, not when nothing is due."""
    case = Scenario(rig)
    for name, due in (("ses_a", LATER_US + 3), ("ses_b", LATER_US + 1), ("ses_c", None), ("ses_d", LATER_US + 2)):
        lease = await case.started(name)
        await case.append(lease, case.parked("timer" if due else "person", due))
    assert await rig.store.due(LATER_US) == []
    assert await rig.store.due(LATER_US + 2) == ["ses_b", "ses_d"]
    assert await rig.store.due(LATER_US + 3) == ["ses_b", "ses_d", "ses_a"]


async def what_can_run_is_due_under_any_clock(rig: Rig) -> None:
    """A session that waits for no time is due though the clock stands before its latest event."""
    case = Scenario(rig)
    lease = await case.started("ses_a")
    await case.append(lease, case.parked("person"))
    assert await rig.store.due(0) == []
    await case.say("ses_a", "go on")
    assert await rig.store.due(0) == ["ses_a"]


async def a_time_in_the_future_does_not_wait_behind_others(rig: Rig) -> None:
    """What was stamped before the clock was set back goes first: others may be due again and again before its time."""
    case = Scenario(rig)
    await case.append(await case.started("ses_b"), case.parked("person"))
    await case.say("ses_b", "go on")
    stamped_us = (await case.row("ses_b")).due_us
    assert stamped_us is not None
    lease = await case.started("ses_a")
    await case.append(lease, case.parked("timer", stamped_us - 2))
    assert await rig.store.due(stamped_us) == ["ses_a", "ses_b"]
    assert await rig.store.due(stamped_us - 1) == ["ses_b", "ses_a"]


async def a_wait_is_over_by_the_uptime_too(rig: Rig) -> None:
    """Within the boot in which it began a wait ends by the uptime, however the wall clock was set."""
    case = Scenario(rig)
    lease = await case.started("ses_a")
    draft = case.draft(
        ShiftEnded(status="parked", reason="timer", due_us=LATER_US, boot_id="boot-1", booted_us=LATER_US - 5_000)
    )
    await case.append(lease, draft)
    now_us = (await case.row("ses_a")).updated_us
    assert await rig.store.due(now_us) == []
    assert await rig.store.due(now_us, Uptime("boot-1", 4_999)) == []
    assert await rig.store.next_due(now_us, Uptime("boot-1", 4_000)) == now_us + 1_000
    assert await rig.store.due(now_us, Uptime("boot-1", 5_000)) == ["ses_a"]
    assert await rig.store.due(now_us, Uptime("boot-2", 9_000)) == []
    assert await rig.store.next_due(now_us, Uptime("boot-2", 9_000)) == LATER_US
    await case.append(await case.take("ses_a"), case.parked("person"))
    assert await rig.store.due(now_us, Uptime("boot-1", 9_000)) == [], "that wait is over, and no other began"


async def a_row_from_the_future_is_judged_anew(rig: Rig) -> None:
    """A clock that stands before a session's latest event was set back: whoever folds it knows by how much."""
    case = Scenario(rig)
    lease = await case.started("ses_a")
    await case.append(lease, case.parked("timer", LATER_US))
    now_us = (await case.row("ses_a")).updated_us
    assert await rig.store.due(now_us - CLOCK_STEP_US) == []
    assert await rig.store.due(now_us - CLOCK_STEP_US - 1) == ["ses_a"]


async def a_snapshot_is_true_or_ignored(rig: Rig) -> None:
    """It must name the stored event's hash and the reader's fold; the later one replaces the earlier (S19)."""
    case = Scenario(rig)
    lease = await case.started()
    (event,) = await case.append(lease, case.result())
    store = rig.store
    assert await store.load("ses_a", "fold") is None
    good = Snapshot("ses_a", event.seq, event.hash, "fold", b"state")
    await store.save(good)
    assert await store.load("ses_a", "fold") == good
    assert await store.load("ses_a", "another fold") is None
    assert await store.load("ses_b", "fold") is None
    for wrong in (
        Snapshot("ses_a", event.seq, b"\0" * 32, "fold", b"state"),
        Snapshot("ses_a", event.seq - 1, event.hash, "fold", b"state"),
        Snapshot("ses_a", event.seq + 1, event.hash, "fold", b"state"),
    ):
        await store.save(wrong)
        assert await store.load("ses_a", "fold") is None
    (later,) = await case.append(lease, case.result())
    newer = Snapshot("ses_a", later.seq, later.hash, "fold", b"another" * 100_000)
    await store.save(good)
    await store.save(newer)
    assert await store.load("ses_a", "fold") == newer


async def _long_story(rig: Rig) -> None:
    """Three sessions with something of everything."""
    case = Scenario(rig)
    await case.open("ses_a", key="job", cap=1_000)
    lease = await case.take("ses_a")
    await case.say("ses_a", "hello")
    (start,) = await case.append(lease, case.request(300), head=3)
    await case.append(lease, case.response(start.seq, 120), case.result("x" * 100_000))
    await case.append(lease, case.result(), posts=[Post("ses_b", "spawn", case.created(accounts=("ses_b", "ses_a")))])
    thief = await case.take("ses_a", steal=True)
    await case.append(thief, case.request(200))
    child = await case.take("ses_b")
    (open_request,) = await case.append(child, case.request(50))
    rig.kill(child.worker_id)
    child = await case.take("ses_b")
    await case.append(child, case.response(open_request.seq, 50), case.request(10))
    await rig.store.release(child)
    raised = case.draft(SessionUpdated(budget_pico=2_000, max_turns=9), "user:ann")
    await rig.store.post(Post("ses_a", "raise", raised))
    other = await case.started("ses_c")
    await case.append(other, case.parked("timer", 5_000), head=2)


CHECKS: tuple[Check, ...] = (
    rows_follow_from_events,
    verify_names_the_first_bad_event,
    verify_bears_tombstones,
    sessions_are_found_by_name,
    an_exact_name_goes_before_a_prefix,
    due_sessions_come_longest_due_first,
    what_can_run_is_due_under_any_clock,
    a_time_in_the_future_does_not_wait_behind_others,
    a_wait_is_over_by_the_uptime_too,
    a_row_from_the_future_is_judged_anew,
    a_snapshot_is_true_or_ignored,
)
