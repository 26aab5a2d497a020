"""Drive a session from the command line until it stops: wake it, watch it, detach it, report on it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from importlib import import_module
from typing import Any

import anyio

from holdfast.app import exits
from holdfast.app.call import NIGHT_S, RUN_S, Call
from holdfast.app.compose import Runtime
from holdfast.app.detached import begin
from holdfast.app.exits import name_of
from holdfast.app.home import attend
from holdfast.app.news import look_after
from holdfast.app.running.family import TOGETHER, Family
from holdfast.app.running.in_place import answer_here
from holdfast.app.running.interrupted import offer_to_end
from holdfast.app.running.outages import Outages, continue_others
from holdfast.app.screen.activity import Below
from holdfast.app.screen.live import LiveProgress, Painter, can_draw, drawn
from holdfast.app.screen.panel import Board
from holdfast.app.screen.progress import JsonProgress, PlainProgress
from holdfast.app.settings.config import database_path, terminal_wishes
from holdfast.app.wrap import terminal_width
from holdfast.brain.doors import Doors, Observer
from holdfast.brain.recall import recall
from holdfast.brain.shift import alongside
from holdfast.brain.wake import wake
from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError, LeaseHeld
from holdfast.facts.codec import Event
from holdfast.fleet.dispatch import InlineDispatcher
from holdfast.fleet.serve import Share
from holdfast.kinds import LOOP
from holdfast.log.base import Which
from holdfast.service.event_lines import counted
from holdfast.service.events import last_message
from holdfast.service.sessions import costs_of
from holdfast.session.context.text import harmless
from holdfast.session.costs import Costs
from holdfast.session.rows import SessionRow
from holdfast.session.state import State

LOOK_S = 1.0
"""Interval at which an attached command checks that the holder still lives."""

LOOKS = 3
"""Looks at which no process may run the children that a session waits for, before it counts as left."""

SHOWN = 20
"""Latest events that `attach` shows on a terminal before it follows."""

LATEST = 1_000
"""Latest events that the live view reads for details that the state does not hold."""


def observer_for(call: Call, row: SessionRow | None = None) -> JsonProgress | LiveProgress | PlainProgress:
    """Return the observer of the output: JSON lines, plain lines, or on a terminal the live view of `row`."""
    if call.json:
        return JsonProgress(call.emit)
    terminal, color = terminal_wishes()
    if row is not None and not getattr(call.args, "plain", False) and can_draw(terminal):
        return LiveProgress(SystemClock(), Painter(sys.stderr, color=color), _board(row))
    return PlainProgress(SystemClock(), call.note, terminal_width())


def _board(row: SessionRow) -> Board | None:
    """Return the rows of a loop for the live view; a plain session does not load the code of loops."""
    if row.model != LOOP:
        return None
    board: Board = import_module("holdfast.app.screen.loop_rows").LoopRows()
    return board


NO_GIT = "there is no git on this machine, so no snapshots of workspaces are taken"


async def drive(call: Call, runtime: Runtime, session_id: str, doors: Doors, *, steal: bool = False) -> int:
    """Wake the session and run it until it stops; attach while another process runs it.

    Waits through outages of its provider as `--wait` says, and asks its questions on the terminal. Reports the status
    of the session at the end, even after an error.
    """

    if runtime.shelf is None:
        call.note(NO_GIT)
    stays = not getattr(call.args, "leave_jobs", False)

    async def work() -> None:
        wait_s = await _longest_wait_s(call, runtime, session_id)
        outages = Outages(call.note, SystemClock(), wait_s) if wait_s else None
        at_work = partial(_to_its_stop, call, runtime, session_id, doors, steal, outages, stays=stays)
        if not stays:
            await at_work()
            return
        with closing(attend(runtime.home, session_id, runtime.worker.worker_id, database_path(call.settings))):
            if outages is not None:
                at_work = partial(alongside, at_work, partial(continue_others, call, runtime, session_id, outages))
            await alongside(at_work, partial(look_after, runtime, session_id))

    asking = partial(answer_here, call, runtime, session_id)
    return await _reported(call, runtime, session_id, doors.observer, work, asking)


async def attach(call: Call, runtime: Runtime, session_id: str) -> int:
    """Watch a session that another process runs until it stops; without one, report its status."""
    row = await runtime.store.find(session_id)
    observer = observer_for(call, row)
    if not isinstance(observer, JsonProgress):
        before = await runtime.store.read(session_id, after=max(0, row.head - LATEST), limit=LATEST)
        observer.prime(before)
        if isinstance(observer, LiveProgress):
            observer.on_events(before[-SHOWN:])

    async def work() -> None:
        await watch(runtime, session_id, observer, row.head)

    if await _misses(runtime, session_id):
        call.note(f"no process runs {exits.name_of(row)} now")
    return await _reported(call, runtime, session_id, observer, work)


async def _reported(
    call: Call,
    runtime: Runtime,
    session_id: str,
    observer: Observer,
    work: Callable[[], Awaitable[None]],
    again: Callable[[], Awaitable[bool]] | None = None,
) -> int:
    """Do the work, once more as long as `again` says so, and report the status of the session, even after an error."""
    clock = SystemClock()
    began_s = clock.monotonic_s()
    try:
        await _shown(call, runtime, session_id, observer, work, attached=again is None)
        while again is not None and await again():
            await _shown(call, runtime, session_id, observer, work)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await _report(call, runtime, session_id, observer, clock.monotonic_s() - began_s, exits.INTERRUPTED)
            if getattr(call.args, "stopped_by", 0) == signal.SIGINT:
                await offer_to_end(call, runtime, session_id)
        raise
    except HoldfastError as error:
        if call.json:
            await _report(call, runtime, session_id, observer, clock.monotonic_s() - began_s, error.exit_code)
        raise
    return await _report(call, runtime, session_id, observer, clock.monotonic_s() - began_s)


async def _shown(
    call: Call,
    runtime: Runtime,
    session_id: str,
    observer: Observer,
    work: Callable[[], Awaitable[None]],
    *,
    attached: bool = False,
) -> None:
    """Do the work, with the live view beside it if the observer draws; `attached`, another process runs the session."""
    if not isinstance(observer, LiveProgress):
        await work()
        return

    async def look() -> tuple[State, list[Event]]:
        state, _ = await recall(session_id, runtime.store, runtime.store, runtime.kinds)
        # The rows of a loop need the whole log, as its plans do.
        first = 0 if state.created and state.created.agent.model == LOOP else max(0, state.seq - LATEST)
        return state, await runtime.store.read(session_id, after=first, limit=state.seq - first)

    call.above = observer.above
    below = Below(runtime.store, session_id, observer.above if attached else None)
    try:
        await drawn(observer, look, work, below.look)
    finally:
        call.above = None


async def _to_its_stop(
    call: Call,
    runtime: Runtime,
    session_id: str,
    doors: Doors,
    steal: bool,
    outages: Outages | None,
    *,
    stays: bool = False,
) -> None:
    """Run the session and all below it until none of them is due.

    With `stays`, also wait while their jobs run, which needs no brain.
    """
    family = Family(call, runtime)
    dispatcher = InlineDispatcher(
        runtime.store,
        SystemClock(),
        boot_id=runtime.worker.boot_id,
        only=session_id,
        limit=TOGETHER,
        on_error=family.failed,
        stays=stays,
        waits=outages.waits if outages is not None else None,
    )

    async def handle(each: str) -> None:
        nonlocal steal
        if each != session_id:
            await family.run(each)
            return
        try:
            outcome = await wake(session_id, doors, steal=steal)
            elsewhere = "was taken over by another process" if outcome.fenced else ""
            quiet = call.json or call.above is not None  # the live view has a row for each child
            if not quiet and outcome.ended is not None and outcome.ended.reason == "child":
                call.note(f"{outcome.ended.detail}; they continue here")
            if not call.json and stays and outcome.ended is not None and outcome.ended.reason == "job":
                call.note(f"it {outcome.ended.detail}; Ctrl-C leaves it running, and its end wakes the session")
        except LeaseHeld as held:
            elsewhere = f"is running in another process ({held.worker_id})"
        steal = False
        if elsewhere:
            hangs = f"`{call.typed('wake', session_id, '--steal')}`"
            call.note(f"{session_id} {elsewhere}; watching it. If that process hangs: {hangs}")
            await watch(runtime, session_id, doors.observer)
            await dispatcher.ring(session_id)

    await dispatcher.ring(session_id)
    await dispatcher.run(handle)


async def _longest_wait_s(call: Call, runtime: Runtime, session_id: str) -> float:
    """Return how long this command waits for one outage, in seconds; 0 for not at all."""
    given: float | None = getattr(call.args, "wait", None)
    if given is not None:
        return given
    if call.json or sys.stderr is None or not os.isatty(2):
        return 0.0
    state, _ = await recall(session_id, runtime.store, runtime.store, runtime.kinds)
    created = state.created
    long = created is None or created.mission or created.items or created.agent.model == LOOP
    return NIGHT_S if long else RUN_S


async def _misses(runtime: Runtime, session_id: str, before: int = 0) -> int:
    """Count the looks at which no process ran the session or one below it; `LOOKS` if none is expected to."""
    holders = await runtime.store.holders()
    below = {row.session_id: row for row in await runtime.store.sessions(Which(root=session_id))}
    if any(name in holders for name in (session_id, *below)):
        return 0
    # Between the end of a child and the next shift of its parent, no process may hold either.
    row = below.get(session_id)
    between = row is not None and len(below) > 1 and (row.status == "runnable" or row.reason == "child")
    return before + 1 if between else LOOKS


async def watch(runtime: Runtime, session_id: str, observer: Observer, after: int | None = None) -> None:
    """Show the session's events while another process holds it or a session below; from now on, or after `after`."""
    seen = (await runtime.store.find(session_id)).head if after is None else after
    misses = 0
    while misses < LOOKS:
        misses = await _misses(runtime, session_id, misses)
        if misses < LOOKS:
            with anyio.move_on_after(LOOK_S):
                await runtime.store.wait(session_id, seen)
        while events := await runtime.store.read(session_id, after=seen, limit=1_000):
            observer.on_events(events)
            seen = events[-1].seq


