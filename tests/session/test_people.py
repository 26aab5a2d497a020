"""What is decided about people: when they are asked, told, reminded, and what their answers mean (S21)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.facts.base import Text
from holdfast.facts.people import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    ApprovalSeen,
    ApprovalSuperseded,
    Grant,
    ItemKind,
    NoticeSent,
    UserCancel,
    UserMessage,
    UserPause,
    UserResume,
    Verdict,
)
from holdfast.facts.session import CustomTool, People, Rule
from holdfast.facts.shift import BreakerOpened, ShiftEnded
from holdfast.facts.tool import ToolDispatched
from holdfast.session.actions import (
    AskPerson,
    CancelChildren,
    Dispatch,
    End,
    EndCalls,
    Expire,
    Notify,
    Provision,
    Reconcile,
    Record,
)
from holdfast.session.decide import decide, is_idle
from holdfast.session.decide.waits import PAUSED, SEEN_GRACE_US, STOPPED, deadline_us, may_answer, seen_until_us
from holdfast.session.state import State
from tests.session.story import SECOND_US, Story

BASH = ("bash", {"command": "make"})
ASK = (Rule("bash", "ask"),)
HOUR_US = 3_600 * SECOND_US


def told(
    people: People | None = None, rules: tuple[Rule, ...] = ASK, custom: tuple[CustomTool, ...] = (), **tools: Any
) -> Story:
    """A session in its first shift."""
    story = Story(rules=rules)
    created: Any = story.events[0].fact
    agent = msgspec.structs.replace(created.agent, custom=custom, **tools)
    fact = msgspec.structs.replace(created, people=people or People(), agent=agent)
    story.events[0] = msgspec.structs.replace(story.events[0], fact=fact)
    return story.shift()


def asked(story: Story, call_id: str = "3.0", kind: ItemKind = "tool", **more: Any) -> Story:
    """A person is asked."""
    item: dict[str, Any] = {"item_id": "itm_1", "title": "?", "action": "make", "call_id": call_id, **more}
    return story.tell(ApprovalRequested(kind=kind, **item))


def answered(story: Story, verdict: Verdict = "approve", **more: Any) -> Story:
    """They answer."""
    return story.tell(ApprovalDecided(item_id="itm_1", verdict=verdict, **more))


def waiting(people: People | None = None, **more: Any) -> Story:
    """A call of bash waits for an approval."""
    story = told(people)
    story.answer("I build.", BASH)
    return asked(story, **more)


def went(call_id: str, approval_id: str, attempt: int = 1) -> ToolDispatched:
    """A call goes out, allowed by that."""
    return ToolDispatched(
        call_id=call_id,
        attempt=attempt,
        hands_id="hnd_1",
        action_digest="d",
        on_unknown="ask",
        timeout_s=1,
        approval_id=approval_id,
    )


def parked(action: object) -> ShiftEnded:
    assert isinstance(action, End)
    assert action.fact.status == "parked"
    return action.fact


def ended(action: object) -> tuple[str, str]:
    """Outcome and words of the one call that is ended."""
    assert isinstance(action, EndCalls)
    (result,) = action.results
    return result.outcome, result.content


def test_a_call_under_an_ask_rule_is_asked_and_waits_without_a_deadline() -> None:
    story = told()
    story.answer("", BASH)
    assert decide(story.state(), story.now_us) == AskPerson("3.0")
    asked(story, default="deny", expires_us=HOUR_US)
    fact = parked(decide(story.state(), story.now_us))
    assert (fact.reason, fact.due_us) == ("person", None)


def test_an_answer_lets_the_call_through_once_and_cites_the_item() -> None:
    story = answered(waiting())
    assert decide(story.state(), story.now_us) == Provision()
    story.hands()
    assert decide(story.state(), story.now_us) == Dispatch(("3.0",), "itm_1")
    dispatched = went("3.0", "itm_1", 1)
    story.tell(dispatched)
    assert story.state().asks == {}
    with pytest.raises(ValueError, match="does not allow it"):
        story.tell(msgspec.structs.replace(dispatched, attempt=2)).state()


@pytest.mark.parametrize("verdict", ["deny", None])
def test_no_dispatch_cites_an_item_that_does_not_allow_it(verdict: Verdict | None) -> None:
    story = waiting() if verdict is None else answered(waiting(), verdict)
    story.hands().tell(went("3.0", "itm_1", 1))
    with pytest.raises(ValueError, match="does not allow it"):
        story.state()


def test_a_denial_ends_the_call_with_the_persons_words() -> None:
    story = answered(waiting(), "deny", note="not on a Friday")
    outcome, words = ended(decide(story.state(), story.now_us))
    assert outcome == "denied"
    assert "They say: not on a Friday" in words


def test_a_default_is_told_as_what_it_is() -> None:
    story = waiting().tell(ApprovalExpired(item_id="itm_1", verdict="deny"))
    outcome, words = ended(decide(story.state(), story.now_us))
    assert outcome == "denied"
    assert "nobody answered in time" in words
    assert "did not allow" not in words


def test_nothing_expires_unseen_and_whoever_sees_it_last_has_an_hour() -> None:
    story = waiting(default="deny", expires_us=20 * SECOND_US)
    state = story.state()
    assert deadline_us(state) is None
    parked(decide(state, 100 * HOUR_US))
    late_us = story.now_us + SECOND_US
    until_us = seen_until_us(20 * SECOND_US, late_us)
    assert until_us == late_us + SEEN_GRACE_US
    story.tell(ApprovalSeen(item_id="itm_1", by="anna", expires_us=until_us))
    fact = parked(decide(story.state(), late_us + 1))
    assert fact.due_us == until_us
    assert decide(story.state(), until_us) == Expire("itm_1", "deny")


def test_a_second_look_does_not_put_the_expiry_off() -> None:
    story = waiting(default="deny", expires_us=HOUR_US)
    for times in (1, 9):
        story.tell(ApprovalSeen(item_id="itm_1", by=f"u{times}", expires_us=times * HOUR_US))
    assert deadline_us(story.state()) == HOUR_US


def test_a_parked_session_is_due_once_its_item_is_seen() -> None:
    story = waiting(default="deny", expires_us=HOUR_US).tell(ShiftEnded(status="parked", reason="person"))
    assert is_idle(story.state(), 2 * HOUR_US)
    story.tell(ApprovalSeen(item_id="itm_1", by="anna", expires_us=HOUR_US))
    assert is_idle(story.state(), HOUR_US - 1)
    assert not is_idle(story.state(), HOUR_US)


def test_messages_go_out_in_rounds_and_the_second_person_is_told_last() -> None:
    people = People(notify=("a",), notify_second=("b",), second=("ben",))
    story = waiting(people, remind_us=2 * HOUR_US, escalate_us=3 * HOUR_US)

    def sent(round_: str, target: str, **more: Any) -> None:
        story.tell(NoticeSent(notice_id="n", target=target, item_id="itm_1", round=round_, ok=True, **more))

    assert decide(story.state(), story.now_us) == Notify("itm_1", "first", "a", 0)
    sent("first", "a")
    assert parked(decide(story.state(), story.now_us)).due_us == 2 * HOUR_US
    assert decide(story.state(), 2 * HOUR_US) == Notify("itm_1", "reminder", "a", 0)
    sent("reminder", "a")
    assert decide(story.state(), 3 * HOUR_US) == Notify("itm_1", "second", "a", 0)
    sent("second", "a")
    assert decide(story.state(), 3 * HOUR_US) == Notify("itm_1", "second", "b", 0)
    sent("second", "b")
    assert parked(decide(story.state(), 3 * HOUR_US)).due_us is None


def test_quiet_hours_put_a_message_off_without_using_up_a_try() -> None:
    story = waiting(People(notify=("a",)))
    story.tell(
        NoticeSent(notice_id="n", target="a", item_id="itm_1", round="first", held=True, again_us=HOUR_US),
        NoticeSent(notice_id="n", target="a", item_id="itm_1", round="first", held=True, again_us=2 * HOUR_US),
    )
    assert parked(decide(story.state(), HOUR_US)).due_us == 2 * HOUR_US
    assert decide(story.state(), 2 * HOUR_US) == Notify("itm_1", "first", "a", 0)


def test_no_message_goes_out_about_what_is_answered() -> None:
    story = answered(waiting(People(notify=("a",))))
    assert decide(story.state(), story.now_us) == Provision()


def test_a_message_instead_of_an_answer_ends_the_call() -> None:
    story = waiting().tell(UserMessage(content=(Text("do something else"),)))
    action = decide(story.state(), story.now_us)
    assert ended(action)[0] == "cancelled"
    assert isinstance(action, EndCalls)
    assert [type(fact) for fact in action.before] == [ApprovalSuperseded]


def test_a_cancelled_session_asks_nobody_any_more() -> None:
    story = waiting().tell(UserCancel())
    action = decide(story.state(), story.now_us)
    assert isinstance(action, EndCalls)
    assert [type(fact) for fact in action.before] == [ApprovalSuperseded]
    story.tell(*action.before, *action.results)  # type: ignore[arg-type]
    final = decide(story.state(), story.now_us)
    assert isinstance(final, End)
    assert (final.fact.status, final.before) == ("cancelled", ())
    assert not isinstance(final, CancelChildren)


# --- grants ---------------------------------------------------------------------------------------


def _granted(grant: Grant, *calls: str) -> tuple[Story, State]:
    """The first call was approved with a grant and is done; then come others."""
    story = answered(waiting(), grant=grant).hands()
    story.tell(went("3.0", "itm_1", 1))
    story.result("3.0")
    for command in calls[:-1]:
        (call_id,) = story.answer("", ("bash", {"command": command}))
        action = decide(story.state(), story.now_us)
        assert isinstance(action, Dispatch)
        story.tell(went(call_id, action.approval_id, 1))
        story.result(call_id)
    story.answer("", ("bash", {"command": calls[-1]}))
    return story, story.state()


def test_a_grant_covers_so_many_further_calls() -> None:
    story, state = _granted(Grant(tool="bash", match="make*", uses=2), "make", "make all", "make x")
    assert isinstance(decide(state, story.now_us), AskPerson)
    story, state = _granted(Grant(tool="bash", match="make*", uses=3), "make", "make all", "make x")
    action = decide(state, story.now_us)
    assert isinstance(action, Dispatch)
    assert action.approval_id.startswith("grant:")


def test_a_grant_covers_so_long() -> None:
    story, state = _granted(Grant(tool="bash", match="make", for_s=60.0), "make")
    assert isinstance(decide(state, story.now_us), Dispatch)
    assert isinstance(decide(state, story.now_us + 61 * SECOND_US), AskPerson)


def test_a_grant_covers_no_other_call() -> None:
    story, state = _granted(Grant(tool="bash", match="make", uses=9), "make install")
    assert isinstance(decide(state, story.now_us), AskPerson)


def test_a_deny_rule_is_stronger_than_a_grant() -> None:
    story = told(rules=(Rule("bash", "ask"), Rule("bash", "deny", match="rm*")))
    story.answer("", BASH)
    answered(asked(story), grant=Grant(tool="bash", match="*", uses=9)).hands()
    story.tell(went("3.0", "itm_1", 1)).result("3.0")
    story.answer("", ("bash", {"command": "rm -rf x"}))
    assert ended(decide(story.state(), story.now_us))[0] == "denied"


# --- the other kinds ------------------------------------------------------------------------------


def test_a_question_is_asked_under_any_rule_and_its_answer_is_the_result() -> None:
    question = ("ask_person", {"question": "which?"})
    story = told(rules=(Rule("*", "ask"),), tools=("ask_person",))
    story.answer("", question)
    assert decide(story.state(), story.now_us) == AskPerson("3.0")
    asked(story, kind="question")
    parked(decide(story.state(), story.now_us))
    answered(story, note="postgres")
    assert ended(decide(story.state(), story.now_us)) == ("ok", "postgres")


def test_an_unknown_outcome_is_repeated_once_when_a_person_says_so_and_not_again() -> None:
    tool = CustomTool("pay", "Pay.", {"type": "object"}, on_unknown="ask")
    story = told(rules=(), custom=(tool,))
    story.answer("", ("pay", {}))
    story.dispatch("3.0")
    assert decide(story.state(), story.now_us) == Reconcile("3.0")
    asked(story, kind="unknown")
    assert "nobody knows" in parked(decide(story.state(), story.now_us)).detail
    answered(story)
    assert decide(story.state(), story.now_us) == Reconcile("3.0", "approve")
    story.tell(went("3.0", "itm_1", 2))
    assert decide(story.state(), story.now_us) == Reconcile("3.0")


def test_an_escalation_goes_on_or_fails() -> None:
    for verdict in ("approve", "deny"):
        story = told(rules=())
        story.answer("Hm.", BASH)
        story.result("3.0")
        from_breaker(story)
        assert "tool_failures" in parked(decide(story.state(), story.now_us)).detail
        answered(story, verdict)
        action = decide(story.state(), story.now_us)
        if verdict == "approve":
            assert isinstance(action, Record)
            story.tell(*action.facts)  # type: ignore[arg-type]
            assert story.state().asks == {}
            assert story.state().breaker == ""
        else:
            assert isinstance(action, End)
            assert action.fact.status == "failed"


def from_breaker(story: Story) -> None:
    """A breaker is open and a person is asked."""
    story.tell(BreakerOpened(breaker="tool_failures", detail="12 failed"))
    asked(story, call_id="", kind="escalation")


def test_a_denied_money_line_is_not_asked_again_and_a_granted_one_is_over() -> None:
    for verdict, left in (("deny", ["itm_1"]), ("approve", [])):
        story = told(rules=())
        asked(story, call_id="", kind="budget", account_id="ses_1", proposed_pico=9)
        answered(story, verdict, account_id="ses_1", budget_pico=9)  # type: ignore[arg-type]
        state = story.state()
        assert list(state.asks) == left
        assert state.limits.budget_pico == (9 if verdict == "approve" else None)
        assert deadline_us(state) is None


# --- pauses, and who may answer -------------------------------------------------------------------


@pytest.mark.parametrize(("stop_seq", "detail"), [(0, PAUSED), (7, STOPPED)])
def test_a_pause_rests_before_anything_new_and_a_resume_lifts_it(stop_seq: int, detail: str) -> None:
    story = told(rules=())
    story.answer("", BASH)
    story.tell(UserPause(stop_seq=stop_seq))
    fact = parked(decide(story.state(), story.now_us))
    assert (fact.reason, fact.detail) == ("person", detail)
    story.tell(fact, UserResume()).shift()
    assert decide(story.state(), story.now_us) == Provision()


def test_who_may_answer() -> None:
    item = ApprovalRequested(
        item_id="i", kind="tool", title="", action="", approvers=("anna",), second=("ben",), escalate_us=HOUR_US
    )
    policy = People(approvers=("anna",), second=("ben",))
    assert may_answer(People(), "", item, 0) == ()
    assert may_answer(policy, "", item, 0) == ("anna",)
    assert may_answer(policy, "", item, HOUR_US) == ("anna", "ben")
    # Whom the session was handed over to answers, not who it belonged to when it asked.
    assert may_answer(People(), "carl", item, 0) == ("carl",)
