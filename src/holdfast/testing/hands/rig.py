"""What a check needs of a provider, and the few words that checks are written in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from holdfast.hands.base import ExecRequest, ExecResult, Hands, HandsSpec, Provider
from holdfast.hands.fake.calls import Files

MARK = "printf x >> marks"
"""Leaves one mark: an effect that can be counted."""

COUNT = "cat marks 2> /dev/null"
"""Prints the marks."""

SAY = "echo hello"
FAIL = "echo no; exit 3"
LONG = "printf x >> marks; sleep 60"
"""Leaves a mark at once and then takes a minute."""

ECHO = "cat"
"""Says what it is given."""

STEPS = "echo step 1; printf x >> marks; echo step 2"
"""Says two lines and leaves a mark."""

SERVE = "printf x >> marks; sleep 61"
"""What a service runs: leaves a mark and goes on."""

WELL, SICK = "true", "echo sick; false"
"""Health commands of a service that is well, and of one that is not."""


def effect(command: str, files: Files) -> tuple[int, str]:
    """What the commands of the kit do, for hands in memory."""
    path = "/workspace/marks"
    match command:
        case "printf x >> marks" | "printf x >> marks; sleep 60" | "printf x >> marks; sleep 61":
            files[path] = files.get(path, b"") + b"x"
            return 0, ""
        case "cat marks 2> /dev/null":
            return 0, files.get(path, b"").decode()
        case "echo step 1; printf x >> marks; echo step 2":
            files[path] = files.get(path, b"") + b"x"
            return 0, "step 1\nstep 2\n"
        case "cat":
            return 0, files.get("/dev/stdin", b"").decode()
        case "true":
            return 0, ""
        case "echo sick; false":
            return 1, "sick\n"
        case "echo hello":
            return 0, "hello\n"
        case "echo no; exit 3":
            return 3, "no\n"
        case _:
            return 127, f"bash: {command}: command not found\n"


def pace(call_id: str, request: ExecRequest) -> tuple[float, float]:
    """How long the commands of the kit take, for hands in memory."""
    return (0.0, 60.0) if request.input.get("command") == LONG else (0.0, 0.0)


class Rig(Protocol):
    """A provider, a fresh workspace, and what can befall an incarnation."""

    @property
    def provider(self) -> Provider:
        """The provider under test."""
        ...

    def spec(self) -> HandsSpec:
        """A spec with a new hands id on the rig's one workspace."""
        ...

    async def kill(self, hands: Hands) -> None:
        """The incarnation dies without a word, as by SIGKILL; it is dead when this returns."""
        ...


class HearingRig(Rig, Protocol):
    """A rig that hears the news of its jobs: `spec` names an `on_news` for it."""

    async def heard(self, count: int) -> list[tuple[str, str]]:
        """All news so far, as call id and kind, when there are that many."""
        ...


Check = Callable[[Rig], Awaitable[None]]
NewsCheck = Callable[[HearingRig], Awaitable[None]]


def bash(command: str, timeout_s: float = 120.0) -> ExecRequest:
    """A bash call."""
    return ExecRequest("bash", {"command": command}, timeout_s)


def job(command: str, timeout_s: float = 120.0, **given: Any) -> ExecRequest:
    """A job."""
    return ExecRequest("job", {"command": command, **given}, timeout_s)


def service(name: str, command: str = SERVE, **given: Any) -> ExecRequest:
    """A service. Its time limit counts for nothing."""
    return ExecRequest("service", {"name": name, "command": command, **given}, 0.1)


async def all_of(hands: Hands, call_id: str, epoch: int = 1) -> str:
    """All that a call prints until it has ended, read piece by piece."""
    text, at = "", 0
    while True:
        piece = await hands.read(epoch, call_id, at, wait_s=20.0, max_bytes=4)
        assert (piece.seq, piece.dropped) == (at, 0), piece
        assert piece.next_seq == at + len(piece.text.encode()), piece
        text, at = text + piece.text, piece.next_seq
        if piece.ended:
            return text


def tool(name: str, seen: dict[str, str] | None = None, **given: Any) -> ExecRequest:
    """A call of another tool."""
    return ExecRequest(name, given, 30.0, seen=seen or {})


async def run(hands: Hands, call_id: str, request: ExecRequest, epoch: int = 1) -> ExecResult:
    """Start a call and wait for its end."""
    await hands.start(epoch, call_id, request)
    return await hands.wait(epoch, call_id)


async def refused(kind: type[Exception], step: Callable[[], Awaitable[object]]) -> None:
    try:
        await step()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")
