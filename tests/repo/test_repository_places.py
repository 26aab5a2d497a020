"""Repositories as people have them: bare, linked, shallow, dirty, with submodules, or none at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from holdfast.errors import CannotRunSafely, RepositoryUnfit
from holdfast.repo.git_repository import GitRepository
from holdfast.repo.plumbing.refs import NAMED_CHANGES
from holdfast.repo.repository import Commit
from holdfast.testing.repo.rig import START, branch_of
from tests.repo.repositories import GitRepositoryRig, MemoryRepositoryRig, everything, git, made, put
from tests.support.as_user import run_as_user

MAIN = "refs/heads/holdfast/m/main"


async def unfit(path: Path, state: Path) -> str:
    with pytest.raises(RepositoryUnfit) as caught:
        await GitRepository(path, state).look()
    assert caught.value.exit_code == 5
    said = str(caught.value)
    assert "nothing was changed: " in said
    return said


async def work_on(path: Path, base: Path) -> Commit:
    """A commit, a merge and a ref, all through the door."""
    door = GitRepository(path, base / "state")
    start = (await door.look()).head
    await door.checkout(start, base / "w")
    put(base / "w", {"new": b"1"})
    one = await door.commit(base / "w", (start,), "one", 0)
    both = await door.merge(start, one.commit, "both", 0)
    assert isinstance(both, Commit)
    assert await door.point(MAIN, both.commit, None)
    assert await door.resolve(MAIN) == both
    return both


async def test_what_is_no_repository_is_said(tmp_path: Path) -> None:
    state = tmp_path / "state"
    plain = tmp_path / "plain"
    plain.mkdir()
    assert "in no git repository" in await unfit(plain, state)
    assert "git init" in await unfit(plain, state)
    assert "is not a folder" in await unfit(tmp_path / "nowhere", state)
    (plain / "file").write_text("x")
    assert "is not a folder" in await unfit(plain / "file", state)
    assert not list(plain.glob(".*"))


async def test_a_repository_without_a_commit_is_said(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    git(tmp_path / "r", "init", "-q", "-b", "main")
    before = everything(tmp_path / "r")
    assert "without a commit" in await unfit(tmp_path / "r", tmp_path / "state")
    assert everything(tmp_path / "r") == before


async def test_a_damaged_repository_is_said(tmp_path: Path) -> None:
    state = tmp_path / "state"
    for number, (name, data) in enumerate(
        (
            ("config", b"[core\nnonsense"),
            ("config", b"[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = md5\n"),
            ("config", b"[core]\n\trepositoryformatversion = 99\n"),
            ("HEAD", b"nonsense\n"),
            ("HEAD", b"ref: refs/heads/nowhere\n"),
        )
    ):
        repository = made(tmp_path / f"r{number}")
        (repository / ".git" / name).write_bytes(data)
        with pytest.raises(RepositoryUnfit):
            await GitRepository(repository, state).look()
    repository = made(tmp_path / "pointing")
    shutil.rmtree(repository / ".git")
    (repository / ".git").write_text("gitdir: /nowhere/at/all\n")
    assert "leads to no repository" in await unfit(repository, state)
    (repository / ".git").write_text("nonsense")
    assert "does not lead" in await unfit(repository, state)
    missing = made(tmp_path / "missing")
    tree = git(missing, "rev-parse", "HEAD^{tree}")
    (missing / ".git/objects" / tree[:2] / tree[2:]).unlink()
    with pytest.raises(RepositoryUnfit, match=r"git -C .* fsck"):
        await GitRepository(missing, state).look()


async def test_a_dirty_repository_is_named_and_left_alone(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    put(repository, {"README.md": b"mine\n", "staged": b"1\n", "sub/untracked": b"2\n", "ignored.log": b"3\n"})
    git(repository, "add", "staged")
    git(repository, "rm", "-q", "--cached", "tests/test_a.py")
    (repository / "src/deep/b.py").unlink()
    os.utime(repository / "src/a.py", (1, 1))  # touched, not changed
    put(repository, {".git/info/exclude": b"excluded\n", "excluded": b"4\n"})
    before = everything(repository)
    status = git(repository, "--no-optional-locks", "status", "--porcelain=v2")
    standing = await GitRepository(repository, tmp_path / "look").look()
    assert standing.dirty == ("README.md", "src/deep/b.py", "staged", "sub/", "tests/", "tests/test_a.py")
    assert everything(repository) == before
    await work_on(repository, tmp_path)
    after = everything(repository)
    assert {path for path, found in after.items() if before.get(path) != found} == {
        *(path for path in after if path.startswith(".git/objects/") and path not in before),
        ".git/refs/heads/holdfast/m/main",
        ".git/logs/refs/heads/holdfast/m/main",
    }
    assert before.keys() <= after.keys()
    assert git(repository, "--no-optional-locks", "status", "--porcelain=v2") == status


async def test_only_the_first_changes_are_named(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    put(repository, {f"n{number:03}": b"" for number in range(50)})
    standing = await GitRepository(repository, tmp_path / "state").look()
    assert standing.dirty == tuple(f"n{number:03}" for number in range(NAMED_CHANGES))


async def test_a_linked_worktree(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", "-b", "side", str(linked))
    put(linked, {"more": b"1\n"})
    git(linked, "add", "-A")
    git(linked, "commit", "-q", "-m", "side")
    put(linked, {"dirty": b"1\n"})
    standing = await GitRepository(linked / "src", tmp_path / "state").look()
    assert (standing.branch, standing.dirty) == ("refs/heads/side", ("dirty",))
    assert standing.head == git(repository, "rev-parse", "side")
    both = await work_on(linked, tmp_path)
    assert git(repository, "rev-parse", "holdfast/m/main") == both.commit
    assert git(repository, "show", "holdfast/m/main:more") == "1"
    assert git(repository, "fsck", "--strict", "--no-dangling") == ""


async def test_a_branch_that_is_being_rebased_is_not_moved(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    both = await work_on(repository, tmp_path)
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", str(linked), "holdfast/m/main")
    git(linked, "-c", "sequence.editor=sed -i 1i\\break", "rebase", "-q", "-i", "--root", check=False)
    assert git(linked, "symbolic-ref", "-q", "HEAD", check=False) == ""  # detached, in the middle
    door = GitRepository(repository, tmp_path / "state")
    other = await door.merge((await door.look()).head, both.commit, "another", 0)
    assert isinstance(other, Commit)
    with pytest.raises(RepositoryUnfit, match="checked out"):
        await door.point(MAIN, other.commit, both.commit)
    assert git(repository, "rev-parse", "holdfast/m/main") == both.commit


async def test_a_bare_repository_and_a_detached_head(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "-q", "--bare", str(repository), str(bare))
    standing = await GitRepository(bare, tmp_path / "state").look()
    assert (standing.bare, standing.branch, standing.dirty) == (True, "refs/heads/main", ())
    await work_on(bare, tmp_path)
    assert git(bare, "fsck", "--strict", "--no-dangling") == ""
    git(repository, "switch", "-q", "--detach")
    standing = await GitRepository(repository, tmp_path / "state").look()
    assert (standing.bare, standing.branch) == (False, "")
    assert standing.head == git(repository, "rev-parse", "HEAD")


async def test_a_shallow_clone(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    for number in range(3):
        put(repository, {"n": b"%d\n" % number})
        git(repository, "add", "-A")
        git(repository, "commit", "-q", "-m", f"more {number}")
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repository}", str(shallow))
    door = GitRepository(shallow, tmp_path / "state")
    assert (await door.look()).shallow
    both = await work_on(shallow, tmp_path)
    assert [line.split(" ", 1)[1] for line in await door.history(both.commit)] == ["both", "more 2"]
    assert git(shallow, "fsck", "--strict", "--no-dangling") == ""


async def test_a_partial_clone_is_refused(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    git(repository, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{repository}", str(tmp_path / "partial"))
    assert "partial clone" in await unfit(tmp_path / "partial", tmp_path / "state")


async def test_submodules_stay_as_they_were(tmp_path: Path) -> None:
    inner, repository = made(tmp_path / "inner"), made(tmp_path / "r")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "libs/inner")
    git(repository, "commit", "-q", "-m", "submodule")
    put(repository / "libs/inner", {"README.md": b"changed in there\n"})
    door = GitRepository(repository, tmp_path / "state")
    standing = await door.look()
    assert (standing.submodules, standing.dirty) == (True, ())
    await door.checkout(standing.head, tmp_path / "w")
    assert (tmp_path / "w/libs/inner").is_dir()
    put(tmp_path / "w", {"libs/inner/sneaked": b"1", "libs/new": b"2"})
    one = await door.commit(tmp_path / "w", (standing.head,), "one", 0)
    assert [change.path for change in await door.changes(standing.head, one.commit)] == ["libs/new"]
    assert git(repository, "ls-tree", one.commit, "libs/inner") == git(repository, "ls-tree", "HEAD", "libs/inner")
    assert (await GitRepository(repository / "libs/inner", tmp_path / "state").look()).dirty == ("README.md",)


async def test_a_branch_called_holdfast_is_in_the_way(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    git(repository, "branch", "holdfast")
    door = GitRepository(repository, tmp_path / "state")
    with pytest.raises(RepositoryUnfit, match="git branch -m"):
        await door.point(MAIN, (await door.look()).head, None)
    git(repository, "branch", "-m", "holdfast", "another")
    assert await door.point(MAIN, (await door.look()).head, None)


async def test_a_name_for_another_ref_is_not_followed(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    git(repository, "symbolic-ref", MAIN, "refs/heads/main")
    door = GitRepository(repository, tmp_path / "state")
    start = await door.look()
    await door.checkout(start.head, tmp_path / "w")
    put(tmp_path / "w", {"new": b"1"})
    one = await door.commit(tmp_path / "w", (start.head,), "one", 0)
    with pytest.raises(RepositoryUnfit, match="a name for another ref"):
        await door.point(MAIN, one.commit, start.head)
    assert git(repository, "rev-parse", "main") == start.head


async def test_a_lock_is_waited_for_and_a_left_one_removed(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    both = await work_on(repository, tmp_path)
    door = GitRepository(repository, tmp_path / "state")
    start = (await door.look()).head
    lock = repository / ".git" / f"{MAIN}.lock"
    lock.write_bytes(b"")
    async with anyio.create_task_group() as tasks:

        def free() -> None:
            while not [line for line in _running() if b"update-ref" in line and MAIN.encode() in line]:
                pass
            lock.unlink()

        tasks.start_soon(anyio.to_thread.run_sync, free)
        assert await door.point(MAIN, start, both.commit)
    lock.write_bytes(b"")
    with pytest.raises(RepositoryUnfit, match=r"remove the \.lock file"):
        await door.point(MAIN, both.commit, start)
    assert lock.exists()
    os.utime(lock, (1, 1))  # from a machine that lost its power long ago
    assert await door.point(MAIN, both.commit, start)
    assert not lock.exists()


def _running() -> list[bytes]:
    out = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            out.append(path.read_bytes())
        except OSError:
            continue  # ended meanwhile
    return out


async def test_git_follows_renames_and_modes(tmp_path: Path) -> None:
    rig = GitRepositoryRig(tmp_path)
    start = (await rig.repository.look()).head
    moved = tmp_path / "moved"
    await rig.repository.checkout(start, moved)
    (moved / "src/a.py").rename(moved / "src/renamed.py")
    (moved / "src/deep/b.py").chmod(0o755)
    one = await rig.repository.commit(moved, (start,), "moved", 0)
    changed = START["src/a.py"].replace(b"line 5\n", b"five\n")
    two = await branch_of(rig, start, "edited", {"src/a.py": changed, "src/deep/b.py": b"B = 2\n"})
    both = await rig.repository.merge(one.commit, two.commit, "both", 0)
    assert isinstance(both, Commit)
    files = await rig.repository.files(both.commit, ("src/**",))
    assert files == {"src/renamed.py": changed, "src/deep/b.py": b"B = 2\n"}
    (only,) = [each for each in await rig.repository.changes(two.commit, both.commit) if each.path == "src/deep/b.py"]
    assert (only.mode, only.lines_added, only.lines_removed) == ("100755", 0, 0)


async def test_histories_that_have_nothing_in_common_do_not_merge(tmp_path: Path) -> None:
    rig = GitRepositoryRig(tmp_path)
    start = (await rig.repository.look()).head
    (tmp_path / "w").mkdir()
    put(tmp_path / "w", {"x": b"1"})
    orphan = await rig.repository.commit(tmp_path / "w", (), "orphan", 0)
    assert await rig.repository.files(orphan.commit) == {"x": b"1"}
    with pytest.raises(RepositoryUnfit, match="unrelated"):
        await rig.repository.merge(start, orphan.commit, "m", 0)


async def test_memory_gives_the_names_that_git_gives(tmp_path: Path) -> None:
    found = []
    for rig in (MemoryRepositoryRig(), GitRepositoryRig(tmp_path)):
        start = await rig.repository.resolve("main")
        assert start is not None
        one = await branch_of(rig, start.commit, "one", {"a/b/c": b"1\n", "a.b": b"2\n", "a-b": b"3\n"})
        two = await branch_of(rig, start.commit, "two", {"x": b"\0\1"}, ("README.md",))
        both = await rig.repository.merge(one.commit, two.commit, "both", 1_234_567_890)
        assert isinstance(both, Commit)
        graft = await rig.repository.graft(both.commit, start.commit, ("*.md",))
        changes = await rig.repository.changes(start.commit, both.commit)
        found.append((start, one, two, both, graft, changes, await rig.repository.history(both.commit)))
    assert found[0] == found[1]


async def test_an_old_git_or_none_is_said(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    old = tmp_path / "git"
    old.write_text("#!/bin/sh\necho git version 2.37.9\n")
    old.chmod(0o755)
    for program, said in ((old, "is 2.37;"), (tmp_path / "none", "there is none")):
        with pytest.raises(CannotRunSafely, match=said):
            await GitRepository(repository, tmp_path / "state", git=program).look()


@pytest.mark.faults
def test_the_kit_as_an_ordinary_user(tmp_path: Path) -> None:
    found = run_as_user(tmp_path, "tests.repo.repository_driver")
    assert len(found) > 20
    assert {name: problem for name, problem in found.items() if problem} == {}
