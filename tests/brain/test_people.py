"""A brain that asks people, on a stage: what is asked, what is told, and what an answer lets it do (S21)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from holdfast.brain.acts import tool
from holdfast.clock import SystemClock
from holdfast.errors import ItemClosed, UsageError
from holdfast.facts.people import ApprovalDecided, ApprovalExpired, ApprovalSeen, ApprovalSuperseded, NoticeSent
from holdfast.facts.session import People
from holdfast.facts.tool import ToolDispatched
from holdfast.notify.base import Outlet
from holdfast.notify.fake import FakeReplies, FakeTarget
from holdfast.service.posting import Caller
from holdfast.service.replies import take
from tests.brain.people_stage import BASH, HOUR_US, PeopleStage
from tests.brain.stage import turn


async def test_an_approval_is_asked_with_all_that_it_is_bound_to() -> None:
    stage = PeopleStage([turn("I deploy.", BASH), turn("Done.")])
    stage.hands.files("/w")["/workspace/deploy.sh"] = b"echo v1"
    outcome = await stage.run()
    assert outcome.ended is not None
    assert (outcome.ended.status, outcome.ended.reason) == ("parked", "person")
    assert stage.hands.alive() == []
    request = await stage.request()
    assert request.action == "bash: sh deploy.sh"
    assert request.why == "I deploy."
    assert sorted(request.guards) == ["file:/workspace/deploy.sh", "policy"]
    assert request.expires_us is not None
    assert "no network" in request.touches
    await stage.intake.approve(await stage.item(), "go")
    outcome = await stage.wake("wrk_2")
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    (dispatched,) = await stage.facts(ToolDispatched)
    assert dispatched.approval_id == request.item_id
    assert dispatched.action_digest == request.action_digest


async def test_a_file_that_changed_meanwhile_is_asked_about_again_and_not_run() -> None:
    stage = PeopleStage([turn("", BASH), turn("Done.")])
    files = stage.hands.files("/w")
    files["/workspace/deploy.sh"] = b"echo v1"
    await stage.run()
    first = await stage.item()
    await stage.intake.approve(first)
    files["/workspace/deploy.sh"] = b"rm -rf /"
    await stage.wake()
    assert await stage.facts(ToolDispatched) == []
    (over,) = await stage.facts(ApprovalSuperseded)
    assert over.item_id == first.item_id
    assert "/workspace/deploy.sh has changed" in over.reason
    second = await stage.item()
    assert (await stage.request()).replaces == first.item_id
    with pytest.raises(ItemClosed, match="was superseded"):
        await stage.intake.approve(await stage.store.item(first.item_id))
    await stage.intake.approve(second)
    await stage.wake()
    assert len(await stage.facts(ToolDispatched)) == 1


async def test_an_approval_of_another_action_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log names what was approved; here the version that goes on makes something else of the same call."""
    stage = PeopleStage([turn("", BASH), turn("Done.")])
    await stage.run()
    await stage.intake.approve(await stage.item())
    monkeypatch.setattr(tool, "action_digest", lambda name, value: "another")
    await stage.wake()
    assert await stage.facts(ToolDispatched) == []
    (over,) = await stage.facts(ApprovalSuperseded)
    assert over.reason == "the action is another one than was approved"


async def test_a_file_that_appears_or_goes_away_counts_as_changed() -> None:
    for before, after in ((None, b"new"), (b"old", None)):
        stage = PeopleStage([turn("", BASH), turn("Done.")])
        files = stage.hands.files("/w")
        if before is not None:
            files["/workspace/deploy.sh"] = before
        await stage.run()
        await stage.intake.approve(await stage.item())
        if after is None:
            del files["/workspace/deploy.sh"]
        else:
            files["/workspace/deploy.sh"] = after
        await stage.wake()
        assert await stage.facts(ToolDispatched) == []


async def test_a_denial_reaches_the_model_in_the_persons_words() -> None:
    stage = PeopleStage([turn("", BASH), turn("Then not.")])
    await stage.run()
    await stage.intake.deny(await stage.item(), "not on a Friday")
    outcome = await stage.wake()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    assert "not on a Friday" in stage.shown()
    assert await stage.facts(ToolDispatched) == []


