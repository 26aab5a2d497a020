"""The supervisor's journal: the history of an incarnation of hands, one JSON object per line (S8, S10).

    open     hands_id, boot_id, pid            the first line
    epoch    epoch                             no lower one is served from now on
    started  call, epoch, tool, expect         written before the agent is asked to run it
    note     call, line | ready, problem       a result reported while it ran
    exit     call, result                      written when its end is known
    lost     reason                            the sandbox is gone

No line is synced: a power cut changes the boot, and then the journal does not count. An unfinished last line counts as
never written. Each record carries a checksum, `sum`: if one is wrong the journal is damaged, and a call that it does
not name may have been started.
"""

from __future__ import annotations

import json
import os
import zlib
from typing import Any, NamedTuple

from holdfast.hands.box.wire import encode

Record = dict[str, Any]


_SUM = "sum"
_BEGINNING = b'{"t":"'

NOTES = ("line", "ready", "problem")
"""Fields of a note about a call."""


class JournalFull(Exception):
    """The disk is full; earlier records are complete."""


class Place(NamedTuple):
    """Position of a record in the file."""

    offset: int
    length: int


class Journal:
    """The writing side, used by one process."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._end = 0

    def write(self, record: Record) -> Place:
        """Append a record, whole or not at all. Raises `JournalFull`.

        The beginning of one that did not fit has no line end, so it does not count; the next record overwrites it.
        """
        line = encode({**record, _SUM: zlib.crc32(encode(record))})
        done = 0
        while done < len(line):
            try:
                done += os.pwrite(self._fd, line[done:], self._end + done)
            except OSError as error:
                raise JournalFull(error.strerror or str(error)) from None
        place = Place(self._end, len(line))
        self._end += len(line)
        return place

    def read(self, place: Place) -> Record:
        """Return a record that was written here."""
        record: Record = json.loads(os.pread(self._fd, place.length, place.offset))
        record.pop(_SUM, None)
        return record


class Testimony(NamedTuple):
    """Content of a journal. `started`, `exits` and `notes` are by call id; `opened` is empty without a first line.

    A `damaged` journal has lines that differ from the records written; those lines are ignored.
    """

    opened: Record
    epoch: int
    started: dict[str, Record]
    exits: dict[str, Record]
    notes: dict[str, Record]
    lost: str
    damaged: bool = False


def replay(path: str) -> Testimony:
    """Read a whole journal. A missing or empty one yields an empty content."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        data = b""
    *lines, rest = data.split(b"\n")
    out = Testimony({}, 0, {}, {}, {}, "", damaged=not _is_unfinished(rest))
    records = [_record(line) for line in lines]
    summed = any(record is not None and _SUM in record for record in records)
    for record in records:
        if record is None or (_SUM in record) != summed:  # a supervisor of an earlier version wrote no checksums
            out = out._replace(damaged=True)
            continue
        record.pop(_SUM, None)
        out = _add(out, record)
    return out


def _is_unfinished(rest: bytes) -> bool:
    """Return True if the bytes after the last newline are empty or the start of a record, not a damaged line."""
    if _record(rest[:-1]) is not None:  # only its line end is wrong
        return False
    return rest[: len(_BEGINNING)] == _BEGINNING[: len(rest)] and all(32 <= byte < 127 for byte in rest)


def _record(line: bytes) -> Record | None:
    """Return the record of a line, None if the line is damaged."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict):
        return None
    bare = {name: value for name, value in record.items() if name != _SUM}
    return record if _SUM not in record or record[_SUM] == zlib.crc32(encode(bare)) else None


def _add(so_far: Testimony, record: Record) -> Testimony:
    match record.get("t"):
        case "open":
            return so_far._replace(opened=record)
        case "epoch":
            return so_far._replace(epoch=max(so_far.epoch, record["epoch"]))
        case "started":
            so_far.started[record["call"]] = record
        case "exit":
            so_far.exits[record["call"]] = record
        case "note":
            notes = so_far.notes.setdefault(record["call"], {})
            notes.update({name: record[name] for name in NOTES if name in record})
        case "lost":
            return so_far._replace(lost=record["reason"])
    return so_far
