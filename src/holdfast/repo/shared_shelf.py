"""Snapshots that are in an object store too, so that a home on another machine can restore them.

    packs/<session>/<sha256>     objects of the session's snapshots that its earlier packs lack
    snapshots/<session>/<tree>   JSON: the position, and the packs that hold the snapshot together, in order
    trees/<tree>/<session>       empty: which sessions have that snapshot

A snapshot counts when all of it is in the object store: `keep` raises otherwise, so no event names one that is missing
there. Packs are taken in order, so a tree is in a store of a home only with all that it leads to. Bytes are checked
twice: a pack against its name, and each object by git against the name of the tree, which is in the log.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import obstore
from obstore.exceptions import BaseError, NotFoundError
from obstore.store import ObjectStore, from_url

from holdfast.clock import SystemClock
from holdfast.errors import SnapshotFailed, UsageError
from holdfast.ids import system_entropy
from holdfast.repo.base import Kept, Owner
from holdfast.repo.snapshot_store import SESSION_ID, ShadowShelf, in_thread

MANY_PACKS = 48
"""Packs that hold a snapshot together at most. The next one begins again, with a pack of everything."""

PIECE = 8 << 20
"""Bytes that are fetched at a time."""

LEFT_OVER_S = 3600.0
"""Age in seconds from which a pack that no snapshot names is left over from a process that was killed."""

_CLIENT: Any = {"timeout": "60s", "connect_timeout": "5s", "allow_http": True}
_RETRIES: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=15)}
_PACK_TIMEOUT_S = 300.0


class _Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of an object: the packs of the session that hold a snapshot together, in order."""

    tree: str = ""
    seq: int = 0
    packs: tuple[str, ...] = ()


class _Sent(msgspec.Struct, frozen=True):
    """A session's last snapshot in the object store at `url`."""

    url: str
    manifest: _Manifest


def open_objects(url: str) -> ObjectStore:
    """Return the object store at an address. Keys and regions come from the environment, as its own tools read them.

    Raises `UsageError` for an address that no store has.
    """
    try:
        how: Any = {"mkdir": True} if url.startswith("file:") else {"client_options": _CLIENT, "retry_config": _RETRIES}
        store: ObjectStore = from_url(url, **how)
    except (BaseError, ValueError, TypeError) as error:
        raise UsageError(
            f"`objects`: {url!r} is no address of an object store ({_line(error)}); for example: "
            "s3://bucket/holdfast, or file:///srv/holdfast"
        ) from error
    return store


def probe(url: str) -> None:
    """Write an object, read it back, and delete it. Raises `SnapshotFailed` or `UsageError`."""
    store, key, written = open_objects(url), f"probe/{system_entropy(8).hex()}", system_entropy(64)
    with _asked(url, "use"):
        obstore.put(store, key, written)
        found = bytes(obstore.get(store, key).bytes())
        obstore.delete(store, key)
    if found != written:
        raise _wrong(url, key)


