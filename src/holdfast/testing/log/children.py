"""Checks of child sessions (S4) and of forks (S22)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from holdfast.errors import EmergencyStop, HeadMoved, LogDamaged, UnknownSession, UsageError
from holdfast.facts.base import Erased, Text
from holdfast.facts.codec import Draft, Event, body_digest, chain, encode_body, genesis
from holdfast.facts.people import UserMessage
from holdfast.facts.session import Parent, SessionCreated, SessionForked, SessionUpdated, Workspace
from holdfast.facts.shift import ChildFinished, ChildOpened
from holdfast.log.base import Lease, Post, PostReceipt, Snapshot, Which, each_session
from holdfast.log.verify import verify
from holdfast.session.fold import empty, fold
from holdfast.session.rows import RowStatus, SessionRow
from holdfast.session.state import State
from holdfast.session.tenant import only_agents
from holdfast.testing.log.rig import Rig, Scenario


def _spawn(case: Scenario, child: str, parent: Parent, accounts: tuple[str, ...], key: str = "") -> Post:
    return Post(child, "created", case.created(accounts=accounts, parent=parent, key=key, cap=50, owner="ann"))


async def _family(case: Scenario) -> tuple[Lease, Lease]:
    """Open a parent and a child, and acquire both."""
    top = await case.started(cap=100)
    opened = case.draft(ChildOpened(child_id="ses_b", call_id="1.0", goal="mend it"))
    parent = Parent("ses_a", "1.0", 1, "ses_a")
    await case.append(top, opened, posts=[_spawn(case, "ses_b", parent, ("ses_b", "ses_a"))], head=2)
    return top, await case.take("ses_b")


async def a_tree_is_in_the_rows(rig: Rig) -> None:
    """Rows have parent, root, depth, owner, and agent name, down to a grandchild; a transfer changes the owner."""
    case = Scenario(rig)
    _, child = await _family(case)
    parent = Parent("ses_b", "1.0", 2, "ses_a")
    await case.append(child, posts=[_spawn(case, "ses_c", parent, ("ses_c", "ses_b", "ses_a"))])
    rows = {row.session_id: row for row in await rig.store.sessions()}
    tree = {name: (row.parent, row.root, row.depth, row.owner) for name, row in rows.items()}
    assert tree == {
        "ses_a": ("", "ses_a", 0, ""),
        "ses_b": ("ses_a", "ses_a", 1, "ann"),
        "ses_c": ("ses_b", "ses_a", 2, "ann"),
    }
    assert {row.name for row in rows.values()} == {"agent"}
    await rig.store.post(Post("ses_b", "hand over", case.draft(SessionUpdated(owner="ben"), "user:ann")))
    assert (await case.row("ses_b")).owner == "ben"
    await case.whole()


async def a_child_is_opened_whole_or_not_at_all(rig: Rig) -> None:
    """A child's first event, its account, and its parent's event are written together or not at all."""
    case = Scenario(rig)
    top = await case.started(cap=100)
    await case.open("ses_k", key="taken")
    parent = Parent("ses_a", "1.0", 1, "ses_a")
    opened = case.draft(ChildOpened(child_id="ses_b", call_id="1.0", goal="mend it"))
    good = _spawn(case, "ses_b", parent, ("ses_b", "ses_a"))
    other = Post("ses_none", "m", case.message())
    refused = [
        (UsageError, [_spawn(case, "ses_b", parent, ("ses_b", "ses_a"), key="taken")], None),
        (UsageError, [good, _spawn(case, "ses_c", parent, ("ses_k", "ses_a"))], None),
        (UsageError, [_spawn(case, "ses_b", parent, ("ses_b", "ses_b"))], None),
        (UnknownSession, [good, other], None),
        (HeadMoved, [good], 1),
    ]
    for kind, posts, head in refused:
        await case.refused(kind, case.append(top, opened, posts=posts, head=head), "ses_a", "ses_k")
        assert [row.session_id for row in await rig.store.sessions()] == ["ses_k", "ses_a"]
        assert [name for name, *_ in await case.books()] == ["ses_a", "ses_k"]
    await case.append(top, opened, posts=[good])
    await case.append(top, posts=[good])
    assert (await case.row("ses_b")).head == 1
    await case.whole()


async def accounts_on_the_way_begin_with_the_session(rig: Rig) -> None:
    """A new shared account is opened once, without a cap."""
    case = Scenario(rig)
    await case.open("ses_a", accounts=("ses_a", "project:web", "key:anthropic"), cap=5)
    await case.open("ses_b", accounts=("ses_b", "project:web"), cap=7)
    books = await case.books()
    assert books == [
        ("key:anthropic", None, 0, 0),
        ("project:web", None, 0, 0),
        ("ses_a", 5, 0, 0),
        ("ses_b", 7, 0, 0),
    ]
    await case.set_cap("project:web", 30)
    first, second = await case.take("ses_a"), await case.take("ses_b")
    await case.set_cap("ses_a", 100)
    await case.set_cap("ses_b", 100)
    await case.append(first, case.request(20))
    await case.append(second, case.request(10))
    account = await rig.store.account("project:web")
    assert account is not None
    assert (account.cap_pico, account.reserved_pico) == (30, 30)
    assert await rig.store.account("project:none") is None
    await case.whole()


async def the_end_of_a_child_wakes_its_parent(rig: Rig) -> None:
    """One append holds the child's last event and posts to its parent and another session."""
    case = Scenario(rig)
    top, child = await _family(case)
    await case.append(top, case.parked("child"))
    await case.open("ses_c")
    assert "ses_a" not in await rig.store.due(2**60)
    notice = case.draft(ChildFinished(child_id="ses_b", status="done", summary="mended"), "system")
    posts = [Post("ses_a", "child:ses_b:1", notice), Post("ses_c", "m", case.draft(UserMessage(content=(Text("x"),))))]
    ended = case.parked("person")
    heads = (await case.row("ses_a")).head, (await case.row("ses_c")).head
    await case.append(child, ended, posts=posts)
    assert "ses_a" in await rig.store.due(2**60)
    row = await case.row("ses_a")
    assert (row.status, row.reason, row.head) == ("runnable", "", heads[0] + 1)
    assert (await case.row("ses_c")).head == heads[1] + 1
    assert (await rig.store.post(posts[0])).duplicate
    await case.whole()


