"""Conformance kit of notification targets and reply channels.

`TARGET_CHECKS` and `REPLY_CHECKS` map a name to an async function of a fresh rig. Run each check on yours:

    @pytest.mark.parametrize("name", TARGET_CHECKS)
    async def test_my_target(name):
        async with my_rig() as rig:
            await TARGET_CHECKS[name](rig)

`holdfast.notify.fake` passes it too. Nothing here imports a test runner; a check fails with `AssertionError`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

import anyio

from holdfast.errors import NotifyError
from holdfast.facts.people import Verdict
from holdfast.notify.base import Notice, ReplyChannel, Target


class Received(NamedTuple):
    """A notice as it arrived. `notice_id` is empty if the carrier has no field for it."""

    title: str
    text: str
    notice_id: str = ""


class TargetRig(Protocol):
    """A target and its receiver, running and empty."""

    @property
    def target(self) -> Target:
        """The target under test. It gives up on a silent receiver within five seconds."""
        ...

    @property
    def secrets(self) -> Sequence[str]:
        """Secret strings that must not leak: parts of the address, credentials."""
        ...

    def received(self) -> Sequence[Received]:
        """The notices received, oldest first."""
        ...

    def fail(self, times: int) -> None:
        """Make the receiver fail that many times with a transient error."""
        ...

    def stall(self) -> None:
        """Make the receiver accept connections and stay silent."""
        ...

    def close(self) -> None:
        """Stop the receiver."""
        ...


class ReplyRig(Protocol):
    """A reply channel and the approver behind it."""

    @property
    def channel(self) -> ReplyChannel:
        """The channel under test."""
        ...

    async def press(self, notice: Notice, verdict: Verdict) -> None:
        """Show the approver the notice and answer it."""
        ...

    def junk(self) -> None:
        """Deliver a message that is not a valid answer."""
        ...

    def close(self) -> None:
        """Stop the carrier."""
        ...


TargetCheck = Callable[[TargetRig], Awaitable[None]]
ReplyCheck = Callable[[ReplyRig], Awaitable[None]]


def example(
    item_id: str = "itm_1", *, digest: str = "d1", body: str = "git push origin main", expires_us: int | None = None
) -> Notice:
    """A notice of an item."""
    return Notice(
        notice_id=f"ntc_{item_id}",
        kind="approval",
        session_id="ses_a",
        session_name="mender",
        item_id=item_id,
        title="May I push?",
        body=body,
        action_digest=digest,
        expires_us=expires_us,
        at_us=1_760_000_000_000_000,
        commands=(f"holdfast approve {item_id}", f"holdfast deny {item_id}"),
    )


SOON_S = 10.0
"""Maximum time after which a target gives up, in seconds."""


async def a_notice_arrives_with_its_words(rig: TargetRig) -> None:
    await rig.target.send(example(body="git push origin main\nWhy: the fix is done – really"))
    [got] = rig.received()
    assert "May I push?" in got.title + got.text, got
    for words in ("git push origin main", "Why: the fix is done – really", "holdfast approve itm_1"):
        assert words in got.text, (words, got.text)


async def a_transient_failure_is_retried_under_one_id(rig: TargetRig) -> None:
    rig.fail(1)
    notice = example()
    error = await _attempt(rig, notice)
    if error is not None:
        assert error.retryable, str(error)
        await rig.target.send(notice)
    assert len(rig.received()) == 1, rig.received()
    assert {got.notice_id for got in rig.received()} <= {notice.notice_id, ""}


async def a_stopped_receiver_is_an_error(rig: TargetRig) -> None:
    rig.close()
    await _fails(rig)


async def a_silent_receiver_is_given_up(rig: TargetRig) -> None:
    rig.stall()
    with anyio.fail_after(SOON_S):
        await _fails(rig)


async def a_target_tells_no_secret(rig: TargetRig) -> None:
    _tells_nothing(rig.secrets, repr(rig.target), str(rig.target))
    rig.close()
    _tells_nothing(rig.secrets, *_chain(await _fails(rig)))


async def a_long_text_is_cut_with_a_pointer_to_the_whole(rig: TargetRig) -> None:
    await rig.target.send(example(body="x" * 200_000))
    [got] = rig.received()
    assert 100 < len(got.text) < 50_000, len(got.text)
    assert "cut here; the whole: holdfast inbox" in got.text, got.text[-200:]


async def notices_at_once_all_arrive(rig: TargetRig) -> None:
    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(rig.target.send, example(f"itm_{number}"))
    text = "\n".join(got.text for got in rig.received())
    assert [number for number in range(5) if f"holdfast approve itm_{number}" not in text] == []
    assert len(rig.received()) == 5


async def _attempt(rig: TargetRig, notice: Notice) -> NotifyError | None:
    try:
        await rig.target.send(notice)
    except NotifyError as error:
        return error
    return None


async def _fails(rig: TargetRig) -> NotifyError:
    error = await _attempt(rig, example())
    assert error is not None, "the target reported success without a receiver"
    assert error.retryable, f"the error must be retryable: {error}"
    assert repr(rig.target.name) in str(error), f"the error must name the target: {error}"
    assert len(rig.received()) == 0, "the notice arrived although the target reported an error"
    return error


def _chain(error: BaseException | None) -> list[str]:
    told: list[str] = []
    while error is not None and len(told) < 40:
        told += [str(error), repr(error), repr(getattr(error, "request", ""))]
        error = error.__cause__ or error.__context__
    return told


def _tells_nothing(secrets: Sequence[str], *texts: str) -> None:
    told = [(secret, text) for secret in secrets for text in texts if secret in text]
    assert told == [], "a secret leaked"


async def an_answer_names_its_item_its_action_and_who(rig: ReplyRig) -> None:
    await rig.press(example(digest="d7"), "approve")
    [reply] = (await rig.channel.replies("")).found
    assert (reply.session_id, reply.item_id, reply.verdict, reply.digest) == ("ses_a", "itm_1", "approve", "d7")
    assert reply.who
    assert reply.id


async def answers_come_in_order_and_both_verdicts_are_told(rig: ReplyRig) -> None:
    await rig.press(example("itm_1"), "deny")
    await rig.press(example("itm_2"), "approve")
    found = (await rig.channel.replies("")).found
    assert [(reply.item_id, reply.verdict) for reply in found] == [("itm_1", "deny"), ("itm_2", "approve")]


async def the_cursor_goes_on_behind_what_was_read(rig: ReplyRig) -> None:
    await rig.press(example("itm_1"), "approve")
    first = await rig.channel.replies("")
    assert (await rig.channel.replies(first.cursor)).found == ()
    await rig.press(example("itm_2"), "approve")
    second = await rig.channel.replies(first.cursor)
    assert [reply.item_id for reply in second.found] == ["itm_2"]
    assert second.found[-1].cursor == second.cursor


async def reading_takes_nothing_away(rig: ReplyRig) -> None:
    """A process that dies between reading and posting reads the replies again."""
    await rig.press(example(), "approve")
    first = await rig.channel.replies("")
    assert await rig.channel.replies("") == first


async def junk_is_refused_and_read_once(rig: ReplyRig) -> None:
    rig.junk()
    looked = await rig.channel.replies("")
    assert (looked.found, looked.refused) == ((), 1)
    after = await rig.channel.replies(looked.cursor)
    assert (after.found, after.refused, after.cursor) == ((), 0, looked.cursor)


async def a_button_pressed_twice_answers_once(rig: ReplyRig) -> None:
    await rig.press(example(), "approve")
    await rig.press(example(), "approve")
    looked = await rig.channel.replies("")
    assert len(looked.found) == 1
    assert looked.refused == 1


async def an_unknown_cursor_begins_anew(rig: ReplyRig) -> None:
    await rig.press(example(), "approve")
    assert len((await rig.channel.replies("AAAAbbbbCCCC")).found) == 1


TARGET_CHECKS: dict[str, TargetCheck] = {
    check.__name__: check
    for check in (
        a_notice_arrives_with_its_words,
        a_transient_failure_is_retried_under_one_id,
        a_stopped_receiver_is_an_error,
        a_silent_receiver_is_given_up,
        a_target_tells_no_secret,
        a_long_text_is_cut_with_a_pointer_to_the_whole,
        notices_at_once_all_arrive,
    )
}
"""Name → check of a target."""

REPLY_CHECKS: dict[str, ReplyCheck] = {
    check.__name__: check
    for check in (
        an_answer_names_its_item_its_action_and_who,
        answers_come_in_order_and_both_verdicts_are_told,
        the_cursor_goes_on_behind_what_was_read,
        reading_takes_nothing_away,
        junk_is_refused_and_read_once,
        a_button_pressed_twice_answers_once,
        an_unknown_cursor_begins_anew,
    )
}
"""Name → check of a reply channel."""

__all__ = [
    "REPLY_CHECKS",
    "TARGET_CHECKS",
    "Received",
    "ReplyCheck",
    "ReplyRig",
    "TargetCheck",
    "TargetRig",
    "example",
]
