"""One call of the hands in memory: what it printed, was given and waits for; and folders of files as a tar."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable
from typing import BinaryIO, NamedTuple, Protocol

import anyio

from holdfast.clock import Clock
from holdfast.errors import HandsError
from holdfast.facts.hands import HandsProvisioned
from holdfast.hands.base import CallStatus, ExecRequest, ExecResult, FileExpectation, Output
from holdfast.hands.box.stream import cut
from holdfast.hands.box.tar import checked
from holdfast.hands.box.text import Refusal
from holdfast.hands.fake_files import Files, inside

COMMANDS = ("bash", "job", "service")
"""The tools whose calls run a command."""


class Call:
    """One call. `changed` is set, and replaced, whenever something about it is new."""

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
        """Wake all who wait for something about it."""
        self.changed.set()
        self.changed = anyio.Event()

    def status(self, *, gone: bool) -> CallStatus:
        """What is known of it; `gone` when its hands are."""
        state = "finished" if self.result is not None else "unknown" if gone else "running"
        expectation = self.expectation if state == "unknown" else None
        return CallStatus(state, self.result, expectation, self.line, self.ready, self.problem)  # type: ignore[arg-type]

    def prints(self, text: str) -> bool:
        """It printed something. True when that holds the line that is waited for, for the first time."""
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
        """What it printed from there on."""
        after = min(after, len(self.printed))
        return Output(*cut(self.printed[after:], after, after, max_bytes, over=over))

    def give(self, data: bytes, offset: int, *, close: bool) -> bool:
        """Take input. True when that was the last of it. Raises `HandsError`."""
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
    """One incarnation: its calls, who may ask, and whether it lives."""

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
    """Something that happens at a time. Two at the same time happen in the order they were planned."""

    when_s: float
    order: int
    what: Callable[[], None]
    made: Incarnation


class Stage(Protocol):
    """What hands in memory need of the provider that made them."""

    clock: Clock

    def find(self, identity: HandsProvisioned) -> Incarnation | None:
        """The incarnation as far as this machine, in this boot, can know it."""
        ...

    def files(self, workspace: str) -> Files:
        """The files of a workspace."""
        ...

    def settle(self) -> None:
        """Bring about everything that the clock has passed."""
        ...

    def next_due(self) -> float:
        """Seconds until something happens by itself."""
        ...

    def begin(self, made: Incarnation, call_id: str, request: ExecRequest) -> None:
        """Start a call."""
        ...

    def give(self, made: Incarnation, call: Call, data: bytes, offset: int, *, close: bool) -> None:
        """Give a call input."""
        ...

    def cancel(self, made: Incarnation, call: Call) -> None:
        """End a running call now."""
        ...

    def pause(self, made: Incarnation) -> None:
        """Nothing of these hands happens any more."""
        ...

    def resume(self, made: Incarnation) -> None:
        """It goes on."""
        ...

    def erase(self, made: Incarnation) -> None:
        """Take an incarnation away with its journal."""
        ...


def packed(files: Files, path: str, target: BinaryIO) -> int:
    """Write the files under a path as a tar; its size in bytes."""
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
    """Put what a tar holds under a path; the number of its entries. Links become copies, folders nothing."""
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
