"""Backup of a home in use, and its restoration, here or on another machine.

The order makes the copy consistent while sessions run: the watermark first, then the database, then the snapshots,
whose files stay in place meanwhile. So the copy has every event that was acknowledged before the backup began, and
every snapshot that its events name.

A restored session learns that it may have done more than its log says. Its sandboxes are not reused, and a call that
was open, or that may have begun since, ends with an unknown outcome: no effect is repeated silently.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from io import BytesIO
from pathlib import Path
from typing import Literal

import anyio.to_thread
import msgspec

from holdfast.clock import Clock, rfc3339
from holdfast.errors import LogDamaged, SchemaTooNew, StorageFull, UsageError
from holdfast.facts.codec import SCHEMA
from holdfast.facts.session import SessionEventsLost
from holdfast.ids import Entropy
from holdfast.log.base import each_session
from holdfast.log.sqlite.connect import sentences
from holdfast.log.sqlite.store import SqliteStore
from holdfast.log.sqlite.watermark import watermark_path
from holdfast.log.verify import verify
from holdfast.privileges import folder_mode
from holdfast.repo.snapshot_store import ShadowShelf
from holdfast.service.intake import OVER
from holdfast.service.posting import Caller, Poster

MANIFEST = "holdfast-backup.json"
DATABASE, MARK = "holdfast.db", "holdfast.db-mark"
FORM = 1
"""Version of the archive's layout."""

_MEMBER = re.compile(
    r"holdfast\.db(-mark)?|reply\.key|secrets/[A-Za-z0-9_-]{1,64}"
    r"|snapshots/git/(HEAD|config|refs/holdfast/[A-Za-z0-9_-]{1,100}/[0-9a-f-]{1,100}"
    r"|objects/(pack/pack-[0-9a-f]{40,64}\.(pack|idx|rev|mtimes)|[0-9a-f]{2}/[0-9a-f]{38,62}))"
)
"""Files of an archive. Anything else is refused: no link, no other path."""

_SMALL = ("reply.key", "secrets")
_MODES: dict[str, Literal["w:gz", "w"]] = {".gz": "w:gz", ".tgz": "w:gz", ".tar": "w"}


class Manifest(msgspec.Struct, frozen=True):
    """The first file of an archive: when and from which home it was made, by which version."""

    form: int
    backup_id: str
    at_us: int
    home: str
    program: str
    schema: int


class Saved(msgspec.Struct, frozen=True):
    """The contents of an archive: sessions, the bytes of each part, and secret values that were in the home."""

    manifest: Manifest
    sessions: int
    bytes: dict[str, int]
    secrets: tuple[str, ...] = ()


class Restoration(msgspec.Struct, frozen=True):
    """A restored home: its sessions and events, all verified, and those told that they may have done more."""

    manifest: Manifest
    sessions: int
    events: int
    told: int


def mode_of(file: Path) -> Literal["w:gz", "w"]:
    """Return the mode for writing an archive by its name. Raises `UsageError`."""
    if file.suffix not in _MODES:
        raise UsageError(f"{file} is not the name of an archive; end it in .tar or .tar.gz")
    return _MODES[file.suffix]


async def back_up(home: Path, database: Path, file: Path, manifest: Manifest) -> Saved:
    """Write an archive of a home that may be in use. The file appears when it is complete, and must not exist before.

    Raises `UsageError` for the name or place of the file, and what copying the log raises.
    """
    mode = mode_of(file)
    if os.path.lexists(file):
        raise UsageError(f"{file} exists; nothing was written: choose another name, or delete it first")
    if not file.parent.is_dir():
        raise UsageError(f"{file.parent} is not a folder; nothing was written: create it first")
    return await anyio.to_thread.run_sync(_back_up, home, database, file, manifest, mode)


