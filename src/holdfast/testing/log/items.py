"""Checks of the inbox (S20, S21): questions to people as rows, one answer each."""

from __future__ import annotations

from holdfast.errors import UnknownItem, UsageError
from holdfast.facts.people import ApprovalDecided, ApprovalExpired, ApprovalSeen, ApprovalSuperseded
from holdfast.log.base import Post
from holdfast.session.items import item_key
from holdfast.testing.log.rig import Check, Rig, Scenario


async def a_question_is_a_row(rig: Rig) -> None:
    """From the event that asks: where it stands, what it is, since when, until when; oldest first."""
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
    """A decision and the expiry share one key: the second is a duplicate and changes nothing (S21)."""
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
    """Under another key, or appended without one, a second answer could stand beside the first."""
    case = Scenario(rig)
    lease = await case.started()
    await case.append(lease, case.question("itm_a"))
    for fact in (ApprovalDecided(item_id="itm_a", verdict="approve"), ApprovalExpired(item_id="itm_a", verdict="deny")):
        await case.refused(UsageError, rig.store.post(Post("ses_a", "mine", case.draft(fact))), "ses_a")
        await case.refused(UsageError, case.append(lease, case.draft(fact)), "ses_a")
    await case.append(lease, posts=[Post("ses_a", item_key("itm_a"), case.draft(fact))])
    assert (await rig.store.item("itm_a")).status == "expired"


async def what_counts_no_more_is_closed(rig: Rig) -> None:
    """Superseded while open, or approved and not used; a late answer does not bring it back."""
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


async def it_is_known_when_it_was_first_seen(rig: Rig) -> None:
    """The first look counts: it may put the expiry off, and never brings it forward. A parked session is due then,
    and no process starts before.
    """
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
    """By id or unique prefix, closed ones too; none and several are errors that say so."""
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


async def an_answer_in_another_session_is_none(rig: Rig) -> None:
    """An item belongs to the session that asks."""
    case = Scenario(rig)
    lease = await case.started()
    await case.open("ses_b")
    await case.append(lease, case.question("itm_a"))
    await case.answer("ses_b", "itm_a")
    assert (await rig.store.item("itm_a")).status == "open"


CHECKS: tuple[Check, ...] = (
    a_question_is_a_row,
    the_first_answer_wins,
    an_answer_has_no_other_key,
    what_counts_no_more_is_closed,
    it_is_known_when_it_was_first_seen,
    an_item_is_found_by_name,
    an_answer_in_another_session_is_none,
)
