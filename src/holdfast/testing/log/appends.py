"""Checks of stamping, the chain, facts and decisions (S1, S2), and of waiting."""

from __future__ import annotations

import anyio

from holdfast.errors import Fenced, HeadMoved, LogDamaged, UnknownSession, UsageError
from holdfast.facts.base import Erased
from holdfast.facts.codec import body_digest, chain, encode_body, genesis
from holdfast.facts.tool import ToolResult
from holdfast.testing.log.rig import Check, Rig, Scenario

_BIG = 200 * 1024


async def events_are_stamped(rig: Rig) -> None:
    """Seq without gaps, the epoch, the time, the type, the draft's own id and actor; returned as read."""
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
    """Each hash follows from the one before, the place and the body's digest; genesis names the session."""
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
    """A previous hash that is not this log's is damage at the next event, and at the head."""
    case = Scenario(rig)
    await case.started()
    error = await case.refused(LogDamaged, rig.store.read("ses_a", after=1, prev=genesis("ses_a")))
    assert error.seq == 2
    await case.refused(LogDamaged, rig.store.read("ses_a", after=2, prev=genesis("ses_a")))


async def an_erased_body_keeps_the_chain(rig: Rig) -> None:
    """A tombstone reads as `Erased`; what stands before and after it verifies."""
    case = Scenario(rig)
    lease = await case.started()
    done = await case.append(lease, case.result("a secret"), case.result("after"))
    await rig.rewrite("ses_a", done[0].seq, None)
    events = await rig.store.read("ses_a", prev=genesis("ses_a"))
    assert isinstance(events[2].fact, Erased)
    assert (events[2].seq, events[2].hash, events[2].type) == (3, done[0].hash, "agent.tool_result")
    assert events[3] == done[1]


async def large_bodies_are_kept(rig: Rig) -> None:
    """A body of 200 KB is verified, read back and told apart from its neighbours."""
    case = Scenario(rig)
    lease = await case.started()
    done = await case.append(lease, case.result("a" * _BIG), case.result("b" * _BIG), case.result("c"))
    read = await rig.store.read("ses_a", after=2, prev=lease.events[-1].hash)
    assert read == done


async def reading_has_a_start_and_a_limit(rig: Rig) -> None:
    """`after` is exclusive, `limit` bounds, nothing after the head."""
    case = Scenario(rig)
    lease = await case.started()
    await case.append(lease, *(case.result(str(n)) for n in range(5)))
    assert [event.seq for event in await rig.store.read("ses_a", after=2, limit=3)] == [3, 4, 5]
    assert [event.seq for event in await rig.store.read("ses_a", limit=2, prev=genesis("ses_a"))] == [1, 2]
    assert await rig.store.read("ses_a", after=7) == []
    await case.refused(UnknownSession, rig.store.read("ses_none"))


async def what_cannot_be_read_back_is_not_written(rig: Rig) -> None:
    """A number that is not finite, half a character: refused, the whole batch with it."""
    case = Scenario(rig)
    lease = await case.started()
    for bad in (
        ToolResult(call_id="1.0", outcome="ok", content="", duration_ms=float("nan")),
        ToolResult(call_id="1.0", outcome="ok", content="\udcff"),
    ):
        await case.refused(UsageError, case.append(lease, case.result(), case.draft(bad)), "ses_a")


async def a_decision_needs_the_folded_head(rig: Rig) -> None:
    """A fact is taken although the head moved; a decision is refused, whole, and taken on the new head (S2)."""
    case = Scenario(rig)
    lease = await case.started()
    await case.say("ses_a", "late")
    error = await case.refused(HeadMoved, case.append(lease, case.result(), case.parked(), head=2), "ses_a")
    assert (error.folded, error.head) == (2, 3)
    await case.append(lease, case.result())
    await case.append(lease, case.parked(), head=4)
    assert (await case.row()).status == "parked"


async def another_epoch_is_fenced(rig: Rig) -> None:
    """A lower epoch and one that nobody was given are refused, with and without a head."""
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
    """Eight tasks append and post at once: every event once, in each task's own order."""
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
    """At once when it is beyond, else with the next append, post or lease; only for that session."""
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


async def who_was_cancelled_writes_nothing(rig: Rig) -> None:
    """An append or a post that is called after its caller was cancelled does not happen, then or later."""
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


CHECKS: tuple[Check, ...] = (
    events_are_stamped,
    hashes_bind_the_bytes_as_stored,
    a_changed_byte_is_found,
    another_past_is_found,
    an_erased_body_keeps_the_chain,
    large_bodies_are_kept,
    reading_has_a_start_and_a_limit,
    what_cannot_be_read_back_is_not_written,
    a_decision_needs_the_folded_head,
    another_epoch_is_fenced,
    many_writers_leave_no_gap,
    waiting_ends_when_the_head_moves,
    waiting_can_be_given_up,
    who_was_cancelled_writes_nothing,
)
