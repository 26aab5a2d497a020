"""The verbs that run a session in this process or watch it: run, attach."""

from __future__ import annotations

import argparse

from holdfast.app.call import SESSION, Call, positive, rule_arguments, sandbox_arguments, span, wait_argument
from holdfast.app.compose import open_runtime
from holdfast.app.running.drive import attach, detach, drive, observer_for
from holdfast.app.running.opening import check_goal, choose_workspace, continue_run, existing, finishing, open_run
from holdfast.app.running.workers import sweep


def run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `run`."""
    parser.add_argument("goal", metavar="GOAL", nargs="?", default="", help="Goal for the agent")
    work_arguments(parser)
    parser.add_argument("--model", metavar="M", help="Model as provider:name, such as anthropic:NAME")
    parser.add_argument("--base-url", metavar="URL", default="", help="URL of the model server")
    parser.add_argument(
        "--fallback", metavar="M", action="append", default=[], help="Model to use when the one before fails"
    )
    parser.add_argument("--agent", metavar="FILE", default="", help="Agent definition in TOML")
    parser.add_argument("--session-id", metavar="KEY", help="Key of the session; the same key continues it")
    parser.add_argument("--budget", metavar="USD", dest="budget_usd", help="Budget in dollars")
    parser.add_argument("--unpriced", action="store_true", help="Allow models without a price under a budget")
    parser.add_argument(
        "--account",
        metavar="NAME",
        action="append",
        default=[],
        help="Charge a shared account too, such as project:web",
    )
    parser.add_argument("--max-turns", metavar="N", type=positive, help="Maximum number of model responses")
    rule_arguments(parser)
    sandbox_arguments(parser)
    parser.add_argument("--prompts", metavar="DIR", help="Folder with custom prompts, such as worker.md")
    parser.add_argument("--take-over", action="store_true", help="Give the workspace to that user (root only)")
    wait_argument(parser)
    parser.add_argument("--detach", action="store_true", help="Run in the background; return once the session is saved")
    parser.add_argument("--plain", action="store_true", help="Print plain lines, without the live view")
    parser.add_argument("--json", action="store_true", help="Print events and the result as JSON lines")


def work_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments on the folder of a run, on its checks, and on its commits."""
    parser.add_argument("--workspace", metavar="DIR", help="Folder to work in (default: this git repository)")
    parser.add_argument("--scratch", action="store_true", help="Work in a new and empty folder")
    parser.add_argument(
        "--until",
        metavar="CMD",
        action="append",
        default=[],
        help="Require this check to pass in a fresh sandbox before the session is done (repeatable)",
    )
    parser.add_argument(
        "--until-tries",
        metavar="N",
        type=positive,
        help="Return failing checks to the model this often, then ask you (default: 5)",
    )
    parser.add_argument(
        "--until-timeout", metavar="DURATION", type=span, help="Time limit of each check, such as 5m (default: 10m)"
    )
    parser.add_argument(
        "--commit",
        action="store_true",
        help="Commit the workspace to the branch holdfast/SESSION whenever the session parks or ends",
    )


async def run_run(call: Call) -> int:
    """Open the session, or find the one with this key, and drive it."""
    async with open_runtime(call.settings) as runtime:
        await sweep(runtime)
        row = await existing(runtime, call.args.session_id)
        before = row.head if row else 0
        if row is None:
            check_goal(call)
            await choose_workspace(call)
            row = await open_run(call, runtime, run=await finishing(call, runtime))
        else:
            await continue_run(call, runtime, row)
        call.note(f"session {row.session_id}" + (f" (key {row.key})" if row.key else ""))
        call.note(f"workspace {row.workspace}")
        if call.args.detach:
            return await detach(call, runtime, row)
        doors = await runtime.doors_for(row.session_id, observer=observer_for(call, row))
        doors.observer.on_events(await runtime.store.read(row.session_id, after=before))
        return await drive(call, runtime, row.session_id, doors)


def attach_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `attach`."""
    parser.add_argument("session", metavar="ID", help=SESSION)
    parser.add_argument("--plain", action="store_true", help="Print plain lines, without the live view")
    parser.add_argument("--json", action="store_true", help="Print events and the result as JSON lines")


async def attach_run(call: Call) -> int:
    """Watch the session until it stops or the user presses Ctrl-C; neither changes the session."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        return await attach(call, runtime, row.session_id)
