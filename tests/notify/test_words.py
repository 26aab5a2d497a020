"""What people read: composed from an item, nothing hidden, cut where it must be; and how a sending is told."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import SystemClock
from holdfast.facts.people import ApprovalRequested
from holdfast.notify.base import Notice, Outlet, deliver, notice_id, send_test
from holdfast.notify.fake import FakeTarget
from holdfast.notify.notices import Round, item_notice, message, one_line
from holdfast.session.context.text import visible
from holdfast.testing.notify import example

REQUEST = ApprovalRequested(
    item_id="itm_1",
    kind="tool",
    title="mender wants to push",
    action="git push origin main",
    action_digest="d1",
    why="the fix is done",
    touches="the remote origin",
    cost_pico=1_250_000_000_000,
    default="deny",
    expires_us=1_760_000_000_000_000,
)


def of_item(round: Round = "first", target: str = "ops", count: int = 1) -> Notice:
    return item_notice(REQUEST, target=target, round=round, session_id="ses_a", at_us=1, count=count)


def test_an_item_in_words() -> None:
    notice = of_item()
    assert notice.body.splitlines() == [
        "git push origin main",
        "Why: the fix is done",
        "Reaches: the remote origin",
        "Session: ses_a, $1.25 of its own so far",
        "Without an answer until 2025-10-09 08:53 UTC it counts as denied.",
    ]
    assert (notice.kind, notice.action_digest, notice.expires_us) == ("approval", "d1", REQUEST.expires_us)
    assert notice.commands == ("holdfast approve itm_1", "holdfast deny itm_1")
    assert (of_item("reminder").kind, of_item("second").kind) == ("reminder", "escalation")


def test_one_occasion_has_one_id_and_another_has_another() -> None:
    assert of_item().notice_id == of_item().notice_id
    others = [of_item("reminder"), of_item("reminder", count=2), of_item("second"), of_item(target="phone"), of_item()]
    assert len({other.notice_id for other in others}) == 5
    assert notice_id("a", "b", "c") != notice_id("a", "bc")


def test_what_shows_nothing_is_shown() -> None:
    assert visible("a\x00b\x1b[31m\r\u202ec\u200b\u2028\U000e0001\ud800") == (
        "a\\x00b\\x1b[31m\\x0d\\u202ec\\u200b\\u2028\\U000e0001\\ud800"
    )
    assert visible("Grüße, 東京\n\tok 🎉") == "Grüße, 東京\n\tok 🎉"


@given(st.text(max_size=400), st.integers(min_value=60, max_value=500))
def test_no_text_is_longer_than_it_may_be(body: str, limit: int) -> None:
    shown = message(example(body=body), limit)
    assert len(shown.text.encode()) <= limit
    assert shown.whole == (visible(body).strip() in shown.text and "cut here" not in shown.text)
    assert len(one_line(body, limit).encode()) <= limit
    assert "\n" not in one_line(body, limit)


def test_a_long_title_is_cut() -> None:
    cut = one_line("ü" * 500, 201)
    assert cut.endswith("ü…")
    assert 199 <= len(cut.encode()) <= 201


def test_a_cut_text_keeps_the_commands() -> None:
    shown = message(example(body="x" * 5000), 300)
    assert shown.text.endswith("holdfast approve itm_1\nholdfast deny itm_1")
    assert not shown.whole


async def test_a_target_that_is_down_is_told_and_not_raised() -> None:
    target = FakeTarget(failing=1)
    first, second = await deliver(target, example()), await deliver(target, example())
    assert (first.ok, first.retryable, second.ok) == (False, True, True)
    assert "'fake' is down" in first.detail
    assert target.tries == {"ntc_itm_1": 2}
    assert (await send_test(target, SystemClock())).ok
    assert target.sent[-1].kind == "test"


def test_quiet_hours_are_of_the_outlet() -> None:
    silent = Outlet(FakeTarget(), quiet="22:00-07:00 UTC")
    assert silent.held_until_us(0) == 7 * 3600 * 1_000_000
    assert silent.held_until_us(8 * 3600 * 1_000_000) is None
    assert Outlet(FakeTarget()).held_until_us(0) is None


def test_only_what_a_button_can_answer_has_one() -> None:
    """A button has no words: a question has one only if it proposes a single answer, as those of a loop do."""
    for options, words in (((), True), (("Go on.",), False), (("left", "right"), True)):
        request = msgspec.structs.replace(REQUEST, kind="question", options=options)
        notice = item_notice(request, target="t", round="first", session_id="ses_a", at_us=1)
        assert (notice.action_digest == "") is words
        assert notice.commands[0].startswith("holdfast answer" if words else "holdfast approve")
    assert item_notice(REQUEST, target="t", round="first", session_id="ses_a", at_us=1).action_digest