async def sessions_are_listed_in_pages(rig: Rig) -> None:
    """Filters agree with `Which.has`, counts with the list, and pages of any size add up to it, without the home."""
    case = Scenario(rig)
    _, child = await _family(case)
    await case.append(child, case.parked("job"), head=(await case.row("ses_b")).head)
    for name in ("ses_d", "ses_e", "ses_f"):
        await case.started(name)
    await case.open("ses_g")
    rows = await rig.store.sessions()
    middle = sorted(row.updated_us for row in rows)[3]
    assert [row.session_id for row in rows] == sorted((row.session_id for row in rows), reverse=True)
    filters = [Which(), Which(root="ses_a"), Which(parent="ses_a"), Which(top=True), Which(status="runnable")]
    filters += [Which(reason="job"), Which(status="parked", reason="timer"), Which(updated_us=middle)]
    filters += [Which(top=True, status="runnable", updated_us=middle), Which(root="ses_none")]
    filters += [Which(ids=frozenset({"ses_d", "ses_g", "ses_none"})), Which(roots=frozenset({"ses_a", "ses_e"}))]
    filters += [Which(before_us=middle), Which(words=("ses_", "g")), Which(words=("a", "no such word"))]
    filters += [Which(over_pico=1), Which(ids=frozenset({"ses_d"}), words=("ses_e",))]
    spent = {root: sum(row.cost_pico for row in rows if row.root == root) for root in {row.root for row in rows}}
    counts = await rig.store.counts()
    for status in get_args(RowStatus):
        assert counts[status] == sum(row.status == status for row in rows)
    for which in filters:
        wanted = [row for row in rows if which.has(row, spent[row.root])]
        assert await rig.store.sessions(which) == wanted
        assert await rig.store.count(which) == len(wanted)
        for size in (1, 2, len(rows)):
            pages: list[SessionRow] = []
            while page := await rig.store.sessions(which, before=pages[-1] if pages else None, limit=size):
                assert len(page) <= size
                pages += page
            assert pages == wanted
        assert [row async for row in each_session(rig.store, which)] == wanted


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
    """Open a session of five events: created, a shift, three messages."""
    lease = await case.started()
    await case.append(lease, case.message("one"), case.message("two"))
    await case.say("ses_a", "m")
    return lease


async def _all(case: Scenario, session_id: str) -> list[Event]:
    return await case.store.read(session_id, prev=genesis(session_id))


async def a_fork_goes_on_from_its_origin(rig: Rig) -> None:
    """A fork's first own event continues the origin's positions, epoch, and chain; earlier events are the origin's."""
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


async def a_fork_is_parked_until_a_message(rig: Rig) -> None:
    """A fork is parked until a message makes it due; it then runs under the next epoch."""
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
    """Reads across the fork point agree for any position and limit, verified or not; a wrong hash is refused."""
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
        assert await rig.store.at([(name, event.seq) for event in whole]) == whole
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


async def forks_of_forks_read_alike(rig: Rig) -> None:
    """A fork at depth 40 reads like any other session."""
    case = Scenario(rig)
    await case.open("ses_0")
    for number in range(1, 41):
        await _fork(case, f"ses_{number}", f"ses_{number - 1}", number)
    events = await _all(case, "ses_40")
    assert [event.session_id for event in events] == [f"ses_{number}" for number in range(41)]
    assert (await verify(rig.store, "ses_40")).sessions == 41
    await case.whole()


async def a_key_names_one_fork(rig: Rig) -> None:
    """A second fork with the same key or id returns the first."""
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


async def invalid_forks_are_refused(rig: Rig) -> None:
    """A wrong origin, position, hash, or account, the home, and an emergency stop refuse a fork."""
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


async def a_fork_has_its_own_budget(rig: Rig) -> None:
    """Reservations stay with the origin; both spend from the shared account."""
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
    """A snapshot loads at a position of the fork itself, not at one it shares with its origin."""
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
    """An erased body is no damage; changed bytes are reported with the session that has them, also by `verify`."""
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
    """A changed first event of a fork leaves the origin intact; without its body, no session can continue from it."""
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