async def _report(
    call: Call, runtime: Runtime, session_id: str, observer: Observer, wall_s: float, code: int | None = None
) -> int:
    """Report the status of the session. `code` is an exit status that overrides it."""
    try:
        row = await runtime.store.find(session_id)
        running = session_id in await runtime.store.holders()
        state, _ = await recall(session_id, runtime.store, runtime.store, runtime.kinds)
    except HoldfastError:
        if code is None:
            raise
        return code  # the error is reported elsewhere
    stands = exits.exit_code(row.status, row.reason)
    if state.created is not None and state.created.mission is not None:
        state = await _with_its_sessions(runtime, row, state)
    spent = (await costs_of(runtime.store, row))[row.session_id]
    if code is None and row.reason == "child" and await _needs_approver(runtime, row):
        code = stands = exits.NEEDS_PERSON
    if call.json:
        call.emit(result_line(row, state, spent, wall_s, running=running, code=code))
    else:
        answer = "" if code and row.reason != "child" else await last_message(runtime.store, state)
        seen = isinstance(observer, LiveProgress) and observer.said == answer and os.isatty(1)
        if answer and not seen:
            call.say(harmless(answer))
        name = exits.name_of(row)
        size = f"{counted(row.head, 'event')}, {counted(row.turns, 'turn')}, {spent}"
        if running:
            call.note(f"{name} is running in another process — {size}")
            call.note(
                f"Follow it with `{call.typed('logs', name, '-f')}`, stop it with `{call.typed('interrupt', name)}`."
            )
        else:
            why = f" ({row.reason})" if row.reason else ""
            detail = f": {row.detail}" if row.detail else ""
            call.note(f"{name} is {row.status}{why}{detail} — {size}")
            call.note(await exits.next_step(runtime.store, row, state, call.typed))
    return stands if code is None else code


