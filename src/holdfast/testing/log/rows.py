"""Checks of the rows beside the events: names, due times, inbox items, snapshots, and rebuilding them (S19 to S21)."""

from __future__ import annotations

from holdfast.errors import UnknownItem, UnknownSession, UsageError
from holdfast.facts.codec import encode_body
from holdfast.facts.people import ApprovalDecided, ApprovalExpired, ApprovalSeen, ApprovalSuperseded
from holdfast.facts.session import SessionUpdated
from holdfast.facts.shift import ShiftEnded
from holdfast.log.base import Post, Snapshot, View, Which
from holdfast.log.verify import rebuild, verify
from holdfast.session.home import HOME
from holdfast.session.rows import Uptime, item_key
from holdfast.session.state import CLOCK_STEP_US
from holdfast.testing.log.rig import LATER_US, Rig, Scenario


async def rows_follow_from_events(rig: Rig) -> None:
    """Rebuilt rows equal the stored ones after leases, steals, spend, posts, and children (S20)."""
    await _long_story(rig)
    assert await rebuild(rig.store) == await rig.store.beside()
    done = await verify(rig.store)
    assert done.findings == ()
    assert (done.sessions, done.events) == (3, sum(row.head for row in await rig.store.sessions()))


async def verify_names_the_first_bad_event(rig: Rig) -> None:
    """Verify reports the damaged session with the position, and no other session."""
    case = Scenario(rig)
    await _long_story(rig)
    await rig.rewrite("ses_a", 3, encode_body(case.message("never said")))
    done = await verify(rig.store)
    assert [(finding.session_id, finding.seq) for finding in done.findings] == [("ses_a", 3)]
    assert (await verify(rig.store, "ses_b")).findings == ()
    assert [finding.seq for finding in (await verify(rig.store, "ses_a")).findings] == [3]


async def verify_accepts_tombstones(rig: Rig) -> None:
    """An erased body is not damage."""
    await _long_story(rig)
    await rig.rewrite("ses_a", 3, None)
    assert (await verify(rig.store)).findings == ()


async def sessions_are_found_by_name(rig: Rig) -> None:
    """Sessions are found by id, key, or a unique prefix; no or several matches are errors."""
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


async def sessions_are_found_by_the_end_of_their_id(rig: Rig) -> None:
    """Six characters or more at the end of an id name a session, as in lists; `last` is the newest at the top."""
    case = Scenario(rig)
    await case.refused(UnknownSession, rig.store.find("last"))
    await case.open("ses_0001abcdef")
    await case.open("ses_0002ghjkmn", key="0001abcdef")
    for name, found in (
        ("ghjkmn", "2ghjkmn"),
        ("ses_ghjkmn", "2ghjkmn"),
        ("02ghjkmn", "2ghjkmn"),
        ("abcdef", "1abcdef"),
    ):
        assert (await rig.store.find(name)).session_id.endswith(found)
    assert (await rig.store.find("0001abcdef")).session_id == "ses_0002ghjkmn", "a key goes first"
    for name in ("hjkmn", "GHJKMN", "%ghjkmn"):
        await case.refused(UnknownSession, rig.store.find(name))
    newest = (await rig.store.sessions())[0].session_id
    assert (await rig.store.find("last")).session_id == newest
    await case.open("ses_0003ghjkmn", key="last")
    assert (await rig.store.find("last")).session_id == "ses_0003ghjkmn"
    await case.refused(UnknownSession, rig.store.find("ghjkmn"))


async def an_exact_name_goes_before_a_prefix(rig: Rig) -> None:
    """A key that is a prefix of another still names its own session."""
    case = Scenario(rig)
    await case.open("ses_a", key="job")
    await case.open("ses_b", key="job-2")
    assert (await rig.store.find("job")).session_id == "ses_a"
    assert (await rig.store.find("job-")).session_id == "ses_b"


async def due_sessions_come_longest_due_first(rig: Rig) -> None:
    """Due sessions are ordered by due time; later ones are left out."""
    case = Scenario(rig)
    for name, due in (("ses_a", LATER_US + 3), ("ses_b", LATER_US + 1), ("ses_c", None), ("ses_d", LATER_US + 2)):
        lease = await case.started(name)
        await case.append(lease, case.parked("timer" if due else "person", due))
    assert await rig.store.due(LATER_US) == []
    assert await rig.store.due(LATER_US + 2) == ["ses_b", "ses_d"]
    assert await rig.store.due(LATER_US + 3) == ["ses_b", "ses_d", "ses_a"]


