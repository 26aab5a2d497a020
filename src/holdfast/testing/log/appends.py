"""Checks of appends, posts, and sessions opened by key: stamping, the hash chain, facts and decisions (S1 to S4)."""

from __future__ import annotations

import anyio

from holdfast.errors import BudgetRefused, Fenced, HeadMoved, LogDamaged, UnknownSession, UsageError
from holdfast.facts.base import Erased, text_of
from holdfast.facts.codec import body_digest, chain, encode_body, genesis
from holdfast.facts.people import UserMessage
from holdfast.facts.tool import ToolResult
from holdfast.log.base import Post, PostReceipt
from holdfast.testing.log.rig import Rig, Scenario

_BIG = 200 * 1024


async def events_are_stamped(rig: Rig) -> None:
    """Events get consecutive positions, the epoch, the time, and the type; they keep the draft's id and actor."""
    case = Scenario(rig)
    lease = await case.started()
    drafts = [case.result(), case.result("more")]
    done = await case.append(lease, *drafts)
    read = await rig.store.read("ses_a")
    assert [event.seq for event in read] == [1, 2, 3, 4]
    assert [event.epoch for event in read] == [0, 1, 1, 1]
    assert read[2:] == done
    assert read[1:2] == list(lease.events)
    assert [(event.id, event.actor, event.fact) for event in done] == [(d.id, d.actor, d.fact) for d in drafts]
    assert done[0].type == "agent.tool_result"
    assert all(event.at_us > 0 and event.session_id == "ses_a" for event in read)


async def hashes_bind_the_bytes_as_stored(rig: Rig) -> None:
    """Each hash covers the previous one, the position, and the body's digest; the genesis names the session."""
    case = Scenario(rig)
    lease = await case.started()
    await case.append(lease, case.result("x" * 100))
    await case.say("ses_a", "k")
    events = await rig.store.read("ses_a", prev=genesis("ses_a"))
    stored = await rig.store.look(lambda look: list(look.stored("ses_a")))
    prev = genesis("ses_a")
    for event, (_, _, _, _, _, body, _) in zip(events, stored, strict=True):
        assert body is not None
        prev = chain(prev, "ses_a", event.seq, event.epoch, event.at_us, event.type, body_digest(body))
        assert event.hash == prev
    assert (await case.row()).head_hash == prev


async def all_events_have_one_order(rig: Rig) -> None:
    """The tail lists the events of all sessions in the order of their storage, from any position on."""
    case = Scenario(rig)
    lease = await case.started()
    await case.open("ses_b")
    await case.append(lease, case.result(), case.result("more"))
    await case.say("ses_b", "k")
    tail = await rig.store.look(lambda look: list(look.tail(0, 100)))
    assert [(session_id, stored[0]) for _, session_id, stored in tail] == [
        ("ses_a", 1), ("ses_a", 2), ("ses_b", 1), ("ses_a", 3), ("ses_a", 4), ("ses_b", 2)
    ]  # fmt: skip
    assert tail[2][2] == (await rig.store.look(lambda look: list(look.stored("ses_b"))))[0]
    assert await rig.store.look(lambda look: look.tail_end()) == tail[-1][0]
    assert await rig.store.look(lambda look: list(look.tail(tail[1][0], 2))) == tail[2:4]


async def a_changed_byte_is_found(rig: Rig) -> None:
    """Reading with the previous hash names the first bad event, from the start or from the middle."""
    case = Scenario(rig)
    lease = await case.started()
    done = await case.append(lease, case.result("a"), case.result("b"), case.result("c"))
    body = encode_body(case.result("B"))
    await rig.rewrite("ses_a", done[1].seq, body)
    for after, prev in ((0, genesis("ses_a")), (done[0].seq, done[0].hash)):
        error = await case.refused(LogDamaged, rig.store.read("ses_a", after=after, prev=prev))
        assert (error.session_id, error.seq) == ("ses_a", done[1].seq)
    assert len(await rig.store.read("ses_a", after=done[1].seq, prev=done[1].hash)) == 1


async def another_past_is_found(rig: Rig) -> None:
    """A wrong previous hash is reported as damage at the next event, also at the head."""
    case = Scenario(rig)
    await case.started()
    error = await case.refused(LogDamaged, rig.store.read("ses_a", after=1, prev=genesis("ses_a")))
    assert error.seq == 2
    await case.refused(LogDamaged, rig.store.read("ses_a", after=2, prev=genesis("ses_a")))


