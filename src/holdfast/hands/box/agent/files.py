"""The read, write, edit, glob, and grep tools on real files. A write makes a new file that replaces the old one."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import Any

from holdfast.hands.box.agent.text import (
    LINE_KEPT,
    Lines,
    Refusal,
    View,
    as_bytes,
    edited,
    expression,
    is_binary,
    matching_lines,
    pattern_of,
    stale,
)

EDIT_MAX = 64 * 1024 * 1024
"""Largest file in bytes that edit accepts."""

_CHUNK = 1 << 20


def sha256(content: bytes = b"") -> Any:
    """Return a running SHA-256. Loading OpenSSL takes as long as a third of the agent: only calls that need it do."""
    import hashlib

    return hashlib.sha256(content)


def inside(place: dict[str, Any], path: str) -> str:
    """Return the absolute, normal form of a path. Relative paths begin at the workspace."""
    if not path or "\0" in path:
        raise Refusal("the path is empty or holds a zero byte")
    return os.path.normpath(os.path.join(place["root"], path))


def read(given: dict[str, Any], place: dict[str, Any], cap: int) -> dict[str, Any]:
    """Return numbered lines, and the digest of the whole file."""
    path = inside(place, given["file_path"])
    view = View(given.get("view_range"), cap)
    digest = sha256()
    with open(_open(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_CHUNK)
        digest.update(head)
        if is_binary(head):
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
            output = f"[{path} is a binary file of {size} bytes; it is not shown]"
        else:
            for line, length in _lines(head, file, digest):
                view.add(line, length)
            output = view.text(path)
    return {"ok": True, "output": output, "files": [{"path": path, "digest": digest.hexdigest()}]}


def _lines(head: bytes, file: Any, digest: Any) -> Iterator[tuple[bytes, int]]:
    """Yield each line's beginning and its length, in bounded memory for any length."""
    rest, length = b"", 0
    chunk = head
    while chunk:
        *whole, last = chunk.split(b"\n")
        for part in whole:
            yield (rest + part)[:LINE_KEPT], length + len(part)
            rest, length = b"", 0
        rest = (rest + last)[:LINE_KEPT]
        length += len(last)
        chunk = file.read(_CHUNK)
        digest.update(chunk)
    if length:
        yield rest, length


