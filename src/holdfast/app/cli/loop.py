"""`holdfast loop`: the Ralph loop for any command; the harness runs checks instead of trusting the command's report."""

from __future__ import annotations

import argparse

from holdfast.app.call import Call, positive, wait_argument
from holdfast.app.compose import open_runtime
from holdfast.app.running.drive import drive, observer_for
from holdfast.app.running.loop_open import open_loop
from holdfast.session.tools import BASH_TIMEOUT_MAX_S as TIMEOUT_MAX_S


def loop_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `loop`."""
    parser.add_argument("command", metavar="CMD", nargs="*", help="Command, after --; it reads the prompt from stdin")
    parser.add_argument(
        "--max-iterations", metavar="N", type=positive, default=10, help="Maximum number of iterations (default: 10)"
    )
    parser.add_argument("--until", metavar="CMD", default="", help="Stop when this command succeeds")
    parser.add_argument("--budget", metavar="USD", dest="budget_usd", help="Budget in dollars, by reported costs")
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=_seconds,
        default=TIMEOUT_MAX_S,
        help="Timeout of one iteration in seconds (default: 3600)",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--in-hands", action="store_true", help="Run the command in the sandbox (default)")
    where.add_argument(
        "--on-host",
        dest="no_sandbox",
        action="store_true",
        help="Run the command and checks without isolation (recorded in the log)",
    )
    parser.add_argument("--chain", metavar="FILE", default="", help="Choose and plan tasks from a report, then loop")
    parser.add_argument("--workspace", metavar="DIR", default=".", help="Folder to work in (default: .)")
    parser.add_argument("--session-id", metavar="KEY", help="Key of the session")
    parser.add_argument(
        "--allow-host", metavar="HOST[:PORT]", action="append", default=[], help="Allow this host over TLS"
    )
    parser.add_argument("--registries", action="store_true", help="Allow this machine's package registries")
    parser.add_argument(
        "--secret", metavar="NAME", action="append", default=[], help="Expose only these secrets (default: all)"
    )
    parser.add_argument("--prompts", metavar="DIR", help="Folder with custom prompts, such as loop.md")
    parser.add_argument("--user", metavar="NAME", help="Run the command as this system user (root only)")
    parser.add_argument("--take-over", action="store_true", help="Give the workspace to that user (root only)")
    wait_argument(parser)
    parser.add_argument("--plain", action="store_true", help="Print plain lines, without the live view")
    parser.add_argument("--json", action="store_true", help="Print events and the result as JSON lines")


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 1 <= number <= TIMEOUT_MAX_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not seconds from 1 to {TIMEOUT_MAX_S:g}, such as 1800")
    return number


async def loop_run(call: Call) -> int:
    """Open the loop's session and drive it. An existing loop continues with `wake`."""
    async with open_runtime(call.settings) as runtime:
        row = await open_loop(call, runtime)
        call.note(f"session {row.session_id}" + (f" (key {row.key})" if row.key else ""))
        doors = await runtime.doors_for(row.session_id, observer=observer_for(call, row))
        doors.observer.on_events(await runtime.store.read(row.session_id))
        return await drive(call, runtime, row.session_id, doors)
