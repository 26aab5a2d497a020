"""`--detach`: leaving a session to another process."""

from __future__ import annotations

from holdfast.app.call import Call
from holdfast.app.compose import Runtime
from holdfast.app.detached import begin
from holdfast.app.exits import name_of
from holdfast.app.running.drive import result_line
from holdfast.app.serving import is_served
from holdfast.app.settings.config import database_path
from holdfast.brain.recall import recall
from holdfast.clock import SystemClock
from holdfast.session.rows import SessionRow


async def detach(call: Call, runtime: Runtime, row: SessionRow) -> int:
    """Leave it to the worker that serves this home; without one, start `wake` in a process of its own."""
    clock = SystemClock()
    began_s = clock.monotonic_s()
    served = is_served(runtime.home, database_path(call.settings))
    if not served:
        await begin(call, runtime, row)
    name = name_of(row)
    if call.json:
        state, _ = await recall(row.session_id, runtime.store, runtime.store, runtime.kinds)
        line = result_line(row, state, clock.monotonic_s() - began_s)
        call.emit({**line, "status": "running", "stop_reason": "detached", "exit_code": 0})
    else:
        where = "with the worker that serves this home" if served else "in the background"
        call.say(f"{name} goes on {where}; follow it with: {call.typed('logs', name, '-f')}")
    return 0