def _open(path: str) -> int:
    """Open a regular file. Never waits for the other end of a pipe."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise Refusal(f"{path}: {_why(error)}") from None
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        kind = "a folder; list it with glob" if stat.S_ISDIR(mode) else "not a regular file"
        raise Refusal(f"{path} is {kind}")
    return fd


def _why(error: OSError) -> str:
    return {2: "no such file", 13: "permission denied", 30: "it is read-only here"}.get(
        error.errno or 0, error.strerror or str(error)
    )


def prepare(tool: str, given: dict[str, Any], place: dict[str, Any], seen: dict[str, str]) -> dict[str, str]:
    """Return the expected effect of a write or edit: path, digests before and after (S8, S18)."""
    path = inside(place, given["file_path"])
    old, new = _contents(tool, path, given, seen.get(path) or seen.get(given["file_path"]) or "")
    return {
        "path": path,
        "before": "" if old is None else sha256(old).hexdigest(),
        "after": sha256(new).hexdigest(),
    }


def _contents(tool: str, path: str, given: dict[str, Any], seen: str | None) -> tuple[bytes | None, bytes]:
    """Return the current content (None: absent) and the wanted one. `seen` None: already checked."""
    old = _current(path)
    before = "" if old is None else sha256(old).hexdigest()
    if seen is not None and (problem := stale(tool, path, old is not None, before, seen)):
        raise Refusal(problem)
    if tool == "write":
        return old, as_bytes("content", given["content"])
    new = edited(path, old or b"", given["old_string"], given["new_string"], bool(given.get("replace_all")))
    return old, new


def _current(path: str) -> bytes | None:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Refusal(f"{path}: {_why(error)}") from None
    if status.st_size > EDIT_MAX:
        raise Refusal(f"{path} has {status.st_size} bytes; change a file of more than {EDIT_MAX} with bash")
    with open(_open(path), "rb") as file:
        return file.read()


def commit(tool: str, given: dict[str, Any], place: dict[str, Any], expect: dict[str, str]) -> dict[str, Any]:
    """Apply the prepared change if the file has not changed since."""
    path = expect["path"]
    old, new = _contents(tool, path, given, None)
    before = "" if old is None else sha256(old).hexdigest()
    if before != expect["before"]:
        raise Refusal(f"{path} has changed since it was last read; read it again before the {tool}")
    _replace(os.path.realpath(path), new)
    if tool == "edit":
        what = f"Edited {path}."
    else:
        what = f"{'Wrote' if old is not None else 'Made'} {path}: {len(new)} bytes."
    return {"ok": True, "output": what, "files": [{"path": path, "digest": expect["after"]}]}


def _replace(target: str, content: bytes) -> None:
    """Replace `target` with `content` atomically, keeping its mode."""
    folder = os.path.dirname(target)
    temporary = os.path.join(folder, f".holdfast-{os.getpid()}.tmp")
    try:
        os.makedirs(folder, exist_ok=True)
        mode = _mode(target)
        if os.path.lexists(temporary):
            os.unlink(temporary)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "wb") as file:
                file.write(content)
                os.fchmod(fd, mode)
            os.rename(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise Refusal(f"{target} could not be written: {_why(error)}; it is unchanged") from None


def _mode(target: str) -> int:
    try:
        return stat.S_IMODE(os.stat(target).st_mode) & 0o777
    except FileNotFoundError:
        return 0o644


GREP_FILE_MAX = 16 * 1024 * 1024
"""Size in bytes above which grep skips a file."""

_SKIP = frozenset({".git", ".hg", ".svn"})


def glob(given: dict[str, Any], place: dict[str, Any], cap: int) -> dict[str, Any]:
    """Return the files whose path matches, newest first."""
    base, pattern = _base(given, place)
    wanted = pattern_of(pattern)
    found: list[tuple[int, str]] = []
    for path in _walk(base, skip=not (_SKIP & set(pattern.split("/")))):
        if wanted.match(os.path.relpath(path, base)):
            status = os.lstat(path)
            found.append((-status.st_mtime_ns, path))
    found.sort()
    lines = Lines(cap)
    for _, path in found:
        if not lines.add(_shown(path, place)):
            break
    return {"ok": True, "output": lines.text("[no file matches]")}


def _base(given: dict[str, Any], place: dict[str, Any]) -> tuple[str, str]:
    """Return the search folder and pattern: an absolute pattern is split at its first wildcard."""
    pattern = given["pattern"]
    base = inside(place, given.get("path") or ".")
    if pattern.startswith("/"):
        parts = pattern.split("/")
        fixed = next((at for at, part in enumerate(parts) if re.search(r"[*?\[{]", part)), len(parts) - 1)
        base, pattern = "/".join(parts[:fixed]) or "/", "/".join(parts[fixed:])
    if not os.path.isdir(base):
        raise Refusal(f"{base} is not a folder")
    return base, pattern.removeprefix("./")


def _walk(base: str, skip: bool) -> Iterator[str]:
    for folder, folders, names in os.walk(base):
        folders[:] = sorted(name for name in folders if not (skip and name in _SKIP))
        for name in sorted(names):
            yield os.path.join(folder, name)


def _shown(path: str, place: dict[str, Any]) -> str:
    """Return the path relative to the workspace if it is in it."""
    root = place["root"].rstrip("/") + "/"
    return path[len(root) :] if path.startswith(root) else path


def grep(given: dict[str, Any], place: dict[str, Any], cap: int) -> dict[str, Any]:
    """Return the matching lines as `path:line:text`."""
    wanted = expression(given["pattern"])
    base = inside(place, given.get("path") or ".")
    if not os.path.lexists(base):
        raise Refusal(f"{base}: no such file or folder")
    lines = Lines(cap)
    passed = 0
    for path in [base] if not os.path.isdir(base) else _walk(base, skip=True):
        data = _searchable(path)
        if data is None:
            passed += 1
            continue
        if not all(lines.add(line) for line in matching_lines(_shown(path, place), data, wanted)):
            break
    nothing = (
        "[no line matches]" if not passed else f"[no line matches; {passed} binary or very large files not searched]"
    )
    return {"ok": True, "output": lines.text(nothing)}


def _searchable(path: str) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return None
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > GREP_FILE_MAX:
            return None
        data = file.read()
    return None if is_binary(data) else data
