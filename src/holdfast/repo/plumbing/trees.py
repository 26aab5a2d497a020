"""Trees of a user's repository, read whole: entries by path, contents by name, what differs."""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO

from holdfast.errors import RepositoryUnfit
from holdfast.globs import matches
from holdfast.repo.base import shown
from holdfast.repo.objects import CHUNK
from holdfast.repo.plumbing import Plumbing
from holdfast.repo.plumbing.folder import MAX_FILES
from holdfast.repo.plumbing.objects import FILE, PROGRAM, Entries, Entry
from holdfast.repo.repository import FileChange

MAX_FILES_BYTES = 64 << 20
"""So many bytes `files` gives at once."""

_LINE_MAX = 1 << 16


def read_tree(git: Plumbing, tree: str) -> dict[bytes, Entry]:
    """All entries of a commit or a tree. Raises `RepositoryUnfit` when there are too many, or it cannot be read."""
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
    return out


def _mode(mode: int) -> int:
    """As git writes it now: of old there are files with other bits."""
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
    """The answers of `git cat-file --batch` for these objects, in order."""
    with tempfile.TemporaryFile(dir=git.scratch()) as asked:
        for name in names:
            asked.write(name.encode() + b"\n")
        asked.seek(0)
        with git.start(("cat-file", "--batch", "--buffer"), stdin=asked) as process:
            assert process.stdout is not None
            yield process.stdout


def read_blobs(git: Plumbing, entries: Entries, limit: int) -> dict[bytes, bytes]:
    """The bytes of each of these files. Raises `RepositoryUnfit` when they are more than `limit` together."""
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
    """The regular files whose paths match any of the globs, all without any."""
    return {
        path: entry
        for path, entry in entries.items()
        if entry.mode in (FILE, PROGRAM) and (not globs or matches(shown(path), globs))
    }


def grafted(entries: Entries, onto: Entries, globs: Sequence[str]) -> dict[bytes, Entry]:
    """`entries` with all that matches the globs as it is in `onto`; what is in the way of that goes."""
    placed = {path: entry for path, entry in onto.items() if matches(shown(path), globs)}
    folders = {folder for path in placed for folder in _above(path)}
    out = {
        path: entry
        for path, entry in entries.items()
        if path not in folders and not matches(shown(path), globs) and not any(each in placed for each in _above(path))
    }
    return out | placed


def overlaid(entries: Entries, added: Mapping[str, str], changed: Iterable[str]) -> dict[bytes, Entry]:
    """`entries` without the paths `changed`, and with the blobs `added`; what is in the way of those goes."""
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
    """What `git diff-tree -r -z --raw --numstat --no-renames` says."""
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
    return int(text) if text.isdigit() else 0  # git has a dash for what is no text


def _change(path: bytes, status: str, mode: str, added: int, removed: int) -> FileChange:
    if status == "A":
        return FileChange(shown(path), "added", mode, added, removed)
    if status == "D":
        return FileChange(shown(path), "removed", "", added, removed)
    return FileChange(shown(path), "changed", mode, added, removed)
