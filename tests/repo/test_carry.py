"""Snapshots as streams: what goes out comes back the same, and a stream that means harm is refused whole."""

from __future__ import annotations

import io
import os
import stat
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import CannotRunSafely, SnapshotFailed
from holdfast.repo import archive
from holdfast.repo.snapshot_store import ShadowShelf

zstd = pytest.importorskip("backports.zstd", reason="without the extra `remote` there is no zstd here")


def stream(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    """A compressed tar of these."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member, data in members:
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return io.BytesIO(zstd.compress(plain.getvalue()))


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    """One entry."""
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, link, mode
    return made


async def test_there_and_back(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "deep/er").mkdir(parents=True)
    (work / "empty").mkdir(mode=0o750)
    (work / "deep/er/large").write_bytes(os.urandom(3_000_000))
    (work / "deep/none").touch()
    (work / "run").write_text("#!/bin/sh\n")
    (work / "run").chmod(0o755)
    (work / "out").symlink_to("/usr/bin/python3")
    os.symlink(b"\xff", os.fsencode(work) + b"/odd\xfe")
    here, there = ShadowShelf(tmp_path / "here"), ShadowShelf(tmp_path / "there")
    kept = await here.keep("ses_a", work, 1)
    went = io.BytesIO()
    gone = await here.export(kept.snapshot, went)
    assert (gone.files, gone.bytes) == (kept.files, kept.bytes)
    came = await there.admit("ses_b", io.BytesIO(went.getvalue()), 7)
    assert (came.snapshot, came.files, came.bytes) == (kept.snapshot, kept.files, kept.bytes)
    await there.restore(came.snapshot, tmp_path / "again")
    assert (await here.keep("ses_c", tmp_path / "again", 1)).snapshot == kept.snapshot
    again = await there.admit("ses_b", io.BytesIO(went.getvalue()), 8)
    assert again.snapshot == kept.snapshot
    assert len(list((tmp_path / "there/git/objects/pack").glob("*.pack"))) == 1, "what is there is not stored twice"


HARMFUL: dict[str, Callable[[], io.BytesIO]] = {
    "up": lambda: stream((member("a/../../x"), b"x")),
    "absolute": lambda: stream((member("/etc/x"), b"x")),
    "below a link": lambda: stream((member("l", tarfile.SYMTYPE, "/etc"), b""), (member("l/x"), b"x")),
    "a link over a folder": lambda: stream((member("d/x"), b"x"), (member("d", tarfile.SYMTYPE, "/etc"), b"")),
    "a hard link outside": lambda: stream((member("h", tarfile.LNKTYPE, "../../etc/passwd"), b"")),
    "a hard link to nothing": lambda: stream((member("h", tarfile.LNKTYPE, "etc/passwd"), b"")),
    "a hard link to a link": lambda: stream(
        (member("l", tarfile.SYMTYPE, "/etc/passwd"), b""), (member("h", tarfile.LNKTYPE, "l"), b"")
    ),
    "a device": lambda: stream((member("sda", tarfile.BLKTYPE), b"")),
    "a pipe": lambda: stream((member("p", tarfile.FIFOTYPE), b"")),
    "too many": lambda: stream(*[(member(str(number)), b"") for number in range(101)]),
    "too large": lambda: stream((member("x"), bytes(2_000_001))),
    "a bomb": lambda: stream(*[(member(str(number)), bytes(1_900_000)) for number in range(30)]),
    "a bomb of words": lambda: stream((member("x", tarfile.XHDTYPE), bytes(1_900_000))),
    "too long a name": lambda: stream((member("n" * 256), b"")),
    "too deep": lambda: stream((member("/".join("d" * 501)), b"")),
    "cut": lambda: io.BytesIO(stream((member("x"), os.urandom(100_000))).getvalue()[:50_000]),
    "noise": lambda: io.BytesIO(b"this is no stream"),
}


@pytest.mark.parametrize("name", HARMFUL)
async def test_what_means_harm_is_refused(tmp_path: Path, name: str) -> None:
    shelf = ShadowShelf(tmp_path / "shelf", max_files=100, max_bytes=2_000_000)
    with pytest.raises(SnapshotFailed, match="nothing was kept of it: send another one"):
        await shelf.admit("ses_a", HARMFUL[name](), 1)
    assert not (tmp_path / "shelf/git/refs/holdfast/ses_a").exists()
    assert list((tmp_path / "shelf/git/objects/pack").glob("*.pack")) == []


async def test_a_sparse_file_is_refused(tmp_path: Path) -> None:
    hole = member("hole")
    hole.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(1 << 40), "GNU.sparse.numblocks": "1"}
    with pytest.raises(SnapshotFailed, match="no plain file"):
        await ShadowShelf(tmp_path / "shelf").admit("ses_a", stream((hole, b"x")), 1)


async def test_what_lends_rights_is_taken_off(tmp_path: Path) -> None:
    shelf = ShadowShelf(tmp_path / "shelf")
    body = b"#!/bin/sh\n"
    kept = await shelf.admit(
        "ses_a",
        stream(
            (member("su", mode=0o6755), body),
            (member("again", tarfile.LNKTYPE, "su"), b""),
            (member("d", tarfile.DIRTYPE, mode=0o3777), b""),
            (member(".git/hooks/post-checkout", mode=0o755), body),
            (member("d/.git", tarfile.SYMTYPE, "/tmp"), b""),
        ),
        1,
    )
    await shelf.restore(kept.snapshot, tmp_path / "out")
    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in (tmp_path / "out").rglob("*")}
    assert modes == {"su": 0o755, "again": 0o755, "d": 0o777}
    assert (tmp_path / "out/again").stat().st_nlink == 1


def test_without_zstd_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CannotRunSafely, match=r"pip install 'holdfast\[remote\]'"):
        archive.zstd()
