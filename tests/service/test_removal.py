"""Removal of whole session trees: what goes, what is refused, and what stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import LeaseHeld, UsageError
from holdfast.facts.session import SessionForked, Workspace
from holdfast.facts.shift import ShiftStarted
from holdfast.log.base import Post
from holdfast.log.sqlite.watermark import missing
from holdfast.log.verify import verify
from holdfast.log.worker_locks import Worker
from holdfast.service.leftovers import clear_removed
from holdfast.service.removal import remove_tree, tidy, trees_to_remove, were_removed
from tests.app.terminal import rows
from tests.service.finished import Builder, building, draft, git, repository

BIG = 70_000
"""A body of more bytes than a row takes."""


def blobs(home: Path) -> int:
    ((count,),) = rows(home / "holdfast.db", "select count(*) from blobs")
    return int(count)


async def removed(made: Builder, *names: str) -> None:
    for tree in await trees_to_remove(made.place, names):
        await remove_tree(made.place, tree)
    await tidy(made.place)


async def test_all_that_only_they_hold_goes(tmp_path: Path) -> None:
    home, given = tmp_path / "home", tmp_path / "given"
    async with building(home) as made:
        gone = await made.session("ses_gone", big=BIG)
        await made.session("ses_given", folder=given)
        stays = await made.session("ses_stays", big=BIG)
        kept = (await made.shelf.kept())["ses_stays"]
        await removed(made, "ses_gone", "ses_given")
        assert (await verify(made.store)).findings == ()
        assert [row.session_id for row in await made.store.sessions()] == ["ses_stays"]
        assert await made.shelf.kept() == {"ses_stays": kept}
        await made.shelf.restore(kept[-1], tmp_path / "copy")
    assert not gone.exists()
    assert (stays / "file").is_file()
    assert (given / "file").is_file(), "a folder of the user was removed"
    assert blobs(home) == 1
    assert missing(home / "holdfast.db", 1.0) == [], "a removal looks like a loss"
    left = [path for path in home.rglob("*") if "ses_gone" in path.name or "ses_given" in path.name]
    assert [path for path in left if path.parent.name != "workers"] == []
    assert len(list((home / "usage").iterdir())) == 1


async def test_a_fork_keeps_its_origin(tmp_path: Path) -> None:
    async with building(tmp_path / "home") as made:
        await made.session("ses_origin")
        origin = await made.store.find("ses_origin")
        fork = SessionForked(
            origin="ses_origin",
            origin_seq=origin.head,
            origin_hash=origin.head_hash.hex(),
            goal="g",
            model="m",
            workspace=Workspace(str(made.workspace("ses_fork")), True),
            accounts=("ses_fork",),
        )
        await made.store.post(Post("ses_fork", "created", draft(fork)), create=True)
        with pytest.raises(UsageError, match="holdfast rm ses_origin ses_fork"):
            await trees_to_remove(made.place, ["ses_origin"])
        trees = await trees_to_remove(made.place, ["ses_origin", "ses_fork"])
        assert [tree.root.session_id for tree in trees] == ["ses_fork", "ses_origin"]
        await remove_tree(made.place, trees[0])
        assert (await verify(made.store)).findings == ()
        await remove_tree(made.place, trees[1])
        assert await made.store.sessions() == []


async def test_a_session_that_runs_is_not_removed(tmp_path: Path) -> None:
    async with building(tmp_path / "home") as made:
        path = await made.session("ses_a", over=False)
        (tree,) = await trees_to_remove(made.place, ["ses_a"])
        assert [row.session_id for row in tree.unfinished] == ["ses_a"]
        with Worker.start(made.home / "workers", "wrk_live"):
            shift = ShiftStarted(worker_id="wrk_live", host_id="h", boot_id="b", pid=1, program="t")
            await made.store.acquire("ses_a", draft(shift))
            (tree,) = await trees_to_remove(made.place, ["ses_a"])
            assert [row.session_id for row in tree.running] == ["ses_a"]
            with pytest.raises(LeaseHeld):
                await remove_tree(made.place, tree)
        assert (path / "file").is_file()
        assert (await made.store.find("ses_a")).session_id == "ses_a"


async def test_the_refs_of_a_mission_go_and_its_main_branch_stays(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    async with building(tmp_path / "home") as made:
        await made.mission("ses_m", repo)
        await made.mission("ses_other", repo)
        before = git(repo, "for-each-ref", "--format=%(refname)", "refs/heads/holdfast/other", "refs/holdfast/other")
        await removed(made, "ses_m")
    refs = git(repo, "for-each-ref", "--format=%(refname)").splitlines()
    assert sorted(refs) == sorted([*before.splitlines(), "refs/heads/holdfast/m/main", "refs/heads/trunk"])


async def test_what_a_killed_removal_left_goes_later(tmp_path: Path) -> None:
    """The log is gone first; its record names what to clear."""
    async with building(tmp_path / "home") as made:
        path = await made.session("ses_a", big=BIG)
        await made.session("ses_b")
        await made.store.remove([await made.store.find("ses_a")], "user:ann")
        assert path.is_dir()
        assert await were_removed(made.place, ["ses_a"])
        assert not await were_removed(made.place, ["ses_a", "ses_b"])
        assert await clear_removed(made.place) == 1
        assert await clear_removed(made.place) == 0
        assert not path.exists()
        assert list(await made.shelf.kept()) == ["ses_b"]