async def _with_its_sessions(runtime: Runtime, row: SessionRow, state: State) -> State:
    """Add the tokens of all sessions below a mission to its state."""
    for each in await runtime.store.sessions(Which(root=row.session_id)):
        if each.parent:
            below, _ = await recall(each.session_id, runtime.store, runtime.store, runtime.kinds)
            state.usage += below.usage
            state.uncounted = state.uncounted or below.uncounted
    return state


async def _needs_approver(runtime: Runtime, row: SessionRow) -> bool:
    """Return True when a session below it waits for an approver."""
    below = {row.session_id}
    for each in reversed(await runtime.store.sessions(Which(root=row.root))):
        if each.parent in below:
            below.add(each.session_id)
            if each.status == "parked" and each.reason == "person":
                return True
    return False


def result_line(
    row: SessionRow, state: State, spent: Costs, wall_s: float, *, running: bool = False, code: int | None = None
) -> dict[str, Any]:
    """Return the last line of `--json` (CLI reference)."""
    usage = state.usage
    status = "running" if running else row.status
    reason = row.reason or status
    if code is not None and not row.reason:
        reason = "interrupted" if code == exits.INTERRUPTED else "error"
    return {
        "type": "result",
        "session_id": row.session_id,
        "status": status,
        "stop_reason": reason,
        "exit_code": exits.exit_code(row.status, row.reason) if code is None else code,
        "usage": None
        if state.uncounted
        else {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cache_read_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        **spent.fields(),
        "events": row.head,
        "wall_s": round(wall_s, 3),
    }


async def detach(call: Call, runtime: Runtime, row: SessionRow) -> int:
    """Leave the session to the worker of this home; without one, start `wake` in a new process."""
    clock = SystemClock()
    began_s = clock.monotonic_s()
    served = await runtime.is_served(row.session_id)
    if not served:
        await begin(call, runtime, row)
    name = name_of(row)
    if call.json:
        state, _ = await recall(row.session_id, runtime.store, runtime.store, runtime.kinds)
        spent = (await costs_of(runtime.store, row))[row.session_id]
        line = result_line(row, state, spent, clock.monotonic_s() - began_s)
        call.emit({**line, "status": "running", "stop_reason": "detached", "exit_code": 0})
    else:
        where = "in the worker of this home" if served else "in the background"
        call.say(f"{name} continues {where}; follow it with: {call.typed('logs', name, '-f')}")
    return 0


def share_of(runtime: Runtime) -> Share:
    """Return the share of this worker among those that serve the same log."""
    return Share(runtime.worker.worker_id, runtime.workers, SystemClock(), lambda: runtime.store.free)
