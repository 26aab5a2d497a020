"""The refs of missions in a user's repository: listed, told apart, and dropped where they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import RepositoryUnfit
from holdfast.repo.git_repository import GitRepository
from holdfast.repo.plumbing import Plumbing
from holdfast.repo.plumbing.refs import Forge, Way, push_branch
from tests.service.finished import git, repository

MAIN, TASK, KEPT = "refs/heads/holdfast/m/main", "refs/heads/holdfast/m/task", "refs/holdfast/m/base"


async def test_a_ref_is_dropped_where_it_is(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    start = git(repo, "rev-parse", "HEAD")
    lone = git(repo, "commit-tree", "HEAD^{tree}", "-p", start, "-m", "work")
    for ref, commit in ((MAIN, start), (KEPT, lone), (TASK, lone)):
        git(repo, "update-ref", ref, commit)
    refs = GitRepository(str(repo), tmp_path / "state")
    assert await refs.refs_below("refs/holdfast/m/") == {KEPT: lone}
    assert await refs.refs_below("refs/heads/holdfast/m/") == {MAIN: start, TASK: lone}
    assert await refs.refs_below("refs/heads/trunk") == {}
    assert await refs.leads(lone, [KEPT])
    assert not await refs.leads(lone, [KEPT, TASK])
    assert await refs.leads(start, [KEPT, TASK, MAIN])
    assert not await refs.drop(TASK, start)
    assert await refs.drop(TASK, lone)
    assert await refs.drop(TASK, lone)
    git(repo, "switch", "-q", "holdfast/m/main")
    with pytest.raises(RepositoryUnfit, match="checked out"):
        await refs.drop(MAIN, start)
    with pytest.raises(RepositoryUnfit, match="not a ref that Holdfast moves"):
        await refs.drop("refs/heads/trunk", start)
    assert git(repo, "for-each-ref", "--format=%(refname)").splitlines() == [MAIN, "refs/heads/trunk", KEPT]


@pytest.mark.parametrize("ref", ["refs/heads/trunk", "refs/holdfast/m/base", "refs/tags/v1"])
def test_only_branches_below_holdfast_are_pushed(ref: str, tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    way = Way("http://127.0.0.1:9", tmp_path / "certificates", "Bearer none")
    with pytest.raises(RepositoryUnfit, match="is not a branch that Holdfast pushes"):
        push_branch(
            Plumbing(repo, tmp_path / "state"), Forge("git.test", "a/b"), git(repo, "rev-parse", "HEAD"), ref, way
        )
