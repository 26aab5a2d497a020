"""Checks of forks (S22): a session that begins in the middle of another one, and shares what was before."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import EmergencyStop, LogDamaged, UnknownSession, UsageError
from holdfast.facts.base import Erased
from holdfast.facts.codec import Draft, Event, body_digest, chain, encode_body, genesis
from holdfast.facts.session import SessionCreated, SessionForked, Workspace
from holdfast.log.base import Lease, Post, PostReceipt, Snapshot
from holdfast.log.verify import verify
from holdfast.session.fold import empty, fold
from holdfast.session.state import State
from holdfast.session.tenant import only_agents
from holdfast.testing.log.rig import Check, Rig, Scenario


async def _fork(
    case: Scenario,
    session_id: str,
    origin: str,
    seq: int,
    *,
    key: str = "",
    accounts: Sequence[str] | None = None,
    hash: str | None = None,
    cap: int | None = None,
) -> PostReceipt:
    events = await case.store.read(origin, after=max(0, seq - 1), limit=1)
    fact = SessionForked(
        origin=origin,
        origin_seq=seq,
        origin_hash=hash if hash is not None else events[0].hash.hex() if events else "",
        goal="mend it another way",
        model="scripted:x",
        workspace=Workspace(path="/srv/other"),
        accounts=(session_id,) if accounts is None else tuple(accounts),
        budget_pico=cap,
        key=key,
        owner="ann",
        name="agent",
    )
    return await case.store.post(Post(session_id, "created", case.draft(fact, "user:ann")), create=True)


async def _origin(case: Scenario) -> Lease:
    """A session of five events: created, a shift, three messages."""
    lease = await case.started()
    await case.append(lease, case.message("one"), case.message("two"))
    await case.say("ses_a", "m")
    return lease


async def _all(case: Scenario, session_id: str) -> list[Event]:
    return await case.store.read(session_id, prev=genesis(session_id))


async def a_fork_goes_on_from_its_origin(rig: Rig) -> None:
    """Its first own event follows the origin's in seq, epoch and chain; what was before is read as it lies there."""
    case = Scenario(rig)
    lease = await _origin(case)
    before = await _all(case, "ses_a")
    assert await _fork(case, "ses_f", "ses_a", 3) == PostReceipt("ses_f", 4, False)
    await case.append(lease, case.result("three"))
    events = await _all(case, "ses_f")
    assert events[:3] == before[:3]
    (own,) = events[3:]
    assert isinstance(own.fact, SessionForked)
    body = encode_body(Draft(own.id, own.actor, own.fact), "created")
    link = chain(before[2].hash, "ses_f", 4, 1, own.at_us, "session.forked", body_digest(body))
    assert (own.session_id, own.seq, own.epoch, own.hash) == ("ses_f", 4, 1, link)
    assert await _all(case, "ses_a") == [*before, *(await case.store.read("ses_a", after=5))]
    assert fold(empty("ses_f", only_agents), events).seq == 4
    await case.whole()


async def a_fork_rests_until_something_is_said(rig: Rig) -> None:
    """It is parked and never due by itself; a message makes it due, and it runs under the next epoch."""
    case = Scenario(rig)
    await _origin(case)
    await _fork(case, "ses_f", "ses_a", 4)
    row = await case.row("ses_f")
    assert (row.status, row.reason, row.due_us, row.holder) == ("parked", "person", None, "")
    assert (row.goal, row.workspace, row.owner, row.name) == ("mend it another way", "/srv/other", "ann", "agent")
    assert (row.origin, row.origin_seq, row.root, row.turns, row.cost_pico) == ("ses_a", 4, "ses_f", 0, 0)
    assert "ses_f" not in await rig.store.due(2**60)
    await case.say("ses_f", "m")
    assert "ses_f" in await rig.store.due(2**60)
    lease = await case.take("ses_f")
    assert (lease.epoch, lease.events[0].seq) == (2, 7)
    await case.append(lease, case.result(), head=7)
    assert (await rig.store.find("ses_f")).head == 8
    assert await rig.store.wait("ses_f", 7) == 8
    await case.whole()