async def an_erased_body_keeps_the_chain(rig: Rig) -> None:
    """A tombstone reads as `Erased`; the events before and after it verify."""
    case = Scenario(rig)
    lease = await case.started()
    done = await case.append(lease, case.result("a secret"), case.result("after"))
    await rig.rewrite("ses_a", done[0].seq, None)
    events = await rig.store.read("ses_a", prev=genesis("ses_a"))
    assert isinstance(events[2].fact, Erased)
    assert (events[2].seq, events[2].hash, events[2].type) == (3, done[0].hash, "agent.tool_result")
    assert events[3] == done[1]
    assert await rig.store.at([("ses_a", 4), ("ses_a", 3)]) == [done[1], events[2]]


async def large_bodies_are_kept(rig: Rig) -> None:
    """Bodies of 200 KB verify and read back unchanged."""
    case = Scenario(rig)
    lease = await case.started()
    done = await case.append(lease, case.result("a" * _BIG), case.result("b" * _BIG), case.result("c"))
    read = await rig.store.read("ses_a", after=2, prev=lease.events[-1].hash)
    assert read == done == await rig.store.at([("ses_a", event.seq) for event in done])


async def reading_has_a_start_and_a_limit(rig: Rig) -> None:
    """`after` is exclusive, `limit` bounds the result, and nothing follows the head."""
    case = Scenario(rig)
    lease = await case.started()
    await case.append(lease, *(case.result(str(n)) for n in range(5)))
    assert [event.seq for event in await rig.store.read("ses_a", after=2, limit=3)] == [3, 4, 5]
    assert [event.seq for event in await rig.store.read("ses_a", limit=2, prev=genesis("ses_a"))] == [1, 2]
    assert await rig.store.read("ses_a", after=7) == []
    await case.refused(UnknownSession, rig.store.read("ses_none"))


async def events_are_read_by_their_places(rig: Rig) -> None:
    """Events of several sessions are read at once, in the order of the places."""
    case = Scenario(rig)
    lease = await case.started()
    (result,) = await case.append(lease, case.result())
    await case.open("ses_b")
    found = await rig.store.at([("ses_b", 1), ("ses_a", 3), ("ses_a", 1)])
    assert [(event.session_id, event.seq) for event in found] == [("ses_b", 1), ("ses_a", 3), ("ses_a", 1)]
    assert found[1] == result
    assert await rig.store.at([]) == []
    await case.refused(UnknownSession, rig.store.at([("ses_a", 1), ("ses_none", 1)]))
    await case.refused(UsageError, rig.store.at([("ses_a", 4)]))


async def undecodable_values_are_refused(rig: Rig) -> None:
    """A batch with a non-finite number or a lone surrogate is refused as a whole."""
    case = Scenario(rig)
    lease = await case.started()
    for bad in (
        ToolResult(call_id="1.0", outcome="ok", content="", duration_ms=float("nan")),
        ToolResult(call_id="1.0", outcome="ok", content="\udcff"),
    ):
        await case.refused(UsageError, case.append(lease, case.result(), case.draft(bad)), "ses_a")


async def a_decision_needs_the_folded_head(rig: Rig) -> None:
    """A fact appends although the head moved; a decision appends only on the current head (S2)."""
    case = Scenario(rig)
    lease = await case.started()
    await case.say("ses_a", "late")
    error = await case.refused(HeadMoved, case.append(lease, case.result(), case.parked(), head=2), "ses_a")
    assert (error.folded, error.head) == (2, 3)
    await case.append(lease, case.result())
    await case.append(lease, case.parked(), head=4)
    assert (await case.row()).status == "parked"


async def another_epoch_is_fenced(rig: Rig) -> None:
    """A lower epoch and one that was never issued are refused, with and without a head."""
    case = Scenario(rig)
    lease = await case.started()
    rig.kill(lease.worker_id)
    later = await case.take()
    head = (await case.row()).head
    error = await case.refused(Fenced, case.append(lease, case.result()), "ses_a")
    assert (error.mine, error.current) == (lease.epoch, later.epoch)
    await case.refused(Fenced, case.append(lease, case.result(), head=head), "ses_a")
    await case.refused(Fenced, rig.store.append("ses_a", later.epoch + 1, [case.result()]), "ses_a")
    await case.refused(UnknownSession, rig.store.append("ses_none", 1, [case.result()]))


