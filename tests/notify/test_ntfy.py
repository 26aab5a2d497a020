"""Approving from a phone: what buttons carry, whose answers count, and what a phone is not offered."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.clock import SystemClock
from holdfast.errors import NotifyError, UsageError
from holdfast.notify.ntfy import PUSH_BYTES, Answer, Ntfy, _push_bytes, answer_text, read_answer
from holdfast.testing.notify import example
from tests.notify.rigs import KEY, NtfyRig
from tests.support.receiver import Got, Receiver, Reply


async def test_a_phone_approves_without_an_open_port() -> None:
    with NtfyRig() as rig:
        await rig.target.send(example(digest="d7"))
        assert set(rig.buttons()) == {"Approve", "Deny"}
        assert rig.shown()[-1]["priority"] == 4
        await rig.click("Approve")
        [reply] = (await rig.channel.replies("")).found
    assert (reply.item_id, reply.verdict, reply.digest, reply.who) == ("itm_1", "approve", "d7", "user:ann")


def answer(**other: object) -> Answer:
    fields: dict[str, object] = {"session_id": "ses_a", "item_id": "itm_1", "verdict": "approve", "digest": "d1"}
    return Answer(**{**fields, **other})  # type: ignore[arg-type]


def forgeries() -> dict[str, str]:
    """Texts that somebody may send who has seen others, but no button of this item with this verdict."""
    right = answer_text(KEY, "phone", answer())
    denial = answer_text(KEY, "phone", answer(verdict="deny"))
    head, _, code = right.rpartition(" ")
    return {
        "another key": answer_text(bytes(32), "phone", answer()),
        "another phone's button": answer_text(KEY, "tablet", answer()),
        "a denial turned around": denial.replace(" deny ", " approve "),
        "another action": right.replace(" d1 ", " d2 "),
        "another item": right.replace("itm_1", "itm_2"),
        "another session": right.replace("ses_a", "ses_b"),
        "a longer life": right.replace(" - ", " 99999999999999999 "),
        "a code of zeros": f"{head} {'A' * 22}",
        "a shorter code": f"{head} {code[:-1]}",
        "no code": head,
        "words": "approve itm_1",
        "nothing": " ",
        "much": right + " x" * 5000,
        "not even text": "\x00\ud7ff",
    }


@pytest.mark.parametrize("which", forgeries())
async def test_a_forged_answer_is_refused(which: str) -> None:
    with NtfyRig() as rig:
        await rig.say(forgeries()[which])
        looked = await rig.channel.replies("")
        refused = (looked.found, looked.refused)
        await rig.press(example(), "approve")
        assert len((await rig.channel.replies(looked.cursor)).found) == 1, "the right one still counts"
    # The server itself takes no message of more than 4096 bytes.
    assert refused == ((), 0 if which == "much" else 1)


async def test_a_late_answer_is_refused_and_one_in_time_counts() -> None:
    with NtfyRig() as rig:
        notice = example(expires_us=(rig.receiver.now_s + 60) * 1_000_000)
        await rig.press(notice, "approve")
        in_time = await rig.channel.replies("")
        rig.receiver.now_s += 61
        await rig.click("Deny")
        late = await rig.channel.replies(in_time.cursor)
    assert [reply.verdict for reply in in_time.found] == ["approve"]
    assert (late.found, late.refused) == ((), 1)


async def test_a_replayed_answer_says_what_it_said_and_no_more() -> None:
    """The item's own key takes one answer (S21), so the same one again decides nothing."""
    with NtfyRig() as rig:
        await rig.press(example(), "deny")
        first = await rig.channel.replies("")
        heard = rig.receiver.of("T0PS3CRET-replies")[-1]["message"]
        await rig.say(heard)
        await rig.say(heard)
        again = await rig.channel.replies(first.cursor)
    [before], [after] = first.found, again.found
    assert (after.item_id, after.verdict, after.digest) == (before.item_id, before.verdict, before.digest)
    assert again.refused == 1


async def test_a_note_comes_with_the_answer() -> None:
    with NtfyRig() as rig:
        await rig.say(answer_text(KEY, "phone", answer(note="only the docs,\nplease")))
        [reply] = (await rig.channel.replies("")).found
    assert reply.note == "only the docs,\nplease"


