"""The rig that a provider under test implements, and helpers for writing checks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from holdfast.hands.base import ExecRequest, ExecResult, Hands, HandsSpec, Provider
from holdfast.hands.fake.calls import Files

MARK = "printf x >> marks"
"""Appends one mark: an effect that checks can count."""

COUNT = "cat marks 2> /dev/null"
"""Prints the marks."""

SAY = "echo hello"
FAIL = "echo no; exit 3"
LONG = "printf x >> marks; sleep 60"
"""Appends a mark at once and then takes a minute."""

ECHO = "cat"
"""Prints its standard input."""

STEPS = "echo step 1; printf x >> marks; echo step 2"
"""Prints two lines and appends a mark."""

SERVE = "printf x >> marks; sleep 61"
"""The command of a service: appends a mark and keeps running."""

WELL, SICK = "true", "echo sick; false"
"""Health checks of a healthy and an unhealthy service."""


def effect(command: str, files: Files) -> tuple[int, str]:
    """Run a command of the kit, for hands in memory."""
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
    """Return the durations of a command of the kit before and after its effect, for hands in memory."""
    return (0.0, 60.0) if request.input.get("command") == LONG else (0.0, 0.0)


class Rig(Protocol):
    """A provider, a fresh workspace, and a way to kill an incarnation."""

    @property
    def provider(self) -> Provider:
        """The provider under test."""
        ...

    def spec(self) -> HandsSpec:
        """A spec with a new hands id and the rig's workspace."""
        ...

    async def kill(self, hands: Hands) -> None:
        """Kill the incarnation with SIGKILL or its equivalent; it is dead when this returns."""
        ...


class HearingRig(Rig, Protocol):
    """A rig that receives job notifications: `spec` sets `on_news`."""

    async def heard(self, count: int) -> list[tuple[str, str]]:
        """Wait for `count` notifications; return all so far as call id and kind."""
        ...


Check = Callable[[Rig], Awaitable[None]]
NewsCheck = Callable[[HearingRig], Awaitable[None]]


def bash(command: str, timeout_s: float = 120.0) -> ExecRequest:
    return ExecRequest("bash", {"command": command}, timeout_s)


def job(command: str, timeout_s: float = 120.0, **given: Any) -> ExecRequest:
    return ExecRequest("job", {"command": command, **given}, timeout_s)


def service(name: str, command: str = SERVE, **given: Any) -> ExecRequest:
    """A service request; its time limit is ignored."""
    return ExecRequest("service", {"name": name, "command": command, **given}, 0.1)


async def all_of(hands: Hands, call_id: str, epoch: int = 1) -> str:
    """The whole output of a call, read in pieces until it ends."""
    text, at = "", 0
    while True:
        piece = await hands.read(epoch, call_id, at, wait_s=20.0, max_bytes=4)
        assert (piece.seq, piece.dropped) == (at, 0), piece
        assert piece.next_seq == at + len(piece.text.encode()), piece
        text, at = text + piece.text, piece.next_seq
        if piece.ended:
            return text


def tool(name: str, seen: dict[str, str] | None = None, **given: Any) -> ExecRequest:
    """A request for another tool."""
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
