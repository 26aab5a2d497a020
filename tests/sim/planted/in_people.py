"""Bugs of what people are asked, of pauses and of the emergency stop."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.brain.acts import people as people_act
from holdfast.brain.acts import tool as tool_act
from holdfast.brain.shift import Shift
from holdfast.errors import ItemClosed
from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.people import ApprovalExpired, ApprovalRequested, ApprovalSuperseded, UserMessage, Verdict
from holdfast.log.base import Post, PostReceipt
from holdfast.log.transaction import Transaction
from holdfast.service.answers import Answers
from holdfast.session import decide, fold, home, rows
from holdfast.session.actions import Action, EndCalls, Expire
from holdfast.session.decide import calls, waits
from holdfast.session.fold import calls as fold_calls
from holdfast.session.home import Stop
from holdfast.session.rows import ItemRow
from holdfast.session.state import Call, State
from holdfast.session.tools.policy import Ruling
from tests.sim.planted.kit import Bed

BED = Bed()


def _after(patch: pytest.MonkeyPatch, kind: type[Fact], change: Any) -> None:
    whole = fold._apply

    def apply(state: State, fact: Fact, event: Event) -> None:
        whole(state, fact, event)
        if isinstance(fact, kind):
            change(state, fact)

    patch.setattr(fold, "_apply", apply)


@BED.plant("S21", "nothing_runs_unasked")
def to_ask_is_to_allow(patch: pytest.MonkeyPatch) -> None:
    whole = calls.rule_for

    def rule_for(state: State, call: Call, now_us: int) -> Ruling:
        ruling = whole(state, call, now_us)
        return Ruling("allow") if ruling.decision == "ask" else ruling

    patch.setattr(calls, "rule_for", rule_for)


@BED.plant("S21", "nothing_runs_unasked")
def nobody_waits_for_an_approval(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(calls, "_approval", lambda state, call, now_us: "")


@BED.plant("S21", "approvals_are_used_once", first=21)
def a_refusal_is_an_approval(patch: pytest.MonkeyPatch) -> None:
    whole = calls._approval

    def approval(state: State, call: Call, now_us: int) -> str | Action:
        said = whole(state, call, now_us)
        ask = waits.ask_for(state, call.call_id, "tool")
        return ask.item_id if isinstance(said, EndCalls) and ask is not None and ask.verdict == "deny" else said

    patch.setattr(calls, "_approval", approval)
    patch.setattr(fold_calls, "_use_up", lambda state, call, fact, event: state.asks.pop(fact.approval_id, None))


@BED.plant("S21", "approvals_are_used_once", first=30)
def an_approval_is_for_anything(patch: pytest.MonkeyPatch) -> None:
    async def still(*_: Any) -> bool:
        return True

    patch.setattr(people_act, "action_digest", lambda name, value: "0" * 64)
    patch.setattr(tool_act, "_still_approved", still)


@BED.plant("S21", "items_are_decided_once", first=790)
def an_item_can_be_answered_again(patch: pytest.MonkeyPatch) -> None:
    whole = Transaction._posted

    def posted(self: Transaction, post: Post) -> int | None:
        return None if post.key.startswith("item:") else whole(self, post)

    patch.setattr(Transaction, "_posted", posted)


@BED.plant("S21", "items_are_decided_once", first=550)
def whoever_comes_second_is_told_that_they_decided(patch: pytest.MonkeyPatch) -> None:
    whole = Answers.answer

    async def answer(self: Answers, item: ItemRow, given: Any) -> PostReceipt:
        try:
            return await whole(self, item, given)
        except ItemClosed:
            return PostReceipt(item.session_id, item.seq, False)

    patch.setattr(Answers, "answer", answer)


@BED.plant("S21", "nothing_unseen_expires")
def what_nobody_saw_expires(patch: pytest.MonkeyPatch) -> None:
    def seen(state: State, fact: ApprovalRequested) -> None:
        state.asks[fact.item_id].seen_us = 1

    _after(patch, ApprovalRequested, seen)


@BED.plant("S21", "nothing_unseen_expires", first=22)
def an_item_expires_the_other_way(patch: pytest.MonkeyPatch) -> None:
    async def expire(shift: Shift, action: Expire) -> None:
        verdict: Verdict = "deny" if action.verdict == "approve" else "approve"
        await shift.post(f"item:{action.item_id}", ApprovalExpired(item_id=action.item_id, verdict=verdict))

    patch.setattr(people_act, "expire", expire)


@BED.plant("S21", "items_close_with_their_session", first=23)
def questions_outlive_their_session(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(waits, "close_all", lambda state, reason: ())


@BED.plant("S21", "items_close_with_their_session", first=47)
def the_inbox_keeps_what_counts_no_more(patch: pytest.MonkeyPatch) -> None:
    whole = rows.next_item

    def next_item(item: ItemRow | None, event: Event) -> ItemRow | None:
        return item if isinstance(event.fact, ApprovalSuperseded) else whole(item, event)

    patch.setattr("holdfast.log.transaction.next_item", next_item)


@BED.plant("S14", "pauses_are_kept")
def a_pause_is_overlooked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decide, "_before_the_work", lambda state, now_us: None)


@BED.plant("S14", "pauses_are_kept", first=140)
def a_message_ends_a_pause(patch: pytest.MonkeyPatch) -> None:
    def go_on(state: State, fact: UserMessage) -> None:
        state.paused = 0

    _after(patch, UserMessage, go_on)


@BED.plant("S14", "stops_hold", first=22)
def shifts_begin_in_spite_of_a_stop(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Transaction, "_check_stop", lambda self: None)


@BED.plant("S14", "stops_hold", first=22)
def a_stop_counts_for_nobody_but_its_first_reader(patch: pytest.MonkeyPatch) -> None:
    whole = home.stop_in
    read: set[int] = set()

    def stop_in(detail: str) -> Stop | None:
        stop = whole(detail)
        if stop is None or stop.at_us in read:
            return None
        read.add(stop.at_us)
        return stop

    patch.setattr("holdfast.log.transaction.stop_in", stop_in)
