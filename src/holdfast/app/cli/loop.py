"""`holdfast loop`: the Ralph loop for any command, with checks of the harness in place of the command's word."""

from __future__ import annotations

import argparse

from holdfast.app.arguments import positive
from holdfast.app.call import Call
from holdfast.app.compose import open_runtime
from holdfast.app.running.drive import drive, observer_for
from holdfast.app.running.loop_open import open_loop
from holdfast.session.tools import BASH_TIMEOUT_MAX_S as TIMEOUT_MAX_S


def loop_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("command", metavar="CMD", nargs="*", help="after --: the command; it gets the prompt on stdin")
    parser.add_argument("--max-iterations", metavar="N", type=positive, default=10, help="cap on iterations (10)")
    parser.add_argument("--until", metavar="CMD", default="", help="it is done when this command succeeds")
    parser.add_argument("--budget", metavar="USD", dest="budget_usd", help="cap on what the command says it costs")
    parser.add_argument(
        "--timeout", metavar="S", type=_seconds, default=TIMEOUT_MAX_S, help="seconds for one iteration (3600)"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--in-hands", action="store_true", help="run the command in the sandbox (the default)")
    where.add_argument(
        "--on-host",
        dest="no_sandbox",
        action="store_true",
        help="run the command and the checks without isolation; recorded in the log",
    )
    parser.add_argument("--chain", metavar="FILE", default="", help="from a report: choose, plan tasks, then loop")
    parser.add_argument("--workspace", metavar="DIR", default=".", help="the folder to work in; this one when left out")
    parser.add_argument("--session-id", metavar="KEY", help="a key of your own for the session")
    parser.add_argument(
        "--allow-host", metavar="HOST[:PORT]", action="append", default=[], help="let the command talk to it, by TLS"
    )
    parser.add_argument("--registries", action="store_true", help="let it reach this machine's package registries")
    parser.add_argument(
        "--secret", metavar="NAME", action="append", default=[], help="of your secrets only these; all when left out"
    )
    parser.add_argument("--prompts", metavar="DIR", help="a folder with prompts of your own, such as loop.md")
    parser.add_argument("--user", metavar="NAME", help="run the command as this login; only root can")
    parser.add_argument("--take-over", action="store_true", help="give the workspace to that user (root only)")
    parser.add_argument("--plain", action="store_true", help="lines only, nothing redrawn, also on a terminal")
    parser.add_argument("--json", action="store_true", help="print events and the result as JSON lines")


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 1 <= number <= TIMEOUT_MAX_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not seconds from 1 to {TIMEOUT_MAX_S:g}, such as 1800")
    return number


async def loop_run(call: Call) -> int:
    """Open the loop's session and drive it. A loop that is there already goes on with `wake`."""
    async with open_runtime(call.settings) as runtime:
        row = await open_loop(call, runtime)
        call.note(f"session {row.session_id}" + (f" (key {row.key})" if row.key else ""))
        doors = await runtime.doors_for(row.session_id, observer=observer_for(call, row))
        doors.observer.on_events(await runtime.store.read(row.session_id))
        return await drive(call, runtime, row.session_id, doors)
