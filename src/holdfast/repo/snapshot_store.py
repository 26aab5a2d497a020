"""The real snapshot store: one bare git repository for all sessions of a home, without a work tree.

    <folder>/git/            the repository; refs/holdfast/<session>/<seq> keeps each snapshot
    <folder>/seen/<session>  the unchanged files at its last snapshot: a cache
    <folder>/grown/<session> the bytes that its snapshots added
    <folder>/tmp/            files before they have their names
    <folder>/lock            shared by processes that add, exclusive for one that removes

Killed at any point, earlier snapshots are safe: a pack is in the store whole or not at all, a reference is renamed into
its place after its objects are synced, and the rest is a cache. `tidy` removes the files of dead processes. Packs are
folded together automatically as they become many.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

import anyio
import anyio.to_thread
from msgspec.structs import replace

from holdfast.errors import SnapshotFailed
from holdfast.locks import locked, try_lock
from holdfast.repo.archive import Arrival, departure
from holdfast.repo.base import Change, Kept, Owner, Restored
from holdfast.repo.git import Git, Library, Stopped, folder_bytes, handled, sync_folder
from holdfast.repo.objects import Pack
from holdfast.repo.restore import Contents, Restore, compare, empty_folder, list_files, read_file
from holdfast.repo.walk import FORM, Seen, Walk, encode, load, open_folder

MAX_FILES = 1_000_000
MAX_BYTES = 16 << 30
MANY_PACKS = 64
_FOLD_TIMEOUT_S = 300.0
_PAUSE_S = 0.02
SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_SNAPSHOT = re.compile(r"[0-9a-f]{64}")

T = TypeVar("T")


class ShadowShelf:
    """Snapshots in `folder`, created at its first use. Several processes may use one folder.

    A workspace of more than `max_files` or `max_bytes` is refused. `wait_s` is the time that a verb waits for processes
    that remove something. `git` is the path of git; the default is to search for it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_files: int = MAX_FILES,
        max_bytes: int = MAX_BYTES,
        wait_s: float = 120.0,
        git: Path | None = None,
    ) -> None:
        self._folder = folder
        self._git = Git(folder / "git", git)
        self._max_files, self._max_bytes = max_files, max_bytes
        self._wait_s = wait_s

    async def keep(self, session_id: str, folder: Path, seq: int, *, user: Owner | None = None) -> Kept:
        """See `Shelf.keep`. Reads only what changed since the session's last snapshot."""
        _check_session(session_id)
        return await in_thread(partial(self._keep, session_id, folder, seq, user))

    async def restore(self, snapshot: str, folder: Path, *, user: Owner | None = None) -> Restored:
        """See `Shelf.restore`."""
        (tree,) = await self.trees_of(snapshot)
        return await in_thread(partial(self._restore, tree, folder, user))

    async def export(self, snapshot: str, target: BinaryIO) -> Restored:
        """Write a snapshot as a compressed tar, for hands elsewhere; see `repo.archive`."""
        (tree,) = await self.trees_of(snapshot)
        return await in_thread(partial(self._export, tree, target))

    async def admit(self, session_id: str, source: BinaryIO, seq: int) -> Kept:
        """Keep the contents of such a stream as the session's snapshot after every event up to `seq`.

        Raises `SnapshotFailed`, with nothing kept, if it holds entries that no workspace may have.
        """
        _check_session(session_id)
        return await in_thread(partial(self._admit, session_id, source, seq))

    async def changes(self, before: str, after: str) -> list[Change]:
        """See `Shelf.changes`."""
        old, new = await self.trees_of(before, after)
        return await self._look_into(lambda library, stop: compare(library, old, new, stop))

    async def diff(self, before: str, after: str) -> str:
        """See `Shelf.diff`. Raises `SnapshotFailed` for a patch of more than `DIFF_MAX` bytes."""
        return await in_thread(partial(self._diff, await self.trees_of(before, after)))

    async def files(self, snapshot: str) -> list[str]:
        """See `Shelf.files`."""
        (tree,) = await self.trees_of(snapshot)
        return await self._look_into(lambda library, stop: list_files(library, tree, self._max_files, stop))

    async def content(self, snapshot: str, path: str, limit: int) -> bytes:
        """See `Shelf.content`."""
        (tree,) = await self.trees_of(snapshot)
        return await self._look_into(lambda library, stop: read_file(library, tree, path, limit, stop))

    async def look(self, session_id: str, folder: Path, *, user: Owner | None = None) -> Kept:
        """See `Shelf.look`."""
        _check_session(session_id)
        return await in_thread(partial(self._keep, session_id, folder, None, user))

    async def kept(self, session_id: str = "") -> dict[str, list[str]]:
        """See `Shelf.kept`."""
        return await in_thread(lambda _: self._kept(session_id or "*"))

    async def frees(self, gone: Mapping[str, Collection[str]]) -> int:
        """See `Shelf.frees`."""
        return await in_thread(partial(self._frees, gone))

    async def thin(self, gone: Mapping[str, Collection[str]]) -> None:
        """See `Shelf.thin`. The next `tidy` frees the space."""
        await in_thread(partial(self._drop, gone))

    async def forget(self, *session_ids: str) -> None:
        """See `Shelf.forget`. The next `tidy` frees the space."""
        await in_thread(partial(self._drop, dict.fromkeys(session_ids)))

    async def tidy(self, *, timeout_s: float = 300.0) -> int:
        """See `Shelf.tidy`."""
        return await in_thread(partial(self._tidy, timeout_s))

    async def trees_of(self, *snapshots: str) -> list[bytes]:
        """Return the trees of snapshots that are about to be read. Raises `SnapshotFailed` for other texts."""
        for name in snapshots:
            if not _SNAPSHOT.fullmatch(name):
                said = (
                    f"{name!r} is not the name of a snapshot, which is 64 hexadecimal characters; nothing was changed"
                )
                raise SnapshotFailed(f"{said}: take it from a workspace.snapshotted event")
        return [bytes.fromhex(name) for name in snapshots]

    @contextmanager
    def _held(self, stop: threading.Event, *, alone: bool = False) -> Iterator[int]:
        with handled(self._folder):
            for name in ("seen", "tmp"):
                (self._folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.chmod(0o700)
            with open(self._folder / "lock", "a+b", opener=partial(os.open, mode=0o600)) as file:
                self._wait_for_lock(file.fileno(), stop, shared=not alone)
                self._git.ready()
                yield file.fileno()

    @contextmanager
    def still(self, stop: threading.Event) -> Iterator[None]:
        """Keep the store's files in place for the block: other processes only add some. Raises as `Shelf`."""
        with self._held(stop), open(self._folder / "folding", "a+b") as folding:
            while not try_lock(folding.fileno()):
                if stop.wait(_PAUSE_S):
                    raise Stopped
            yield

    def _wait_for_lock(self, lock: int, stop: threading.Event, *, shared: bool) -> None:
        """Take the lock: shared by processes that add, exclusive for one that removes.

        The git processes that we start inherit it: a git that outlives its killed parent still prevents removal of the
        files that it uses.
        """
        tries = 0
        while not try_lock(lock, shared=shared):
            if stop.wait(_PAUSE_S):
                raise Stopped
            tries += 1
            if tries * _PAUSE_S >= self._wait_s:
                path = self._folder / "lock"
                raise SnapshotFailed(
                    f"another process has kept {path} locked for {self._wait_s:g} s; earlier snapshots are safe: find "
                    f"that process (`fuser {path}`), and try again when it has ended"
                )

    def _refs(self, session_id: str) -> Path:
        return self._git.folder / "refs" / "holdfast" / session_id

    def _keep(self, session_id: str, folder: Path, seq: int | None, user: Owner | None, stop: threading.Event) -> Kept:
        """Keep a folder; without `seq`, only name it."""
        with self._held(stop) as lock, ExitStack() as opened:
            root = open_folder(folder)
            opened.callback(os.close, root)
            found = os.fstat(root)
            if user is None and os.geteuid() == 0 and found.st_uid != 0:
                user = Owner(found.st_uid, found.st_gid)
            seen = self._seen(session_id, found, user)
            pack = Pack(self._folder / "tmp")
            opened.callback(pack.close)
            walk = Walk(
                user=user,
                seen=seen,
                began_ns=self._now_ns(lock),
                pack=pack,
                library=opened.enter_context(self._git.library(lock)),
                max_files=self._max_files,
                max_bytes=self._max_bytes,
                stop=stop,
            )
            tree = walk.run(root)
            made = Kept(tree.hex(), walk.files, walk.bytes, walk.read, tuple(walk.skipped), walk.skipped_total)
            if seq is None:
                return made
            if pack.count:
                self._git.take(pack.finish(), lock)
            ref = self._point(session_id, seq, tree)
            now_seen = Seen(FORM, (found.st_dev, found.st_ino), user, ref, tree, walk.folders)
            self._replace(self._folder / "seen" / session_id, encode(now_seen))
            if pack.count:
                self._fold(lock)
            return replace(made, grown=self._grown(session_id, pack.size))

    def _grown(self, session_id: str, size: int) -> int:
        """Add to the bytes of a session's packs, and return them."""
        count = self._folder / "grown" / session_id
        try:
            size += int(count.read_text())
        except (OSError, ValueError):
            count.parent.mkdir(mode=0o700, exist_ok=True)
        self._replace(count, str(size).encode())
        return size

    def _now_ns(self, lock: int) -> int:
        """Return the time as the kernel stamps it on files: never later than a stamp made after this."""
        os.utime(lock)
        return os.fstat(lock).st_mtime_ns

    def _seen(self, session_id: str, root: os.stat_result, user: Owner | None) -> Seen | None:
        """Return the cache of the session's last snapshot, if it was of this folder and still exists."""
        seen = load(self._folder / "seen" / session_id)
        if seen is None or seen.root != (root.st_dev, root.st_ino) or seen.user != user:
            return None
        return seen if _read_ref(self._refs(session_id) / seen.ref) == seen.tree else None

    def _point(self, session_id: str, seq: int, tree: bytes) -> str:
        """Write the reference that keeps the tree; returns its name.

        A sequence number that has another snapshot already keeps both: an event may name either.
        """
        refs = self._refs(session_id)
        refs.mkdir(exist_ok=True)
        name = str(seq)
        there = _read_ref(refs / name)
        if there not in (None, tree):
            name = f"{seq}-{tree.hex()[:16]}"
            there = _read_ref(refs / name)
        if there != tree:
            self._replace(refs / name, tree.hex().encode() + b"\n", sync=True)
        return name

    def _replace(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        """Replace a file atomically; with `sync`, it is on the disk when this returns."""
        new = self._folder / "tmp" / f"{path.parent.name}.{path.name}.{os.getpid()}.{threading.get_ident()}"
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        new.replace(path)
        if sync:
            sync_folder(path.parent)

    def _restore(self, tree: bytes, folder: Path, user: Owner | None, stop: threading.Event) -> Restored:
        with self._held(stop) as lock, self._git.library(lock) as library:
            next(library.trees([tree]))  # before creating anything, check that it exists
            root = empty_folder(folder)
            try:
                with handled(folder):
                    restore = Restore(
                        library, user=user, max_files=self._max_files, max_bytes=self._max_bytes, stop=stop
                    )
                    return restore.run(tree, root)
            finally:
                os.close(root)

    def _export(self, tree: bytes, target: BinaryIO, stop: threading.Event) -> Restored:
        with self._held(stop) as lock, self._git.library(lock) as library:
            contents = Contents(library, max_files=self._max_files, stop=stop)
            contents.read(tree)
            blobs = library.stream(contents.leaves(tree))
            with closing(blobs):
                return departure(target, contents.entries(tree), blobs, stop)

    def _admit(self, session_id: str, source: BinaryIO, seq: int, stop: threading.Event) -> Kept:
        with self._held(stop) as lock, self._git.library(lock) as library:
            with closing(Pack(self._folder / "tmp")) as pack:
                arrival = Arrival(pack, library, max_files=self._max_files, max_bytes=self._max_bytes, stop=stop)
                tree = arrival.run(source)
                if pack.count:
                    self._git.take(pack.finish(), lock)
                grown = self._grown(session_id, pack.size)
            self._point(session_id, seq, tree)
            self._fold(lock)
            return Kept(tree.hex(), arrival.files, arrival.bytes, arrival.files, grown=grown)

    async def _look_into(self, work: Callable[[Library, threading.Event], T]) -> T:
        def looking(stop: threading.Event) -> T:
            with self._held(stop) as lock, self._git.library(lock) as library:
                return work(library, stop)

        return await in_thread(looking)

    def _diff(self, trees: list[bytes], stop: threading.Event) -> str:
        with self._held(stop) as lock, self._git.library(lock) as library:
            for tree in trees:
                next(library.trees([tree]))  # git's own message would be about its internals
            return self._git.diff(trees[0].hex(), trees[1].hex(), lock)

    def _kept(self, of: str = "*") -> dict[str, list[str]]:
        found: dict[str, dict[str, None]] = {}
        refs = self._refs("").glob(f"{of}/*")
        for ref in sorted(refs, key=lambda ref: (int(ref.name.partition("-")[0]), ref.name)):
            tree = _read_ref(ref)
            if tree is not None:
                found.setdefault(ref.parent.name, {}).pop(tree.hex(), None)
                found[ref.parent.name][tree.hex()] = None
        return {session_id: [*names] for session_id, names in found.items()}

    def _frees(self, of: Mapping[str, Collection[str]], stop: threading.Event) -> int:
        kept = self._kept()
        left = {name for who, names in kept.items() for name in names if name not in of.get(who, ())}
        gone = {name for names in of.values() for name in names} - left
        if not gone:
            return 0
        with self._held(stop) as lock:
            return self._git.disk_usage([*gone, *(f"^{name}" for name in left)], lock)

    def _drop(self, gone: Mapping[str, Collection[str] | None], stop: threading.Event) -> None:
        """Drop these snapshots of each session, None for all, under one lock."""
        for session_id in gone:
            _check_session(session_id)
        with self._held(stop, alone=True):  # another process may be keeping a snapshot of such a session
            for session_id, names in gone.items():
                for cache in ("seen", "grown"):
                    (self._folder / cache / session_id).unlink(missing_ok=True)
                for ref in sorted(self._refs(session_id).glob("*")):
                    tree = _read_ref(ref)
                    if names is None or (tree is not None and tree.hex() in names):
                        (self._folder / "forgotten").touch()
                        ref.unlink()
                with suppress(OSError):  # it is not empty, or was never there
                    self._refs(session_id).rmdir()

    def _fold(self, lock: int) -> None:
        """Fold many packs into few, each at least twice the next; unreferenced objects are kept too."""
        if len(list((self._git.folder / "objects" / "pack").glob("*.pack"))) < MANY_PACKS:
            return
        with locked(self._folder / "folding") as folding:
            if folding is not None:
                self._git.run(
                    "repack", "--geometric=2", "-d", "-n", "-q", locks=(lock, folding), timeout_s=_FOLD_TIMEOUT_S
                )

    def _tidy(self, timeout_s: float, stop: threading.Event) -> int:
        with self._held(stop, alone=True) as lock:
            before = folder_bytes(self._folder)
            for left in [
                *(self._folder / "tmp").iterdir(),
                *(self._git.folder / "objects").glob("**/tmp_*"),
                *(self._git.folder / "objects").glob("**/.tmp-*"),
                *self._git.folder.glob("**/*.lock"),
            ]:
                left.unlink(missing_ok=True)
            forgotten = self._folder / "forgotten"
            how = ["-a"] if forgotten.exists() else ["--geometric=2"]
            if self._git.run("repack", *how, "-d", "-n", "-q", locks=(lock,), timeout_s=timeout_s):
                forgotten.unlink(missing_ok=True)
            return max(0, before - folder_bytes(self._folder))


async def in_thread(work: Callable[[threading.Event], T]) -> T:
    """Run `work` in a thread, which is told to stop if the caller is cancelled."""
    stop = threading.Event()
    try:
        return await anyio.to_thread.run_sync(work, stop, abandon_on_cancel=True)
    except anyio.get_cancelled_exc_class():
        stop.set()
        raise


def _check_session(session_id: str) -> None:
    if not SESSION_ID.fullmatch(session_id):
        raise ValueError(f"{session_id!r} is not the id of a session")


def _read_ref(path: Path) -> bytes | None:
    try:
        text = path.read_text().strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return None
    return bytes.fromhex(text) if _SNAPSHOT.fullmatch(text) else None
