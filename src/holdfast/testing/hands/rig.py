"""What a check needs of a provider, and the few words that checks are written in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from holdfast.hands.base import ExecRequest, ExecResult, Hands, HandsSpec, Provider
from holdfast.hands.fake_files import Files

MARK = "printf x >> marks"
"""Leaves one mark: an effect that can be counted."""

COUNT = "cat marks 2> /dev/null"
"""Prints the marks."""

SAY = "echo hello"
FAIL = "echo no; exit 3"
LONG = "printf x >> marks; sleep 60"
"""Leaves a mark at once and then takes a minute."""


def effect(command: str, files: Files) -> tuple[int, str]:
    """What the commands of the kit do, for hands in memory."""
    path = "/workspace/marks"
    match command:
        case "printf x >> marks" | "printf x >> marks; sleep 60":
            files[path] = files.get(path, b"") + b"x"
            return 0, ""
        case "cat marks 2> /dev/null":
            return 0, files.get(path, b"").decode()
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


Check = Callable[[Rig], Awaitable[None]]


def bash(command: str, timeout_s: float = 30.0) -> ExecRequest:
    """A bash call."""
    return ExecRequest("bash", {"command": command}, timeout_s)


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
