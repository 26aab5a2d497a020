"""The sessions below a foreground session, and the cancellation of a session with all its descendants."""

from __future__ import annotations

from holdfast.app.call import Call, ReaderGone
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.exits import name_of, sentence_of, short_name
from holdfast.app.screen.progress import Acts, JsonProgress
from holdfast.app.wrap import terminal_width
from holdfast.brain.doors import Doors
from holdfast.brain.wake import Outcome, wake
from holdfast.clock import SystemClock
from holdfast.errors import EmergencyStop, HoldfastError, LeaseHeld
from holdfast.facts.session import Workspace
from holdfast.fleet.dispatch import InlineDispatcher
from holdfast.service.event_lines import one_line
from holdfast.session.rows import FIRST, SessionRow

TOGETHER = 64
"""Sessions of one tree that run in one process at a time."""


async def wake_or_say(session_id: str, doors: Doors) -> Outcome:
    """Wake one of several sessions. Any failure becomes a `HoldfastError`, which ends no other session."""
    try:
        return await wake(session_id, doors)
    except ReaderGone:
        raise
    except Exception as error:
        raise sentence_of(error) from error


class Family:
    """Runs the sessions below the foreground session."""

    def __init__(self, call: Call, runtime: Runtime) -> None:
        self._call = call
        self._runtime = runtime
        self._names: dict[str, str] = {}

    async def run(self, session_id: str) -> None:
        """Run one of them to its next stop."""
        row = await self._runtime.store.find(session_id)
        self._names[session_id] = called(row)
        acts = Acts(row.name or name_of(row), self._note, terminal_width())
        observer = JsonProgress(self._call.emit) if self._call.json else acts
        doors = await self._runtime.doors_for(session_id, observer=observer)
        if not row.epoch and self._call.above is None:  # the live view has a row for it
            self._note(f"{called(row)} begins")
        outcome = await wake_or_say(session_id, doors)
        if not outcome.idle and not outcome.fenced:
            self._note(standing(await self._runtime.store.find(session_id)))

    async def see_through(self, session_id: str) -> None:
        """Run the sessions below one that has ended, until none of them is due."""
        dispatcher = InlineDispatcher(
            self._runtime.store,
            SystemClock(),
            boot_id=self._runtime.worker.boot_id,
            only=session_id,
            limit=TOGETHER,
            on_error=self.failed,
        )
        await dispatcher.run(self.run)

    def failed(self, session_id: str, error: HoldfastError, again_s: float | None) -> None:
        """Report the error of one of them; the others continue."""
        then = "not tried again" if again_s is None else f"tried again in {again_s:.0f} s"
        self._call.note(f"{self._names.get(session_id, session_id)}: {one_line(str(error), 300)} ({then})")

    def _note(self, text: str) -> None:
        if not self._call.json:
            self._call.note(text)


def called(row: SessionRow) -> str:
    """Return the name of a child: the one that its parent gave it, and its key or the end of its id."""
    own = row.name if row.name not in ("", "agent") else ""
    return f"child {own} ({short_name(row)})" if own else f"child {short_name(row)}"


def standing(row: SessionRow) -> str:
    """Return the status of a child as a sentence."""
    why = f" ({row.reason})" if row.reason else ""
    detail = f": {one_line(row.detail, 80)}" if row.detail else ""
    return f"{called(row)} is {row.status}{why}{detail}"


async def workspace_of(runtime: Runtime, row: SessionRow) -> Workspace:
    """Return the workspace that the session was opened with."""
    (first,) = await runtime.store.read(row.session_id, after=row.origin_seq, limit=1)
    assert isinstance(first.fact, FIRST)
    return first.fact.workspace


async def cancel(call: Call) -> int:
    """Cancel a session. If no process runs it, this one ends it."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        name = name_of(row)
        if row.status == "cancelled":
            call.say(f"{name} was already cancelled")
            if call.json:
                call.emit({"session_id": row.session_id, "seq": None, "duplicate": True})
            return 0
        receipt = await runtime.intake.cancel(row, call.args.reason)
        if call.json:
            call.emit({"session_id": receipt.session_id, "seq": receipt.seq, "duplicate": receipt.duplicate})
        try:
            await wake(row.session_id, runtime.doors(await workspace_of(runtime, row)))
            await Family(call, runtime).see_through(row.session_id)
            call.say(f"{name} is cancelled; its work is in {row.workspace}")
        except LeaseHeld:
            call.say(f"cancel posted as event {receipt.seq} of {name}; the process that runs it ends it now")
        except EmergencyStop:
            call.say(
                f"cancel posted as event {receipt.seq} of {name}; it ends once `{call.typed('stop', '--release')}`"
            )
        return 0