class SharedShelf(ShadowShelf):
    """Snapshots in `folder` and in the object store at `url`. The verbs are those of `Shelf`.

    In the folder, `sent/<session>` is a cache that names the session's last snapshot there, and `sent/<session>.new` is
    what is being sent.
    """

    def __init__(self, folder: Path, url: str, *, git: Path | None = None) -> None:
        super().__init__(folder, git=git)
        self._url = url
        self._objects = open_objects(url)

    async def keep(self, session_id: str, folder: Path, seq: int, *, user: Owner | None = None) -> Kept:
        """See `Shelf.keep`. Raises `SnapshotFailed` if the object store does not take the snapshot."""
        made = await super().keep(session_id, folder, seq, user=user)
        await in_thread(partial(self._send, session_id, made.snapshot, seq))
        return made

    async def admit(self, session_id: str, source: BinaryIO, seq: int) -> Kept:
        """See `ShadowShelf.admit`. Raises as `keep`."""
        made = await super().admit(session_id, source, seq)
        await in_thread(partial(self._send, session_id, made.snapshot, seq))
        return made

    async def trees_of(self, *snapshots: str) -> list[bytes]:
        """See `ShadowShelf.trees_of`. Fetches what the store of this home lacks; what is nowhere stays missing."""
        trees = await super().trees_of(*snapshots)
        await in_thread(partial(self._fetch, trees))
        return trees

    def _drop(self, gone: Mapping[str, Collection[str] | None], stop: threading.Event) -> None:
        """Drop them in the object store first: what is still here is found and dropped again."""
        for session_id, names in gone.items():
            (self._folder / "sent" / session_id).unlink(missing_ok=True)
            shutil.rmtree(self._folder / "sent" / f"{session_id}.new", ignore_errors=True)
            with _asked(self._url, "delete snapshots from"):
                self._delete(session_id, names)
        super()._drop(gone, stop)

    # --- writing: the packs first, then what names them ---

    def _send(self, session_id: str, tree: str, seq: int, stop: threading.Event) -> None:
        sent, cache = _Manifest(), self._folder / "sent" / session_id
        with suppress(OSError, msgspec.DecodeError):
            last = msgspec.json.decode(cache.read_bytes(), type=_Sent)
            sent = last.manifest if last.url == self._url else sent
        if sent.tree == tree:
            return
        if len(sent.packs) >= MANY_PACKS:
            sent = _Manifest()
        with _asked(self._url, "write to"), _fresh(self._folder / "sent" / f"{session_id}.new") as made:
            pack = self._pack(tree, sent.tree, made, stop)
            if pack is None:  # what the last snapshot needs is not all here any more
                sent = _Manifest()
                pack = self._pack(tree, "", made, stop)
            if pack is None:
                raise SnapshotFailed(f"git could not read snapshot {tree[:12]} to send it; try again")
            packs = sent.packs
            with pack.open("rb") as file:
                holds, name = os.pread(file.fileno(), 4, 8), hashlib.file_digest(file, "sha256").hexdigest()
            if any(holds):  # the number of its objects (gitformat-pack)
                packs += (name,)
                obstore.put(self._objects, f"packs/{session_id}/{packs[-1]}", pack)
            manifest = _Manifest(tree, seq, packs)
            obstore.put(self._objects, f"snapshots/{session_id}/{tree}", msgspec.json.encode(manifest))
            obstore.put(self._objects, f"trees/{tree}/{session_id}", b"")
        self._replace(cache, msgspec.json.encode(_Sent(self._url, manifest)))

    def _pack(self, tree: str, without: str, folder: Path, stop: threading.Event) -> Path | None:
        """Pack what a tree leads to and another one does not, without a search for deltas. None if git could not."""
        with self._held(stop) as lock, tempfile.TemporaryFile(dir=folder) as asked:
            asked.write(f"{tree}\n^{without}\n".encode() if without else f"{tree}\n".encode())
            asked.flush()
            asked.seek(0)
            words = ("pack-objects", "--revs", "--window=0", "--quiet", str(folder / "out"))
            with suppress(SnapshotFailed):
                if self._git.run(*words, locks=(lock,), stdin=asked.fileno(), timeout_s=_PACK_TIMEOUT_S):
                    return next(folder.glob("out-*.pack"))
        return None

    # --- reading ---

    def _fetch(self, trees: list[bytes], stop: threading.Event) -> None:
        for tree in trees:
            if not self._has(tree, stop):
                with _asked(self._url, "read from"):
                    self._fetch_one(tree, stop)

    def _fetch_one(self, tree: bytes, stop: threading.Event) -> None:
        for key in self._list(f"trees/{tree.hex()}/"):
            session_id = key.rpartition("/")[2]
            if not SESSION_ID.fullmatch(session_id):
                continue
            try:
                manifest = self._manifest(f"snapshots/{session_id}/{tree.hex()}")
                for name in manifest.packs:
                    self._take(session_id, name, stop)
            except NotFoundError:  # that session was removed meanwhile
                continue
            with self._held(stop):
                self._point(session_id, manifest.seq, tree)
            return

    def _has(self, tree: bytes, stop: threading.Event) -> bool:
        with self._held(stop) as lock, self._git.library(lock) as library:
            try:
                next(library.trees([tree]))
            except SnapshotFailed:
                return False
            return True

    def _manifest(self, key: str) -> _Manifest:
        data = bytes(obstore.get(self._objects, key).bytes())
        try:
            return msgspec.json.decode(data, type=_Manifest)
        except msgspec.DecodeError as error:
            raise _wrong(self._url, key) from error

    def _take(self, session_id: str, name: str, stop: threading.Event) -> None:
        key, digest, at = f"packs/{session_id}/{name}", hashlib.sha256(), 0
        size = obstore.head(self._objects, key)["size"]
        with tempfile.TemporaryFile(dir=self._folder / "tmp") as file:
            while at < size and not stop.is_set():
                if size <= PIECE:  # some servers answer a range that is everything in another form
                    piece = bytes(obstore.get(self._objects, key).bytes())
                else:
                    piece = bytes(obstore.get_range(self._objects, key, start=at, end=min(size, at + PIECE)))
                digest.update(piece)
                file.write(piece)
                at += len(piece) or size  # nothing more comes
            if digest.hexdigest() != name:
                raise _wrong(self._url, key)
            file.flush()
            file.seek(0)
            with self._held(stop) as lock:
                self._git.take(file.fileno(), lock)

    # --- removing ---

    def _delete(self, session_id: str, names: Collection[str] | None) -> None:
        used: set[str] = set()
        for key in self._list(f"snapshots/{session_id}/"):
            tree = key.rpartition("/")[2]
            if names is not None and tree not in names:
                used |= {*self._manifest(key).packs}
                continue
            obstore.delete(self._objects, [key, f"trees/{tree}/{session_id}"])
        old_s = SystemClock().now_us() / 1e6 - LEFT_OVER_S
        for key, written in [*self._list(f"packs/{session_id}/").items()]:
            if key.rpartition("/")[2] not in used and (names is None or written.timestamp() < old_s):
                obstore.delete(self._objects, key)

    # --- the object store ---

    def _list(self, prefix: str) -> dict[str, datetime]:
        """Return the keys under a prefix, with the times when they were written."""
        found = (each for some in obstore.list(self._objects, prefix) for each in some)
        return {each["path"]: each["last_modified"] for each in found}


@contextmanager
def _asked(url: str, what: str) -> Iterator[None]:
    try:
        yield
    except BaseError as error:
        raise SnapshotFailed(
            f"could not {what} the object store {url}: {_line(error)}; nothing counts that is not there, and earlier "
            "snapshots are safe: mend that, and the next snapshot is sent"
        ) from error


def _wrong(url: str, key: str) -> SnapshotFailed:
    return SnapshotFailed(
        f"the object store {url} returned other bytes for {key} than were written; none of them were used"
    )


@contextmanager
def _fresh(folder: Path) -> Iterator[Path]:
    """Make an empty folder for the block, in place of one that a killed process left."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _line(error: Exception) -> str:
    """Return an error of the library in one line, without the library's own debugging form."""
    return " ".join(str(error).partition("\n\nDebug source")[0].split())[:300]
