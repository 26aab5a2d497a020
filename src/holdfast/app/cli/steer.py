"""The verbs that steer a session: send, interrupt, pause, wake, handover, cancel."""

from __future__ import annotations

import argparse
from contextlib import suppress

from holdfast.app.call import SESSION, Call, wait_argument
from holdfast.app.compose import open_runtime
from holdfast.app.detached import see_to
from holdfast.app.exits import name_of
from holdfast.app.running.drive import drive, observer_for
from holdfast.app.running.family import cancel, workspace_of
from holdfast.app.running.workers import sweep
from holdfast.brain.recall import recall
from holdfast.brain.wake import wake
from holdfast.errors import EmergencyStop, LeaseHeld
from holdfast.service.missions import lift, pause_any


def send_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `send`."""
    parser.add_argument("session", metavar="ID", help=SESSION)
    parser.add_argument("text", metavar="TEXT", help="Message to send")
    parser.add_argument("--key", metavar="KEY", default="", help="Idempotency key; a second message with it is dropped")
    parser.add_argument("--no-wake", action="store_true", help="Do not wake the session")
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def send_run(call: Call) -> int:
    """Post the message; the session reads it at its next model request."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        receipt = await runtime.intake.send(row, call.args.text, key=call.args.key)
        if call.json:
            call.emit({"session_id": receipt.session_id, "seq": receipt.seq, "duplicate": receipt.duplicate})
        else:
            again = " before, and not again" if receipt.duplicate else ""
            call.say(f"posted as event {receipt.seq} of {name_of(row)}{again}")
        call.note(await see_to(call, runtime, row.session_id, start=not call.args.no_wake))
        return 0


def interrupt_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `interrupt`."""
    parser.add_argument("session", metavar="ID", help=SESSION)
    parser.add_argument("--reason", metavar="TEXT", default="", help="Reason, for the log")
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def interrupt_run(call: Call) -> int:
    """Post the interrupt; the agent stops at the next safe boundary and waits for a message."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        running = row.session_id in await runtime.store.holders()
        if not running and row.status != "runnable":
            reason = f" ({row.reason})" if row.reason else ""
            call.say(f"{name_of(row)} is {row.status}{reason}: there is nothing to interrupt")
            if call.json:
                call.emit({"session_id": row.session_id, "seq": None, "duplicate": False})
            return 0
        receipt = await runtime.intake.interrupt(row, call.args.reason)
        if call.json:
            call.emit({"session_id": receipt.session_id, "seq": receipt.seq, "duplicate": receipt.duplicate})
        else:
            call.say(f"interrupt posted as event {receipt.seq} of {name_of(row)}")
        if not running:
            call.note(f"no process is running it; it stops when it is woken: `{call.typed('wake', name_of(row))}`")
        return 0


def pause_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `pause`."""
    parser.add_argument("session", metavar="ID", help=SESSION)
    parser.add_argument("--reason", metavar="TEXT", default="", help="Reason, for the log")
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def pause_run(call: Call) -> int:
    """Post the pause. Work in progress ends first; no new work starts."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        running = row.session_id in await runtime.store.holders()
        receipt = await pause_any(runtime.intake, row, call.args.reason)
        if call.json:
            call.emit({"session_id": receipt.session_id, "seq": receipt.seq, "duplicate": receipt.duplicate})
        lift = f"lift it with `{call.typed('wake', name_of(row))}`"
        if running:
            call.say(f"{name_of(row)} rests when the step it is at has ended; {lift}")
            return 0
        if row.status == "parked":  # record the pause; a session in the middle of a call is left as it is
            with suppress(LeaseHeld, EmergencyStop):
                await wake(row.session_id, runtime.doors(await workspace_of(runtime, row)))
        call.say(f"{name_of(row)} rests; {lift}")
        return 0


def wake_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `wake`."""
    parser.add_argument("session", metavar="ID", help=SESSION)
    parser.add_argument("--prompts", metavar="DIR", help="Folder with custom prompts, such as worker.md")
    parser.add_argument("--steal", action="store_true", help="Take the session from the process that holds its lease")
    parser.add_argument("--keep-pause", action="store_true", help="Do not resume a paused session or a new fork")
    wait_argument(parser)
    parser.add_argument("--leave-jobs", action="store_true", help="Exit when only background jobs are left")
    parser.add_argument("--plain", action="store_true", help="Print plain lines, without the live view")
    parser.add_argument("--json", action="store_true", help="Print events and the result as JSON lines")


async def wake_run(call: Call) -> int:
    """Wake the session, lift a pause, and run it until it stops."""
    async with open_runtime(call.settings) as runtime:
        await sweep(runtime)
        row = await runtime.store.find(call.args.session)
        if not call.args.keep_pause:
            state, _ = await recall(row.session_id, runtime.store, runtime.store, runtime.kinds)
            await lift(runtime.intake, row, state)
        doors = await runtime.doors_for(row.session_id, observer=observer_for(call, row))
        return await drive(call, runtime, row.session_id, doors, steal=call.args.steal)


resume_arguments, resume_run = wake_arguments, wake_run


def handover_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `handover`."""
    parser.add_argument("session", metavar="ID", help=SESSION)
    parser.add_argument("name", metavar="NAME", help="New owner; answers inbox items unless [people] names approvers")
    parser.add_argument("--no-wake", action="store_true", help="Do not wake the session")
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def handover_run(call: Call) -> int:
    """Transfer the session to another user."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        receipt = await runtime.intake.hand_over(row, call.args.name)
        owner = (await runtime.store.find(row.session_id)).owner
        if call.json:
            call.emit({"session_id": receipt.session_id, "seq": receipt.seq, "owner": owner})
        else:
            before = f", it was {row.owner}'s" if row.owner else ""
            call.say(f"{name_of(row)} is {owner}'s now{before}")
        call.note(await see_to(call, runtime, row.session_id, start=not call.args.no_wake))
        return 0


def cancel_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `cancel`."""
    parser.add_argument("session", metavar="ID", help=SESSION)
    parser.add_argument("--reason", metavar="TEXT", default="", help="Reason, for the log")
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def cancel_run(call: Call) -> int:
    """Post the cancel. If no process runs the session, this one ends it."""
    return await cancel(call)
