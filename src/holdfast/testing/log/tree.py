"""Checks of the tree of sessions (S4): a child opens whole, with its parent's event and its accounts, or not at all."""

from __future__ import annotations

from holdfast.errors import HeadMoved, UnknownSession, UsageError
from holdfast.facts.base import Text
from holdfast.facts.child import ChildFinished, ChildOpened
from holdfast.facts.session import Parent, SessionUpdated
from holdfast.facts.user import UserMessage
from holdfast.log.base import Lease, Post, Which, each_session
from holdfast.session.rows import SessionRow
from holdfast.testing.log.rig import Check, Rig, Scenario


def _spawn(case: Scenario, child: str, parent: Parent, accounts: tuple[str, ...], key: str = "") -> Post:
    return Post(child, "created", case.created(accounts=accounts, parent=parent, key=key, cap=50, owner="ann"))


async def _family(case: Scenario) -> tuple[Lease, Lease]:
    """A parent with a child."""
    top = await case.started(cap=100)
    opened = case.draft(ChildOpened(child_id="ses_b", call_id="1.0", goal="mend it"))
    parent = Parent("ses_a", "1.0", 1, "ses_a")
    await case.append(top, opened, posts=[_spawn(case, "ses_b", parent, ("ses_b", "ses_a"))], head=2)
    return top, await case.take("ses_b")


async def a_tree_is_in_the_rows(rig: Rig) -> None:
    """Parent, top, generation, owner and the agent's name, down to a grandchild; a hand-over changes the owner."""
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
    """Its first event, its account and its parent's event are one: whatever is refused leaves nothing of them."""
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
    """A shared account that nobody has named before is opened without a cap, once."""
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
    """The child's last event and its parent's notice are one append; two posts to two sessions too."""
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
    """Filters pass what `Which.has` passes; pages put together are the list, whatever their size, without the home."""
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
    for which in filters:
        wanted = [row for row in rows if which.has(row)]
        assert await rig.store.sessions(which) == wanted
        assert await rig.store.count(which) == len(wanted)
        for size in (1, 2, len(rows)):
            pages: list[SessionRow] = []
            while page := await rig.store.sessions(which, before=pages[-1] if pages else None, limit=size):
                assert len(page) <= size
                pages += page
            assert pages == wanted
        assert [row async for row in each_session(rig.store, which)] == wanted


CHECKS: tuple[Check, ...] = (
    sessions_are_listed_in_pages,
    a_tree_is_in_the_rows,
    a_child_is_opened_whole_or_not_at_all,
    accounts_on_the_way_begin_with_the_session,
    the_end_of_a_child_wakes_its_parent,
)
