"""Checks of posts, of whole batches and of sessions opened by key (S3, S4)."""

from __future__ import annotations

import anyio

from holdfast.errors import BudgetRefused, UnknownSession, UsageError
from holdfast.facts.base import text_of
from holdfast.facts.codec import genesis
from holdfast.facts.user import UserMessage
from holdfast.log.base import Post, PostReceipt
from holdfast.testing.log.rig import Check, Rig, Scenario


async def posts_are_ordered_and_unfenced(rig: Rig) -> None:
    """They are taken while a brain holds the session, keep its epoch, and make no gap."""
    case = Scenario(rig)
    lease = await case.started()
    receipts = [await case.say("ses_a", f"k{n}", f"text {n}") for n in range(3)]
    assert receipts == [PostReceipt("ses_a", seq, False) for seq in (3, 4, 5)]
    await case.append(lease, case.result())
    events = await rig.store.read("ses_a", prev=genesis("ses_a"))
    assert [text_of(event.fact.content) for event in events if isinstance(event.fact, UserMessage)] == [
        "text 0",
        "text 1",
        "text 2",
    ]
    assert {event.epoch for event in events[1:]} == {lease.epoch}


async def a_key_is_taken_once(rig: Rig) -> None:
    """The second post with a key is dropped and told where the first stands; keys are per session."""
    case = Scenario(rig)
    await case.open("ses_a")
    await case.open("ses_b")
    first = await case.say("ses_a", "k", "first")
    again = await case.say("ses_a", "k", "second")
    assert (first, again) == (PostReceipt("ses_a", 2, False), PostReceipt("ses_a", 2, True))
    assert await case.say("ses_b", "k") == PostReceipt("ses_b", 2, False)
    assert (await case.row()).head == 2


async def one_of_many_equal_posts_is_taken(rig: Rig) -> None:
    """Twenty tasks post under one key: one event, one receipt that is not a duplicate."""
    case = Scenario(rig)
    await case.open()
    receipts: list[PostReceipt] = []

    async def post() -> None:
        receipts.append(await case.say("ses_a", "k"))

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(post)
    assert sorted(receipt.duplicate for receipt in receipts) == [False] + [True] * 19
    assert {receipt.seq for receipt in receipts} == {2}


async def a_post_makes_the_session_due(rig: Rig) -> None:
    """A parked session with nothing to wait for becomes runnable and due at once."""
    case = Scenario(rig)
    lease = await case.started()
    await case.append(lease, case.parked("person"))
    assert await rig.store.due(2**60) == []
    await case.say("ses_a", "k")
    assert await rig.store.due((await case.row()).updated_us) == ["ses_a"]
    assert (await case.row()).status == "runnable"


async def posts_that_mean_nothing_are_refused(rig: Rig) -> None:
    """No such session, no key, a second beginning, a beginning that is none."""
    case = Scenario(rig)
    await case.open()
    await case.refused(UnknownSession, case.say("ses_none", "k"))
    await case.refused(UsageError, case.say("ses_a", ""), "ses_a")
    await case.refused(UsageError, rig.store.post(Post("ses_a", "again", case.created())), "ses_a")
    await case.refused(UsageError, rig.store.post(Post("ses_b", "k", case.message()), create=True))
    await case.refused(UnknownSession, case.row("ses_b"))


async def a_key_names_one_session(rig: Rig) -> None:
    """The caller's key maps to one session, whoever is first; without a key each is its own."""
    case = Scenario(rig)
    receipts: list[PostReceipt] = []

    async def create(number: int) -> None:
        receipts.append(await case.open(f"ses_{number:02d}", key="nightly"))

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(create, number)
    assert len({receipt.session_id for receipt in receipts}) == 1
    assert sorted(receipt.duplicate for receipt in receipts) == [False] + [True] * 19
    assert len(await rig.store.sessions()) == 1
    assert (await rig.store.find("nightly")).session_id == receipts[0].session_id
    await case.open("ses_x")
    await case.open("ses_y")
    assert await case.open("ses_y") == PostReceipt("ses_y", 1, True)
    assert len(await rig.store.sessions()) == 3


async def a_batch_with_posts_is_whole(rig: Rig) -> None:
    """Drafts and posts to other sessions are written together, in order, or not at all (S4)."""
    case = Scenario(rig)
    lease = await case.started("ses_a", cap=10)
    await case.open("ses_b")
    await case.append(lease, case.result(), posts=[Post("ses_b", "k", case.message("from a"))])
    assert ((await case.row("ses_a")).head, (await case.row("ses_b")).head) == (3, 2)
    nobody = [Post("ses_b", "k2", case.message()), Post("ses_none", "k", case.message())]
    await case.refused(UnknownSession, case.append(lease, case.result(), posts=nobody), "ses_a", "ses_b")
    dear = [case.result(), case.request(11)]
    await case.refused(
        BudgetRefused, case.append(lease, *dear, posts=[Post("ses_b", "k3", case.message())]), "ses_a", "ses_b"
    )
    await case.append(lease, posts=[Post("ses_b", "k", case.message("a duplicate"))])
    assert (await case.row("ses_b")).head == 2


async def a_child_is_opened_in_the_batch(rig: Rig) -> None:
    """Spawning is one transaction: the parent's event, the child's beginning, its account under the parent's."""
    case = Scenario(rig)
    lease = await case.started("ses_a", cap=100)
    child = case.created(accounts=("ses_c", "ses_a"), cap=40)
    await case.append(lease, case.result(), posts=[Post("ses_c", "spawn", child)])
    assert (await case.row("ses_c")).accounts == ("ses_c", "ses_a")
    assert {account.account_id for account in await rig.store.accounts()} == {"ses_a", "ses_c"}


CHECKS: tuple[Check, ...] = (
    posts_are_ordered_and_unfenced,
    a_key_is_taken_once,
    one_of_many_equal_posts_is_taken,
    a_post_makes_the_session_due,
    posts_that_mean_nothing_are_refused,
    a_key_names_one_session,
    a_batch_with_posts_is_whole,
    a_child_is_opened_in_the_batch,
)
