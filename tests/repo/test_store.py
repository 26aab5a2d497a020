"""The store itself: objects that we did not make, what the dead leave, a git that outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import SnapshotFailed, StorageFull
from holdfast.repo.objects import object_id
from holdfast.repo.snapshot_store import ShadowShelf
from tests.repo.rigs import picture
from tests.repo.test_shadow import git

ROOT = Path(__file__).parents[2]
KEEP = """
import sys, anyio
from pathlib import Path
from holdfast.repo.snapshot_store import ShadowShelf
base = Path(sys.argv[1])
print(anyio.run(ShadowShelf(base / "snapshots", git=base / "git").keep, "ses_b", base / "work", 1).snapshot)
"""


def workspace(base: Path) -> Path:
    """A small workspace."""
    made = base / "work"
    made.mkdir()
    (made / "file").write_text("x")
    return made


def planted(base: Path, kind: str, data: bytes) -> str:
    """An object that somebody put into the store; git is not asked what it thinks of it."""
    subprocess.run(
        [
            "git",
            "--git-dir",
            str(base / "snapshots" / "git"),
            "hash-object",
            "--literally",
            "-w",
            "-t",
            kind,
            "--stdin",
        ],
        input=data,
        check=True,
        capture_output=True,
    )
    return object_id(kind, data).hex()


@pytest.mark.parametrize("name", [b"..", b".", b"a/b", b"../../escaped", b"/tmp/escaped", b".git", b""])
@pytest.mark.parametrize("mode", [b"100644", b"40755", b"120000"])
async def test_a_name_that_leads_elsewhere_is_refused(name: bytes, mode: bytes, tmp_path: Path) -> None:
    shelf = ShadowShelf(tmp_path / "snapshots")
    await shelf.keep("ses_a", workspace(tmp_path), 1)
    below = planted(tmp_path, "tree", b"") if mode == b"40755" else planted(tmp_path, "blob", b"x")
    tree = planted(tmp_path, "tree", mode + b" " + name + b"\0" + bytes.fromhex(below))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SnapshotFailed, match="damaged"):
        await shelf.restore(tree, tmp_path / "copy")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("mode", [b"160000", b"10644", b"60644", b"140755", b"644"])
async def test_an_entry_that_is_no_file_is_refused(mode: bytes, tmp_path: Path) -> None:
    shelf = ShadowShelf(tmp_path / "snapshots")
    await shelf.keep("ses_a", workspace(tmp_path), 1)
    blob = planted(tmp_path, "blob", b"x")
    tree = planted(tmp_path, "tree", mode + b" name\0" + bytes.fromhex(blob))
    with pytest.raises(SnapshotFailed, match="damaged"):
        await shelf.restore(tree, tmp_path / "copy")


async def test_a_file_below_a_link_of_the_same_name_is_not_followed(tmp_path: Path) -> None:
    """The tree of a clone attack: a link, then a folder of that name with a file in it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    shelf = ShadowShelf(tmp_path / "snapshots")
    await shelf.keep("ses_a", workspace(tmp_path), 1)
    link, file = planted(tmp_path, "blob", os.fsencode(outside)), planted(tmp_path, "blob", b"owned")
    below = planted(tmp_path, "tree", b"100644 file\0" + bytes.fromhex(file))
    rows = b"120000 a\0" + bytes.fromhex(link) + b"40755 a\0" + bytes.fromhex(below)
    with pytest.raises(SnapshotFailed):
        await shelf.restore(planted(tmp_path, "tree", rows), tmp_path / "copy")
    assert list(outside.iterdir()) == []


async def test_what_the_dead_leave_is_swept(tmp_path: Path) -> None:
    shelf, work = ShadowShelf(tmp_path / "snapshots"), workspace(tmp_path)
    kept = await shelf.keep("ses_a", work, 1)
    store = tmp_path / "snapshots" / "git"
    left = [
        tmp_path / "snapshots" / "tmp" / "ses_a.1.99.99",
        store / "objects" / "pack" / "tmp_pack_abc",
        store / "objects" / "pack" / ".tmp-99-pack-abc.pack",
        store / "packed-refs.lock",
        store / "refs" / "holdfast" / "ses_a" / "1.lock",
    ]
    for path in left:
        path.write_bytes(b"x" * 1000)
    (work / "file").write_text("y")
    await shelf.keep("ses_a", work, 2)
    assert await shelf.tidy() >= len(left) * 1000
    assert [path for path in left if path.exists()] == []
    await shelf.restore(kept.snapshot, tmp_path / "copy")


async def test_a_git_that_outlives_its_parent_still_holds_the_lock(tmp_path: Path) -> None:
    """Nothing may be removed while an orphan works on the store."""
    workspace(tmp_path)
    os.mkfifo(tmp_path / "asked")
    os.mkfifo(tmp_path / "go")
    wrapper = tmp_path / "git"
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in *index-pack*) echo > {tmp_path}/asked; read line < {tmp_path}/go ;; esac\n'
        'exec git "$@"\n'
    )
    wrapper.chmod(0o755)
    child = subprocess.Popen([sys.executable, "-c", KEEP, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)  # noqa: ASYNC220
    (tmp_path / "asked").read_text()
    child.send_signal(signal.SIGKILL)
    child.wait()
    with pytest.raises(SnapshotFailed, match="locked for"):
        await ShadowShelf(tmp_path / "snapshots", wait_s=0.2).tidy()
    (tmp_path / "go").write_text("go\n")
    await ShadowShelf(tmp_path / "snapshots").tidy()
    assert child.stdout is not None
    assert child.stdout.read() == b""
    child.stdout.close()


async def test_a_full_disk_is_said_and_harms_nothing(tmp_path: Path) -> None:
    """The store lies on a file system of 400 KB."""
    store = tmp_path / "snapshots"
    store.mkdir()
    if subprocess.run(  # noqa: ASYNC221
        ["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(store)], capture_output=True, check=False
    ).returncode:
        pytest.skip("a small file system needs a root that may mount")
    try:
        shelf, work = ShadowShelf(store), workspace(tmp_path)
        kept = await shelf.keep("ses_a", work, 1)
        for name in ("small", "large"):  # refused to git, refused to us
            (work / "more").write_bytes(os.urandom(300_000 if name == "small" else 2_000_000))
            with pytest.raises(StorageFull, match="what was kept before is safe"):
                await shelf.keep("ses_a", work, 2)
            (work / "more").unlink()
        await shelf.restore(kept.snapshot, tmp_path / "copy")
        assert picture(tmp_path / "copy") == picture(work)
        await shelf.tidy()
        assert (await shelf.keep("ses_a", work, 3)).snapshot == kept.snapshot
        assert "missing" not in git(store, "fsck")
    finally:
        subprocess.run(["umount", str(store)], check=True)  # noqa: ASYNC221