async def test_a_second_answer_is_told_who_was_first() -> None:
    stage = PeopleStage([turn("", BASH), turn("Done.")])
    await stage.run()
    stale = await stage.item()
    await stage.intake.deny(stale, "no")
    ben = stage.intake.acting_as(Caller("user:ben"))
    with pytest.raises(
        ItemClosed, match=r"already denied by anna \(the name is not verified\) at .* with the note: no"
    ):
        await ben.approve(stale)
    assert len(await stage.facts(ApprovalDecided)) == 1


async def test_only_who_may_answers_and_the_second_person_after_a_while() -> None:
    people = People(approvers=("anna",), second=("ben",), escalate_s=60.0)
    stage = PeopleStage([turn("", BASH), turn("Done.")], people=people)
    await stage.run()
    item = await stage.item()
    ben = stage.intake.acting_as(Caller("user:ben"))
    with pytest.raises(UsageError, match="answered by anna and you are ben"):
        await ben.approve(item)
    assert await ben.seen(item) is None
    stage.time.ahead_us = 61_000_000
    await ben.approve(item)


async def test_after_a_hand_over_the_new_owner_answers() -> None:
    stage = PeopleStage([turn("", BASH), turn("Done.")], people=People(owner="anna"))
    await stage.run()
    row = await stage.store.find(stage.session_id)
    await stage.intake.hand_over(row, "user:carl")
    await stage.wake()
    with pytest.raises(UsageError, match="answered by carl"):
        await stage.intake.approve(await stage.item())
    await stage.intake.acting_as(Caller("user:carl")).approve(await stage.item())


async def test_an_answer_about_another_action_is_refused() -> None:
    stage = PeopleStage([turn("", BASH), turn("Done.")])
    await stage.run()
    item = await stage.item()
    with pytest.raises(UsageError, match="another action"):
        await stage.intake.approve(item, digest="0" * 64)
    await stage.intake.approve(item, digest=(await stage.request()).action_digest)


async def test_a_default_applies_once_somebody_has_seen_the_item_and_had_time() -> None:
    stage = PeopleStage([turn("", BASH), turn("Go on.")], people=People(expires_s=60.0))
    await stage.run()
    stage.time.ahead_us = 100 * HOUR_US
    assert (await stage.wake()).idle, "nothing expires unseen"
    await stage.intake.seen(await stage.item())
    assert await stage.due_us() is not None
    assert (await stage.wake()).idle
    stage.time.ahead_us += HOUR_US + 1_000_000
    outcome = await stage.wake()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    assert "nobody answered in time" in stage.shown()
    (expired,) = await stage.facts(ApprovalExpired)
    with pytest.raises(ItemClosed, match="its default, deny, was applied"):
        await stage.intake.approve(await stage.store.item(expired.item_id))


async def test_an_item_is_seen_once_whoever_looks_again() -> None:
    stage = PeopleStage([turn("", BASH), turn("Done.")])
    await stage.run()
    unseen = await stage.item()
    first = await stage.intake.seen(unseen)
    assert first is not None
    assert not first.duplicate
    again = await stage.intake.seen(unseen)  # the row was read before
    assert again is not None
    assert again.duplicate
    for intake in (stage.intake, stage.intake.acting_as(Caller("user:ben"))):
        assert await intake.seen(await stage.item()) is None
    assert [fact.by for fact in await stage.facts(ApprovalSeen)] == [stage.intake.person]


async def test_grants_are_bounded_and_literal() -> None:
    star = ("bash", {"command": "ls *"})
    turns = [turn("", star), turn("", star), turn("", ("bash", {"command": "ls etc"})), turn("Done.")]
    stage = PeopleStage(turns)
    await stage.run()
    item = await stage.item()
    with pytest.raises(UsageError, match="needs a bound"):
        await stage.intake.grant_for(item)
    grant = await stage.intake.grant_for(item, uses=5)
    await stage.intake.approve(item, grant=grant)
    await stage.wake()
    assert (await stage.request()).action == "bash: ls etc", "the star of a command is no pattern"
    assert [fact.approval_id[:6] for fact in await stage.facts(ToolDispatched)] == [item.item_id[:6], "grant:"]


# --- messages -------------------------------------------------------------------------------------


