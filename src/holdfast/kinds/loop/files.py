"""Files of a loop's workspace: items, progress.txt, analysis.json, and the files that a command must not change.

The harness reads and writes them as data: it follows no links and executes nothing (S25).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from holdfast.errors import CannotRunSafely, ContractInvalid
from holdfast.facts.mission import Check, Item
from holdfast.kinds.mission.contract.formats.files import entries_in, marked, read_contract, write_back
from holdfast.kinds.mission.contract.formats.positions import decode, parse

PROGRESS = "progress.txt"
ANALYSIS = "analysis.json"
ITEM_FILES = ("prd.json", "feature_list.json")
"""Names of the items file, in the order in which they are tried."""

BYTES_MAX = 1 << 20
"""Largest loop file that is read, in bytes."""

TASKS_MAX = 50
"""Most tasks in the plan of a chain."""

CACHES = frozenset(
    {".git", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", "node_modules", ".venv", "venv", ".tox"}
)
"""Folders that every test run changes; changes in them are not progress."""

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HASHED_MAX = 4 << 20
_ENTRIES_MAX = 50_000


# --- items -------------------------------------------------------------------------------------------


class Board(msgspec.Struct, frozen=True):
    """Items of a file, the ids of those marked as passing, and the source text of each item."""

    file: str
    items: tuple[Item, ...]
    passing: frozenset[str]
    entries: dict[str, str]

    def unfinished(self) -> list[Item]:
        """Unfinished items, ordered by dependencies, then by priority number (lowest first), then by file order."""
        waiting = sorted((item for item in self.items if item.id not in self.passing), key=lambda item: item.priority)
        return [item for item in waiting if self.passing.issuperset(item.depends)] or waiting


def checks_of(item: Item) -> tuple[Check, ...]:
    """Commands that verify an item."""
    return tuple(each.check for each in item.criteria if each.check is not None)


def read_board(data: bytes, name: str) -> Board:
    """Read the items of a file. Raises `ContractInvalid` if it is malformed, empty, or not a list of items."""
    contract = read_contract(data, name)
    source = decode(data, name)
    entries = [source.text[entry.start : entry.end] for _, entry in entries_in(parse(source))]
    if not contract.items or len(entries) != len(contract.items):
        raise ContractInvalid(
            f'{name} has no list of items; a valid form is {{"userStories": [{{"id": "US-001", "title": "Greet by '
            'name", "check": "pytest tests/test_greet.py", "passes": false}]}'
        )
    names = (item.id for item in contract.items)
    return Board(name, contract.items, marked(data, contract), dict(zip(names, entries, strict=True)))


def mark(data: bytes, name: str, passed: Collection[str], lost: Collection[str] = ()) -> bytes:
    """Set `passes` to true for `passed` items and to false for lost ones, and change no other byte."""
    contract = read_contract(data, name)
    passing = marked(data, contract).union(passed).difference(lost)
    met = {criterion.id for item in contract.items if item.id in passing for criterion in item.criteria}
    return write_back(data, contract, met)


def edits(before: bytes, after: bytes | None, name: str) -> str:
    """Describe the changes that a command made to the items file."""
    if after is None:
        return f"{name} was removed or replaced by something that is not a file"
    board = read_board(before, name)
    try:
        now = read_board(after, name)
    except ContractInvalid as error:
        return f"{name} was made unreadable ({error})"
    said = []
    for changed, value in ((now.passing - board.passing, "true"), (board.passing - now.passing, "false")):
        if names := [item.id for item in now.items if item.id in changed]:
            said.append(f"`passes` of {', '.join(names)} was set to {value}")
    if now.items != board.items:
        said.append("the items themselves were changed")
    return f"{name}: {'; '.join(said) or 'other parts of it were changed'}"


# --- files of a chain --------------------------------------------------------------------------------

_Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
_BRANCH = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]|/(?=[A-Za-z0-9])){0,99}")


class Analysis(msgspec.Struct, frozen=True):
    """Content of analysis.json: the one change chosen from a report."""

    priority_item: _Text
    description: _Text
    rationale: _Text
    acceptance_criteria: Annotated[tuple[_Text, ...], msgspec.Meta(min_length=1)]
    branch_name: str


def read_analysis(data: bytes | None) -> Analysis:
    """Read analysis.json. Raises `ContractInvalid`."""
    if data is None:
        raise ContractInvalid(f"{ANALYSIS} was not written")
    try:
        found = msgspec.convert(json.loads(data), Analysis)
    except msgspec.ValidationError as error:
        raise ContractInvalid(f"{ANALYSIS} has the wrong form: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ContractInvalid(f"{ANALYSIS} is not JSON: {error}") from None
    name = found.branch_name
    if not _BRANCH.fullmatch(name) or ".." in name or name.endswith((".lock", ".", "/")):
        raise ContractInvalid(f"`branch_name` in {ANALYSIS} must be the name of a branch, such as feature/short-name")
    return found


def check_tasks(data: bytes | None, name: str, *, until: str) -> None:
    """Check the plan of a chain: a prd.json in which no task is done yet. Raises `ContractInvalid`."""
    if data is None:
        raise ContractInvalid(f"{name} was not written")
    board = read_board(data, name)
    value = json.loads(data.decode("utf-8-sig"))
    if not isinstance(value, dict) or "tasks" not in value:
        raise ContractInvalid(f"{name} must be an object with `tasks`")
    if len(board.items) > TASKS_MAX:
        raise ContractInvalid(f"{name} has {len(board.items)} tasks; at most {TASKS_MAX} fit one chain")
    if early := [item.id for item in board.items if item.id in board.passing]:
        raise ContractInvalid(f"`passes` of {', '.join(early)} is true in {name}; it must be false for all tasks")
    bare = [item.id for item in board.items if not checks_of(item)]
    if bare and not until:
        raise ContractInvalid(
            f"{', '.join(bare)} in {name} have no `check`: each needs a command that shows that it is done"
        )


# --- the guard ---------------------------------------------------------------------------------------


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """File before an iteration, as a plan stores it: text, binary content, or `there` false if it did not exist."""

    text: str = ""
    raw: bytes = b""
    there: bool = True

    @classmethod
    def of(cls, data: bytes | None) -> Kept:
        """Return the record of this content."""
        if data is None:
            return cls(there=False)
        try:
            return cls(data.decode())
        except UnicodeDecodeError:
            return cls(raw=data)

    @property
    def data(self) -> bytes | None:
        """Content of the file, or None if it did not exist."""
        return (self.raw or self.text.encode()) if self.there else None


def guard(
    items: str, before: Mapping[str, Kept], now: Mapping[str, bytes | None]
) -> tuple[list[str], dict[str, bytes]]:
    """Return notes on a command's changes to protected files, and the files that undo them.

    `items` names the items file, or is empty in the stages of a chain that write it. In progress.txt, a command may
    only add lines.
    """
    notes: list[str] = []
    files: dict[str, bytes] = {}
    original, found = before.get(items, Kept(there=False)).data, now.get(items)
    if original is not None and found != original:
        said = edits(original, found, items)
        notes.append(f"the command changed a file of the harness: {said}; put back")
        files[items] = original
    told, found = before.get(PROGRESS, Kept()).data, now.get(PROGRESS)
    if told and not holds(told, found or b""):
        gone = f"removed or replaced {PROGRESS}"
        notes.append(f"the command {gone if found is None else f'took lines out of {PROGRESS}'}; put back")
        known = set(told.splitlines())
        added = [line for line in (found or b"").splitlines() if line not in known]
        files[PROGRESS] = b"\n".join([told.rstrip(b"\n"), *added]) + b"\n"
    return notes, files


def holds(before: bytes, now: bytes) -> bool:
    """Return True if all lines of `before` are still there in order. New lines may come between them."""
    lines = iter(now.splitlines())
    return all(any(line == other for other in lines) for line in before.splitlines())


# --- reading and writing -----------------------------------------------------------------------------


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[int]:
    """Open the folder itself, so that a later change of its path has no effect. Raises `CannotRunSafely`."""
    try:
        fd = os.open(folder, _FOLDER)
    except OSError as error:
        raise CannotRunSafely(
            f"the workspace {folder} cannot be opened ({error.strerror}); nothing was lost: restore it, then wake the "
            "session"
        ) from error
    try:
        yield fd
    finally:
        os.close(fd)


def read(folder: int, name: str) -> bytes | None:
    """Read a regular file of the folder. Return None if it is missing, too large, or not a regular file."""
    try:
        fd = os.open(name, _FILE, dir_fd=folder)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    with os.fdopen(fd, "rb") as stream:
        data = stream.read(BYTES_MAX + 1)
    return data if len(data) <= BYTES_MAX else None


def write(folder: int, name: str, data: bytes) -> None:
    """Replace any entry of that name with a file owned by the folder's owner. Raises `CannotRunSafely`."""
    aside = f".{name}.holdfast"
    above = os.fstat(folder)
    mode = 0o644
    try:
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                mode = stat.S_IMODE(found.st_mode) & 0o666 | stat.S_IRUSR | stat.S_IWUSR
        _move_folder(folder, name)
        _move_folder(folder, aside)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(aside, dir_fd=folder)
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        with os.fdopen(fd, "wb") as stream:
            stream.write(data)
            stream.flush()
            if os.geteuid() == 0:
                os.fchown(fd, above.st_uid, above.st_gid)
            os.fchmod(fd, mode)
            os.fsync(fd)
        os.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    except OSError as error:
        raise CannotRunSafely(
            f"{name} cannot be written in the workspace ({error.strerror}); its content is safe in the log: fix this, "
            "then wake the session"
        ) from error


