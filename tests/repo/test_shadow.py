"""What the real shelf has beyond the kit: whose files, how much, how little is read, who is let in."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import anyio
import pytest

from holdfast.errors import CannotRunSafely, SnapshotFailed
from holdfast.locks import locked
from holdfast.repo.base import Change, Owner
from holdfast.repo.git import Git
from holdfast.repo.objects import CHUNK, Pack
from holdfast.repo.snapshot_store import MANY_PACKS, ShadowShelf
from holdfast.repo.walk import Walk
from tests.repo.rigs import fresh, picture
from tests.support.as_user import UID

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can read what is another user's")
HANDS = Owner(UID, UID)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def shelf(tmp_path: Path) -> ShadowShelf:
    return ShadowShelf(tmp_path / "snapshots")


def git(shelf_folder: Path, *arguments: str) -> str:
    """Plain git on the store."""
    done = subprocess.run(
        ["git", "--git-dir", str(shelf_folder / "git"), "-c", "safe.directory=*", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- whose files ---------------------------------------------------------------------------------


@as_root
async def test_nothing_is_handed_on_that_tool_calls_could_not_read(
    work: Path, shelf: ShadowShelf, tmp_path: Path
) -> None:
    os.chown(work, *HANDS)
    secret = tmp_path / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    os.link(secret, work / "hard-link")
    for name, mode, owner in (
        ("private", 0o640, (0, 0)),
        ("group", 0o640, (0, UID)),
        ("group-may-not", 0o604, (0, UID)),
        ("public", 0o644, (0, 0)),
        ("own", 0o000, HANDS),
    ):
        (work / name).write_text(name)
        os.chown(work / name, *owner)
        (work / name).chmod(mode)
    for name, mode in (("closed", 0o711), ("listed", 0o744)):
        (work / name).mkdir()
        (work / name / "in").write_text("x")
        (work / name).chmod(mode)
    why = "private to another user"
    names = []
    for seq, user in enumerate((HANDS, None, HANDS)):  # without a name the folder's owner is meant
        kept = await shelf.keep("ses_a", work, seq, user=user)
        names.append(kept.snapshot)
        assert {each.path: each.why for each in kept.skipped} == {
            "hard-link": why,
            "private": why,
            "group-may-not": why,
            "closed": why,
            "listed": why,
        }
    assert len(set(names)) == 1
    await shelf.restore(names[0], tmp_path / "copy")
    assert set(picture(tmp_path / "copy")) == {b"group", b"public", b"own"}


@as_root
async def test_another_user_sees_with_other_eyes(work: Path, shelf: ShadowShelf) -> None:
    (work / "private").write_text("x")
    (work / "private").chmod(0o600)
    assert (await shelf.keep("ses_a", work, 1, user=Owner(0, 0))).files == 1
    assert (await shelf.keep("ses_a", work, 2, user=HANDS)).files == 0


@as_root
async def test_what_is_restored_belongs_to_the_user_named(work: Path, shelf: ShadowShelf, tmp_path: Path) -> None:
    (work / "in").mkdir()
    (work / "in" / "file").write_text("x")
    (work / "link").symlink_to("in/file")
    kept = await shelf.keep("ses_a", work, 1)
    copy = tmp_path / "copy"
    await shelf.restore(kept.snapshot, copy, user=HANDS)
    for path in (copy, copy / "in", copy / "in" / "file", copy / "link"):
        assert (path.lstat().st_uid, path.lstat().st_gid) == HANDS


@as_root
async def test_another_file_system_is_not_entered(work: Path, shelf: ShadowShelf) -> None:
    mount = work / "mounted"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", str(mount)], capture_output=True, check=False).returncode:  # noqa: ASYNC221
        pytest.skip("this root may not mount")
    try:
        (mount / "file").write_text("x")
        kept = await shelf.keep("ses_a", work, 1)
    finally:
        subprocess.run(["umount", str(mount)], check=True)  # noqa: ASYNC221
    assert [(each.path, each.why) for each in kept.skipped] == [("mounted", "another file system")]


# --- how little is read --------------------------------------------------------------------------


async def settled(shelf: ShadowShelf, work: Path) -> None:
    """Keep until nothing was written too recently to be noted."""
    for _ in range(5_000):
        if (await shelf.keep("ses_a", work, 0)).read == 0:
            return
        await anyio.sleep(0.005)
    raise AssertionError("an unchanged workspace is read each time")


async def test_only_what_changed_is_read(work: Path, shelf: ShadowShelf) -> None:
    for number in range(20):
        (work / f"{number}").mkdir()
        (work / f"{number}" / "file").write_text(str(number))
    await settled(shelf, work)
    (work / "3" / "file").write_text("other")
    (work / "4" / "file").rename(work / "4" / "moved")
    (work / "5").rename(work / "moved")
    (work / "new").write_text("new")
    assert (await shelf.keep("ses_a", work, 2)).read == 3
    assert (await ShadowShelf(shelf._folder).keep("ses_a", work, 3)).files == 21


async def test_a_change_that_shows_in_no_size_and_no_set_time_is_seen(work: Path, shelf: ShadowShelf) -> None:
    file = work / "file"
    file.write_text("aaaa")
    before = file.stat()
    await settled(shelf, work)
    first = await shelf.keep("ses_a", work, 1)
    with file.open("r+") as again:
        again.write("bbbb")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    second = await shelf.keep("ses_a", work, 2)
    assert await shelf.changes(first.snapshot, second.snapshot) == [Change("file", "changed")]


async def test_a_file_that_is_changed_again_at_once_is_read_again(work: Path, shelf: ShadowShelf) -> None:
    """Two contents of one size as fast as can be, with a snapshot between them."""
    file = work / "file"
    file.write_bytes(b"0000")
    fd = os.open(file, os.O_WRONLY)
    try:
        for number in range(30):
            os.pwrite(fd, b"%04d" % number, 0)
            kept = await shelf.keep("ses_a", work, 1)
            os.pwrite(fd, b"%04d" % (number + 5000), 0)
            again = await shelf.keep("ses_a", work, 1)
            assert again.snapshot != kept.snapshot
    finally:
        os.close(fd)


@pytest.mark.parametrize(("later_ns", "noted"), [(0, False), (1, True)])
def test_only_a_file_older_than_the_walk_is_noted(later_ns: int, noted: bool, work: Path, tmp_path: Path) -> None:
    """Kernels differ in how fine they stamp, so that the race above does not show everywhere."""
    (work / "file").write_text("x")
    repository, pack = Git(tmp_path / "git"), Pack(tmp_path)
    repository.ready()
    root, lock = os.open(work, os.O_RDONLY), os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    with repository.library(lock) as library:
        walk = Walk(
            user=None,
            seen=None,
            began_ns=(work / "file").stat().st_ctime_ns + later_ns,
            pack=pack,
            library=library,
            max_files=10,
            max_bytes=10,
            stop=threading.Event(),
        )
        walk.run(root)
    (folder,) = walk.folders.values()
    assert list(folder.files) == ([b"file"] if noted else [])
    pack.close()
    for fd in (root, lock):
        os.close(fd)


async def test_changes_of_folders(work: Path, shelf: ShadowShelf) -> None:
    """An empty folder has a name of its own; so has one whose permissions changed."""
    empty = await shelf.keep("ses_a", work, 1)
    assert await shelf.changes(empty.snapshot, empty.snapshot) == []
    (work / "in" / "deep").mkdir(parents=True)
    folders = await shelf.keep("ses_a", work, 2)
    assert await shelf.changes(empty.snapshot, folders.snapshot) == [Change("in/deep/", "added")]
    assert await shelf.changes(folders.snapshot, empty.snapshot) == [Change("in/deep/", "removed")]
    (work / "in").chmod(0o700)
    (work / "in" / "deep").rmdir()
    (work / "in" / "deep").write_text("now a file")
    after = await shelf.keep("ses_a", work, 3)
    assert await shelf.changes(folders.snapshot, after.snapshot) == [
        Change("in/", "changed"),
        Change("in/deep", "added"),
        Change("in/deep/", "removed"),
    ]


async def test_a_cache_of_what_was_forgotten_is_not_believed(work: Path, shelf: ShadowShelf, tmp_path: Path) -> None:
    (work / "file").write_text("x" * 100)
    await settled(shelf, work)
    kept = await shelf.keep("ses_a", work, 1)
    seen = tmp_path / "snapshots" / "seen" / "ses_a"
    cache = seen.read_bytes()
    await shelf.forget("ses_a")
    seen.write_bytes(cache)  # as after a kill between the two
    await shelf.tidy()
    assert (await shelf.keep("ses_a", work, 2)).snapshot == kept.snapshot
    await shelf.restore(kept.snapshot, tmp_path / "copy")
    assert picture(tmp_path / "copy") == picture(work)
    for damage in (b"", cache[:-1], cache[:40] + b"\xff" + cache[41:]):
        seen.write_bytes(damage)
        assert (await shelf.keep("ses_a", work, 3)).read == 1


async def test_what_sessions_share_is_stored_once(work: Path, shelf: ShadowShelf, tmp_path: Path) -> None:
    for number in range(50):
        (work / str(number)).write_bytes(os.urandom(20_000))
    (work / "twin").write_bytes((work / "0").read_bytes())
    big = os.urandom(3 * CHUNK)
    for name in ("big", "big-twin"):
        (work / name).write_bytes(big)
    await shelf.keep("ses_a", work, 1)
    packs = tmp_path / "snapshots" / "git" / "objects" / "pack"
    size = sum(file.stat().st_size for file in packs.iterdir())
    assert size < 50 * 20_000 + len(big) + 100_000
    for number in range(5):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(work, copy)
        (copy / "own").write_text(str(number))
        await shelf.keep(f"ses_{number}", copy, 1)
    assert sum(file.stat().st_size for file in packs.iterdir()) < size + 100_000
    git(tmp_path / "snapshots", "fsck", "--strict", "--connectivity-only")


async def test_many_packs_become_few(work: Path, shelf: ShadowShelf, tmp_path: Path) -> None:
    kept = {}
    for seq in range(MANY_PACKS + 10):
        (work / "file").write_text(str(seq))
        kept[seq] = (await shelf.keep("ses_a", work, seq)).snapshot
    packs = list((tmp_path / "snapshots" / "git" / "objects" / "pack").glob("*.pack"))
    assert len(packs) < MANY_PACKS / 2
    for seq in (0, 5, MANY_PACKS + 9):
        copy = fresh(tmp_path / "copy")
        await shelf.restore(kept[seq], copy)
        assert (copy / "file").read_text() == str(seq)


# --- how much ------------------------------------------------------------------------------------


async def test_too_much_is_refused_and_said(work: Path, tmp_path: Path) -> None:
    small = ShadowShelf(tmp_path / "snapshots", max_files=10, max_bytes=10_000)
    (work / "file").write_bytes(b"x" * 10_000)
    kept = await small.keep("ses_a", work, 1)
    with (work / "sparse").open("wb") as file:
        file.truncate(1 << 43)
    with pytest.raises(SnapshotFailed, match=r"larger than 10,000 bytes.*nothing was changed"):
        await small.keep("ses_a", work, 2)
    (work / "sparse").unlink()
    for number in range(10):
        (work / str(number)).touch()
    with pytest.raises(SnapshotFailed, match=r"more than 10 files.*nothing was changed"):
        await small.keep("ses_a", work, 3)
    await small.restore(kept.snapshot, tmp_path / "copy")
    with pytest.raises(SnapshotFailed, match="larger than"):
        await ShadowShelf(tmp_path / "snapshots", max_bytes=9_999).restore(kept.snapshot, tmp_path / "other")


async def test_a_file_that_shrinks_and_grows_meanwhile(work: Path, shelf: ShadowShelf, tmp_path: Path) -> None:
    """Each snapshot of it is whole and can be restored, or names it as skipped."""
    file, stop = work / "file", threading.Event()
    file.write_bytes(b"x")

    def resize() -> None:
        while not stop.is_set():
            for size in (3 * CHUNK, 10, CHUNK + 1, 0, 5 * CHUNK):
                os.truncate(file, size)

    thread = threading.Thread(target=resize)
    thread.start()
    try:
        kept = [await shelf.keep("ses_a", work, seq) for seq in range(40)]
    finally:
        stop.set()
        thread.join()
    for number, each in enumerate(kept):
        assert each.files + each.skipped_total == 1
        back = await shelf.restore(each.snapshot, tmp_path / f"copy{number}")
        assert back.files == each.files


# --- the machine ---------------------------------------------------------------------------------


async def test_without_git(work: Path, tmp_path: Path) -> None:
    old = tmp_path / "old-git"
    old.write_text("#!/bin/sh\necho git version 2.20.1\n")
    old.chmod(0o755)
    strange = tmp_path / "strange"
    strange.write_text("#!/bin/sh\necho hello\n")
    strange.chmod(0o755)
    for program, words in (
        (tmp_path / "absent", "there is none on this machine.*apt install git"),
        (strange, "there is none on this machine"),
        (old, r"2\.34 or newer .* is 2\.20.*install a newer one"),
    ):
        with pytest.raises(CannotRunSafely, match=words) as caught:
            await ShadowShelf(tmp_path / "snapshots", git=program).keep("ses_a", work, 1)
        assert caught.value.exit_code == 5


async def test_a_store_that_is_no_folder(work: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SnapshotFailed, match="what was kept before is safe"):
        await ShadowShelf(tmp_path / "file").keep("ses_a", work, 1)


async def test_who_removes_waits_for_who_adds(work: Path, shelf: ShadowShelf, tmp_path: Path) -> None:
    await shelf.keep("ses_a", work, 1)
    hasty = ShadowShelf(tmp_path / "snapshots", wait_s=0.1)
    with locked(tmp_path / "snapshots" / "lock", shared=True):
        await hasty.keep("ses_a", work, 2)
        with pytest.raises(SnapshotFailed, match=r"locked for 0\.1 s.*fuser"):
            await hasty.tidy()
        with pytest.raises(SnapshotFailed, match="locked for"):
            await hasty.forget("ses_a")
    with locked(tmp_path / "snapshots" / "lock"):
        with pytest.raises(SnapshotFailed, match="locked for"):
            await hasty.keep("ses_a", work, 3)
    await hasty.tidy()


async def test_a_cancelled_keep_ends_and_the_next_one_works(work: Path, shelf: ShadowShelf) -> None:
    for number in range(2_000):
        (work / str(number)).write_bytes(os.urandom(2_000))
    with anyio.move_on_after(0.03) as scope:
        await shelf.keep("ses_a", work, 1)
    assert scope.cancelled_caught
    assert (await shelf.keep("ses_a", work, 2)).files == 2_000


async def test_damage_in_the_store_is_an_error(work: Path, shelf: ShadowShelf, tmp_path: Path) -> None:
    (work / "file").write_bytes(os.urandom(100_000))
    kept = await shelf.keep("ses_a", work, 1)
    (pack,) = (tmp_path / "snapshots" / "git" / "objects" / "pack").glob("*.pack")
    raw = bytearray(pack.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    pack.chmod(0o600)
    pack.write_bytes(raw)
    with pytest.raises(SnapshotFailed, match="damaged"):
        await shelf.restore(kept.snapshot, tmp_path / "copy")


async def test_only_the_owner_looks_into_the_store(work: Path, shelf: ShadowShelf, tmp_path: Path) -> None:
    await shelf.keep("ses_a", work, 1)
    assert (tmp_path / "snapshots").stat().st_mode & 0o777 == 0o700
    with pytest.raises(ValueError, match="not the id of a session"):
        await shelf.keep("../../x", work, 1)


async def test_plain_git_reads_the_store(work: Path, shelf: ShadowShelf, tmp_path: Path) -> None:
    (work / "in").mkdir()
    (work / "in" / "file").write_text("x\n")
    kept = await shelf.keep("ses_a", work, 12)
    assert git(tmp_path / "snapshots", "rev-parse", "refs/holdfast/ses_a/12").strip() == kept.snapshot
    assert git(tmp_path / "snapshots", "show", f"{kept.snapshot}:in/file") == "x\n"
    assert git(tmp_path / "snapshots", "ls-tree", "-r", "--name-only", kept.snapshot) == "in/file\n"
