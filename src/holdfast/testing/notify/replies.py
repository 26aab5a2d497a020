"""What every reply channel must show."""

from __future__ import annotations

from holdfast.testing.notify.rig import ReplyCheck, ReplyRig, example


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
    """Whoever dies between reading and posting reads again."""
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


CHECKS: tuple[ReplyCheck, ...] = (
    an_answer_names_its_item_its_action_and_who,
    answers_come_in_order_and_both_verdicts_are_told,
    the_cursor_goes_on_behind_what_was_read,
    reading_takes_nothing_away,
    junk_is_refused_and_read_once,
    a_button_pressed_twice_answers_once,
    an_unknown_cursor_begins_anew,
)
