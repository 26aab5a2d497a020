"""`holdfast worker`: run whatever is runnable in this home, until it is stopped."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import anyio

from holdfast.app.arguments import positive
from holdfast.app.call import Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.exits import name_of
from holdfast.app.news import look_after
from holdfast.app.running.drive import NO_GIT
from holdfast.app.running.family import wake_or_say
from holdfast.app.running.sharing import share_of
from holdfast.app.running.sweeping import sweep
from holdfast.app.screen.progress import JsonProgress, counted, one_line
from holdfast.app.serving import serve
from holdfast.app.settings.config import database_path
from holdfast.app.settings.targets import poll_every_s
from holdfast.brain.alongside import alongside
from holdfast.brain.doors import NoObserver, Observer
from holdfast.clock import SystemClock, rfc3339
from holdfast.errors import HoldfastError, UsageError
from holdfast.fleet.serve import Service
from holdfast.notify.base import ReplyChannel
from holdfast.service.replies import Listener
from holdfast.session.rows import SessionRow

CONCURRENCY = 8
"""Sessions at work at one time, unless said otherwise."""

MOST = 256
"""More at one time than this is refused: a process has only so many descriptors."""

ON_SIGTERM = 0
"""Whoever manages services stops them so, and nothing is wrong then."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument(
        "--concurrency", metavar="N", type=positive, default=CONCURRENCY, help=f"sessions at one time ({CONCURRENCY})"
    )
    parser.add_argument("--prompts", metavar="DIR", help="a folder with prompts of your own, such as worker.md")
    parser.add_argument("--json", action="store_true", help="print events as JSON lines")


async def run(call: Call) -> int:
    """Serve this home until a signal comes. Sessions at work are then let go at once, and stay runnable."""
    limit = call.args.concurrency
    if limit > MOST:
        raise UsageError(
            f"--concurrency {limit} is more than one process can serve ({MOST}); start several workers instead, for "
            f"example --concurrency {MOST}"
        )
    async with open_runtime(call.settings) as runtime:
        await sweep(runtime)
        channels = [outlet.channel for outlet in runtime.outlets.values() if outlet.channel is not None]
        with serve(runtime.home, runtime.worker.worker_id, database_path(call.settings)):
            work = _Work(call, runtime)
            work.say(
                f"serving {runtime.home.path}, up to {counted(limit, 'session')} at a time; Ctrl-C stops it, and loses "
                "nothing"
            )
            if runtime.shelf is None:
                work.say(NO_GIT)
            service = Service(
                runtime.store,
                SystemClock(),
                boot_id=runtime.worker.boot_id,
                limit=limit,
                on_error=work.failed,
                share=share_of(runtime),
            )
            try:
                await alongside(lambda: service.run(work.session), lambda: _beside(runtime, channels, work))
            except anyio.get_cancelled_exc_class():
                work.say("stopped; whatever was at work is let go, and goes on with the next worker or `wake`")
                raise
    raise AssertionError("a worker ends by being stopped")


async def _beside(runtime: Runtime, channels: Sequence[ReplyChannel], work: _Work) -> None:
    """What goes on beside the sessions: answers of people, jobs that nobody told of."""
    async with anyio.create_task_group() as group:
        group.start_soon(_listen, runtime, channels, work)
        group.start_soon(look_after, runtime)


async def _listen(runtime: Runtime, channels: Sequence[ReplyChannel], work: _Work) -> None:
    if not channels:
        return
    listener = Listener(channels, runtime.store, runtime.intake, SystemClock(), every_s=poll_every_s(), tell=work.say)
    await listener.run()


class _Work:
    """What this worker does with each session, and what it says of it."""

    def __init__(self, call: Call, runtime: Runtime) -> None:
        self._call = call
        self._runtime = runtime
        self._names: dict[str, str] = {}
        """Of the sessions at work."""

    def say(self, text: str) -> None:
        """A line with the time of day, on standard error."""
        at = rfc3339(SystemClock().now_us())
        self._call.note(f"{at[:10]} {at[11:19]}Z  {text}")

    async def session(self, session_id: str) -> None:
        """Run one session to its next stop."""
        row = await self._runtime.store.find(session_id)
        self._names[session_id] = name_of(row)
        observer: Observer = JsonProgress(self._call.emit) if self._call.json else NoObserver()
        doors = await self._runtime.doors_for(session_id, observer=observer)
        outcome = await wake_or_say(session_id, doors)
        self._names.pop(session_id, None)
        if not outcome.idle and not outcome.fenced:
            self.say(_told(await self._runtime.store.find(session_id)))

    def failed(self, session_id: str, error: HoldfastError, again_s: float | None) -> None:
        """An error of a session, or of the log itself."""
        name = self._names.pop(session_id, session_id) or "the log"
        then = "left to others" if again_s is None else f"tried again in {again_s:.0f} s"
        self.say(f"{name}: {one_line(str(error), 400)} ({then})")
        if self._call.json:
            self._call.emit(_error(session_id, error, again_s))


def _told(row: SessionRow) -> str:
    why = f" ({row.reason})" if row.reason else ""
    detail = f": {one_line(row.detail)}" if row.detail else ""
    again = f", until {rfc3339(row.due_us)[:19]}Z" if row.status == "parked" and row.due_us is not None else ""
    return f"{name_of(row)} is {row.status}{why}{detail}{again}"


def _error(session_id: str, error: HoldfastError, again_s: float | None) -> dict[str, Any]:
    return {
        "type": "error",
        "session_id": session_id,
        "kind": type(error).__name__,
        "message": str(error),
        "again_s": again_s,
        "at": rfc3339(SystemClock().now_us()),
    }
