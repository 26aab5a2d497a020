"""Moving refs: from where they are, once, and never those of others (S23)."""

from __future__ import annotations

import anyio

from holdfast.repo.repository import Commit
from holdfast.testing.repo.repository_rig import MAIN, RepositoryCheck, RepositoryRig, branch_of, start_of, unfit


async def a_ref_moves_from_where_it_is(rig: RepositoryRig) -> None:
    start = await start_of(rig)
    one = await branch_of(rig, start.commit, "one", {"x": b"1"})
    two = await branch_of(rig, start.commit, "two", {"x": b"2"})
    point = rig.repository.point
    assert not await point(MAIN, one.commit, start.commit)
    assert await rig.repository.resolve(MAIN) is None
    assert await point(MAIN, one.commit, None)
    assert not await point(MAIN, two.commit, None)
    assert not await point(MAIN, two.commit, start.commit)
    assert await rig.repository.resolve(MAIN) == one
    assert await point(MAIN, two.commit, one.commit)
    assert await rig.repository.resolve(MAIN) == two
    assert await point("refs/holdfast/m/task/1", one.commit, None)
    assert await rig.repository.resolve("refs/holdfast/m/task/1") == one


async def one_of_many_moves_a_ref(rig: RepositoryRig) -> None:
    start = await start_of(rig)
    made = [await branch_of(rig, start.commit, f"side{number}", {"x": b"%d" % number}) for number in range(6)]
    assert await rig.repository.point(MAIN, start.commit, None)
    moved: list[Commit] = []

    async def move(to: Commit) -> None:
        if await rig.repository.point(MAIN, to.commit, start.commit):
            moved.append(to)

    async with anyio.create_task_group() as tasks:
        for each in made:
            tasks.start_soon(move, each)
    assert len(moved) == 1
    assert await rig.repository.resolve(MAIN) == moved[0]


async def a_move_that_was_done_is_done(rig: RepositoryRig) -> None:
    """After a crash between the move and its event the same move is made again (S23)."""
    start = await start_of(rig)
    one = await branch_of(rig, start.commit, "one", {"x": b"1"})
    assert await rig.repository.point(MAIN, one.commit, None)
    assert await rig.repository.point(MAIN, one.commit, None)
    assert await rig.repository.point(MAIN, one.commit, start.commit)
    assert await rig.repository.resolve(MAIN) == one


async def other_refs_are_not_moved(rig: RepositoryRig) -> None:
    start = await start_of(rig)
    one = await branch_of(rig, start.commit, "one", {"x": b"1"})
    for ref in (
        "refs/heads/main",
        "refs/heads/holdfast",
        "refs/heads/holdfast/../main",
        "refs/tags/holdfast/x",
        "HEAD",
        "refs/heads/holdfast/a b",
        "refs/heads/holdfast/x.lock",
        "refs/holdfast/",
        "refs/holdfast/x\ncreate refs/heads/y",
    ):
        await unfit(rig.repository.point(ref, one.commit, start.commit))
    assert await start_of(rig) == start
    await unfit(rig.repository.point(MAIN, "main", None))


async def a_branch_that_is_checked_out_is_not_moved(rig: RepositoryRig) -> None:
    start = await start_of(rig)
    one = await branch_of(rig, start.commit, "one", {"x": b"1"})
    assert await rig.repository.point(MAIN, start.commit, None)
    rig.occupy(MAIN)
    assert "checked out" in await unfit(rig.repository.point(MAIN, one.commit, start.commit))
    assert await rig.repository.resolve(MAIN) == start


CHECKS: tuple[RepositoryCheck, ...] = (
    a_ref_moves_from_where_it_is,
    one_of_many_moves_a_ref,
    a_move_that_was_done_is_done,
    other_refs_are_not_moved,
    a_branch_that_is_checked_out_is_not_moved,
)
