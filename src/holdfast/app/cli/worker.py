"""The verbs that concern all sessions of a home: worker, stop."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Coroutine
from contextlib import closing
from dataclasses import replace
from typing import Any, NoReturn

import anyio

from holdfast.app.call import Call, positive, span
from holdfast.app.cli.life import premises
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.detached import see_to
from holdfast.app.duty.watch import watch_directories
from holdfast.app.exits import name_of
from holdfast.app.home import serve
from holdfast.app.line_writer import unhindered
from holdfast.app.news import end_jobs, look_after
from holdfast.app.running.drive import NO_GIT, share_of
from holdfast.app.running.family import wake_or_say
from holdfast.app.running.workers import sweep
from holdfast.app.screen.progress import JsonProgress
from holdfast.app.settings.config import database_path
from holdfast.app.settings.policies import retention
from holdfast.app.settings.targets import poll_every_s
from holdfast.app.settings.values import size_text
from holdfast.brain.doors import NoObserver, Observer
from holdfast.brain.recall import recall
from holdfast.brain.shift import alongside
from holdfast.clock import SystemClock, local_time, rfc3339
from holdfast.errors import HoldfastError, UsageError
from holdfast.fleet.serve import SHARED_LOOK_S, Service
from holdfast.log.base import Which
from holdfast.log.search.index import SearchIndex, search_path
from holdfast.service.event_lines import counted, one_line
from holdfast.service.posting import person
from holdfast.service.replies import Listener
from holdfast.service.search import keep_filled
from holdfast.service.sessions import UNFINISHED, sessions
from holdfast.service.space import find, free
from holdfast.session.rows import SessionRow
from holdfast.session.state import State
from holdfast.sources.bell import SourceBell

CONCURRENCY = 8
"""Default number of sessions at a time."""

MOST = 256
"""Maximum number of sessions at a time: a process has a limited number of descriptors."""


def worker_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `worker`."""
    concurrency_argument(parser)
    parser.add_argument("--prompts", metavar="DIR", help="Folder with custom prompts, such as worker.md")
    parser.add_argument("--json", action="store_true", help="Print events as JSON lines")