async def payers_take_turns(rig: Rig) -> None:
    """Many due sessions of one account do not precede the few of another; within one, the longest due comes first."""
    case = Scenario(rig)
    for number in range(5):
        await case.open(f"ses_a{number}", accounts=(f"ses_a{number}", "project:a"))
    for number in range(2):
        await case.open(f"ses_b{number}", accounts=(f"ses_b{number}", "project:b"))
    await case.open("ses_c")
    order = ["ses_a0", "ses_b0", "ses_c", "ses_a1", "ses_b1", "ses_a2", "ses_a3", "ses_a4"]
    assert await rig.store.due(LATER_US) == order


async def a_runnable_session_is_due_under_any_clock(rig: Rig) -> None:
    """A runnable session is due even when the clock is before its latest event."""
    case = Scenario(rig)
    lease = await case.started("ses_a")
    await case.append(lease, case.parked("person"))
    assert await rig.store.due(0) == []
    await case.say("ses_a", "go on")
    assert await rig.store.due(0) == ["ses_a"]


async def a_time_in_the_future_does_not_wait_behind_others(rig: Rig) -> None:
    """A session stamped before the clock was set back goes first, since others may become due before its time again."""
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
    """Within one boot, a wait also ends by uptime, however the wall clock was set."""
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
    assert await rig.store.due(now_us, Uptime("boot-1", 9_000)) == [], "the wait is over, and no other began"


async def a_row_from_the_future_is_judged_anew(rig: Rig) -> None:
    """A session whose latest event is far in the future is due, since its fold measures the clock step."""
    case = Scenario(rig)
    lease = await case.started("ses_a")
    await case.append(lease, case.parked("timer", LATER_US))
    now_us = (await case.row("ses_a")).updated_us
    assert await rig.store.due(now_us - CLOCK_STEP_US) == []
    assert await rig.store.due(now_us - CLOCK_STEP_US - 1) == ["ses_a"]


async def a_snapshot_is_true_or_ignored(rig: Rig) -> None:
    """A snapshot loads only with the stored event's hash and the reader's fold digest; the latest one is kept (S19)."""
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
    """Write three sessions with events of every kind."""
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


async def a_question_is_a_row(rig: Rig) -> None:
    """An approval request makes a row with its position, kind, title, and times; items are listed oldest first."""
    case = Scenario(rig)
    lease = await case.started()
    (first,) = await case.append(lease, case.question("itm_z", 5_000_000, "delete it?"))
    await case.append(lease, case.question("itm_a"))
    items = await rig.store.items()
    assert [item.item_id for item in items] == ["itm_z", "itm_a"]
    assert await rig.store.items(limit=1) == items[:1]
    item = items[0]
    assert (item.session_id, item.seq, item.kind, item.title) == ("ses_a", first.seq, "tool", "delete it?")
    assert (item.opened_us, item.expires_us, item.status) == (first.at_us, 5_000_000, "open")
    assert (item.closed_seq, item.seen_us) == (None, None)
    await case.refused(UsageError, case.append(lease, case.question("itm_z")), "ses_a")
    await case.whole()


async def the_first_answer_wins(rig: Rig) -> None:
    """A decision and the expiry share one key; the second is a duplicate and changes nothing (S21)."""
    case = Scenario(rig)
    lease = await case.started()
    await case.append(lease, *(case.question(f"itm_{name}") for name in "abc"))
    yes = await case.answer("ses_a", "itm_a")
    no = await case.answer("ses_a", "itm_b", "deny")
    expiry = case.draft(ApprovalExpired(item_id="itm_c", verdict="deny"))
    late = await rig.store.post(Post("ses_a", item_key("itm_c"), expiry))
    for item_id in ("itm_a", "itm_b", "itm_c"):
        assert (await case.answer("ses_a", item_id, "deny")).duplicate
        expired = case.draft(ApprovalExpired(item_id=item_id, verdict="deny"))
        assert (await rig.store.post(Post("ses_a", item_key(item_id), expired))).duplicate
    items = {item.item_id: (item.status, item.closed_seq) for item in await rig.store.items(open_only=False)}
    assert items == {"itm_a": ("approved", yes.seq), "itm_b": ("denied", no.seq), "itm_c": ("expired", late.seq)}
    assert await rig.store.items() == []
    await case.whole()


async def an_answer_has_no_other_key(rig: Rig) -> None:
    """Answers under another key, or appended without one, are refused."""
    case = Scenario(rig)
    lease = await case.started()
    await case.append(lease, case.question("itm_a"))
    for fact in (ApprovalDecided(item_id="itm_a", verdict="approve"), ApprovalExpired(item_id="itm_a", verdict="deny")):
        await case.refused(UsageError, rig.store.post(Post("ses_a", "mine", case.draft(fact))), "ses_a")
        await case.refused(UsageError, case.append(lease, case.draft(fact)), "ses_a")
    await case.append(lease, posts=[Post("ses_a", item_key("itm_a"), case.draft(fact))])
    assert (await rig.store.item("itm_a")).status == "expired"


