"""The output of a run over a list: one line of JSON for each item with a result, in the order in which they ended.

The file follows from the log. Each checkpoint replaces it by a copy with more lines, so that it is complete and valid
at every moment; a file that does not have the digest of the last checkpoint is made again from the log.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio.to_thread
import msgspec

from holdfast.brain.shift import Shift
from holdfast.errors import CannotRunSafely
from holdfast.facts.codec import Event
from holdfast.facts.items import ItemEnded, ItemsCheckpoint
from holdfast.kinds.items.state import ItemsState, items_of, items_state
from holdfast.log.base import Log
from holdfast.session.money import usd_float
from holdfast.session.state import State

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

PAGE = 5_000
BLOCK = 1 << 20


class Output:
    """The output file of one shift. `digest` covers the file once it was compared with the last checkpoint."""

    def __init__(self, shift: Shift) -> None:
        self._shift = shift
        self.path = Path(items_of(shift.state.created).out)
        self._digest = hashlib.sha256()
        self._known = False

    async def checkpoint(self) -> ItemsCheckpoint:
        """Write all results so far, and return the event that says so. Raises `CannotRunSafely`."""
        shift, own = self._shift, items_state(self._shift.state)
        whole = own.rewrite or not own.written or not await self._is_ours(own)
        wanted = None if whole else set(own.unwritten)
        lines = 0 if whole else own.lines
        made: list[bytes] = []
        async for chunk in results(shift.doors.log, shift.state, wanted):
            lines += len(chunk)
            made.append(b"".join(chunk))
        digest = hashlib.sha256() if whole else self._digest.copy()
        kept = 0 if whole else own.size
        for block in made:
            digest.update(block)
        try:
            await anyio.to_thread.run_sync(_replace, self.path, kept, made)
        except OSError as error:
            raise CannotRunSafely(
                f"the output {self.path} cannot be written ({error.strerror}); all results are safe in the log. Make "
                f"room or restore the folder, then: holdfast wake {shift.state.session_id}"
            ) from error
        self._digest, self._known = digest, True
        return ItemsCheckpoint(
            through_seq=shift.decided_at,
            lines=lines,
            size=kept + sum(map(len, made)),
            sha256=digest.hexdigest(),
            quarantined=own.quarantined,
        )

    async def _is_ours(self, own: ItemsState) -> bool:
        """Return True if the file is as the last checkpoint left it: its content once in a shift, then its size."""
        size, digest = await anyio.to_thread.run_sync(_look, self.path, not self._known)
        if not self._known and size == own.size and digest.hexdigest() == own.sha256:
            self._digest, self._known = digest, True
        return self._known and size == own.size

    async def copy_to(self, folder: str) -> None:
        """Copy the output into the new folder of a session, as `results.jsonl`."""
        await anyio.to_thread.run_sync(_copy, self.path, Path(folder) / "results.jsonl")


async def results(log: Log, state: State, wanted: set[int] | None = None) -> AsyncIterator[list[bytes]]:
    """Yield the lines of the results at these positions, or of all that count, page by page."""
    own = items_state(state)
    if wanted is not None and not wanted:
        return
    after, last = (0, state.seq) if wanted is None else (min(wanted) - 1, max(wanted))
    while after < last:
        events = await log.read(state.session_id, after=after, limit=min(PAGE, last - after))
        yield list(_lines(own, events, wanted))
        after = events[-1].seq


def _lines(own: ItemsState, events: Iterable[Event], wanted: set[int] | None) -> Iterator[bytes]:
    for event in events:
        fact = event.fact
        if not isinstance(fact, ItemEnded) or (wanted is not None and event.seq not in wanted):
            continue
        item = own.items.get(fact.key)
        if item is None or item.status != "done" or item.ended_seq != event.seq:
            continue
        line = {
            "key": fact.key,
            "index": item.index if item.index >= 0 else None,
            "result": fact.result,
            "tries": fact.attempt,
            "cost_usd": usd_float(fact.cost_pico),
        }
        yield msgspec.json.encode(line) + b"\n"


# --- the file ----------------------------------------------------------------------------------------


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    """Open a folder without following a link on the way: an agent may have replaced a folder of its workspace."""
    fd = os.open("/", _FOLDER)
    try:
        for name in folder.parts[1:]:
            below = os.open(name, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


def reserve(path: Path) -> None:
    """Create the empty file of a new run. Raises `OSError`, `FileExistsError` for one that exists."""
    with opened(path.parent) as folder:
        os.close(os.open(path.name, _NEW, 0o644, dir_fd=folder))


def _look(path: Path, content: bool) -> tuple[int, hashlib._Hash]:
    """Return the size of a file, -1 for none, and the digest of its content if that is wanted."""
    digest = hashlib.sha256()
    try:
        with opened(path.parent) as folder, open(os.open(path.name, _READ, dir_fd=folder), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            while content and (block := file.read(BLOCK)):
                digest.update(block)
            return size, digest
    except OSError:
        return -1, digest


def _replace(path: Path, kept: int, more: list[bytes]) -> None:
    """Replace the file by its first `kept` bytes and more, at once. It belongs to the owner of its folder."""
    aside = f".{path.name}.holdfast"
    with opened(path.parent) as folder:
        with suppress(FileNotFoundError):
            os.unlink(aside, dir_fd=folder)
        with open(os.open(aside, _NEW, 0o644, dir_fd=folder), "wb") as file:
            if kept:
                with open(os.open(path.name, _READ, dir_fd=folder), "rb") as before:
                    while file.tell() < kept and os.sendfile(file.fileno(), before.fileno(), None, kept - file.tell()):
                        pass
            file.seek(0, os.SEEK_END)
            for block in more:
                file.write(block)
            file.flush()
            if os.geteuid() == 0:
                above = os.fstat(folder)
                os.fchown(file.fileno(), above.st_uid, above.st_gid)
            os.fsync(file.fileno())
        os.rename(aside, path.name, src_dir_fd=folder, dst_dir_fd=folder)


def _copy(path: Path, target: Path) -> None:
    with opened(path.parent) as folder, open(os.open(path.name, _READ, dir_fd=folder), "rb") as before:
        with open(
            os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644), "wb"
        ) as file:
            while block := before.read(BLOCK):
                file.write(block)
