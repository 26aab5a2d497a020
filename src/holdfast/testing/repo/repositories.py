"""Conformance kit of the door to a user's repository (S23, S24, S25).

Run each check on a fresh rig of yours, as the tests do with `holdfast.repo.git_repository` and `repository_fake`.
"""

from __future__ import annotations

import anyio

from holdfast.repo.repository import Commit, Conflict, FileChange, Kept, Standing
from holdfast.testing import checks_of
from holdfast.testing.repo.rig import (
    AT_US,
    LINES,
    MAIN,
    START,
    RepositoryCheck,
    RepositoryRig,
    branch_of,
    start_of,
    unfit,
)

__all__ = ["REPOSITORY_CHECKS", "START", "RepositoryCheck", "RepositoryRig"]


async def look_describes_the_repository(rig: RepositoryRig) -> None:
    start = await start_of(rig)
    standing = await rig.repository.look()
    assert standing == Standing(start.commit, "refs/heads/main")


async def names_lead_to_commits(rig: RepositoryRig) -> None:
    start = await start_of(rig)
    for name in ("main", "refs/heads/main", "HEAD", start.commit, start.commit[:12]):
        assert await rig.repository.resolve(name) == start, name
    for name in ("", "nope", "refs/heads/nope", "-x", "0" * 40, "--all"):
        assert await rig.repository.resolve(name) is None, name


async def a_checkout_has_the_files(rig: RepositoryRig) -> None:
    start = await start_of(rig)
    folder = rig.folder("work")
    await rig.repository.checkout(start.commit, folder)
    assert rig.read(folder) == START
    await rig.repository.checkout(start.tree, rig.folder("of the tree"))
    assert rig.read(rig.folder("of the tree")) == START


async def a_checkout_goes_into_an_empty_folder_only(rig: RepositoryRig) -> None:
    start = await start_of(rig)
    folder = rig.folder("work")
    rig.write(folder, {"mine": b"x"})
    await unfit(rig.repository.checkout(start.commit, folder))
    assert rig.read(folder) == {"mine": b"x"}


async def a_commit_is_what_the_folder_holds(rig: RepositoryRig) -> None:
    start = await start_of(rig)
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
    start = await start_of(rig)
    first = await branch_of(rig, start.commit, "one", {"x": b"1"})
    folder = rig.folder("two")
    await rig.repository.checkout(start.commit, folder)
    rig.write(folder, {"x": b"1"})
    commit = rig.repository.commit
    assert await commit(folder, (start.commit,), "one\n\nthe body", AT_US) == first
    assert (await commit(folder, (start.commit,), "another", AT_US)).commit != first.commit
    assert (await commit(folder, (start.commit,), "one\n\nthe body", AT_US + 1_000_000)).commit != first.commit


async def nothing_changed_is_the_parent(rig: RepositoryRig) -> None:
    start = await start_of(rig)
    folder = rig.folder("work")
    await rig.repository.checkout(start.commit, folder)
    assert await rig.repository.commit(folder, (start.commit,), "nothing", AT_US) == start
    other = await branch_of(rig, start.commit, "other", {"x": b"1"})
    both = await rig.repository.commit(folder, (start.commit, other.commit), "of two", AT_US)
    assert both.tree == start.tree
    assert both.commit not in (start.commit, other.commit)


async def what_is_ignored_is_left_out(rig: RepositoryRig) -> None:
    start = await start_of(rig)
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
    """The parent's ignore rules apply: a changed `.gitignore` neither hides nor adds files."""
    start = await start_of(rig)
    made = await branch_of(rig, start.commit, "work", {".gitignore": b"*.py\n", "new.py": b"1", "x.log": b"2"})
    found = {change.path for change in await rig.repository.changes(start.commit, made.commit)}
    assert found == {".gitignore", "new.py"}
    folder = rig.folder("more")
    await rig.repository.checkout(made.commit, folder)
    rig.write(folder, {"hidden.py": b"1", "x.log": b"2"})
    after = await rig.repository.commit(folder, (made.commit,), "more", AT_US)
    assert {change.path for change in await rig.repository.changes(made.commit, after.commit)} == {"x.log"}


