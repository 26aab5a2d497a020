"""Space of finished sessions: what is freed without a question, what is named first, and what is left alone."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.clock import SystemClock
from holdfast.facts.base import Text
from holdfast.facts.people import UserMessage
from holdfast.kinds import KINDS
from holdfast.log.base import Post
from holdfast.log.verify import verify
from holdfast.service import space
from holdfast.service.space import Item
from tests.service.finished import Builder, building, draft, git, repository

LATER_US = 10**15


async def found(made: Builder, *, before_us: int | None = None) -> list[Item]:
    return await space.find(made.place, KINDS, SystemClock().now_us() + LATER_US if before_us is None else before_us)


def of(items: list[Item], kind: str) -> dict[str, Item]:
    return {item.session_id: item for item in items if item.kind == kind}


async def test_a_workspace_in_the_snapshots_goes_and_comes_back(tmp_path: Path) -> None:
    async with building(tmp_path / "home") as made:
        path = await made.session("ses_a")
        content = (path / "file").read_bytes()
        items = [item for item in await found(made) if not item.only_here]
        assert {item.kind for item in items} == {"workspaces", "usage", "egress"}
        done = await space.free(made.place, items)
        assert sum(item.bytes for item in done) >= made.reclaimable - 20_000
        assert not path.exists()
        assert (await verify(made.store)).findings == ()
        await made.shelf.restore((await made.shelf.kept())["ses_a"][-1], path)
        assert (path / "file").read_bytes() == content
        assert [item.kind for item in await found(made)] == ["workspaces", "snapshots"]


async def test_what_exists_only_here_is_named(tmp_path: Path) -> None:
    async with building(tmp_path / "home") as made:
        changed, linked, git_made, empty = [await made.session(f"ses_{name}") for name in ("c", "l", "g", "e")]
        (changed / "late").write_text("only here")
        os.mkfifo(linked / "pipe")
        (git_made / ".git").mkdir()
        (git_made / ".git" / "HEAD").write_text("ref: refs/heads/mine\n")
        (empty / "file").unlink()
        workspaces = of(await found(made), "workspaces")
        assert "changed" in workspaces["ses_c"].only_here
        assert "pipe" in workspaces["ses_l"].only_here
        assert ".git" in workspaces["ses_g"].only_here
        assert "ses_e" not in workspaces, "an empty one takes no space, and no snapshot could restore it"
        snapshots = of(await found(made), "snapshots")
        assert snapshots["ses_c"].only_here
        assert snapshots["ses_c"].bytes > 15_000


async def test_what_is_in_use_is_left_alone(tmp_path: Path) -> None:
    """Sessions that can go on, their forks' origins, folders of users, and young sessions."""
    given = tmp_path / "given"
    async with building(tmp_path / "home") as made:
        await made.session("ses_parked", over=False)
        await made.session("ses_given", folder=given)
        host = await made.session("ses_host")
        await made.session("ses_guest", folder=host / "inner", over=False)
        items = await found(made)
        assert set(of(items, "workspaces")) == set()
        assert set(of(items, "egress")) == {"ses_given", "ses_host"}
        assert set(of(items, "snapshots")) == {"ses_given", "ses_host"}
        assert [item.kind for item in await found(made, before_us=0)] == []


async def test_a_session_that_goes_on_meanwhile_keeps_its_workspace(tmp_path: Path) -> None:
    async with building(tmp_path / "home") as made:
        path = await made.session("ses_a")
        items = await found(made)
        said = UserMessage(content=(Text("go on"),))
        await made.store.post(Post("ses_a", "more", draft(said)))
        done = await space.free(made.place, [item for item in items if item.kind == "workspaces"])
        assert done == []
        assert (path / "file").is_file()


async def test_refs_of_a_finished_mission(tmp_path: Path) -> None:
    """A ref whose commit another ref has goes; a lone commit is named. A main branch stays, and a live mission."""
    repo = repository(tmp_path / "repo")
    async with building(tmp_path / "home") as made:
        await made.mission("ses_m", repo)
        await made.mission("ses_live", repo, over=False)
        items = [item for item in await found(made) if item.kind == "refs"]
        lone = {item.paths[0]: bool(item.only_here) for item in items}
        assert lone == {"refs/holdfast/m/base": False, "refs/heads/holdfast/m/task": True}
        await space.free(made.place, [item for item in items if not item.only_here])
        refs = set(git(repo, "for-each-ref", "--format=%(refname)").splitlines())
        assert "refs/holdfast/m/base" not in refs
        assert {"refs/heads/holdfast/m/task", "refs/heads/holdfast/m/main", "refs/holdfast/live/base"} <= refs


async def test_what_a_killed_prune_set_aside_goes_later(tmp_path: Path) -> None:
    async with building(tmp_path / "home") as made:
        path = await made.session("ses_a")
        made.place.set_aside(path)
        assert not path.exists()
        assert list((made.home / "removing").iterdir())
        await space.free(made.place, [])
        assert not list((made.home / "removing").iterdir())