@pytest.mark.parametrize("body", ["x" * 6000, "ü" * 3000, "a&&b>c " * 100, '"\n' * 2000, "\u202e" * 2000])
async def test_what_a_phone_cannot_show_it_cannot_approve(body: str) -> None:
    with NtfyRig() as rig:
        await rig.target.send(example(body=body))
        assert set(rig.buttons()) == {"Deny"}
        [shown] = rig.shown()
        assert "cut here; the whole: holdfast inbox" in shown["message"]
        assert "holdfast approve itm_1" in shown["message"]
        assert _push_bytes(shown) <= PUSH_BYTES
        await rig.click("Deny")
        assert len((await rig.channel.replies("")).found) == 1


async def test_what_fits_can_be_approved() -> None:
    with NtfyRig() as rig:
        await rig.target.send(example(body="git push origin main\n" + "why " * 180))
        assert set(rig.buttons()) == {"Approve", "Deny"}


async def test_no_digest_no_buttons() -> None:
    with NtfyRig() as rig:
        await rig.target.send(example(digest=""))
        assert rig.buttons() == {}


async def test_an_action_cannot_pretend_in_a_title_or_a_text() -> None:
    with NtfyRig() as rig:
        await rig.target.send(replace(example(body="rm -rf /\u202e\x1b[2Kls"), title="ok\nDenied\u200b already"))
        [shown] = rig.shown()
    assert shown["title"] == "ok Denied\\u200b already"
    assert "rm -rf /\\u202e\\x1b[2Kls" in shown["message"]


async def test_a_flood_is_read_in_pieces() -> None:
    with NtfyRig() as rig:
        for _ in range(120):
            rig.receiver.answer(Got("POST", "/T0PS3CRET-replies", {}, b"x" * 4000))
        await rig.press(example(), "approve")
        first = await rig.channel.replies("")
        assert first.found == ()
        assert 0 < first.refused < 120
        second = await rig.channel.replies(first.cursor)
    assert (first.refused + second.refused, len(second.found)) == (120, 1)


async def test_wrong_credentials_are_told_without_them() -> None:
    with NtfyRig() as rig:
        rig.receiver.writers = {"T0PS3CRET-topic": "another"}
        rig.receiver.readers = {"T0PS3CRET-replies": "another"}
        for attempt in (rig.target.send(example()), rig.channel.replies("")):
            with pytest.raises(NotifyError, match=r"credentials \(403\)") as caught:
                await attempt
            assert not caught.value.retryable
            assert "T0PS3CRET" not in str(caught.value)


async def test_a_server_of_another_kind_is_told() -> None:
    with Receiver() as other:
        other.planned.append(Reply(200, {}, b"<html>hello</html>"))
        phone = Ntfy("phone", other.url, "a", SystemClock(), reply_topic="b", key=KEY)
        with pytest.raises(NotifyError, match="not respond like an ntfy server"):
            await phone.replies("")


@pytest.mark.parametrize(
    ("url", "topic", "reply", "says"),
    [
        ("https://example.com/ntfy", "a", "", "server only"),
        ("https://example.com", "a b", "", "the topic of"),
        ("https://example.com", "a", "b/c", "the reply_topic of"),
        ("https://example.com", "a", "a", "one topic in both directions"),
    ],
)
def test_settings_that_cannot_be_meant(url: str, topic: str, reply: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Ntfy("phone", url, topic, SystemClock(), reply_topic=reply, key=KEY)


def test_a_token_is_plain() -> None:
    with pytest.raises(UsageError, match="the token of") as caught:
        Ntfy("phone", "https://example.com", "a", SystemClock(), token="tk_T0PS3CRET\xfc")
    assert "T0PS3CRET" not in str(caught.value)


def test_a_code_needs_a_real_key_and_real_words() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        answer_text(b"short", "phone", answer())
    with pytest.raises(ValueError, match="space"):
        answer_text(KEY, "phone", answer(item_id="itm 1"))
    text = answer_text(KEY, "phone", answer(expires_us=5))
    assert read_answer(KEY, "phone", text, 5) == answer(expires_us=5)
    assert read_answer(KEY, "phone", text, 6) is None


def test_a_long_note_is_shortened_and_a_flood_is_no_answer() -> None:
    text = answer_text(KEY, "phone", answer(note="x" * 2000))
    read = read_answer(KEY, "phone", text, 0)
    assert read is not None
    assert len(read.note) == 1000
    assert read_answer(KEY, "phone", text + "x" * 3000, 0) is None
