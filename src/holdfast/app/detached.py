"""A brain in its own process, which outlives this process and its terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio

from holdfast.app.call import NIGHT_S, Call
from holdfast.app.compose import Runtime
from holdfast.app.exits import name_of
from holdfast.app.home import is_attended
from holdfast.app.settings.config import database_path
from holdfast.brain.recall import recall
from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError
from holdfast.kinds import LOOP
from holdfast.session.decide import is_idle
from holdfast.session.rows import SessionRow
from holdfast.session.tools.output import functions

START_S = 20.0
"""Timeout for a detached process to take its lease."""

_WENT = (0, 1, 3, 4)
"""Exit statuses of a `wake` that ran the session until it stopped."""


def _spawn(call: Call, runtime: Runtime, row: SessionRow, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "holdfast", "wake", row.session_id, "--keep-pause", "--leave-jobs"]
    command += ["--wait", f"{NIGHT_S:g}"]
    command += ["--home", str(runtime.home.path), *(("--db", call.settings.db) if call.settings.db else ())]
    if call.settings.prompts and call.settings.prompt_files is None:  # the process itself finds those of a project
        command += ("--prompts", call.settings.prompts)
    with log.open("ab") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)


async def begin(call: Call, runtime: Runtime, row: SessionRow) -> None:
    """Start `wake` in a new process. Raises `HoldfastError` with its output if it fails to begin."""
    clock = SystemClock()
    log = runtime.home.logs / f"{row.session_id}.log"
    child = _spawn(call, runtime, row, log)
    with anyio.move_on_after(START_S):
        while child.poll() is None and row.session_id not in await runtime.store.holders():
            await clock.sleep(0.02)
    if child.poll() is None:
        child.returncode = 0  # it outlives this process on purpose: keeps the interpreter from warning
    elif child.returncode not in _WENT:
        lines = log.read_text(errors="replace").splitlines() or ["no output"]
        error = HoldfastError(f"the background process ended at once, and said: {lines[-1]}")
        error.exit_code = child.returncode
        raise error


async def see_to(call: Call, runtime: Runtime, session_id: str, *, start: bool = True) -> str:
    """Make sure that a process picks up the posts of a session; return a message about it.

    The process that holds the session or a worker of this home picks them up. Otherwise a process is started, unless
    `start` is False.
    """
    row = await runtime.store.find(session_id)
    name = name_of(row)
    state, _ = await recall(session_id, runtime.store, runtime.store, runtime.kinds)
    if session_id in await runtime.store.holders():
        return f"{name} is running, and takes this in at its next step"
    if await runtime.store.stopped() is not None:
        return f"everything is stopped; {name} goes on after `{call.typed('stop', '--release')}`"
    if state.paused:
        return f"{name} is paused, and goes on with `{call.typed('wake', name)}`"
    if row.status == "cancelled" or is_idle(state, SystemClock().now_us(), runtime.up()):
        return f"{name} has nothing to do now"
    if await runtime.is_served(session_id):
        return f"a worker serves this home, and goes on with {name}"
    if await is_attended(runtime.home, runtime.store, session_id, database_path(call.settings)):
        return f"another terminal is attached to {name}, and it continues there"
    wanted = functions(state.created.agent) if state.created else ()
    if wanted and row.model != LOOP:
        named = ", ".join(tool.name for tool in wanted)
        return f"{name} goes on in the program that has its functions ({named})"
    if not start:
        return f"no process is running it; go on with `{call.typed('wake', name)}`"
    try:
        await begin(call, runtime, row)
    except HoldfastError as error:
        return f"your message is saved, but {name} could not continue here: {error}"
    return f"{name} goes on in the background; follow it with `{call.typed('logs', name, '-f')}`"
