"""Conformance kit of snapshot shelves (S22).

`CHECKS` maps a name to an async function of a fresh `Rig`. Run each on your implementation, as the
tests do with `holdfast.repo.snapshot_store` and `holdfast.repo.fake`:

    @pytest.mark.parametrize("name", CHECKS)
    async def test_my_shelf(name):
        await CHECKS[name](my_rig())

Nothing here imports a test runner; a check fails with `AssertionError`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Protocol

from holdfast.errors import SnapshotFailed, UsageError
from holdfast.repo.base import Change, Shelf


class Rig(Protocol):
    """A fresh, empty shelf, and folders that it can read."""

    @property
    def shelf(self) -> Shelf:
        """The shelf under test."""
        ...

    def folder(self, name: str) -> Path:
        """The path of a folder; `write` makes it."""
        ...

    def write(self, folder: Path, files: Mapping[str, bytes]) -> None:
        """Write files by relative path, with their parent folders."""
        ...

    def remove(self, folder: Path, path: str) -> None:
        """Remove a file."""
        ...

    def read(self, folder: Path) -> dict[str, bytes]:
        """All files of the folder by relative path; empty if it does not exist."""
        ...


Check = Callable[[Rig], Awaitable[None]]


async def refused(attempt: Awaitable[object]) -> str:
    """Assert that `attempt` raises `SnapshotFailed`; return the message."""
    said: str | None = None
    try:
        await attempt
    except SnapshotFailed as error:
        said = str(error)
    assert said is not None, "SnapshotFailed was expected and nothing was raised"
    assert said, "SnapshotFailed has no message"
    return said


TREE = {
    "a.txt": b"one\n",
    "s/s": b"same\n",
    "src/b.py": b"print()\n",
    "src/deep/c": b"",
    "big": bytes(range(256)) * 9000,
}


async def a_kept_folder_comes_back(rig: Rig) -> None:
    work, copy = rig.folder("work"), rig.folder("copy")
    rig.write(work, TREE)
    kept = await rig.shelf.keep("ses_a", work, 7)
    assert (kept.files, kept.bytes) == (len(TREE), sum(map(len, TREE.values())))
    assert kept.skipped == ()
    back = await rig.shelf.restore(kept.snapshot, copy)
    assert (back.files, back.bytes) == (kept.files, kept.bytes)
    assert rig.read(copy) == TREE
    assert rig.read(work) == TREE


async def an_empty_folder_comes_back(rig: Rig) -> None:
    work, copy = rig.folder("work"), rig.folder("copy")
    rig.write(work, {})
    kept = await rig.shelf.keep("ses_a", work, 1)
    assert (kept.files, kept.bytes) == (0, 0)
    await rig.shelf.restore(kept.snapshot, copy)
    assert rig.read(copy) == {}


async def the_same_tree_has_the_same_name(rig: Rig) -> None:
    work, other, copy = rig.folder("work"), rig.folder("other"), rig.folder("copy")
    rig.write(work, TREE)
    rig.write(other, TREE)
    first = await rig.shelf.keep("ses_a", work, 1)
    assert (await rig.shelf.keep("ses_a", work, 2)).snapshot == first.snapshot
    assert (await rig.shelf.keep("ses_b", other, 1)).snapshot == first.snapshot
    await rig.shelf.restore(first.snapshot, copy)
    assert (await rig.shelf.keep("ses_c", copy, 1)).snapshot == first.snapshot


async def every_point_stays(rig: Rig) -> None:
    work = rig.folder("work")
    points = []
    for seq in range(1, 6):
        rig.write(work, {"now": b"%d" % seq, f"only/{seq}": b"x"})
        points.append((rig.read(work), (await rig.shelf.keep("ses_a", work, seq)).snapshot))
    rig.remove(work, "now")
    points.append((rig.read(work), (await rig.shelf.keep("ses_a", work, 6)).snapshot))
    assert len({name for _, name in points}) == 6
    for number, (tree, name) in enumerate(points):
        copy = rig.folder(f"copy{number}")
        await rig.shelf.restore(name, copy)
        assert rig.read(copy) == tree


async def one_point_kept_twice_keeps_both(rig: Rig) -> None:
    work = rig.folder("work")
    names = []
    for text in (b"before", b"after", b"after that"):
        rig.write(work, {"a": text})
        names.append((await rig.shelf.keep("ses_a", work, 3)).snapshot)
    await rig.shelf.keep("ses_b", work, 1)
    await rig.shelf.forget("ses_b")
    await rig.shelf.tidy()
    for number, text in enumerate((b"before", b"after", b"after that")):
        copy = rig.folder(f"copy{number}")
        await rig.shelf.restore(names[number], copy)
        assert rig.read(copy) == {"a": text}


async def a_change_of_one_byte_is_another_snapshot(rig: Rig) -> None:
    work = rig.folder("work")
    names = set()
    for text in (b"aa", b"ab", b"ba", b"aa"):
        rig.write(work, {"file": text})
        names.add((await rig.shelf.keep("ses_a", work, 1)).snapshot)
    assert len(names) == 3


async def changes_are_named_in_order(rig: Rig) -> None:
    work = rig.folder("work")
    rig.write(work, {**TREE, "gone/x": b"x", "gone/y": b"y"})
    before = await rig.shelf.keep("ses_a", work, 1)
    rig.remove(work, "gone/x")
    rig.remove(work, "gone/y")
    rig.write(work, {"a.txt": b"two\n", "src/deep/new": b"", "src/also/new": b""})
    after = await rig.shelf.keep("ses_a", work, 2)
    files = [
        change
        for change in await rig.shelf.changes(before.snapshot, after.snapshot)
        if not change.path.endswith("/")  # a store that records folders may keep an emptied one
    ]
    assert files == [
        Change("a.txt", "changed"),
        Change("gone/x", "removed"),
        Change("gone/y", "removed"),
        Change("src/also/new", "added"),
        Change("src/deep/new", "added"),
    ]
    back = {change.path: change.kind for change in await rig.shelf.changes(after.snapshot, before.snapshot)}
    assert (back["gone/x"], back["src/deep/new"], back["a.txt"]) == ("added", "removed", "changed")
    assert await rig.shelf.changes(after.snapshot, after.snapshot) == []


async def differences_are_a_patch(rig: Rig) -> None:
    """A patch names each file that differs, and has the lines that went and came."""
    work = rig.folder("work")
    rig.write(work, {"a.txt": b"one\ntwo\n", "same": b"x\n", "gone": b"going\n"})
    before = await rig.shelf.keep("ses_a", work, 1)
    rig.remove(work, "gone")
    rig.write(work, {"a.txt": b"one\nthree\n", "new/file": b"coming\n", ".gitattributes": b"*.txt -diff\n"})
    after = await rig.shelf.keep("ses_a", work, 2)
    patch = (await rig.shelf.diff(before.snapshot, after.snapshot)).splitlines()
    assert {"-two", "+three", " one", "-going", "+coming"} <= set(patch)
    named = [line.split(" b/")[1] for line in patch if line.startswith("diff --git ")]
    assert named == [".gitattributes", "a.txt", "gone", "new/file"]
    assert await rig.shelf.diff(after.snapshot, after.snapshot) == ""
    await refused(rig.shelf.diff(before.snapshot, "0" * 64))


async def git_folders_are_not_kept(rig: Rig) -> None:
    work, copy = rig.folder("work"), rig.folder("copy")
    hidden = {".git/config": b"[core]\n", "nested/.git/HEAD": b"x", "linked/.git": b"gitdir: elsewhere\n"}
    plain = {".gitignore": b"*\n", ".gitattributes": b"* filter=x\n", "nested/kept": b"x", "linked/kept": b"x"}
    rig.write(work, {**hidden, **plain})
    kept = await rig.shelf.keep("ses_a", work, 1)
    await rig.shelf.restore(kept.snapshot, copy)
    assert rig.read(copy) == plain


async def a_folder_with_something_in_it_is_left_alone(rig: Rig) -> None:
    work, other = rig.folder("work"), rig.folder("other")
    rig.write(work, TREE)
    rig.write(other, {"mine": b"mine"})
    kept = await rig.shelf.keep("ses_a", work, 1)
    assert "not empty" in await refused(rig.shelf.restore(kept.snapshot, other))
    assert rig.read(other) == {"mine": b"mine"}


async def an_unknown_snapshot_is_refused(rig: Rig) -> None:
    work, copy = rig.folder("work"), rig.folder("copy")
    rig.write(work, TREE)
    kept = await rig.shelf.keep("ses_a", work, 1)
    for name in ("0" * 64, "HEAD", "", "../../etc", kept.snapshot[:-1]):
        await refused(rig.shelf.restore(name, copy))
        await refused(rig.shelf.changes(kept.snapshot, name))
        await refused(rig.shelf.changes(name, kept.snapshot))
    assert rig.read(copy) == {}


async def a_folder_that_is_not_there_is_refused(rig: Rig) -> None:
    assert "absent" in await refused(rig.shelf.keep("ses_a", rig.folder("absent"), 1))


async def forgotten_snapshots_go_and_the_rest_stays(rig: Rig) -> None:
    mine, shared = rig.folder("mine"), rig.folder("shared")
    rig.write(mine, {"only": b"mine" * 1000})
    rig.write(shared, TREE)
    gone = await rig.shelf.keep("ses_a", mine, 1)
    stays = await rig.shelf.keep("ses_a", shared, 2)
    await rig.shelf.keep("ses_b", shared, 1)
    await rig.shelf.forget("ses_a")
    await rig.shelf.forget("ses_a")
    await rig.shelf.forget("ses_never")
    assert await rig.shelf.tidy() > 0
    await refused(rig.shelf.restore(gone.snapshot, rig.folder("copy1")))
    await rig.shelf.restore(stays.snapshot, rig.folder("copy2"))
    assert rig.read(rig.folder("copy2")) == TREE
    assert (await rig.shelf.keep("ses_a", mine, 3)).snapshot == gone.snapshot
    await rig.shelf.restore(gone.snapshot, rig.folder("copy3"))
    assert rig.read(rig.folder("copy3")) == {"only": b"mine" * 1000}


async def all_can_be_forgotten(rig: Rig) -> None:
    work = rig.folder("work")
    rig.write(work, TREE)
    kept = await rig.shelf.keep("ses_a", work, 1)
    await rig.shelf.forget("ses_a")
    await rig.shelf.tidy()
    await refused(rig.shelf.restore(kept.snapshot, rig.folder("copy")))
    assert (await rig.shelf.keep("ses_a", work, 2)).snapshot == kept.snapshot
    await rig.shelf.restore(kept.snapshot, rig.folder("copy"))
    assert rig.read(rig.folder("copy")) == TREE


async def a_look_keeps_nothing(rig: Rig) -> None:
    work = rig.folder("work")
    rig.write(work, TREE)
    one = await rig.shelf.keep("ses_a", work, 1)
    assert (await rig.shelf.look("ses_a", work)).snapshot == one.snapshot
    rig.write(work, {"new": b"n" * 5000})
    seen = await rig.shelf.look("ses_a", work)
    assert seen.snapshot != one.snapshot
    assert await rig.shelf.kept() == {"ses_a": [one.snapshot]}
    await refused(rig.shelf.restore(seen.snapshot, rig.folder("copy")))
    assert (await rig.shelf.keep("ses_a", work, 2)).snapshot == seen.snapshot


async def some_snapshots_can_stay(rig: Rig) -> None:
    work = rig.folder("work")
    names = []
    for seq in (2, 10, 11):
        rig.write(work, {"file": b"%d" % seq * 40_000})
        names.append((await rig.shelf.keep("ses_a", work, seq)).snapshot)
    assert await rig.shelf.kept() == {"ses_a": names}
    assert await rig.shelf.frees({}) == 0
    some, all_ = await rig.shelf.frees({"ses_a": names[:2]}), await rig.shelf.frees({"ses_a": names})
    assert 0 < some < all_
    await rig.shelf.thin({"ses_a": names[:2]})
    await rig.shelf.tidy()
    assert await rig.shelf.kept() == {"ses_a": names[2:]}
    await refused(rig.shelf.restore(names[0], rig.folder("copy")))
    await rig.shelf.restore(names[2], rig.folder("copy"))
    assert rig.read(rig.folder("copy")) == {"file": b"11" * 40_000}


async def files_are_listed_and_read(rig: Rig) -> None:
    work = rig.folder("work")
    rig.write(work, TREE)
    kept = (await rig.shelf.keep("ses_a", work, 1)).snapshot
    rig.write(work, {"a.txt": b"two\n"})
    await rig.shelf.keep("ses_a", work, 2)
    assert await rig.shelf.files(kept) == sorted(TREE)
    assert [await rig.shelf.content(kept, path, 10_000_000) for path in TREE] == [*TREE.values()]
    assert await rig.shelf.content(kept, "big", 300_000) == TREE["big"][:300_000]
    for path in ("b.py", "src", "src/deep", "src/deep/c/d", "../a.txt", "/a.txt", ""):
        said = ""
        try:
            await rig.shelf.content(kept, path, 10)
        except UsageError as error:
            said = str(error)
        assert "no file" in said, f"{path!r} was read"
    await refused(rig.shelf.files("0" * 64))


CHECKS: dict[str, Check] = {
    f"snapshots.{check.__name__}": check
    for check in (
        a_kept_folder_comes_back,
        an_empty_folder_comes_back,
        the_same_tree_has_the_same_name,
        every_point_stays,
        one_point_kept_twice_keeps_both,
        a_change_of_one_byte_is_another_snapshot,
        changes_are_named_in_order,
        differences_are_a_patch,
        git_folders_are_not_kept,
        a_folder_with_something_in_it_is_left_alone,
        an_unknown_snapshot_is_refused,
        a_folder_that_is_not_there_is_refused,
        forgotten_snapshots_go_and_the_rest_stays,
        all_can_be_forgotten,
        a_look_keeps_nothing,
        some_snapshots_can_stay,
        files_are_listed_and_read,
    )
}
"""Name → check, for example `snapshots.the_same_tree_has_the_same_name`."""

__all__ = ["CHECKS", "Check", "Rig"]