async def test_people_are_told_reminded_and_a_second_person_last() -> None:
    anna, ben = FakeTarget("anna"), FakeTarget("ben")
    people = People(remind_s=3_600.0, escalate_s=7_200.0, second=("ben",), notify_second=("ben",))
    stage = PeopleStage([turn("", BASH), turn("Done.")], people=people, targets=(anna,))
    stage.doors = replace(stage.doors, targets={"anna": Outlet(anna), "ben": Outlet(ben)})
    await stage.run()
    assert [notice.kind for notice in anna.sent] == ["approval"]
    assert "bash: sh deploy.sh" in anna.sent[0].body
    for _ in range(2):
        due_us = await stage.due_us()
        assert due_us is not None
        stage.time.ahead_us = due_us - SystemClock().now_us() + 1_000_000
        await stage.wake()
    assert [notice.kind for notice in anna.sent] == ["approval", "reminder", "escalation"]
    assert [notice.kind for notice in ben.sent] == ["escalation"]
    assert await stage.due_us() is None


async def test_a_target_that_is_down_is_tried_again_with_the_same_id_and_harms_nothing() -> None:
    target = FakeTarget("ops", failing=2)
    stage = PeopleStage([turn("", BASH), turn("Done.")], targets=(target,))
    outcome = await stage.run()
    assert outcome.ended is not None
    assert outcome.ended.reason == "person"
    while not target.sent:
        due_us = await stage.due_us()
        assert due_us is not None
        stage.time.ahead_us = due_us - SystemClock().now_us() + 1_000
        await stage.wake()
    sent = await stage.facts(NoticeSent)
    assert [notice.ok for notice in sent] == [False, False, True]
    assert len({notice.notice_id for notice in sent}) == 1
    assert target.tries == {sent[0].notice_id: 3}
    await stage.intake.approve(await stage.item())
    outcome = await stage.wake()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"


async def test_a_target_that_stays_down_is_given_up() -> None:
    target = FakeTarget("ops")
    target.down = True
    stage = PeopleStage([turn("", BASH), turn("Done.")], targets=(target,), people=People(remind_s=9e6, escalate_s=9e6))
    await stage.run()
    for _ in range(4):
        stage.time.ahead_us += 10 * HOUR_US
        await stage.wake()
    assert (await stage.facts(NoticeSent))[-1].again_us is None
    assert sum(target.tries.values()) == 5


async def test_quiet_hours_hold_a_message_until_they_are_over() -> None:
    target = FakeTarget("phone")
    now = datetime.now(UTC)
    quiet = f"{now - timedelta(hours=1):%H:%M}-{now + timedelta(hours=1):%H:%M} UTC"
    stage = PeopleStage([turn("", BASH), turn("Done.")], targets=(target,), people=People(quiet=quiet))
    await stage.run()
    assert target.sent == []
    due_us = await stage.due_us()
    assert due_us is not None
    assert timedelta(0) < datetime.fromtimestamp(due_us / 1e6, UTC) - now <= timedelta(hours=1)
    stage.time.ahead_us = due_us - SystemClock().now_us() + 1_000
    await stage.wake()
    assert len(target.sent) == 1


async def test_an_answer_from_a_phone_is_posted_once_and_checked() -> None:
    target, channel = FakeTarget("phone"), FakeReplies("phone", "user:anna")
    stage = PeopleStage([turn("", BASH), turn("Done.")], targets=(target,), people=People(approvers=("anna",)))
    await stage.run()
    (notice,) = target.sent
    channel.press(msgspec.structs.replace(notice, action_digest="0" * 64), "approve")
    channel.press(msgspec.structs.replace(notice, item_id="itm_nothing"), "approve")
    channel.press(notice, "approve", "from the train")
    channel.press(notice, "deny")
    found = (await channel.replies("")).found
    outcomes = [(await take(reply, stage.intake, stage.store)).outcome for reply in found]
    assert outcomes == ["refused", "refused", "posted", "late"]
    (decided,) = await stage.facts(ApprovalDecided)
    assert (decided.via, decided.note) == ("ntfy", "from the train")
    again = await take(found[2], stage.intake, stage.store)
    assert again.outcome == "late"


async def test_a_phone_of_somebody_else_may_not_answer() -> None:
    target, channel = FakeTarget("phone"), FakeReplies("phone", "user:ben")
    stage = PeopleStage([turn("", BASH), turn("Done.")], targets=(target,), people=People(approvers=("anna",)))
    await stage.run()
    channel.press(target.sent[0], "approve")
    (reply,) = (await channel.replies("")).found
    assert (await take(reply, stage.intake, stage.store)).outcome == "refused"
    assert await stage.facts(ApprovalDecided) == []
