"""Answers from a reply channel: fetched only while somebody is asked something."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from holdfast.errors import NotifyError
from holdfast.facts.people import ApprovalDecided
from holdfast.facts.session import Rule
from holdfast.notify.base import Notice, Replies
from holdfast.notify.fake import FakeReplies
from holdfast.service.answers import asked
from holdfast.service.replies import Listener
from tests.brain.stage import Stage, turn
from tests.fleet.clock import ManualClock, settle
from tests.support.waiting import PATIENCE_S

EVERY_S = 30.0


class Counted(FakeReplies):
    """A channel that counts looks, and is down when told."""

    looks = 0
    down = False

    async def replies(self, since: str) -> Replies:
        """See `FakeReplies`."""
        self.looks += 1
        if self.down:
            raise NotifyError("the server is away", retryable=True, retry_after_s=90.0)
        return await super().replies(since)


@dataclass
class Heard:
    """A stage whose answers come from a channel."""

    stage: Stage
    clock: ManualClock
    channel: Counted = field(default_factory=Counted)
    told: list[str] = field(default_factory=list)

    async def decisions(self) -> list[ApprovalDecided]:
        """The answers in the log."""
        return await self.stage.facts(ApprovalDecided)

    async def notice(self, digest: str = "") -> Notice:
        """What a phone shows of the open item."""
        (item,) = await self.stage.store.items()
        request = await asked(self.stage.store, item)
        return Notice(
            notice_id="n",
            kind="approval",
            session_id=self.stage.session_id,
            title="",
            body="",
            at_us=0,
            item_id=item.item_id,
            action_digest=digest or request.action_digest,
        )


@asynccontextmanager
async def heard() -> AsyncIterator[Heard]:
    """A listener while the block runs; the session is not open yet."""
    clock = ManualClock()
    turns = [turn("", ("bash", {"command": "ls"})), turn("ok")]
    one = Heard(Stage(turns, clock=clock, rules=(Rule("bash", "ask"),)), clock)
    stage = one.stage
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            listener = Listener([one.channel], stage.store, stage.intake, clock, every_s=EVERY_S, tell=one.told.append)
            group.start_soon(listener.run)
            await settle()
            yield one
            group.cancel_scope.cancel()


async def test_nobody_is_asked_for_answers_while_nothing_is_asked() -> None:
    async with heard() as one:
        await one.clock.pass_(3_600)
        assert one.channel.looks == 0
        await one.stage.run()
        await one.clock.pass_(2)
        assert one.channel.looks == 1
        await one.clock.pass_(10 * EVERY_S)
        assert one.channel.looks == 11
        (item,) = await one.stage.store.items()
        await one.stage.intake.approve(item)
        await one.clock.pass_(10 * EVERY_S)
        assert one.channel.looks == 11


async def test_an_answer_is_posted_once_under_its_persons_name() -> None:
    async with heard() as one:
        await one.stage.run()
        notice = await one.notice()
        one.channel.press(notice, "approve")
        one.channel.press(notice, "deny")
        await one.clock.pass_(2 * EVERY_S)
        (decided,) = await one.decisions()
        assert (decided.verdict, decided.via, decided.proof) == ("approve", "ntfy", "reply_code")
        posted = [event for event in await one.stage.events() if event.type == "approval.decided"]
        assert posted[0].actor == "user:fake"
        assert one.told == [f"{notice.item_id} was approved by fake"]
    assert (await one.stage.wake()).ended is not None


async def test_an_answer_about_something_else_is_refused_and_told_of_once() -> None:
    async with heard() as one:
        await one.stage.run()
        one.channel.press(await one.notice(digest="0" * 64), "approve")
        one.channel.junk()
        await one.clock.pass_(5 * EVERY_S)
        assert await one.decisions() == []
        assert len(one.told) == 1


async def test_a_channel_that_is_down_is_told_of_once_and_asked_less() -> None:
    async with heard() as one:
        await one.stage.run()
        one.channel.down = True
        await one.clock.pass_(900)
        assert len(one.told) == 1
        assert "the server is away" in one.told[0]
        assert one.channel.looks <= 11
        one.channel.down = False
        one.channel.press(await one.notice(), "approve")
        await one.clock.pass_(120)
        assert len(await one.decisions()) == 1