async def many_writers_leave_no_gap(rig: Rig) -> None:
    """Eight tasks append and post at once; every event is stored once, in each task's own order."""
    case = Scenario(rig)
    lease = await case.started()

    async def work(number: int) -> None:
        for turn in range(10):
            await case.append(lease, case.result(f"{number}.{turn}"))
            await case.say("ses_a", f"{number}.{turn}")

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(work, number)
    events = await rig.store.read("ses_a", prev=genesis("ses_a"))
    assert [event.seq for event in events] == list(range(1, 163))
    said = [event.fact.content for event in events if isinstance(event.fact, ToolResult)]
    for number in range(8):
        mine = [text for text in said if text.startswith(f"{number}.")]
        assert mine == [f"{number}.{turn}" for turn in range(10)]


async def waiting_ends_when_the_head_moves(rig: Rig) -> None:
    """`wait` returns at once if the head is beyond, else with that session's next append, post, or lease."""
    case = Scenario(rig)
    lease = await case.started()
    await case.open("ses_b")
    assert await rig.store.wait("ses_a", 1) == 2
    seen: list[int] = []

    async def wait() -> None:
        seen.append(await rig.store.wait("ses_a", 2))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        await case.say("ses_b", "other")
        await anyio.wait_all_tasks_blocked()
        assert seen == []
        await case.append(lease, case.result())
    assert seen == [3, 3]
    await case.refused(UnknownSession, rig.store.wait("ses_none", 0))


async def waiting_can_be_given_up(rig: Rig) -> None:
    """A cancelled wait leaves the store as it was."""
    case = Scenario(rig)
    lease = await case.started()
    async with anyio.create_task_group() as group:
        group.start_soon(rig.store.wait, "ses_a", 2)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    await case.append(lease, case.result())
    assert await rig.store.wait("ses_a", 2) == 3


async def a_cancelled_caller_writes_nothing(rig: Rig) -> None:
    """An append or post called after its caller was cancelled never happens."""
    case = Scenario(rig)
    lease = await case.started()
    for _ in range(2):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await case.append(lease, case.result())
        with anyio.CancelScope() as scope:
            scope.cancel()
            await case.say("ses_a", "k")
        assert (await case.row()).head == 2
    await case.append(lease, case.result("after"))
    assert [event.seq for event in await rig.store.read("ses_a", after=2)] == [3]


async def posts_are_ordered_and_unfenced(rig: Rig) -> None:
    """Posts are accepted while a brain holds the session; they keep its epoch and leave no gap."""
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
    """A second post with a key is dropped, and its receipt names the first; keys are per session."""
    case = Scenario(rig)
    await case.open("ses_a")
    await case.open("ses_b")
    first = await case.say("ses_a", "k", "first")
    again = await case.say("ses_a", "k", "second")
    assert (first, again) == (PostReceipt("ses_a", 2, False), PostReceipt("ses_a", 2, True))
    assert await case.say("ses_b", "k") == PostReceipt("ses_b", 2, False)
    assert (await case.row()).head == 2


async def one_of_many_equal_posts_is_taken(rig: Rig) -> None:
    """Twenty tasks post under one key; there is one event, and one receipt is no duplicate."""
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
    """A post makes a parked session runnable and due at once."""
    case = Scenario(rig)
    lease = await case.started()
    await case.append(lease, case.parked("person"))
    assert await rig.store.due(2**60) == []
    await case.say("ses_a", "k")
    assert await rig.store.due((await case.row()).updated_us) == ["ses_a"]
    assert (await case.row()).status == "runnable"


async def invalid_posts_are_refused(rig: Rig) -> None:
    """Posts without a key, to unknown sessions, or with a wrong first event are refused."""
    case = Scenario(rig)
    await case.open()
    await case.refused(UnknownSession, case.say("ses_none", "k"))
    await case.refused(UsageError, case.say("ses_a", ""), "ses_a")
    await case.refused(UsageError, rig.store.post(Post("ses_a", "again", case.created())), "ses_a")
    await case.refused(UsageError, rig.store.post(Post("ses_b", "k", case.message()), create=True))
    await case.refused(UnknownSession, case.row("ses_b"))


async def a_key_names_one_session(rig: Rig) -> None:
    """The first session opened under a key owns it; sessions without a key are distinct."""
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
    """Drafts and posts to other sessions are written in one transaction (S4)."""
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
    """Spawning is one transaction: the parent's event, the child's first event, and its account."""
    case = Scenario(rig)
    lease = await case.started("ses_a", cap=100)
    child = case.created(accounts=("ses_c", "ses_a"), cap=40)
    await case.append(lease, case.result(), posts=[Post("ses_c", "spawn", child)])
    assert (await case.row("ses_c")).accounts == ("ses_c", "ses_a")
    assert {account.account_id for account in await rig.store.accounts()} == {"ses_a", "ses_c"}
