"""Objects of a user's repository as bytes: their names, trees, commits, and the pack they travel in to the store."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from holdfast.errors import RepositoryUnfit
from holdfast.globs import matches
from holdfast.repo.base import shown
from holdfast.repo.objects import CHUNK, Changing, entry_header
from holdfast.repo.plumbing import Plumbing
from holdfast.repo.plumbing.place import ObjectFormat
from holdfast.repo.plumbing.refs import is_hex
from holdfast.repo.repository import FileChange

FILE, PROGRAM, LINK, FOLDER, SUBMODULE = 0o100644, 0o100755, 0o120000, 0o040000, 0o160000

MAX_FILES = 1_000_000

_HEADER = b"PACK\0\0\0\2"
_IGNORED_BY_HFS = frozenset(
    "\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u206a\u206b\u206c\u206d\u206e\u206f\ufeff"
)
_GIT_BEGINS = frozenset((b".", b"g", b"G", b"\xe2", b"\xef"))


class Entry(NamedTuple):
    """One file, link or submodule of a tree: its mode as git has it, and the name of its object in hex."""

    mode: int
    id: str


Entries = Mapping[bytes, Entry]
"""A whole tree: path → entry. Folders are not in it."""


def is_git_name(name: bytes) -> bool:
    """True for a name that some file system takes for `.git`; such entries are never read, kept, or written."""
    if b"\\" not in name and name[:1] not in _GIT_BEGINS:
        return False
    text = name.decode("utf-8", "surrogateescape")
    plain = "".join([char for char in text if char not in _IGNORED_BY_HFS]).lower()
    return any(part.split(":")[0].rstrip(" .") in (".git", "git~1") for part in plain.split("\\"))


def is_plain_path(path: bytes) -> bool:
    """True for a path that stays in its folder and does not lead into `.git`."""
    return not any(part in (b"", b".", b"..") or is_git_name(part) for part in path.split(b"/"))


def object_hash(form: ObjectFormat, kind: str, size: int) -> hashlib._Hash:
    """Return the hash of an object, to be updated with its bytes."""
    return hashlib.new(form, f"{kind} {size}\0".encode(), usedforsecurity=False)


def object_id(form: ObjectFormat, kind: str, data: bytes) -> str:
    """Return the name of an object, in hex."""
    digest = object_hash(form, kind, len(data))
    digest.update(data)
    return digest.hexdigest()


def commit_bytes(tree: str, parents: Sequence[str], message: str, at_us: int, identity: tuple[str, str]) -> bytes:
    """Return a commit object: the same arguments make the same bytes. `at_us` is rounded down to whole seconds."""
    who = f"{identity[0]} <{identity[1]}> {at_us // 1_000_000} +0000"
    text = message.replace("\0", "").strip("\n") + "\n"
    head = [f"tree {tree}", *[f"parent {parent}" for parent in parents], f"author {who}", f"committer {who}"]
    return ("\n".join(head) + "\n\n" + text).encode("utf-8", "replace")


def trees(form: ObjectFormat, entries: Entries) -> tuple[str, dict[str, bytes]]:
    """Return the tree objects of all folders: the name of the root, and each by its name."""
    made: dict[str, bytes] = {}
    below: dict[bytes, list[tuple[bytes, bytes]]] = {b"": []}
    for path in entries:
        at = path
        while at:
            at = at.rpartition(b"/")[0]
            if at in below:
                break
            below[at] = []
    for path, entry in entries.items():
        folder, _, name = path.rpartition(b"/")
        below[folder].append((name, b"%o %b\0%b" % (entry.mode, name, bytes.fromhex(entry.id))))
    top = ""
    for folder in sorted(below, key=lambda each: (-(each.count(b"/") + bool(each)), each)):
        data = b"".join([row for _, row in sorted(below[folder])])
        top = object_id(form, "tree", data)
        made[top] = data
        if folder:
            parent, _, name = folder.rpartition(b"/")
            below[parent].append((name + b"/", b"%o %b\0%b" % (FOLDER, name, bytes.fromhex(top))))
    return top, made


def kept_mode(found: os.stat_result) -> int:
    """Return the git mode of a regular file, which depends on the executable bit of its owner."""
    return PROGRAM if found.st_mode & stat.S_IXUSR else FILE


class Pack:
    """A pack that is being written, in a file without a name. Objects in `known` are left out."""

    def __init__(self, folder: Path, form: ObjectFormat, known: Iterable[str]) -> None:
        self._form: ObjectFormat = form
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder, buffering=CHUNK)
        self._file.write(_HEADER + bytes(4))
        self._in = set(known)
        self.count = 0
        self.bytes = 0

    def add(self, kind: str, data: bytes) -> str:
        """Add an object from memory. Returns its name."""
        name = object_id(self._form, kind, data)
        if name not in self._in:
            self._in.add(name)
            self._file.write(entry_header(kind, len(data)) + zlib.compress(data, 1))
            self.count += 1
            self.bytes += len(data)
        return name

    def add_file(self, fd: int, size: int) -> str:
        """Add the next `size` bytes of a file, without holding them. Raises `Changing` if there are fewer."""
        start = self._file.tell()
        digest, squeeze, left = object_hash(self._form, "blob", size), zlib.compressobj(1), size
        self._file.write(entry_header("blob", size))
        while left:
            chunk = os.read(fd, min(left, CHUNK))
            if not chunk:
                self._cut(start)
                raise Changing
            left -= len(chunk)
            digest.update(chunk)
            self._file.write(squeeze.compress(chunk))
        self._file.write(squeeze.flush())
        name = digest.hexdigest()
        if name in self._in:
            self._cut(start)
        else:
            self._in.add(name)
            self.count += 1
            self.bytes += size
        return name

    def _cut(self, start: int) -> None:
        self._file.seek(start)
        self._file.truncate()

    def finish(self) -> IO[bytes]:
        """Complete the pack; returns its file, at the beginning."""
        self._file.seek(len(_HEADER))
        self._file.write(self.count.to_bytes(4))
        self._file.seek(0)
        digest = hashlib.new(self._form, usedforsecurity=False)
        while chunk := self._file.read(CHUNK):
            digest.update(chunk)
        self._file.write(digest.digest())
        self._file.flush()
        os.lseek(self._file.fileno(), 0, os.SEEK_SET)
        return self._file

    def close(self) -> None:
        """Close the file. Safe to repeat."""
        self._file.close()


MAX_FILES_BYTES = 64 << 20
"""Maximum bytes that `files` returns at once."""

_LINE_MAX = 1 << 16


TREES_KEPT_FILES = 50_000
"""Maximum number of entries in all cached trees together."""

_TREES: dict[tuple[Path, str], dict[bytes, Entry]] = {}
"""Trees by repository and name: a name identifies its content, so an entry is never stale."""


def read_tree(git: Plumbing, tree: str) -> dict[bytes, Entry]:
    """Return all entries of a commit or a tree. Raises `RepositoryUnfit` if there are too many, or it is unreadable."""
    key = (git.path, tree)
    if (known := _TREES.get(key)) is not None:
        return dict(known)
    out: dict[bytes, Entry] = {}
    with git.start(("ls-tree", "-r", "-z", "--full-tree", tree)) as process:
        assert process.stdout is not None
        for line in _lines(process.stdout):
            head, _, path = line.partition(b"\t")
            mode, _, name = head.decode().split(" ")
            if path in out or len(out) >= MAX_FILES:
                raise RepositoryUnfit(
                    f"the tree {tree[:12]} in {git.path} has more than {MAX_FILES:,} files, or one path twice "
                    f"({shown(path)[:100]!r}); nothing was changed: name another commit"
                )
            out[path] = Entry(_mode(int(mode, 8)), name)
        if process.wait():
            raise git.unfit(f"reading the tree {tree[:12]}", "it is not there, or damaged")
    if is_hex(tree) and len(out) <= TREES_KEPT_FILES:
        if sum(map(len, list(_TREES.values()))) + len(out) > TREES_KEPT_FILES:
            _TREES.clear()
        _TREES[key] = dict(out)
    return out


def _mode(mode: int) -> int:
    """Return the mode that git writes today: old trees have files with other bits."""
    return (PROGRAM if mode & stat.S_IXUSR else FILE) if stat.S_ISREG(mode) else mode


def _lines(source: IO[bytes]) -> Iterator[bytes]:
    rest = b""
    while chunk := source.read(CHUNK):
        *lines, rest = (rest + chunk).split(b"\0")
        yield from lines
        if len(rest) > _LINE_MAX:
            raise RepositoryUnfit("a tree has a path longer than any file system takes; nothing was changed")


@contextmanager
def contents(git: Plumbing, names: Iterable[str]) -> Iterator[IO[bytes]]:
    """Return the answers of `git cat-file --batch` for these objects, in order."""
    with tempfile.TemporaryFile(dir=git.scratch()) as asked:
        for name in names:
            asked.write(name.encode() + b"\n")
        asked.seek(0)
        with git.start(("cat-file", "--batch", "--buffer"), stdin=asked) as process:
            assert process.stdout is not None
            yield process.stdout


def read_blobs(git: Plumbing, entries: Entries, limit: int) -> dict[bytes, bytes]:
    """Return the bytes of each of these files. Raises `RepositoryUnfit` for more than `limit` together."""
    out: dict[bytes, bytes] = {}
    left = limit
    with contents(git, [entry.id for entry in entries.values()]) as answers:
        for path, entry in entries.items():
            words = answers.readline().split()
            if len(words) != 3 or words[0] != entry.id.encode() or words[1] != b"blob":
                raise git.unfit(f"reading {shown(path)}", f"the object {entry.id} is not there, or damaged")
            left -= int(words[2])
            if left < 0:
                raise RepositoryUnfit(
                    f"the files that were asked for in {git.path} have more than {limit:,} bytes together; nothing was "
                    "changed: ask for fewer"
                )
            out[path] = answers.read(int(words[2]))
            answers.read(1)
    return out


def chosen(entries: Entries, globs: Sequence[str]) -> dict[bytes, Entry]:
    """Return the regular files whose paths match any of the globs; without globs, all."""
    return {
        path: entry
        for path, entry in entries.items()
        if entry.mode in (FILE, PROGRAM) and (not globs or matches(shown(path), globs))
    }


def grafted(entries: Entries, onto: Entries, globs: Sequence[str]) -> dict[bytes, Entry]:
    """Return `entries` with all paths that match the globs as in `onto`; entries in their way are removed."""
    placed = {path: entry for path, entry in onto.items() if matches(shown(path), globs)}
    folders = {folder for path in placed for folder in _above(path)}
    out = {
        path: entry
        for path, entry in entries.items()
        if path not in folders and not matches(shown(path), globs) and not any(each in placed for each in _above(path))
    }
    return out | placed


def overlaid(entries: Entries, added: Mapping[str, str], changed: Iterable[str]) -> dict[bytes, Entry]:
    """Return `entries` without the paths `changed`, and with the blobs `added`; entries in their way are removed."""
    gone = {path.encode() for path in changed}
    new = {name: Entry(_kept(entries.get(name)), blob) for path, blob in added.items() if (name := path.encode())}
    folders = {folder for path in new for folder in _above(path)}
    out = {
        path: entry
        for path, entry in entries.items()
        if path not in gone and path not in folders and not any(each in new for each in _above(path))
    }
    return out | new


def _kept(entry: Entry | None) -> int:
    return PROGRAM if entry is not None and entry.mode == PROGRAM else FILE


def _above(path: bytes) -> Iterator[bytes]:
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


def read_changes(raw: bytes) -> list[FileChange]:
    """Parse the output of `git diff-tree -r -z --raw --numstat --no-renames`."""
    words = iter(raw.split(b"\0"))
    found: dict[bytes, tuple[str, str]] = {}
    lines: dict[bytes, tuple[int, int]] = {}
    for word in words:
        if word.startswith(b":"):
            _, mode, _, _, status = word.decode().split(" ")
            found[next(words)] = (status, mode)
        elif word:
            added, removed, path = word.split(b"\t", 2)
            lines[path] = (_count(added), _count(removed))
    return [_change(path, *found[path], *lines.get(path, (0, 0))) for path in sorted(found)]


def _count(text: bytes) -> int:
    return int(text) if text.isdigit() else 0  # git prints a dash for binary files


def _change(path: bytes, status: str, mode: str, added: int, removed: int) -> FileChange:
    if status == "A":
        return FileChange(shown(path), "added", mode, added, removed)
    if status == "D":
        return FileChange(shown(path), "removed", "", added, removed)
    return FileChange(shown(path), "changed", mode, added, removed)