async def a_superseded_item_is_closed(rig: Rig) -> None:
    """A superseded item is closed, and a late answer does not reopen it."""
    case = Scenario(rig)
    lease = await case.started()
    await case.append(lease, *(case.question(f"itm_{name}") for name in "abc"))
    await case.answer("ses_a", "itm_b")
    await case.answer("ses_a", "itm_c", "deny")
    gone = [case.draft(ApprovalSuperseded(item_id=f"itm_{name}", reason="it changed")) for name in "abc"]
    events = await case.append(lease, *gone)
    await case.answer("ses_a", "itm_a")
    items = {item.item_id: (item.status, item.closed_seq) for item in await rig.store.items(open_only=False)}
    assert items["itm_a"] == ("superseded", events[0].seq)
    assert items["itm_b"] == ("superseded", events[1].seq)
    assert items["itm_c"][0] == "denied"
    await case.whole()


async def the_first_view_sets_the_expiry(rig: Rig) -> None:
    """The first view may postpone the expiry, never bring it forward; the parked session is due at that time."""
    case = Scenario(rig)
    lease = await case.started()
    (asked,) = await case.append(lease, case.question("itm_a", 5_000_000))
    later = asked.at_us + 10**9
    await case.append(lease, case.parked("person"))
    seen = ApprovalSeen(item_id="itm_a", by="ann", expires_us=later)
    receipt = await rig.store.post(Post("ses_a", "seen.ann", case.draft(seen)))
    again = ApprovalSeen(item_id="itm_a", by="ben", expires_us=later + 10**9)
    await rig.store.post(Post("ses_a", "seen.ben", case.draft(again)))
    events = await rig.store.read("ses_a", after=receipt.seq - 1)
    item, row = await rig.store.item("itm_a"), await case.row()
    assert (item.seen_us, item.expires_us, item.status) == (events[0].at_us, later, "open")
    assert (row.status, row.due_us) == ("parked", later)
    assert await rig.store.due(later - 1) == []
    assert await rig.store.due(later) == ["ses_a"]
    await case.answer("ses_a", "itm_a")
    assert ((await case.row()).status, await rig.store.due(later - 1)) == ("runnable", ["ses_a"])
    await case.whole()


async def an_item_is_found_by_name(rig: Rig) -> None:
    """Items, open or closed, are found by id or unique prefix; no or several matches are errors."""
    case = Scenario(rig)
    lease = await case.started()
    await case.append(lease, *(case.question(name) for name in ("itm_ab", "itm_abc", "itm_x")))
    await case.answer("ses_a", "itm_x")
    for name, found in (("itm_ab", "itm_ab"), ("itm_abc", "itm_abc"), ("itm_x", "itm_x"), ("itm_x", "itm_x")):
        assert (await rig.store.item(name)).item_id == found
    several = await case.refused(UnknownItem, rig.store.item("itm_"))
    assert "itm_ab" in str(several)
    for name in ("", "%", "itm_y", "itm_abcd"):
        await case.refused(UnknownItem, rig.store.item(name))


async def a_view_reads_as_the_store_does(rig: Rig) -> None:
    """Reads of one view have the results, and the errors, of the single reads."""
    case = Scenario(rig)
    lease = await case.started()
    await case.append(lease, case.question("itm_a"), case.question("itm_b"))
    await case.answer("ses_a", "itm_a")
    await case.open("ses_b")
    places = [("ses_b", 1), ("ses_a", 4), ("ses_a", 1), ("ses_a", 4)]

    def work(view: View) -> list[object]:
        rows = [view.sessions(Which(ids=frozenset(("ses_a", HOME))), home=home, limit=2) for home in (False, True)]
        items = [view.items(open_only=True), view.items(open_only=False, limit=1)]
        return [view.at(places), *rows, *items, view.holders()]

    await case.stop()
    store, which = rig.store, Which(ids=frozenset(("ses_a", HOME)))
    expected: list[object] = [await store.at(places)]
    expected += [await store.sessions(which, limit=2), await store.sessions(which, home=True)]
    expected += [await store.items(), await store.items(open_only=False, limit=1), {"ses_a": lease.worker_id}]
    assert await store.view(work) == expected
    await case.refused(UnknownSession, store.view(lambda view: view.at([("ses_a", 1), ("ses_none", 1)])))
    await case.refused(UsageError, store.view(lambda view: view.at([("ses_b", 2)])))


async def an_answer_in_another_session_has_no_effect(rig: Rig) -> None:
    """An answer posted to another session has no effect."""
    case = Scenario(rig)
    lease = await case.started()
    await case.open("ses_b")
    await case.append(lease, case.question("itm_a"))
    await case.answer("ses_b", "itm_a")
    assert (await rig.store.item("itm_a")).status == "open"
