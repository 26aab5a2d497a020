"""The conformance kit of the door to a user's repository: what every one must show (S23, S24, S25)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

from holdfast.errors import RepositoryUnfit
from holdfast.repo.repository import Commit, Conflict, FileChange, Repository, Standing

LINES = b"".join([b"line %d\n" % number for number in range(20)])
START = {
    ".gitignore": b"*.log\nbuild/\n!keep.log\n",
    "README.md": b"Hello.\n",
    "src/a.py": LINES,
    "src/deep/b.py": b"B = 1\n",
    "tests/test_a.py": b"def test_a() -> None: ...\n",
    "tracked.log": b"in the tree, though its name is left out\n",
}
"""The files of the first commit, on the branch that is checked out."""

_AT_US = 1_700_000_000_000_000
_MAIN = "refs/heads/holdfast/m/main"


class RepositoryRig(Protocol):
    """A repository with one commit of `START` on `refs/heads/main`, and folders that it can see."""

    @property
    def repository(self) -> Repository:
        """The door under test."""
        ...

    def folder(self, name: str) -> Path:
        """The place of a folder of that name; `write` makes it."""
        ...

    def write(self, folder: Path, files: Mapping[str, bytes]) -> None:
        """Write these files, by path from the folder, and the folders that they need."""
        ...

    def remove(self, folder: Path, path: str) -> None:
        """Remove a file."""
        ...

    def read(self, folder: Path) -> dict[str, bytes]:
        """Every file in the folder, by path from it."""
        ...

    def occupy(self, ref: str) -> None:
        """Somebody checks out that branch, elsewhere."""
        ...


RepositoryCheck = Callable[[RepositoryRig], Awaitable[None]]


async def _unfit(attempt: Awaitable[object]) -> str:
    said: str | None = None
    try:
        await attempt
    except RepositoryUnfit as error:
        said = str(error)
    assert said is not None, "RepositoryUnfit was expected and nothing was raised"
    assert ":" in said, f"RepositoryUnfit does not say what to do: {said}"
    return said


async def _start(rig: RepositoryRig) -> Commit:
    found = await rig.repository.resolve("refs/heads/main")
    assert found is not None, "the rig has no refs/heads/main"
    return found


async def branch_of(
    rig: RepositoryRig, base: str, name: str, files: Mapping[str, bytes], removed: tuple[str, ...] = ()
) -> Commit:
    """A commit on `base` that writes some files and removes others."""
    folder = rig.folder(name)
    await rig.repository.checkout(base, folder)
    rig.write(folder, files)
    for path in removed:
        rig.remove(folder, path)
    return await rig.repository.commit(folder, (base,), f"{name}\n\nthe body", _AT_US)


async def it_says_how_it_stands(rig: RepositoryRig) -> None:
    start = await _start(rig)
    standing = await rig.repository.look()
    assert standing == Standing(start.commit, "refs/heads/main")


async def names_lead_to_commits(rig: RepositoryRig) -> None:
    start = await _start(rig)
    for name in ("main", "refs/heads/main", "HEAD", start.commit, start.commit[:12]):
        assert await rig.repository.resolve(name) == start, name
    for name in ("", "nope", "refs/heads/nope", "-x", "0" * 40, "--all"):
        assert await rig.repository.resolve(name) is None, name


async def a_checkout_has_the_files(rig: RepositoryRig) -> None:
    start = await _start(rig)
    folder = rig.folder("work")
    await rig.repository.checkout(start.commit, folder)
    assert rig.read(folder) == START
    await rig.repository.checkout(start.tree, rig.folder("of the tree"))
    assert rig.read(rig.folder("of the tree")) == START


async def a_checkout_goes_into_an_empty_folder_only(rig: RepositoryRig) -> None:
    start = await _start(rig)
    folder = rig.folder("work")
    rig.write(folder, {"mine": b"x"})
    await _unfit(rig.repository.checkout(start.commit, folder))
    assert rig.read(folder) == {"mine": b"x"}


async def a_commit_is_what_the_folder_holds(rig: RepositoryRig) -> None:
    start = await _start(rig)
    made = await branch_of(
        rig, start.commit, "work", {"src/new.py": b"NEW = 1\n", "README.md": b"Bye.\n"}, ("src/a.py",)
    )
    wanted = {**START, "src/new.py": b"NEW = 1\n", "README.md": b"Bye.\n"}
    del wanted["src/a.py"]
    assert await rig.repository.files(made.commit) == wanted
    assert await rig.repository.resolve(made.commit) == made
    assert await rig.repository.history(made.commit, 1) == [f"{made.commit[:7]} work"]
    assert len(await rig.repository.history(made.commit)) == 2


async def the_same_again_is_the_same_commit(rig: RepositoryRig) -> None:
    start = await _start(rig)
    first = await branch_of(rig, start.commit, "one", {"x": b"1"})
    folder = rig.folder("two")
    await rig.repository.checkout(start.commit, folder)
    rig.write(folder, {"x": b"1"})
    commit = rig.repository.commit
    assert await commit(folder, (start.commit,), "one\n\nthe body", _AT_US) == first
    assert (await commit(folder, (start.commit,), "another", _AT_US)).commit != first.commit
    assert (await commit(folder, (start.commit,), "one\n\nthe body", _AT_US + 1_000_000)).commit != first.commit


async def nothing_changed_is_the_parent(rig: RepositoryRig) -> None:
    start = await _start(rig)
    folder = rig.folder("work")
    await rig.repository.checkout(start.commit, folder)
    assert await rig.repository.commit(folder, (start.commit,), "nothing", _AT_US) == start
    other = await branch_of(rig, start.commit, "other", {"x": b"1"})
    both = await rig.repository.commit(folder, (start.commit, other.commit), "of two", _AT_US)
    assert both.tree == start.tree
    assert both.commit not in (start.commit, other.commit)


async def what_is_ignored_is_left_out(rig: RepositoryRig) -> None:
    start = await _start(rig)
    files = {
        "a.log": b"1",
        "build/x": b"2",
        "src/build/y": b"3",
        "keep.log": b"4",
        "tracked.log": b"5",
        "d/e.log": b"6",
    }
    made = await branch_of(rig, start.commit, "work", files)
    found = {change.path: change.kind for change in await rig.repository.changes(start.commit, made.commit)}
    assert found == {"keep.log": "added", "tracked.log": "changed"}


async def the_ignore_rules_are_the_parents(rig: RepositoryRig) -> None:
    """A worker that changes `.gitignore` hides nothing with it, and shows nothing."""
    start = await _start(rig)
    made = await branch_of(rig, start.commit, "work", {".gitignore": b"*.py\n", "new.py": b"1", "x.log": b"2"})
    found = {change.path for change in await rig.repository.changes(start.commit, made.commit)}
    assert found == {".gitignore", "new.py"}
    folder = rig.folder("more")
    await rig.repository.checkout(made.commit, folder)
    rig.write(folder, {"hidden.py": b"1", "x.log": b"2"})
    after = await rig.repository.commit(folder, (made.commit,), "more", _AT_US)
    assert {change.path for change in await rig.repository.changes(made.commit, after.commit)} == {"x.log"}


async def what_is_named_git_is_left_out(rig: RepositoryRig) -> None:
    start = await _start(rig)
    files = {".git/config": b"[core]\n", "sub/.git/hooks/pre-commit": b"#!/bin/sh\n", "sub/.GIT": b"x", "sub/y": b"1"}
    made = await branch_of(rig, start.commit, "work", files)
    assert [change.path for change in await rig.repository.changes(start.commit, made.commit)] == ["sub/y"]


async def changes_are_by_path_and_line(rig: RepositoryRig) -> None:
    start = await _start(rig)
    files = {"src/a.py": LINES.replace(b"line 3\n", b"line three\nand more\n"), "zero": b"a\nb\n", "bytes": b"\0\1\n\0"}
    made = await branch_of(rig, start.commit, "work", files, ("README.md",))
    assert await rig.repository.changes(start.commit, made.commit) == [
        FileChange("README.md", "removed", "", 0, 1),
        FileChange("bytes", "added", "100644", 0, 0),
        FileChange("src/a.py", "changed", "100644", 2, 1),
        FileChange("zero", "added", "100644", 2, 0),
    ]
    assert await rig.repository.changes(start.tree, made.tree) == await rig.repository.changes(
        start.commit, made.commit
    )
    assert await rig.repository.changes(made.commit, made.tree) == []


async def a_diff_is_text_of_bounded_size(rig: RepositoryRig) -> None:
    start = await _start(rig)
    made = await branch_of(rig, start.commit, "work", {"README.md": b"Bye.\n"})
    said = await rig.repository.diff(start.commit, made.commit)
    assert "-Hello.\n+Bye.\n" in said
    assert "--- a/README.md\n+++ b/README.md\n" in said
    short = await rig.repository.diff(start.commit, made.commit, max_bytes=20)
    assert short.startswith(said[:20])
    assert "goes on" in short
    assert "20 bytes" in short


async def files_are_chosen_by_globs(rig: RepositoryRig) -> None:
    start = await _start(rig)
    for globs, wanted in (
        (("**/*.py",), {"src/a.py", "src/deep/b.py", "tests/test_a.py"}),
        (("src/*.py",), {"src/a.py"}),
        (("src/**", "README.md"), {"src/a.py", "src/deep/b.py", "README.md"}),
        (("*.md",), {"README.md"}),
        (("nothing/**",), set()),
        ((), set(START)),
    ):
        assert await rig.repository.files(start.commit, globs) == {path: START[path] for path in wanted}, globs


async def a_graft_puts_files_back(rig: RepositoryRig) -> None:
    start = await _start(rig)
    changed = {"tests/test_a.py": b"", "tests/more.py": b"x", "src/a.py": b"changed", "README.md/in the way": b"x"}
    made = await branch_of(rig, start.commit, "work", {"src/a.py": b"changed"}, ("README.md",))
    made = await branch_of(rig, made.commit, "again", changed)
    tree = await rig.repository.graft(made.commit, start.commit, ("tests/**", "README.md"))
    assert await rig.repository.files(tree) == {**START, "src/a.py": b"changed"}
    assert await rig.repository.graft(made.commit, start.commit, ("nothing",)) == made.tree
    assert await rig.repository.graft(made.commit, start.commit, ("**",)) == start.tree


async def two_sides_merge(rig: RepositoryRig) -> None:
    start = await _start(rig)
    ours = await branch_of(rig, start.commit, "ours", {"src/a.py": LINES.replace(b"line 2\n", b"two\n"), "o": b"1"})
    theirs = await branch_of(
        rig, start.commit, "theirs", {"src/a.py": LINES.replace(b"line 17\n", b""), "t": b"2"}, ("README.md",)
    )
    made = await rig.repository.merge(ours.commit, theirs.commit, "both", _AT_US)
    assert isinstance(made, Commit)
    wanted = {**START, "o": b"1", "t": b"2"}
    wanted["src/a.py"] = LINES.replace(b"line 2\n", b"two\n").replace(b"line 17\n", b"")
    del wanted["README.md"]
    assert await rig.repository.files(made.commit) == wanted
    assert await rig.repository.merge(ours.commit, theirs.commit, "both", _AT_US) == made
    assert [line.split(" ", 1)[1] for line in await rig.repository.history(made.commit, 2)] == ["both", "ours"]


async def a_merge_is_always_a_commit_unless_it_is_in(rig: RepositoryRig) -> None:
    start = await _start(rig)
    ahead = await branch_of(rig, start.commit, "ahead", {"x": b"1"})
    made = await rig.repository.merge(start.commit, ahead.commit, "no shortcut", _AT_US)
    assert isinstance(made, Commit)
    assert made.commit not in (start.commit, ahead.commit)
    assert made.tree == ahead.tree
    assert await rig.repository.merge(made.commit, ahead.commit, "again", _AT_US) == made
    assert await rig.repository.merge(ahead.commit, start.commit, "older", _AT_US) == ahead


async def conflicts_are_named(rig: RepositoryRig) -> None:
    start = await _start(rig)
    ours = await branch_of(
        rig, start.commit, "ours", {"README.md": b"ours\n", "both": b"ours\n", "same": b"s\n"}, ("src/deep/b.py",)
    )
    theirs = await branch_of(
        rig,
        start.commit,
        "theirs",
        {"README.md": b"theirs\n", "both": b"theirs\n", "same": b"s\n", "src/deep/b.py": b"B = 2\n"},
    )
    found = await rig.repository.merge(ours.commit, theirs.commit, "both", _AT_US)
    assert found == Conflict(("README.md", "both", "src/deep/b.py"))


async def a_file_against_a_folder_is_a_conflict(rig: RepositoryRig) -> None:
    start = await _start(rig)
    ours = await branch_of(rig, start.commit, "ours", {"place": b"a file\n"})
    theirs = await branch_of(rig, start.commit, "theirs", {"place/inside": b"a folder\n"})
    found = await rig.repository.merge(ours.commit, theirs.commit, "both", _AT_US)
    assert found == Conflict(("place",))


async def a_ref_moves_from_where_it_is(rig: RepositoryRig) -> None:
    start = await _start(rig)
    one = await branch_of(rig, start.commit, "one", {"x": b"1"})
    two = await branch_of(rig, start.commit, "two", {"x": b"2"})
    point = rig.repository.point
    assert not await point(_MAIN, one.commit, start.commit)
    assert await rig.repository.resolve(_MAIN) is None
    assert await point(_MAIN, one.commit, None)
    assert not await point(_MAIN, two.commit, None)
    assert not await point(_MAIN, two.commit, start.commit)
    assert await rig.repository.resolve(_MAIN) == one
    assert await point(_MAIN, two.commit, one.commit)
    assert await rig.repository.resolve(_MAIN) == two
    assert await point("refs/holdfast/m/task/1", one.commit, None)
    assert await rig.repository.resolve("refs/holdfast/m/task/1") == one


async def a_move_that_was_done_is_done(rig: RepositoryRig) -> None:
    """After a crash between the move and its event the same move is made again (S23)."""
    start = await _start(rig)
    one = await branch_of(rig, start.commit, "one", {"x": b"1"})
    assert await rig.repository.point(_MAIN, one.commit, None)
    assert await rig.repository.point(_MAIN, one.commit, None)
    assert await rig.repository.point(_MAIN, one.commit, start.commit)
    assert await rig.repository.resolve(_MAIN) == one


async def other_refs_are_not_moved(rig: RepositoryRig) -> None:
    start = await _start(rig)
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
        await _unfit(rig.repository.point(ref, one.commit, start.commit))
    assert await _start(rig) == start
    await _unfit(rig.repository.point(_MAIN, "main", None))


async def a_branch_that_is_checked_out_is_not_moved(rig: RepositoryRig) -> None:
    start = await _start(rig)
    one = await branch_of(rig, start.commit, "one", {"x": b"1"})
    assert await rig.repository.point(_MAIN, start.commit, None)
    rig.occupy(_MAIN)
    assert "checked out" in await _unfit(rig.repository.point(_MAIN, one.commit, start.commit))
    assert await rig.repository.resolve(_MAIN) == start


async def what_is_not_there_is_said(rig: RepositoryRig) -> None:
    start = await _start(rig)
    away = "0" * len(start.commit)
    await _unfit(rig.repository.checkout(away, rig.folder("work")))
    await _unfit(rig.repository.changes(start.commit, away))
    await _unfit(rig.repository.files(away))
    await _unfit(rig.repository.merge(start.commit, away, "m", _AT_US))
    await _unfit(rig.repository.history(away))
    await _unfit(rig.repository.point(_MAIN, away[:-1] + "1", None))
    await _unfit(rig.repository.commit(rig.folder("nowhere"), (start.commit,), "m", _AT_US))


_ALL: tuple[RepositoryCheck, ...] = (
    it_says_how_it_stands,
    names_lead_to_commits,
    a_checkout_has_the_files,
    a_checkout_goes_into_an_empty_folder_only,
    a_commit_is_what_the_folder_holds,
    the_same_again_is_the_same_commit,
    nothing_changed_is_the_parent,
    what_is_ignored_is_left_out,
    the_ignore_rules_are_the_parents,
    what_is_named_git_is_left_out,
    changes_are_by_path_and_line,
    a_diff_is_text_of_bounded_size,
    files_are_chosen_by_globs,
    a_graft_puts_files_back,
    two_sides_merge,
    a_merge_is_always_a_commit_unless_it_is_in,
    conflicts_are_named,
    a_file_against_a_folder_is_a_conflict,
    a_ref_moves_from_where_it_is,
    a_move_that_was_done_is_done,
    other_refs_are_not_moved,
    a_branch_that_is_checked_out_is_not_moved,
    what_is_not_there_is_said,
)

REPOSITORY_CHECKS: dict[str, RepositoryCheck] = {f"repositories.{check.__name__}": check for check in _ALL}
"""Name → check, for example `repositories.two_sides_merge`. Each wants a fresh rig."""
