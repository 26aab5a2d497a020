"""The verbs that run a session here or watch it: run, attach."""

from __future__ import annotations

import argparse
from functools import partial

from holdfast.app.arguments import positive
from holdfast.app.call import Call
from holdfast.app.compose import open_runtime
from holdfast.app.running.drive import attach, detach, drive, observer_for
from holdfast.app.running.opening import continue_run, existing, open_run
from holdfast.app.running.workers import sweep

WORDS = {"allow": "allow a tool", "ask": "ask a person before each call of a tool", "deny": "deny a tool"}


def run_arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("goal", metavar="GOAL", nargs="?", default="", help="what is wanted, in words")
    parser.add_argument("--workspace", metavar="DIR", help="the folder to work in; a fresh one when left out")
    parser.add_argument("--model", metavar="M", help="provider:name, such as anthropic:NAME or scripted:FILE")
    parser.add_argument("--base-url", metavar="URL", default="", help="the model's server, such as your own")
    parser.add_argument(
        "--fallback", metavar="M", action="append", default=[], help="a model to ask when the one before cannot answer"
    )
    parser.add_argument("--agent", metavar="FILE", default="", help="an agent as TOML: name, model, system, tools")
    parser.add_argument("--session-id", metavar="KEY", help="a key of your own; a second run continues it")
    parser.add_argument("--budget", metavar="USD", dest="budget_usd", help="money cap in dollars")
    parser.add_argument("--unpriced", action="store_true", help="under a cap, count only models that have a price")
    parser.add_argument(
        "--account", metavar="NAME", action="append", default=[], help="a shared account, such as project:web"
    )
    parser.add_argument("--max-turns", metavar="N", type=positive, help="cap on model responses")
    parser.add_argument("--rules", metavar="FILE", default="", help="permission rules as TOML")
    for decision in ("allow", "ask", "deny"):
        parser.add_argument(
            f"--{decision}",
            metavar="TOOL",
            dest="rule_flags",
            action="append",
            default=[],
            type=partial(_flag, decision),
            help=f"{WORDS[decision]} (glob); of all rules and flags that fit, the last one counts",
        )
    parser.add_argument(
        "--allow-host", metavar="HOST[:PORT]", action="append", default=[], help="let tools talk to this host, by TLS"
    )
    parser.add_argument("--registries", action="store_true", help="let tools reach this machine's package registries")
    parser.add_argument(
        "--secret", metavar="NAME", action="append", default=[], help="of your secrets only these; all when left out"
    )
    parser.add_argument("--prompts", metavar="DIR", help="a folder with prompts of your own, such as worker.md")
    parser.add_argument("--user", metavar="NAME", help="run tools as this login; only root can")
    parser.add_argument("--take-over", action="store_true", help="give the workspace to the tools' user (root only)")
    parser.add_argument("--no-sandbox", action="store_true", help="run tools without isolation; recorded in the log")
    parser.add_argument("--detach", action="store_true", help="return once the session is durable")
    parser.add_argument("--plain", action="store_true", help="lines only, nothing redrawn, also on a terminal")
    parser.add_argument("--json", action="store_true", help="print events and the result as JSON lines")


def _flag(decision: str, pattern: str) -> tuple[str, str]:
    return decision, pattern


async def run_run(call: Call) -> int:
    """Open the session, or find the one with this key, and drive it."""
    async with open_runtime(call.settings) as runtime:
        await sweep(runtime)
        row = await existing(runtime, call.args.session_id)
        before = row.head if row else 0
        if row is None:
            row = await open_run(call, runtime)
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
    """The words of this verb."""
    parser.add_argument("session", metavar="ID", help="a session's id, key, or a unique beginning of either")
    parser.add_argument("--plain", action="store_true", help="lines only, nothing redrawn, also on a terminal")
    parser.add_argument("--json", action="store_true", help="print events and the result as JSON lines")


async def attach_run(call: Call) -> int:
    """Watch it until it stops, or until Ctrl-C; either leaves the session as it is."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        return await attach(call, runtime, row.session_id)