async def every_part_of_a_fork_is_read_alike(rig: Rig) -> None:
    """From any position, with any limit, across the seam, with and without the chain; a wrong hash is refused."""
    case = Scenario(rig)
    await _origin(case)
    await _fork(case, "ses_f", "ses_a", 3)
    await case.say("ses_f", "m1")
    await _fork(case, "ses_g", "ses_f", 5)
    await _fork(case, "ses_h", "ses_g", 2)
    await case.say("ses_g", "m2")
    assert [event.session_id for event in await _all(case, "ses_g")] == ["ses_a"] * 3 + ["ses_f"] * 2 + ["ses_g"] * 2
    assert [event.session_id for event in await _all(case, "ses_h")] == ["ses_a"] * 2 + ["ses_h"]
    for name in ("ses_f", "ses_g", "ses_h"):
        whole = await _all(case, name)
        assert [event.seq for event in whole] == list(range(1, len(whole) + 1))
        for after in range(len(whole) + 1):
            prev = whole[after - 1].hash if after else genesis(name)
            for limit in (None, 0, 1, 2, 3, 50):
                wanted = whole[after:] if limit is None else whole[after : after + limit]
                assert await rig.store.read(name, after=after, limit=limit) == wanted
                assert await rig.store.read(name, after=after, prev=prev, limit=limit) == wanted
            if after < len(whole):
                await case.refused(LogDamaged, rig.store.read(name, after=after, prev=genesis("ses_x")), name)
        assert await rig.store.read(name, after=len(whole) + 3) == []
    await case.whole()


async def forks_of_forks_have_no_depth(rig: Rig) -> None:
    """A long line of forks is read like any other session."""
    case = Scenario(rig)
    await case.open("ses_0")
    for number in range(1, 41):
        await _fork(case, f"ses_{number}", f"ses_{number - 1}", number)
    events = await _all(case, "ses_40")
    assert [event.session_id for event in events] == [f"ses_{number}" for number in range(41)]
    assert (await verify(rig.store, "ses_40")).sessions == 41
    await case.whole()


async def a_key_names_one_fork(rig: Rig) -> None:
    """A second one with the same key, or the same id, is the first; nothing is written twice."""
    case = Scenario(rig)
    await _origin(case)
    first = await _fork(case, "ses_f", "ses_a", 3, key="again")
    second = await _fork(case, "ses_g", "ses_a", 3, key="again")
    third = await _fork(case, "ses_f", "ses_a", 4)
    assert (first.duplicate, second, third) == (
        False,
        PostReceipt("ses_f", 4, True),
        PostReceipt("ses_f", 4, True),
    )
    assert [row.session_id for row in await rig.store.sessions()] == ["ses_f", "ses_a"]
    assert (await rig.store.find("again")).head == 4
    await case.whole()


async def what_cannot_be_forked_is_refused(rig: Rig) -> None:
    """No such session, a position it has not, another hash, other accounts, the home, a stop: nothing is written."""
    case = Scenario(rig)
    await case.store.post(Post("ses_a", "created", case.created(accounts=("ses_a", "project:web"))), create=True)
    shared = ("ses_f", "project:web")
    await case.set_cap("project:web", 5)
    for attempt in (
        _fork(case, "ses_f", "ses_a", 0, accounts=shared),
        _fork(case, "ses_f", "ses_a", 2, accounts=shared),
        _fork(case, "ses_f", "ses_a", 2**62, accounts=shared),
        _fork(case, "ses_f", "ses_a", 1, accounts=shared, hash="00" * 32),
        _fork(case, "ses_f", "ses_a", 1, accounts=("ses_f",)),
        _fork(case, "ses_f", "ses_a", 1, accounts=("project:web", "ses_f")),
        _fork(case, "ses_f", "ses_a", 1, accounts=("ses_a", "project:web")),
        _fork(case, "ses_f", "ses_home", 1),
    ):
        await case.refused(UsageError, attempt, "ses_a")
        assert [row.session_id for row in await rig.store.sessions()] == ["ses_a"]
    lost = SessionForked("ses_none", 1, "00", "x", "m", Workspace(path="/w"), ("ses_f",))
    await case.refused(UnknownSession, rig.store.post(Post("ses_f", "created", case.draft(lost)), create=True))
    await case.refused(UsageError, rig.store.post(Post("ses_a", "k", case.draft(lost))), "ses_a")
    await case.stop()
    await case.refused(EmergencyStop, _fork(case, "ses_f", "ses_a", 1, accounts=shared), "ses_a")
    await case.whole()


