"""glob and grep on real files."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import Any

from holdfast.hands.box.files import inside
from holdfast.hands.box.text import Lines, Refusal, expression, is_binary, matching_lines, pattern_of

GREP_FILE_MAX = 16 * 1024 * 1024
"""Bytes of a file beyond which grep passes over it."""

_SKIP = frozenset({".git", ".hg", ".svn"})


def glob(given: dict[str, Any], place: dict[str, Any], cap: int) -> dict[str, Any]:
    """Files whose path matches, newest first."""
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
    """Where to look and for what: an absolute pattern is taken apart at its first wildcard."""
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
    """Relative to the workspace where it lies in it."""
    root = place["root"].rstrip("/") + "/"
    return path[len(root) :] if path.startswith(root) else path


def grep(given: dict[str, Any], place: dict[str, Any], cap: int) -> dict[str, Any]:
    """Lines that match, as `path:line:text`."""
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