def _back_up(home: Path, database: Path, file: Path, manifest: Manifest, mode: Literal["w:gz", "w"]) -> Saved:
    snapshots = home / "snapshots"
    with ExitStack() as opened:
        if snapshots.is_dir():
            opened.enter_context(ShadowShelf(snapshots).still(threading.Event()))
        scratch = Path(opened.enter_context(tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.")))
        try:
            mark = watermark_path(database).read_bytes()
        except FileNotFoundError:
            mark = b""
        try:
            sessions = _copy_log(database, scratch / DATABASE)
        except StorageFull as error:
            full = f"the disk of {file.parent} is full; no backup was written: choose a file on another disk"
            raise StorageFull(full) from error
        sizes: dict[str, int] = {}
        new = scratch / "archive"
        with tarfile.open(new, mode, format=tarfile.PAX_FORMAT) as tar:
            _add(tar, MANIFEST, msgspec.json.encode(manifest))
            _add(tar, MARK, mark)
            for name, path in (*_small(home), (DATABASE, scratch / DATABASE), *_snapshots(snapshots)):
                part = name.partition("/")[0]
                sizes[part] = sizes.get(part, 0) + _add_file(tar, name, path)
        os.chmod(new, 0o600)
        with new.open("rb") as written:
            os.fsync(written.fileno())
        os.link(new, file)  # fails if the name was taken meanwhile
        secrets = tuple(name.partition("/")[2] for name, _ in _small(home) if name.startswith("secrets/"))
        return Saved(manifest, sessions, sizes, secrets)


def _copy_log(database: Path, target: Path) -> int:
    """Copy the database in one read transaction, while others write; return the number of sessions in it."""
    with sentences(database), closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as source:
        with closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
            ((found,),) = copy.execute("select count(*) from sessions")
            return int(found)


def _small(home: Path) -> Iterator[tuple[str, Path]]:
    for name in _SMALL:
        path = home / name
        for each in sorted(path.iterdir()) if path.is_dir() else [path]:
            if each.is_file() and not each.is_symlink():
                yield str(each.relative_to(home)), each


def _snapshots(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of the snapshot store: references before objects, so that none lacks its objects."""
    git = folder / "git"
    for pattern in ("HEAD", "config", "refs/holdfast/*/*", "objects/[0-9a-f][0-9a-f]/*", "objects/pack/pack-*"):
        for path in sorted(git.glob(pattern)):
            name = f"snapshots/git/{path.relative_to(git)}"
            if _MEMBER.fullmatch(name):
                yield name, path


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o600
    tar.addfile(info, BytesIO(content))


def _add_file(tar: tarfile.TarFile, name: str, path: Path) -> int:
    with open(path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW)) as file:
        info = tarfile.TarInfo(name)
        info.size, info.mode = os.fstat(file.fileno()).st_size, 0o600
        tar.addfile(info, file)
        return info.size


async def restore(file: Path, home: Path, clock: Clock, entropy: Entropy, caller: Caller) -> Restoration:
    """Restore an archive as the home at `home`, which must not exist or be empty.

    The home appears when it is complete and verified. Raises `UsageError` for other files and folders, `SchemaTooNew`,
    and `LogDamaged`; then nothing is there.
    """
    if home.is_symlink() or (home.exists() and (not home.is_dir() or os.listdir(home))):
        raise UsageError(f"{home} is not empty; nothing was restored: name a new folder with --to")
    home.parent.mkdir(parents=True, exist_ok=True)
    draft = home.with_name(f".{home.name}.restoring")
    await anyio.to_thread.run_sync(shutil.rmtree, draft, True)
    try:
        manifest = await anyio.to_thread.run_sync(_extract, file, draft)
        opening = SqliteStore.open(draft / DATABASE, workers=draft / "workers", clock=clock, entropy=entropy)
        async with await opening as store:
            found = await verify(store)
            if found.findings:
                raise LogDamaged(
                    f"the backup {file} does not verify ({found.findings[0].message}); nothing was restored"
                )
            told = await _tell(Poster(store, store, clock, entropy, caller), manifest, home)
        await anyio.to_thread.run_sync(os.rename, draft, home)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return Restoration(manifest, found.sessions, found.events, told)


def _extract(file: Path, draft: Path) -> Manifest:
    """Write the files of an archive below a new folder. Raises `UsageError` or `SchemaTooNew`."""
    manifest: Manifest | None = None
    draft.mkdir(mode=folder_mode())
    try:
        with tarfile.open(file, "r:*") as tar:
            for member in tar:
                source = tar.extractfile(member) if member.isreg() else None
                if source is None or not (_MEMBER.fullmatch(member.name) or member.name == MANIFEST):
                    raise UsageError(
                        f"{file} is not a backup of a home: it holds {member.name!r}; nothing was restored"
                    )
                if member.name == MANIFEST:
                    manifest = msgspec.json.decode(source.read(), type=Manifest)
                    continue
                path = draft / member.name
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with open(path, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as target:
                    shutil.copyfileobj(source, target)
                    target.flush()
                    os.fsync(target.fileno())
    except (OSError, EOFError, tarfile.TarError, msgspec.MsgspecError) as error:
        raise UsageError(f"{file} cannot be read as a backup ({error}); nothing was restored") from error
    if manifest is None or not (draft / DATABASE).is_file():
        raise UsageError(f"{file} is not a complete backup of a home; nothing was restored")
    if manifest.form > FORM or manifest.schema > SCHEMA:
        raise SchemaTooNew(f"{file} was made by a newer Holdfast ({manifest.program}); upgrade Holdfast and try again")
    return manifest


async def _tell(poster: Poster, manifest: Manifest, home: Path) -> int:
    """Tell each session that can go on what the backup may lack, and where its workspace is now. Safe to repeat."""
    told = 0
    before, now = Path(manifest.home) / "workspaces", home / "workspaces"
    async for row in each_session(poster.index):
        moved = before != now and row.workspace == str(before / row.session_id)
        if row.status in OVER and not moved:
            continue
        said = (
            f"[This session was restored from a backup of {rfc3339(manifest.at_us)[:19]}Z. It may have gone on after "
            f"event {row.head} of its log: turns, tool calls, and messages since then are not in it, but what they did "
            "may have happened, in the workspace and elsewhere. Look at the actual state before you go on, and repeat "
            "nothing that must happen only once.]"
        )
        workspace = str(now / row.session_id) if moved else ""
        await poster.post(
            row.session_id, SessionEventsLost(content=said, workspace=workspace), f"restored:{manifest.backup_id}"
        )
        told += row.status not in OVER
    return told
