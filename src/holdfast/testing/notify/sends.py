"""What every target must show."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from holdfast.errors import NotifyError
from holdfast.notify.base import Notice
from holdfast.testing.notify.rig import TargetCheck, TargetRig, example

SOON_S = 10.0
"""A target gives up within this."""


async def a_notice_arrives_with_its_words(rig: TargetRig) -> None:
    await rig.target.send(example(body="git push origin main\nWhy: the fix is done – really"))
    [got] = rig.received()
    assert "May I push?" in got.title + got.text, got
    for words in ("git push origin main", "Why: the fix is done – really", "holdfast approve itm_1"):
        assert words in got.text, (words, got.text)


async def a_failure_that_passes_is_survived_with_one_id(rig: TargetRig) -> None:
    rig.fail(1)
    notice = example()
    error = await _attempt(rig, notice)
    if error is not None:
        assert error.retryable, str(error)
        await rig.target.send(notice)
    assert len(rig.received()) == 1, rig.received()
    assert {got.notice_id for got in rig.received()} <= {notice.notice_id, ""}


async def a_receiver_that_is_gone_is_told(rig: TargetRig) -> None:
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


async def a_long_text_is_cut_and_says_where_the_whole_is(rig: TargetRig) -> None:
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
    assert error is not None, "it cannot have been sent"
    assert error.retryable, f"it may be back later: {error}"
    assert repr(rig.target.name) in str(error), f"which one? {error}"
    assert len(rig.received()) == 0, "it arrived and was called a failure"
    return error


def _chain(error: BaseException | None) -> list[str]:
    told: list[str] = []
    while error is not None and len(told) < 40:
        told += [str(error), repr(error), repr(getattr(error, "request", ""))]
        error = error.__cause__ or error.__context__
    return told


def _tells_nothing(secrets: Sequence[str], *texts: str) -> None:
    told = [(secret, text) for secret in secrets for text in texts if secret in text]
    assert told == [], "a secret is told"


CHECKS: tuple[TargetCheck, ...] = (
    a_notice_arrives_with_its_words,
    a_failure_that_passes_is_survived_with_one_id,
    a_receiver_that_is_gone_is_told,
    a_silent_receiver_is_given_up,
    a_target_tells_no_secret,
    a_long_text_is_cut_and_says_where_the_whole_is,
    notices_at_once_all_arrive,
)
