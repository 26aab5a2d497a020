"""The six tools on files in memory, with the words and refusals of the real ones."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from holdfast.facts.tool import FileSeen
from holdfast.hands.base import ExecRequest, ExecResult, FileExpectation
from holdfast.hands.box.text import (
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

ROOT = "/workspace"
"""Where the workspace is inside."""


class Files(MutableMapping[str, bytes]):
    """Files by absolute path inside, knowing which was written last."""

    def __init__(self) -> None:
        self._content: dict[str, bytes] = {}

    def __getitem__(self, path: str) -> bytes:
        return self._content[path]

    def __setitem__(self, path: str, content: bytes) -> None:
        self._content.pop(path, None)
        self._content[path] = content

    def __delitem__(self, path: str) -> None:
        del self._content[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)

    def newest_first(self) -> list[str]:
        """All paths, the last written one first."""
        return list(reversed(self._content))


Effect = Callable[[str, Files], tuple[int, str]]
"""What a bash command does: command and files → exit status and output. The web is asked `web_fetch URL`."""


def nothing_happens(command: str, files: Files) -> tuple[int, str]:
    """The effect of a command that succeeds without doing or saying anything."""
    return 0, ""


def inside(path: str) -> str:
    """The absolute, normal form of a path."""
    return posixpath.normpath(posixpath.join(ROOT, path))


def digest(content: bytes | None) -> str:
    """SHA-256 hex of a file, empty when it is absent."""
    return "" if content is None else hashlib.sha256(content).hexdigest()


def prepared(request: ExecRequest, files: Files) -> tuple[FileExpectation | None, ExecResult | None]:
    """What a write or edit will do, or its refusal; neither for other tools (S8, S18)."""
    if request.tool not in ("write", "edit"):
        return None, None
    try:
        path = inside(request.input["file_path"])
        before = digest(files.get(path))
        seen = request.seen.get(path) or request.seen.get(request.input["file_path"]) or ""
        if problem := stale(request.tool, path, path in files, before, seen):
            raise Refusal(problem)
        return FileExpectation(path, before, digest(_wanted(request, path, files))), None
    except Refusal as refusal:
        return None, _said(str(refusal), ok=False)


def _wanted(request: ExecRequest, path: str, files: Files) -> bytes:
    given = request.input
    if request.tool == "write":
        return as_bytes("content", given["content"])
    replace_all = bool(given.get("replace_all"))
    return edited(path, files[path], given["old_string"], given["new_string"], replace_all)


def carry_out(request: ExecRequest, files: Files, expectation: FileExpectation | None, effect: Effect) -> ExecResult:
    """Do it."""
    if request.tool in ("bash", "job", "service"):
        return _bash(request, files, effect)
    if request.tool in ("web_fetch", "web_search"):
        code, output = effect(f"{request.tool} {request.input.get('url', request.input.get('query'))}", files)
        return _said(output[: request.output_cap], ok=code == 0)
    try:
        if expectation is not None:
            return _commit(request, files, expectation)
        tool = {"read": _read, "glob": _glob, "grep": _grep}[request.tool]
        return tool(request.input, files, request.output_cap)
    except Refusal as refusal:
        return _said(str(refusal), ok=False)


def _said(output: str, *, ok: bool = True, files: tuple[FileSeen, ...] = ()) -> ExecResult:
    return ExecResult(ok, output, bytes_total=len(output.encode("utf-8", "replace")), files=files)


def _bash(request: ExecRequest, files: Files, effect: Effect) -> ExecResult:
    command = request.input.get("command")
    if not command:
        return _said("Each command already runs in a new shell; there is nothing to restart.")
    code, output = effect(command, files)
    total = len(output.encode("utf-8", "replace"))
    return ExecResult(code == 0, output[: request.output_cap], exit_code=code, bytes_total=total)


def _commit(request: ExecRequest, files: Files, expectation: FileExpectation) -> ExecResult:
    path = expectation.path
    if digest(files.get(path)) != expectation.before:
        raise Refusal(f"{path} has changed since it was last read; read it again before the {request.tool}")
    content = _wanted(request, path, files)
    files[path] = content
    verb = "Edited" if request.tool == "edit" else "Wrote" if expectation.before else "Made"
    output = f"{verb} {path}." if verb == "Edited" else f"{verb} {path}: {len(content)} bytes."
    return _said(output, files=(FileSeen(path, expectation.after),))


def _read(given: dict[str, Any], files: Files, cap: int) -> ExecResult:
    path = inside(given["file_path"])
    view = View(given.get("view_range"), cap)
    content = files.get(path)
    if content is None:
        raise Refusal(f"{path}: no such file")
    seen = (FileSeen(path, digest(content)),)
    if is_binary(content):
        return _said(f"[{path} is a binary file of {len(content)} bytes; it is not shown]", files=seen)
    lines = content.split(b"\n")
    for line in lines if lines[-1] else lines[:-1]:
        view.add(line, len(line))
    return _said(view.text(path), files=seen)


def _under(base: str, files: Files) -> Iterator[tuple[str, str]]:
    """(path, path relative to `base`), the newest first."""
    for path in files.newest_first():
        relative = posixpath.relpath(path, base)
        if not relative.startswith("../"):
            yield path, relative


def _shown(path: str) -> str:
    return path.removeprefix(ROOT + "/")


def _glob(given: dict[str, Any], files: Files, cap: int) -> ExecResult:
    wanted = pattern_of(given["pattern"].removeprefix(ROOT + "/").removeprefix("./"))
    lines = Lines(cap)
    for path, relative in _under(inside(given.get("path") or "."), files):
        if wanted.match(relative) and not lines.add(_shown(path)):
            break
    return _said(lines.text("[no file matches]"))


def _grep(given: dict[str, Any], files: Files, cap: int) -> ExecResult:
    wanted = expression(given["pattern"])
    base = inside(given.get("path") or ".")
    lines = Lines(cap)
    for path, _ in sorted(_under(base, files)):
        if not is_binary(files[path]):
            for line in matching_lines(_shown(path), files[path], wanted):
                lines.add(line)
    return _said(lines.text("[no line matches]"))
