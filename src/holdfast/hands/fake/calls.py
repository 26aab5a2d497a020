"""Tool calls of the in-memory hands, and the six tools on in-memory files, with the messages of the real ones."""

from __future__ import annotations

import hashlib
import io
import posixpath
import re
import tarfile
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, BinaryIO, NamedTuple, Protocol

import anyio

from holdfast.clock import Clock
from holdfast.errors import HandsError
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.tool import FileSeen
from holdfast.hands.base import CallStatus, ExecRequest, ExecResult, FileExpectation, Output
from holdfast.hands.box.agent.archive import checked
from holdfast.hands.box.agent.output import cut
from holdfast.hands.box.agent.text import (
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

COMMANDS = ("bash", "job", "service")
"""Tools whose calls run a command."""


class Call:
    """One call. `changed` is set, and replaced, whenever the call changes."""

    def __init__(
        self, call_id: str, request: ExecRequest, expectation: FileExpectation | None, started_s: float
    ) -> None:
        self.call_id = call_id
        self.request = request
        self.expectation = expectation
        self.started_s = started_s
        self.running = True
        self.outcome: ExecResult | None = None
        self.result: ExecResult | None = None
        self.printed = b""
        self.given = b""
        self.closed = not (request.tool in COMMANDS and request.input.get("stdin"))
        self.held_s: float | None = None
        self.line: str | None = None
        self.problem = ""
        self.ready = "waiting" if request.tool == "service" and request.input.get("health") else ""
        self.listeners = 0
        self.changed = anyio.Event()

    def tell(self) -> None:
        """Wake all waiters of the call."""
        self.changed.set()
        self.changed = anyio.Event()

    def status(self, *, gone: bool) -> CallStatus:
        """Return the status of the call; `gone` is True when its hands are gone."""
        state = "finished" if self.result is not None else "unknown" if gone else "running"
        expectation = self.expectation if state == "unknown" else None
        return CallStatus(state, self.result, expectation, self.line, self.ready, self.problem)  # type: ignore[arg-type]

    def prints(self, text: str) -> bool:
        """Add output. True if the expected line comes for the first time."""
        self.printed += text.encode("utf-8", "replace")
        pattern = self.request.input.get("line")
        if not pattern or self.line is not None or self.request.tool != "job":
            return False
        try:
            found = next((line for line in text.splitlines() if re.search(pattern, line)), None)
        except re.error as error:
            self.problem = f"{pattern!r} is no regular expression: {error}"
            return True
        self.line = found
        return found is not None

    def output(self, after: int, max_bytes: int, *, over: bool) -> Output:
        """Return the output from that position on."""
        after = min(after, len(self.printed))
        return Output(*cut(self.printed[after:], after, after, max_bytes, over=over))

    def give(self, data: bytes, offset: int, *, close: bool) -> bool:
        """Accept input. True if it was the last. Raises `HandsError`."""
        if not (self.request.tool in COMMANDS and self.request.input.get("stdin")):
            raise HandsError(f"call {self.call_id} has no input; it was started without `stdin`")
        if offset + len(data) <= len(self.given) and not (close and not self.closed):
            return False
        if self.closed or not self.running:
            raise HandsError(f"call {self.call_id} takes no more input; nothing was given")
        if offset > len(self.given):
            raise HandsError(f"call {self.call_id} was given {len(self.given)} bytes, not {offset}; nothing was given")
        self.given += data[len(self.given) - offset :]
        self.closed = close
        return close


class Incarnation:
    """One incarnation: its calls, its epoch, and its state."""

    def __init__(self, identity: HandsProvisioned, epoch: int, session_id: str) -> None:
        self.identity = identity
        self.epoch = epoch
        self.session_id = session_id
        self.calls: dict[str, Call] = {}
        self.gone = ""
        self.erased = False
        self.paused_s: float | None = None
        self.held: list[Due] = []


class Due(NamedTuple):
    """An event at a time. Two at the same time happen in the order in which they were planned."""

    when_s: float
    order: int
    what: Callable[[], None]
    made: Incarnation


class Stage(Protocol):
    """The part of the provider that its in-memory hands use."""

    clock: Clock

    def find(self, identity: HandsProvisioned) -> Incarnation | None:
        """Return the incarnation as far as this machine, in this boot, can know it."""
        ...

    def files(self, workspace: str) -> Files:
        """Return the files of a workspace."""
        ...

    def settle(self) -> None:
        """Process all events up to the current time of the clock."""
        ...

    def next_due(self) -> float:
        """Return the seconds until the next event."""
        ...

    def begin(self, made: Incarnation, call_id: str, request: ExecRequest) -> None:
        """Start a call."""
        ...

    def give(self, made: Incarnation, call: Call, data: bytes, offset: int, *, close: bool) -> None:
        """Write input to a call."""
        ...

    def cancel(self, made: Incarnation, call: Call) -> None:
        """End a running call now."""
        ...

    def pause(self, made: Incarnation) -> None:
        """Pause all events of these hands."""
        ...

    def resume(self, made: Incarnation) -> None:
        """Resume the events of these hands."""
        ...

    def erase(self, made: Incarnation) -> None:
        """Remove an incarnation with its journal."""
        ...


def packed(files: Files, path: str, target: BinaryIO) -> int:
    """Write the files under a path as a tar; returns its size in bytes."""
    base = inside(path)
    out = io.BytesIO()
    with tarfile.open(mode="w", fileobj=out, format=tarfile.PAX_FORMAT) as archive:
        found = sorted(name for name in files if name.startswith(base.rstrip("/") + "/"))
        for name in found:
            member = tarfile.TarInfo(name[len(base.rstrip("/")) + 1 :])
            member.size = len(files[name])
            archive.addfile(member, io.BytesIO(files[name]))
    target.write(out.getvalue())
    return len(out.getvalue())


def unpacked(files: Files, path: str, source: BinaryIO) -> int:
    """Extract a tar under a path; returns the number of its entries. Links become copies; folders are skipped."""
    base = inside(path)
    count = 0
    try:
        with tarfile.open(mode="r|", fileobj=source) as archive:
            for member in archive:
                place = "/".join((base.rstrip("/"), *checked(member)))
                count += 1
                if member.isreg():
                    content = archive.extractfile(member)
                    files[place] = b"" if content is None else content.read()
                elif member.islnk():
                    files[place] = files["/".join((base.rstrip("/"), member.linkname))]
    except (Refusal, tarfile.TarError, KeyError) as problem:
        raise HandsError(f"the tar was not unpacked whole: {problem}") from None
    return count


ROOT = "/workspace"
"""Path of the workspace inside the sandbox."""


class Files(MutableMapping[str, bytes]):
    """Files by absolute path inside the sandbox, with the order of their writes."""

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
        """Return all paths, the most recently written one first."""
        return list(reversed(self._content))


Effect = Callable[[str, Files], tuple[int, str]]
"""Effect of a bash command: command and files → exit status and output. Web requests are `web_fetch URL`."""


def nothing_happens(command: str, files: Files) -> tuple[int, str]:
    """Effect of a command that succeeds without changes or output."""
    return 0, ""


def inside(path: str) -> str:
    """Return the absolute, normal form of a path."""
    return posixpath.normpath(posixpath.join(ROOT, path))


def digest(content: bytes | None) -> str:
    """Return the SHA-256 of a file in hex, empty if it is absent."""
    return "" if content is None else hashlib.sha256(content).hexdigest()


def prepared(request: ExecRequest, files: Files) -> tuple[FileExpectation | None, ExecResult | None]:
    """Return the expected effect of a write or edit, or its refusal; neither for other tools (S8, S18)."""
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
    """Run the tool."""
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
    """Return (path, path relative to `base`) pairs, newest first."""
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