async def a_fork_has_money_of_its_own(rig: Rig) -> None:
    """What the origin holds stays the origin's; both spend under the shared account."""
    case = Scenario(rig)
    await case.store.post(Post("ses_a", "created", case.created(accounts=("ses_a", "all"), cap=50)), create=True)
    await case.set_cap("all", 60)
    lease = await case.take()
    (request,) = await case.append(lease, case.request(40))
    await _fork(case, "ses_f", "ses_a", request.seq, accounts=("ses_f", "all"), cap=30)
    books = [("all", 60, 0, 40), ("ses_a", 50, 0, 40), ("ses_f", 30, 0, 0)]
    assert await case.books() == books
    await case.say("ses_f", "m")
    fork = await case.take("ses_f")
    (own,) = await case.append(fork, case.request(20))
    await case.append(fork, case.response(own.seq, 15))
    assert await case.books() == [("all", 60, 15, 40), ("ses_a", 50, 0, 40), ("ses_f", 30, 15, 0)]
    await case.append(fork, case.response(request.seq, 0))  # the origin's reservation is not the fork's to settle
    assert await case.books() == [("all", 60, 15, 40), ("ses_a", 50, 0, 40), ("ses_f", 30, 15, 0)]
    await case.whole()


async def a_fork_keeps_a_snapshot_of_its_own(rig: Rig) -> None:
    """A folded state at a position of the fork is found again; at one that it shares it is not its own."""
    case = Scenario(rig)
    await _origin(case)
    await _fork(case, "ses_f", "ses_a", 3)
    events = await _all(case, "ses_f")
    await rig.store.save(Snapshot("ses_f", 4, events[3].hash, "fold", b"state"))
    kept = await rig.store.load("ses_f", "fold")
    assert kept is not None
    assert kept.seq == 4
    await rig.store.save(Snapshot("ses_f", 2, events[1].hash, "fold", b"state"))
    assert await rig.store.load("ses_f", "fold") is None


async def damage_before_a_fork_is_seen_from_it(rig: Rig) -> None:
    """An erased body is fine; other bytes are named with the session that they lie in, also by `verify`."""
    case = Scenario(rig)
    await _origin(case)
    await _fork(case, "ses_f", "ses_a", 4)
    await rig.rewrite("ses_a", 3, None)
    assert isinstance((await _all(case, "ses_f"))[2].fact, Erased)
    assert (await verify(rig.store)).findings == ()
    await rig.rewrite("ses_a", 2, b"{}")
    error = await case.refused(LogDamaged, _all(case, "ses_f"), "ses_f")
    assert (error.session_id, error.seq) == ("ses_a", 2)
    await case.say("ses_f", "later")
    assert (await case.row("ses_f")).head == 6, "what was written after damage was found cannot be seen"
    assert [(each.session_id, each.seq) for each in (await verify(rig.store, "ses_f")).findings] == [("ses_a", 2)]


async def damage_of_a_fork_is_not_its_origins(rig: Rig) -> None:
    """Other bytes in a fork's first event leave the origin whole; without that body nothing can go on from it."""
    case = Scenario(rig)
    await _origin(case)
    await _fork(case, "ses_f", "ses_a", 4)
    await _fork(case, "ses_g", "ses_a", 4)
    await rig.rewrite("ses_f", 5, b"{}")
    await rig.rewrite("ses_g", 5, None)
    assert isinstance((await _all(case, "ses_a"))[0].fact, SessionCreated)
    assert (await verify(rig.store, "ses_a")).findings == ()
    assert [(each.session_id, each.seq) for each in (await verify(rig.store)).findings] == [("ses_f", 5)]
    events = await _all(case, "ses_g")
    await case.refused(LogDamaged, _folded("ses_g", events))


async def _folded(session_id: str, events: list[Event]) -> State:
    return fold(empty(session_id, only_agents), events)


CHECKS: tuple[Check, ...] = (
    a_fork_goes_on_from_its_origin,
    a_fork_rests_until_something_is_said,
    every_part_of_a_fork_is_read_alike,
    forks_of_forks_have_no_depth,
    a_key_names_one_fork,
    what_cannot_be_forked_is_refused,
    a_fork_has_money_of_its_own,
    a_fork_keeps_a_snapshot_of_its_own,
    damage_before_a_fork_is_seen_from_it,
    damage_of_a_fork_is_not_its_origins,
)
