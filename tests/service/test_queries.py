"""Queries: pages, filters, and the inbox and briefs of a session, without a face."""

from __future__ import annotations

from holdfast.facts.people import ApprovalDecided, ApprovalRequested
from holdfast.facts.session import Rule
from holdfast.facts.shift import BriefRead
from holdfast.kinds import KINDS
from holdfast.log.base import Which
from holdfast.service.briefs import brief_of, moved, read_through
from holdfast.service.events import events
from holdfast.service.inbox import inbox, items
from holdfast.service.sessions import latest, sessions, trees
from holdfast.session.home import HOME
from tests.brain.stage import Stage, turn

ASK = (Rule("bash", "ask"),)


async def parked() -> Stage:
    """A session that waits for an approver."""
    stage = Stage([turn("", ("bash", {"command": "ls"})), turn("ok")], rules=ASK)
    await stage.open()
    await stage.wake()
    return stage


async def test_pages_of_sessions_join_to_the_whole_list() -> None:
    stage = await parked()
    for _ in range(4):
        stage.session_id = stage.intake.new_session_id()
        await stage.open()
    whole = await sessions(stage.store)
    assert len(whole) == 5
    paged, after = [], ""
    while page := await sessions(stage.store, after=after, limit=2):
        assert len(page) <= 2
        paged += page
        after = page[-1].row.session_id
    assert paged == whole
    assert await latest(stage.store) == whole
    assert await trees(stage.store, whole=True) == whole == await trees(stage.store, whole=False)
    parked_ids = [each.row.session_id for each in await sessions(stage.store, Which(status="parked"))]
    assert parked_ids == [whole[-1].row.session_id]
    assert not any(each.running for each in whole)


async def test_pages_of_events_join_to_the_log_and_types_select_from_all_of_it() -> None:
    stage = await parked()
    log = await stage.store.read(stage.session_id)
    joined, after = [], 0
    while page := await events(stage.store, stage.session_id, after=after, limit=2):
        joined += page
        after = page[-1].seq
    assert joined == log
    (found,) = await events(stage.store, stage.session_id, types=["approval.requested"], limit=1)
    assert isinstance(found.fact, ApprovalRequested)
    assert not await events(stage.store, stage.session_id, after=found.seq, types=["approval.requested"])


async def test_an_item_names_its_request_and_its_closing_event() -> None:
    stage = await parked()
    now_us = stage.clock.now_us()
    (entry,) = await inbox(stage.store, now_us)
    assert entry.group == "needs you"
    assert entry.item is not None
    assert "ls" in entry.item.request.action
    assert entry.item.closing is None
    await stage.intake.approve(entry.item.item, "go")
    (after,) = await inbox(stage.store, now_us)
    assert (after.group, after.item) == ("running", None)
    assert not await items(stage.store, now_us)
    (closed,) = await items(stage.store, now_us, session_id=stage.session_id, open_only=False)
    assert closed.closing is not None
    assert isinstance(closed.closing.fact, ApprovalDecided)


async def test_briefs_and_how_far_a_user_has_read_them() -> None:
    stage = await parked()
    (row,) = await stage.store.sessions()
    assert (await brief_of(stage.store, KINDS, None, row)).session_id == stage.session_id
    now_us = stage.clock.now_us()
    (one,) = await moved(stage.store, now_us, row.updated_us - 1)
    assert [each.session_id for each in one.family] == [stage.session_id]
    assert await read_through(stage.store, "user:test") is None
    await stage.intake.post(HOME, BriefRead(through_us=7))
    assert (await read_through(stage.store, "user:test"), await read_through(stage.store, "user:anna")) == (7, None)
