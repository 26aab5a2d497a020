"""`holdfast items`: work through a list, one agent session per item, and change the list while it runs."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, get_args

import msgspec

from holdfast.app.call import SESSION, Call, positive, rule_arguments, sandbox_arguments, wait_argument
from holdfast.app.cli import Help, Parser
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.exits import name_of
from holdfast.app.items.opening import continue_items, open_items, read_list
from holdfast.app.running.drive import detach, drive, observer_for
from holdfast.app.running.opening import existing
from holdfast.errors import UsageError
from holdfast.facts.items import ItemContext
from holdfast.kinds.items.state import forecast_error, rest
from holdfast.service.event_lines import counted, one_line
from holdfast.service.items import runs as service
from holdfast.session.money import usd

REASONS = 20
"""Quarantined items that `show` lists."""


class WithCommand(Parser):
    """Parser that keeps what follows `--` as one shell command."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the words before `--`."""
        words: Sequence[str] = list(args or ())
        at = words.index("--") if "--" in words else len(words)
        found, unknown = super().parse_known_args(words[:at], namespace)
        rest = words[at + 1 :]
        found.command = rest[0] if len(rest) == 1 else shlex.join(rest)
        return found, unknown


def items_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `items`."""
    words = parser.add_subparsers(dest="word", metavar="WORD", required=True, parser_class=WithCommand)
    for name, (summary, _) in WORDS.items():
        word = words.add_parser(name, help=summary, description=f"{summary}.", formatter_class=Help, allow_abbrev=False)
        for flag, metavar, help_ in (
            ("--home", "DIR", "Data directory (env: HOLDFAST_HOME)"),
            ("--db", "URL", "Log: sqlite:///PATH, or postgresql://USER@HOST/NAME (env: HOLDFAST_DB)"),
        ):
            word.add_argument(flag, metavar=metavar, help=help_, default=argparse.SUPPRESS)
        word.set_defaults(complain=word.error)
        if name == "run":
            _run_arguments(word)
            _agent_arguments(word)
        else:
            _other_arguments(name, word)


async def items_run(call: Call) -> int:
    """Carry out the subcommand."""
    async with open_runtime(call.settings) as runtime:
        return await WORDS[call.args.word][1](call, runtime)


# --- run ---------------------------------------------------------------------------------------------


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "list",
        metavar="LIST",
        nargs="?",
        default="",
        help="A .jsonl or .csv file, a quoted pattern, - for standard input, or an items.toml; "
        "or -- COMMAND, whose lines of output are the items",
    )
    parser.add_argument("--each", metavar="PROMPT", help="Prompt for an item; {field} stands for a field of it")
    parser.add_argument("--key", metavar="FIELD", help="Field that names an item (default: a digest of the item)")
    parser.add_argument("--schema", metavar="FILE", help="JSON schema of a result (default: a result is text)")
    parser.add_argument("--check", metavar="CMD", help="Require this check of a result to pass in a fresh sandbox")
    parser.add_argument("--workers", metavar="N", type=positive, help="Items at a time (default: 4)")
    parser.add_argument("--batch", metavar="N", type=positive, help="Items in one session (default: 1)")
    parser.add_argument(
        "--context",
        metavar="KIND",
        choices=get_args(ItemContext),
        help="fresh: a session for each item (default); rolling: sessions that go on from item to item",
    )
    parser.add_argument("--tries", metavar="N", type=positive, help="Tries for an item (default: 3)")
    parser.add_argument("--every", metavar="N", type=positive, help="Results between two checkpoints (default: 50)")
    parser.add_argument(
        "--max-quarantine", metavar="SHARE", help="Park above this share of quarantined items (default: 5%%)"
    )
    parser.add_argument("--audit", metavar="SHARE", help="Let a judge look at this share of the results, such as 5%%")
    parser.add_argument("--judge", metavar="M", help="Model of the judge (default: the agent's)")
    parser.add_argument("--reduce", metavar="PROMPT", help="At the end, run an agent over all results")
    parser.add_argument("--reduce-command", metavar="CMD", help="At the end, run this command over results.jsonl")
    parser.add_argument("--out", metavar="FILE", help="New file for the results (default: results.jsonl)")
    parser.add_argument("--workspace", metavar="DIR", help="Folder of all sessions (default: a new one for each)")
    parser.add_argument("--no-tools", action="store_true", help="Give the agent no tools: one request for an item")


def _agent_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="M", help="Model as provider:name, such as anthropic:NAME")
    parser.add_argument("--base-url", metavar="URL", default="", help="URL of the model server")
    parser.add_argument("--agent", metavar="FILE", default="", help="Agent definition in TOML")
    parser.add_argument("--session-id", metavar="KEY", help="Key of the run; the same key continues it")
    parser.add_argument("--budget", metavar="USD", dest="budget_usd", help="Budget in dollars for the whole list")
    parser.add_argument("--unpriced", action="store_true", help="Allow models without a price under a budget")
    parser.add_argument("--account", metavar="NAME", action="append", default=[], help="Charge a shared account too")
    rule_arguments(parser)
    sandbox_arguments(parser)
    wait_argument(parser)
    parser.add_argument("--detach", action="store_true", help="Run in the background; return once the run is saved")
    parser.add_argument("--plain", action="store_true", help="Print plain lines, without the live view")
    parser.add_argument("--json", action="store_true", help="Print events and the result as JSON lines")


async def _run(call: Call, runtime: Runtime) -> int:
    """Open the run, or find the one with this key, and drive it."""
    row = await existing(runtime, call.args.session_id)
    if row is None:
        row = await open_items(call, runtime)
    else:
        await continue_items(call, runtime, row)
    call.note(f"run {row.session_id}" + (f" (key {row.key})" if row.key else ""))
    if call.args.detach:
        return await detach(call, runtime, row)
    doors = await runtime.doors_for(row.session_id, observer=observer_for(call, row))
    doors.observer.on_events(await runtime.store.read(row.session_id, limit=1))
    return await drive(call, runtime, row.session_id, doors)


# --- the other subcommands ---------------------------------------------------------------------------


def _other_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="RUN", help=SESSION)
    if name == "add":
        parser.add_argument("list", metavar="LIST", help="A .jsonl or .csv file, a quoted pattern, or -")
        parser.add_argument("--replace", action="store_true", help="Change items whose keys exist, and do them again")
    if name == "remove":
        parser.add_argument("keys", metavar="KEY", nargs="+", help="Key of an item")
    if name == "retry":
        parser.add_argument("keys", metavar="KEY", nargs="*", help="Key of a quarantined item")
        parser.add_argument("--quarantined", action="store_true", help="Try all quarantined items again")
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def _show(call: Call, runtime: Runtime) -> int:
    row = await runtime.store.find(call.args.session)
    state, _, own = await service.run_of(runtime.site, row)
    standing = service.standing(state)
    reasons = await service.reasons(runtime.store, state, len(own.items) if call.json else REASONS)
    if call.json:
        quarantine = [{"key": key, "reason": why, "tries": tries} for key, why, tries in reasons]
        call.emit({"session_id": row.session_id, **msgspec.to_builtins(standing), "quarantine": quarantine})
        return 0
    counts = f"{standing.done} of {standing.total} done, {standing.running} running, {standing.todo} to do"
    status = "running" if await service.at_work(runtime.store, row) else row.status
    call.say(f"{name_of(row)} is {status}: {counts}, {standing.quarantined} quarantined")
    if status == "parked":
        call.say(f"{row.detail}; `{call.typed('brief', name_of(row))}` says what it needs")
    spent = "unpriced" if standing.spent_usd is None else usd(own.spent_pico)
    call.say(f"spent {spent}; {standing.failed_tries} tries failed")
    if standing.audited:
        call.say(f"{counted(standing.audited, 'result')} audited, {standing.refused} refused")
    if expected := rest(own) or forecast_error(own):
        call.say(expected)
    call.say(f"{counted(standing.written, 'result')} in {standing.out}")
    for key, why, tries in reasons:
        call.say(f"  {key}: {one_line(why, 160)} (tries: {tries})")
    if standing.quarantined > len(reasons):
        call.say(f"  and {standing.quarantined - len(reasons)} more: --json lists all")
    return 0


async def _change(call: Call, runtime: Runtime) -> int:
    """Add, remove, or retry items."""
    args, site = call.args, runtime.site
    row = await runtime.store.find(args.session)
    if args.word == "add":
        _, items, _ = await service.run_of(site, row)
        data = read_list(args.list, items.key, items.each, has_folder=not items.own_workspace)
        await service.add(site, row, data, replace=args.replace)
        count, what = len(data), "added"
    elif args.word == "remove":
        await service.remove(site, row, args.keys)
        count, what = len(args.keys), "removed"
    else:
        if bool(args.keys) == args.quarantined:
            raise UsageError("name the items to try again, or all of them with --quarantined")
        count, what = await service.retry(site, row, args.keys), "tried again"
    running = await service.at_work(runtime.store, row)
    if call.json:
        call.emit({"session_id": row.session_id, "items": count, "running": running})
    then = "its process goes on with it" if running else f"go on with `{call.typed('wake', name_of(row))}`"
    call.say(f"{counted(count, 'item')} {what}; {then}")
    return 0


WORDS: dict[str, tuple[str, Callable[[Call, Runtime], Awaitable[int]]]] = {
    "run": ("Work through a list; the same --session-id continues", _run),
    "show": ("Show how a run stands, with the quarantined items", _show),
    "add": ("Add items to a run, or change them", _change),
    "remove": ("Remove items and their results from a run", _change),
    "retry": ("Try quarantined items again", _change),
}
"""Subcommand → summary and function."""
