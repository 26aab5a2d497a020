"""Bugs of sessions that open others, and of contexts that are renewed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.brain.acts import child as child_act
from holdfast.brain.acts import context as context_act
from holdfast.brain.shift import Shift
from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.people import ApprovalDecided
from holdfast.facts.session import Parent, SessionCreated
from holdfast.facts.shift import ChildFinished, ShiftEnded
from holdfast.ids import new_event_id
from holdfast.log.base import Post
from holdfast.session.context import handoff
from holdfast.session.decide import context, waits
from tests.sim.planted.kit import Bed

BED = Bed()


@BED.plant("S4", "children_are_opened_once")
def a_child_is_opened_in_a_transaction_of_its_own(patch: pytest.MonkeyPatch) -> None:
    whole = Shift.decision

    async def decision(self: Shift, *facts: Fact, posts: Sequence[Post] = ()) -> list[Event]:
        for post in posts:
            if isinstance(post.draft.fact, SessionCreated):
                await self.doors.log.post(post, create=True)
                posts = ()
        return await whole(self, *facts, posts=posts)

    patch.setattr(Shift, "decision", decision)


@BED.plant("S4", "children_are_opened_once")
def a_child_names_another_call(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(child_act, "Parent", lambda **given: Parent(**{**given, "call_id": "0.0"}))


@BED.plant("S4", "children_report_once", first=17)
def a_child_that_failed_tells_nobody(patch: pytest.MonkeyPatch) -> None:
    whole = child_act.notice_to_parent

    async def notice(shift: Shift, ended: ShiftEnded) -> list[Post]:
        return [] if ended.status == "failed" else await whole(shift, ended)

    patch.setattr(child_act, "notice_to_parent", notice)


@BED.plant("S4", "children_report_once")
def a_child_reports_twice(patch: pytest.MonkeyPatch) -> None:
    whole = child_act.notice_to_parent

    async def notice(shift: Shift, ended: ShiftEnded) -> list[Post]:
        posts = await whole(shift, ended)
        again = new_event_id(shift.doors.clock.now_us(), shift.doors.entropy)
        return posts + [replace(post, key=again, draft=replace(post.draft, id=again)) for post in posts]

    patch.setattr(child_act, "notice_to_parent", notice)


@BED.plant("S4", "children_end_with_their_parent", first=4751)
def children_of_a_cancelled_session_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(waits, "cancel_first", lambda state: None)


@BED.plant("S4", "children_end_with_their_parent", first=15)
def a_cancelled_child_is_not_told(patch: pytest.MonkeyPatch) -> None:
    whole = child_act._cancelling

    def cancelling(*given: Any) -> tuple[list[Fact], list[Post]]:
        return whole(*given)[0], []

    patch.setattr(child_act, "_cancelling", cancelling)


@BED.plant("S27", "wake_rows_agree", first=21)
def an_answer_makes_nothing_due(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ApprovalDecided, "wakes", False)


@BED.plant("S27", "wake_rows_agree", first=17)
def a_report_makes_nothing_due(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ChildFinished, "wakes", False)


@BED.plant("S16", "summaries_are_of_raw_turns")
def summaries_are_made_from_summaries(patch: pytest.MonkeyPatch) -> None:
    for module in (context_act, context, handoff):
        patch.setattr(module, "raw", list)


@BED.plant("S16", "summaries_are_of_raw_turns", first=14)
def a_handoff_says_that_it_covers_all_until_now(patch: pytest.MonkeyPatch) -> None:
    whole = context_act._torn_down

    def torn_down(state: Any, action: Any, *given: Any) -> Any:
        return whole(state, replace(action, through_seq=state.seq), *given)

    patch.setattr(context_act, "_torn_down", torn_down)