def _move_folder(folder: int, name: str) -> None:
    """Rename a folder that has the name of a file, to keep its content."""
    names = os.listdir(folder)
    if name not in names or not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return
    free = next((each for n in range(1, 100) if (each := f"{name}.moved-{n}") not in names), name)
    os.rename(name, free, src_dir_fd=folder, dst_dir_fd=folder)


def tree_digest(folder: int, items: str) -> str:
    """SHA-256 (hex) of the folder's names, modes, and contents, without progress.txt and the items file.

    Very large files count by size and time; beyond many thousand entries, only names count.
    """
    digest = hashlib.sha256()
    entries = 0
    for path, folders, files, fd in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
        folders[:] = sorted(name for name in folders if name not in CACHES)
        for name in sorted(files):
            if path == "." and (name in (PROGRESS, items) or name.endswith(".holdfast")):
                continue
            entries += 1
            digest.update(f"{path}/{name}".encode("utf-8", "surrogateescape") + b"\0")
            if entries <= _ENTRIES_MAX:
                digest.update(_content_mark(fd, name))
    return digest.hexdigest()


def _content_mark(folder: int, name: str) -> bytes:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            return b"link " + os.readlink(os.fsencode(name), dir_fd=folder)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _HASHED_MAX:
            return f"{found.st_mode} {found.st_size} {found.st_mtime_ns}".encode()
        fd = os.open(name, _FILE, dir_fd=folder)
    except OSError:
        return b"gone"
    with os.fdopen(fd, "rb") as stream:
        return f"{found.st_mode} ".encode() + hashlib.sha256(stream.read(_HASHED_MAX)).digest()