async def by_products_are_left_out(rig: RepositoryRig) -> None:
    start = await start_of(rig)
    wanted = await branch_of(rig, start.commit, "rules", {".gitignore": b"!*.orig\n", "lib/kept.pyc": b"1"})
    files = {
        "lib/__pycache__/a.pyc": b"1",
        ".coverage": b"2",
        "node_modules/x/y.js": b"3",
        "a.orig": b"4",
        "b.py~": b"5",
    }
    made = await branch_of(rig, wanted.commit, "work", {**files, "lib/new.py": b"6"})
    found = {change.path for change in await rig.repository.changes(wanted.commit, made.commit)}
    assert found == {"a.orig", "lib/new.py"}


async def kept_paths_are_as_in_the_base(rig: RepositoryRig) -> None:
    start = await start_of(rig)
    old = await branch_of(rig, start.commit, "old", {"tests/hidden/a": b"1", "x": b"1"})
    folder = rig.folder("less")
    await rig.repository.checkout(start.commit, folder)
    rig.write(folder, {"tests/hidden/b": b"2", "x": b"2"})
    kept = (Kept(old.commit, ("tests/hidden/**",)),)
    made = await rig.repository.commit(folder, (start.commit,), "work", AT_US, kept=kept)
    found = await rig.repository.files(made.tree, ("tests/hidden/**", "x"))
    assert found == {"tests/hidden/a": b"1", "x": b"2"}


async def what_is_named_git_is_left_out(rig: RepositoryRig) -> None:
    start = await start_of(rig)
    files = {".git/config": b"[core]\n", "sub/.git/hooks/pre-commit": b"#!/bin/sh\n", "sub/.GIT": b"x", "sub/y": b"1"}
    made = await branch_of(rig, start.commit, "work", files)
    assert [change.path for change in await rig.repository.changes(start.commit, made.commit)] == ["sub/y"]
    assert made.left_out == ("sub/.GIT",)


async def changes_are_by_path_and_line(rig: RepositoryRig) -> None:
    start = await start_of(rig)
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
    start = await start_of(rig)
    made = await branch_of(rig, start.commit, "work", {"README.md": b"Bye.\n"})
    said = await rig.repository.diff(start.commit, made.commit)
    assert "-Hello.\n+Bye.\n" in said
    assert "--- a/README.md\n+++ b/README.md\n" in said
    short = await rig.repository.diff(start.commit, made.commit, max_bytes=20)
    assert short.startswith(said[:20])
    assert "goes on" in short
    assert "20 bytes" in short


async def files_are_chosen_by_globs(rig: RepositoryRig) -> None:
    start = await start_of(rig)
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
    start = await start_of(rig)
    changed = {"tests/test_a.py": b"", "tests/more.py": b"x", "src/a.py": b"changed", "README.md/in the way": b"x"}
    made = await branch_of(rig, start.commit, "work", {"src/a.py": b"changed"}, ("README.md",))
    made = await branch_of(rig, made.commit, "again", changed)
    tree = await rig.repository.graft(made.commit, start.commit, ("tests/**", "README.md"))
    assert await rig.repository.files(tree) == {**START, "src/a.py": b"changed"}
    assert await rig.repository.graft(made.commit, start.commit, ("nothing",)) == made.tree
    assert await rig.repository.graft(made.commit, start.commit, ("**",)) == start.tree


async def a_graft_clears_the_way(rig: RepositoryRig) -> None:
    """A file at the path of a protected folder does not keep its files out."""
    start = await start_of(rig)
    folder = rig.folder("work")
    rig.write(folder, {"tests": b"a file now\n", "new": b"1"})
    made = await rig.repository.commit(folder, (start.commit,), "work", AT_US)
    tree = await rig.repository.graft(made.commit, start.commit, ("tests/**",))
    wanted = {"tests/test_a.py": START["tests/test_a.py"], "new": b"1"}
    assert await rig.repository.files(tree) == wanted
    await rig.repository.checkout(tree, rig.folder("out"))
    assert rig.read(rig.folder("out")) == wanted


