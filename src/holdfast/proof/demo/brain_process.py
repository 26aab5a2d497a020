"""Start a brain as a child process, follow it through its log, and kill it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio

from holdfast.app.compose import Runtime
from holdfast.brain.doors import Observer
from holdfast.errors import HandsError, LogDamaged
from holdfast.facts.codec import Event, genesis
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.model import AgentToolUse
from holdfast.facts.session import Workspace
from holdfast.facts.shift import ShiftStarted
from holdfast.facts.tool import ToolDispatched

LOOK_S = 0.25


@dataclass
class Watch:
    """Events of a session that were read so far."""

    runtime: Runtime
    session_id: str
    observer: Observer
    seen: int = 0
    events: list[Event] = field(default_factory=list)

    async def more(self) -> list[Event]:
        """Read the new events; wait up to `LOOK_S` for the first of them."""
        with anyio.move_on_after(LOOK_S):
            await self.runtime.store.wait(self.session_id, self.seen)
        events = await self.runtime.store.read(self.session_id, after=self.seen)
        self.seen += len(events)
        self.events += events
        self.observer.on_events(events)
        return events


KillAt = Callable[[Event], Awaitable[bool]]
"""Predicate called after each event: True kills the brain."""


async def never(event: Event) -> bool:
    """Never kill."""
    return False


def start_brain(runtime: Runtime, session_id: str) -> subprocess.Popen[bytes]:
    """Start `holdfast wake` of that session as a child process, with its output in a file under the home."""
    command = [sys.executable, "-P", "-m", "holdfast", "wake", session_id, "--home", str(runtime.home.path)]
    command += ["--db", runtime.settings.db] if runtime.settings.db else []
    with (runtime.home.logs / f"{session_id}.log").open("ab") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def end_brain(process: subprocess.Popen[bytes]) -> None:
    """Terminate the process if it still runs."""
    if process.poll() is None:
        process.terminate()
        process.wait()


async def follow(watch: Watch, process: subprocess.Popen[bytes], kill_at: KillAt) -> Event | None:
    """Follow the brain until its process ends. Return the event after which it was killed, or None."""
    killed: Event | None = None
    while True:
        ended = process.poll() is not None
        for event in await watch.more():
            if killed is None and not ended and await kill_at(event):
                process.kill()
                process.wait()
                killed = event
        if ended:
            return killed


async def chain_ok(runtime: Runtime, session_id: str) -> bool:
    """Verify the hash chain of a session's log."""
    try:
        await runtime.store.read(session_id, prev=genesis(session_id))
    except LogDamaged:
        return False
    return True


def in_a_command(watch: Watch, workspace: Workspace) -> KillAt:
    """Kill the brain while the first bash command runs."""

    async def kill_at(event: Event) -> bool:
        call = event.fact
        return isinstance(call, ToolDispatched) and _is_command(watch, call) and await _is_running(call)

    async def _is_running(call: ToolDispatched) -> bool:
        known = [seen.fact for seen in watch.events if isinstance(seen.fact, HandsProvisioned)]
        identity = next(fact for fact in known if fact.hands_id == call.hands_id)
        fence = max(seen.fence for seen in watch.events if isinstance(seen.fact, ShiftStarted))
        hands = await watch.runtime.provider(workspace).attach(identity)
        try:
            # The other process cannot set an event of this one, so it is polled.
            while (status := await hands.status(fence, call.call_id)).state == "never_started":  # noqa: ASYNC110
                await anyio.sleep(0.002)
        except HandsError:
            return False
        return status.state == "running"

    return kill_at


def at_event(seq: int) -> KillAt:
    """Kill the brain once the log has reached that sequence number."""

    async def kill_at(event: Event) -> bool:
        return event.seq >= seq

    return kill_at


def _is_command(watch: Watch, call: ToolDispatched) -> bool:
    uses = (seen.fact for seen in watch.events if isinstance(seen.fact, AgentToolUse))
    return any(use.call_id == call.call_id and use.name == "bash" for use in uses)