def concurrency_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--concurrency`."""
    parser.add_argument(
        "--concurrency",
        metavar="N",
        type=positive,
        default=CONCURRENCY,
        help=f"Sessions at a time (default: {CONCURRENCY})",
    )


async def worker_run(call: Call) -> int:
    """Serve this home until a signal arrives."""
    limit = concurrency(call)
    async with open_runtime(call.settings) as runtime:
        await serve_sessions(call, runtime, limit)
    raise AssertionError("a worker ends by being stopped")


def concurrency(call: Call) -> int:
    """Return the number of sessions at a time. Raises `UsageError` for more than one process can serve."""
    limit: int = call.args.concurrency
    if limit > MOST:
        raise UsageError(
            f"--concurrency {limit} is more than one process can serve ({MOST}); start several workers instead, for "
            f"example --concurrency {MOST}"
        )
    return limit


async def serve_sessions(
    call: Call, runtime: Runtime, limit: int, also: Callable[[], Coroutine[Any, Any, None]] | None = None
) -> NoReturn:
    """Run due sessions until cancelled; they are then released at once and stay runnable. `also` runs beside it."""
    keeps = retention(call.settings)
    await sweep(runtime)
    await runtime.store.enroll(runtime.worker.worker_id, limit)
    channels = [outlet.channel for outlet in runtime.outlets.values() if outlet.channel is not None]
    database = database_path(call.settings)
    index = SearchIndex(search_path(database))
    with serve(runtime.home, runtime.worker.worker_id, database), closing(index), unhindered(call):
        bell = SourceBell(SystemClock())
        work = _Work(call, runtime, bell)
        work.say(
            f"serving {runtime.home.path}, up to {counted(limit, 'session')} at a time; Ctrl-C stops it, and loses "
            "nothing"
        )
        if runtime.shelf is None:
            work.say(NO_GIT)
        for place, names in (await runtime.store.other_settings()).items():
            work.say(f"sessions of home {place} do not go on here: settings differ ({', '.join(names)})")

        async def beside() -> None:
            """Receive answers to inbox items, look for news of jobs, and keep the search index filled."""
            async with anyio.create_task_group() as group:
                if channels:
                    clock, every_s = SystemClock(), poll_every_s()
                    listener = Listener(channels, runtime.store, runtime.intake, clock, every_s=every_s, tell=work.say)
                    group.start_soon(listener.run)
                group.start_soon(look_after, runtime)
                group.start_soon(watch_directories, runtime, bell)
                group.start_soon(bell.run, service.stir)
                group.start_soon(keep_filled, runtime.store, index, SystemClock(), work.say)
                if keeps.daily:
                    group.start_soon(_free_daily, work, runtime, keeps.older_than_s)
                if also is not None:
                    group.start_soon(also)

        service = Service(
            runtime.store,
            SystemClock(),
            boot_id=runtime.worker.boot_id,
            limit=limit,
            on_error=work.failed,
            share=share_of(runtime),
            rung=bell.waiting,
            look_s=SHARED_LOOK_S if runtime.store.place_id else None,
        )
        runtime.store.listen(service.ring)
        try:
            await alongside(lambda: service.run(work.session), beside)
        except anyio.get_cancelled_exc_class():
            work.say("stopped; whatever was at work is let go, and goes on with the next worker or `wake`")
            raise
    raise AssertionError("a worker ends by being stopped")


DAY_S, HOUR_S = 86_400.0, 3_600.0


async def _free_daily(work: _Work, runtime: Runtime, older_than_s: float) -> None:
    """Free the space of finished sessions once a day, as far as it can be had again: see `holdfast prune`."""
    clock, last = SystemClock(), runtime.home.path / "pruned"
    while True:
        try:
            age_s = clock.now_us() / 1e6 - last.stat().st_mtime if last.exists() else DAY_S
            if not 0 <= age_s < DAY_S:
                last.touch()
                items = await find(premises(runtime), runtime.kinds, clock.now_us() - round(older_than_s * 1e6))
                done = await free(premises(runtime), [item for item in items if not item.only_here])
                if done:
                    size = size_text(sum(item.bytes for item in done))
                    work.say(f"freed {size} of sessions that ended {older_than_s / DAY_S:.0f} days ago or earlier")
        except (HoldfastError, OSError) as error:
            work.say(
                f"the space of finished sessions was not freed: {one_line(str(error), 400)} (tried again tomorrow)"
            )
        await clock.sleep(HOUR_S)


class _Work:
    """Runs sessions and reports on them."""

    def __init__(self, call: Call, runtime: Runtime, bell: SourceBell) -> None:
        self._call = call
        self._bell = bell
        self._runtime = runtime
        self._names: dict[str, str] = {}
        """Session ID → name, for running sessions."""

    def say(self, text: str) -> None:
        """Print a line with the time of day on standard error."""
        at = rfc3339(SystemClock().now_us())
        self._call.note(f"{at[:10]} {at[11:19]}Z  {text}")

    async def session(self, session_id: str) -> None:
        """Run one session to its next stop."""
        row = await self._runtime.store.find(session_id)
        self._names[session_id] = name_of(row)
        observer: Observer = JsonProgress(self._call.emit) if self._call.json else NoObserver()
        doors = await self._runtime.doors_for(session_id, observer=observer)
        outcome = await wake_or_say(session_id, replace(doors, bell=self._bell))
        self._names.pop(session_id, None)
        if not outcome.idle and not outcome.fenced:
            row = await self._runtime.store.find(session_id)
            why = f" ({row.reason})" if row.reason else ""
            detail = f": {one_line(row.detail)}" if row.detail else ""
            again = f", until {local_time(row.due_us)}" if row.status == "parked" and row.due_us is not None else ""
            self.say(f"{name_of(row)} is {row.status}{why}{detail}{again}")

    def failed(self, session_id: str, error: HoldfastError, again_s: float | None) -> None:
        """Report an error of a session, or of the log itself."""
        name = self._names.pop(session_id, session_id) or "the log"
        then = "left to others" if again_s is None else f"tried again in {again_s:.0f} s"
        self.say(f"{name}: {one_line(str(error), 400)} ({then})")
        if self._call.json:
            told = {"session_id": session_id, "kind": type(error).__name__, "message": str(error), "again_s": again_s}
            self._call.emit({"type": "error", **told, "at": rfc3339(SystemClock().now_us())})


WAIT_S = 10.0
"""Default time to wait for running sessions to stop."""


def stop_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `stop`."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--all", action="store_true", help="Stop every session and start nothing new")
    which.add_argument("--release", action="store_true", help="Lift the stop and continue the stopped sessions")
    parser.add_argument("--reason", metavar="TEXT", default="", help="Reason, for the log")
    parser.add_argument(
        "--wait", metavar="TIME", type=span, default=WAIT_S, help="Time to wait for sessions (default: 10s)"
    )
    parser.add_argument("--no-wake", action="store_true", help="With --release: do not wake sessions")
    parser.add_argument("--json", action="store_true", help="Print JSON lines")


async def stop_run(call: Call) -> int:
    """Stop or release all sessions. Safe to repeat."""
    async with open_runtime(call.settings) as runtime:
        return await (_release(call, runtime) if call.args.release else _stop(call, runtime))


async def _stop(call: Call, runtime: Runtime) -> int:
    stopping = await runtime.intake.stop_all(call.args.reason)
    stop = stopping.stop
    again = f" already, since {local_time(stop.at_us)} by {person(stop.by)}" if stopping.before else ""
    call.say(f"everything is stopped{again}: nothing starts until `{call.typed('stop', '--release')}`")
    holders = await runtime.store.holders()
    running = [row for row in stopping.resting if row.session_id in holders]
    left = await _watch(call, runtime, running)
    for row in running:
        resting = row not in left
        if call.json:
            call.emit({"session_id": row.session_id, "stop_seq": stop.seq, "resting": resting})
        elif resting:
            call.say(f"{name_of(row)} rests")
        else:
            state, _ = await recall(row.session_id, runtime.store, runtime.store, runtime.kinds)
            hangs = "should its process hang, it can start nothing new all the same"
            call.say(f"{name_of(row)} is not at rest yet: {_step(state)}; {hangs}")
    await _end_jobs(call, runtime)
    idle = len(stopping.resting) - len(running)
    if idle:
        call.note(f"{counted(idle, 'session')} without a process stayed unchanged")
    if not running:
        call.note("nothing was running")
    return 0


async def _end_jobs(call: Call, runtime: Runtime) -> None:
    """End jobs and services, which run without a brain."""
    for row in [each.row for status in UNFINISHED for each in await sessions(runtime.store, Which(status=status))]:
        try:
            ended = await end_jobs(runtime, row.session_id)
        except HoldfastError as error:
            call.say(f"the jobs of {name_of(row)} could not be ended: {error}")
            continue
        if ended and not call.json:
            call.say(f"{counted(ended, 'command')} that {name_of(row)} left running ended")


async def _watch(call: Call, runtime: Runtime, running: list[SessionRow]) -> list[SessionRow]:
    """Wait until the sessions stop or the time is over. Return those that still run."""
    left, token = running, 0
    with anyio.move_on_after(call.args.wait):
        while left:
            token = await runtime.store.changed(token)
            holders = await runtime.store.holders()
            left = [row for row in left if row.session_id in holders]
    return left


def _step(state: State) -> str:
    out = [call for call in state.open_calls() if call.attempt]
    if out:
        return f"it ends its call of {out[0].name} ({one_line(out[0].argument, 60)})"
    if state.request is not None:
        return f"it ends its request to {state.request.model}"
    return "it is between two steps"


async def _release(call: Call, runtime: Runtime) -> int:
    stop, rows = await runtime.intake.release(call.args.reason)
    call.say("the emergency stop is lifted" if stop else "there is no emergency stop")
    for row in rows:
        if call.json:
            call.emit({"session_id": row.session_id, "released": True})
        call.note(await see_to(call, runtime, row.session_id, start=not call.args.no_wake))
    return 0