async def an_overlay_changes_files(rig: RepositoryRig) -> None:
    start = await start_of(rig)
    changed = {"src/a.py": b"other", "README.md/below": b"in the way", "new/file": b"1"}
    tree = await rig.repository.overlay(start.commit, {**changed, "tests/test_a.py": None, "no": None})
    kept = {path: data for path, data in START.items() if path not in ("src/a.py", "README.md", "tests/test_a.py")}
    assert await rig.repository.files(tree) == {**kept, **changed}
    assert await rig.repository.overlay(start.commit, {}) == start.tree


async def two_sides_merge(rig: RepositoryRig) -> None:
    start = await start_of(rig)
    ours = await branch_of(rig, start.commit, "ours", {"src/a.py": LINES.replace(b"line 2\n", b"two\n"), "o": b"1"})
    theirs = await branch_of(
        rig, start.commit, "theirs", {"src/a.py": LINES.replace(b"line 17\n", b""), "t": b"2"}, ("README.md",)
    )
    made = await rig.repository.merge(ours.commit, theirs.commit, "both", AT_US)
    assert isinstance(made, Commit)
    wanted = {**START, "o": b"1", "t": b"2"}
    wanted["src/a.py"] = LINES.replace(b"line 2\n", b"two\n").replace(b"line 17\n", b"")
    del wanted["README.md"]
    assert await rig.repository.files(made.commit) == wanted
    assert await rig.repository.merge(ours.commit, theirs.commit, "both", AT_US) == made
    assert [line.split(" ", 1)[1] for line in await rig.repository.history(made.commit, 2)] == ["both", "ours"]


async def a_merge_is_always_a_commit_unless_it_is_in(rig: RepositoryRig) -> None:
    start = await start_of(rig)
    ahead = await branch_of(rig, start.commit, "ahead", {"x": b"1"})
    made = await rig.repository.merge(start.commit, ahead.commit, "no shortcut", AT_US)
    assert isinstance(made, Commit)
    assert made.commit not in (start.commit, ahead.commit)
    assert made.tree == ahead.tree
    assert await rig.repository.merge(made.commit, ahead.commit, "again", AT_US) == made
    assert await rig.repository.merge(ahead.commit, start.commit, "older", AT_US) == ahead


async def conflicts_are_named(rig: RepositoryRig) -> None:
    start = await start_of(rig)
    ours = await branch_of(
        rig, start.commit, "ours", {"README.md": b"ours\n", "both": b"ours\n", "same": b"s\n"}, ("src/deep/b.py",)
    )
    theirs = await branch_of(
        rig,
        start.commit,
        "theirs",
        {"README.md": b"theirs\n", "both": b"theirs\n", "same": b"s\n", "src/deep/b.py": b"B = 2\n"},
    )
    found = await rig.repository.merge(ours.commit, theirs.commit, "both", AT_US)
    assert found == Conflict(("README.md", "both", "src/deep/b.py"))


async def a_file_against_a_folder_is_a_conflict(rig: RepositoryRig) -> None:
    start = await start_of(rig)
    ours = await branch_of(rig, start.commit, "ours", {"place": b"a file\n"})
    theirs = await branch_of(rig, start.commit, "theirs", {"place/inside": b"a folder\n"})
    found = await rig.repository.merge(ours.commit, theirs.commit, "both", AT_US)
    assert found == Conflict(("place",))


async def missing_objects_are_refused(rig: RepositoryRig) -> None:
    start = await start_of(rig)
    away = "0" * len(start.commit)
    await unfit(rig.repository.checkout(away, rig.folder("work")))
    await unfit(rig.repository.changes(start.commit, away))
    await unfit(rig.repository.files(away))
    await unfit(rig.repository.merge(start.commit, away, "m", AT_US))
    await unfit(rig.repository.history(away))
    await unfit(rig.repository.point(MAIN, away[:-1] + "1", None))
    await unfit(rig.repository.commit(rig.folder("nowhere"), (start.commit,), "m", AT_US))


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
    """Repeating a move after a crash between move and event succeeds (S23)."""
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


REPOSITORY_CHECKS: dict[str, RepositoryCheck] = checks_of(__name__)
"""Name → check, for example `repositories.two_sides_merge`. Each check needs a fresh rig."""
