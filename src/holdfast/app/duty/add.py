"""`holdfast duty add` and `holdfast every`: check a definition, and open the duty or change it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path

import msgspec

from holdfast.app.call import Call, positive, rule_arguments, sandbox_arguments
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.models import settled_model
from holdfast.app.running.opening import limits_of, policies_of, workspace_of
from holdfast.app.settings.agent_file import load_agent, load_rules
from holdfast.app.settings.config import config_folder, pinned_rules, trust_store
from holdfast.app.settings.duty_file import DutyFile, check_duty, duty_changes, read_duty_file, usd_pico
from holdfast.app.settings.project import Change
from holdfast.app.settings.trust import SettingsFile, check_workspace
from holdfast.app.trust_prompt import Found, accept, ask, can_ask
from holdfast.clock import SystemClock, local_time
from holdfast.errors import CannotRunSafely, NotTrusted, UsageError
from holdfast.facts.duty import Alert, Duty
from holdfast.facts.session import Agent, SessionCreated
from holdfast.hands.bubblewrap import is_taken
from holdfast.kinds import DUTY
from holdfast.kinds.duty.firing import REPORT
from holdfast.kinds.duty.schedule import due_us, next_instant
from holdfast.service import duties
from holdfast.service.opening import NewSession, find_by_key, open_session, state_of
from holdfast.session.rows import SessionRow
from holdfast.session.tools import with_web
from holdfast.session.tools.policy import is_about

NAME_WORDS, NAME_CHARACTERS = 4, 32

COMPARISONS = {">": "over", ">=": "from", "<": "under", "<=": "up-to", "==": "is", "!=": "not"}
"""Sign → its word in the name of an alert."""


def every_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `every`."""
    parser.add_argument("when", metavar="WHEN", help="Interval such as 6h, or a cron expression in quotes")
    parser.add_argument("goal", metavar="GOAL", help="Goal of each firing")
    parser.add_argument("--name", metavar="NAME", default="", help="Name of the duty (default: words of the goal)")
    parser.add_argument("--zone", metavar="ZONE", default="UTC", help="Time zone of a cron expression (default: UTC)")
    parser.add_argument(
        "--misfire",
        choices=("skip", "once", "all"),
        default="once",
        help="Instants missed while nothing ran: none fires, one firing for all, or each fires (default: once)",
    )
    parser.add_argument(
        "--overlap",
        choices=("skip", "queue", "cancel"),
        default="skip",
        help="An instant during a firing: skip it, queue it, or cancel the firing (default: skip)",
    )
    parser.add_argument("--jitter", metavar="SPAN", default="", help="Delay each instant by up to this, such as 5m")
    parser.add_argument("--timeout", metavar="SPAN", default="6h", help="Time limit of a firing (default: 6h)")
    parser.add_argument(
        "--read", metavar="DIR", action="append", default=[], help="Folder that firings may read (repeatable)"
    )
    parser.add_argument("--max-turns", metavar="N", type=positive, default=100, help="Model responses of a firing")
    parser.add_argument("--budget", metavar="USD", default="", dest="firing_usd", help="Budget of each firing")
    parser.add_argument("--total", metavar="USD", default="", help="Budget of all firings together")
    parser.add_argument(
        "--alert", metavar="EXPR", action="append", default=[], help="Condition such as 'errors > 3' (repeatable)"
    )
    parser.add_argument("--agent", metavar="FILE", default="", help="Agent definition in TOML")
    _shared(parser)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `duty add`."""
    parser.add_argument("file", metavar="FILE", help="A duty.toml; a duty of the same name is changed")
    parser.add_argument("--yes", action="store_true", help="Accept what the file may do, without asking")
    _shared(parser)


def _shared(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="M", help="Model as provider:name, such as anthropic:NAME")
    parser.add_argument("--base-url", metavar="URL", default="", help="URL of the model server")
    parser.add_argument("--unpriced", action="store_true", help="Allow models without a price under a budget")
    rule_arguments(parser)
    sandbox_arguments(parser)
    parser.add_argument("--now", action="store_true", help="Fire once at once, too")
    parser.add_argument("--json", action="store_true", help="Print JSON lines")


async def every(call: Call) -> int:
    """Add a duty from arguments."""
    args = call.args
    words = re.findall(r"[a-z0-9]+", args.goal.lower())[:NAME_WORDS]
    interval = {"cron": args.when} if " " in args.when.strip() else {"every": args.when}
    file = DutyFile(
        name=args.name or "-".join(words)[:NAME_CHARACTERS].strip("-") or "duty",
        goal=args.goal,
        zone=args.zone,
        misfire=args.misfire,
        overlap=args.overlap,
        jitter=args.jitter,
        timeout=args.timeout,
        read=tuple(args.read),
        max_turns=args.max_turns,
        budget_usd=args.firing_usd,
        total_usd=args.total,
        alert=_alerts(args.alert),
        **interval,
    )
    agent = load_agent(args.agent, call.settings.model)
    return await _add(call, file, agent, "the arguments", Path.cwd(), change=False)


def _alerts(expressions: Sequence[str]) -> tuple[Alert, ...]:
    """Return an alert for each expression, with the name that it makes: `errors-over-3` for `errors > 3`."""
    named: dict[str, Alert] = {}
    for text in dict.fromkeys(expressions):
        words = re.findall(r"\w+|[<>]=?|[=!]=", text, re.ASCII)
        name = "-".join(COMPARISONS.get(word, word) for word in words)
        name = name[: NAME_CHARACTERS - 3].strip("-_") or "alert"
        name = next(each for each in chain((name,), (f"{name}-{n}" for n in count(2))) if each not in named)
        named[name] = Alert(name, text)
    return tuple(named.values())


async def add(call: Call) -> int:
    """Add a duty from a file, or change the one of its name."""
    path = Path(call.args.file)
    source, file = read_duty_file(path)
    await _accepted(call, source, duty_changes(file))
    mine = load_agent("", call.args.model or file.model or call.settings.model)
    agent = msgspec.structs.replace(mine, system=file.system, tools=file.tools or mine.tools, fallbacks=file.fallbacks)
    return await _add(call, file, agent, str(path), path.resolve().parent, change=True)


async def _accepted(call: Call, file: SettingsFile, changes: list[Change]) -> None:
    """Raise `NotTrusted` for a file that may do what the user did not accept."""
    if file.problem:
        raise NotTrusted(f"{file.path} does not count: {file.problem}; nothing was added. Mend that first")
    if not changes or trust_store().accepts(file):
        return
    found = [Found(file, changes, False)]
    if call.args.yes:
        for line in found[0].lines():
            call.note(line)
    elif not (can_ask(call) and await ask(call, found)):
        keys = ", ".join(each.key for each in changes)
        raise NotTrusted(
            f"{file.path} sets {keys}, which you have not accepted; nothing was added. Read it, then --yes"
        )
    accept(found)


async def _add(call: Call, file: DutyFile, agent: Agent, where: str, folder: Path, *, change: bool) -> int:
    args, settings = call.args, call.settings
    duty = check_duty(file, where, SystemClock().now_us())
    limits = limits_of(settings, unpriced=args.unpriced)
    duty = msgspec.structs.replace(duty, budget_pico=duty.budget_pico or limits.budget_pico)
    given = policies_of(settings, args.allow_host, args.registries, args.secret or None)
    fallbacks = tuple(settled_model(name, "") for name in agent.fallbacks)
    agent = msgspec.structs.replace(
        agent, name=DUTY, model=settled_model(agent.model, args.base_url), fallbacks=fallbacks,
        rules=load_rules(args.rules, args.rule_flags),
    )  # fmt: skip
    sandbox = not args.no_sandbox
    workspace = msgspec.structs.replace(
        workspace_of(settings, None, sandbox=sandbox), read_only=_readable(file.read, folder, where, sandbox=sandbox)
    )
    new = NewSession(
        goal=file.goal,
        agent=with_web(agent, given.egress, given.searchers),
        workspace=workspace,
        limits=msgspec.structs.replace(limits, budget_pico=usd_pico(file.total_usd, "total_usd", where)),
        policies=given,
        key=file.name,
        duty=duty,
    )
    for rule in duty.rules:
        if not any(is_about(rule, tool) for tool in (*new.agent.tools, REPORT)):
            call.note(f"the rule for {rule.tool!r} in {where} never matches: it is about no tool of the duty")
    async with open_runtime(settings) as runtime:
        if runtime.shelf is None:
            raise CannotRunSafely("a duty keeps its state in snapshots, which need git; nothing was added: install git")
        row = await find_by_key(runtime.store, file.name)
        if row is None:
            row = (await open_session(runtime.site, new, rules=pinned_rules, tell=call.note)).row
            done = "added"
        else:
            await _change(runtime, row, new, duty, change=change)
            done = "changed"
        if args.now:
            await duties.run_now(runtime.intake, row)
        await _say(call, runtime, row, duty, done)
    return 0


def _readable(folders: tuple[str, ...], base: Path, where: str, *, sandbox: bool) -> dict[str, str]:
    """Return the folders that firings may read, by their paths. Raises `UsageError`."""
    found = {}
    for name in folders:
        path = (base / name).resolve()
        if not path.is_dir():
            raise UsageError(f"read in {where}: {name!r} is not a folder; nothing was added")
        check_workspace(path, config_folder())
        if sandbox and is_taken(str(path)):
            raise UsageError(f"read in {where}: the sandbox has a {path} of its own; nothing was added: move it")
        found[str(path)] = str(path)
    return found


async def _change(runtime: Runtime, row: SessionRow, new: NewSession, duty: Duty, *, change: bool) -> None:
    """Change a duty. Its agent, folders, and total budget stay: those of its session do not change."""
    if row.name != DUTY or not change:
        raise UsageError(f"there is a session {row.key!r} already; nothing was added. Take another --name")
    state = await state_of(runtime.site, row)
    created = state.created
    assert isinstance(created, SessionCreated)
    kept = (created.agent, created.workspace.read_only, state.limits.budget_pico)
    if kept != (new.agent, new.workspace.read_only, new.limits.budget_pico):
        raise UsageError(
            f"the model, tools, rules, read folders, and total budget of the duty {row.key} do not change; nothing was "
            f"changed. Remove it with `holdfast duty remove {row.key}`, and add this one under another name"
        )
    await duties.change(runtime.intake, row, duty, new.goal)


async def _say(call: Call, runtime: Runtime, row: SessionRow, duty: Duty, done: str) -> None:
    """Say what was added, when it fires next, and what has to run for that."""
    now_us = SystemClock().now_us()
    next_us = None
    if duty.schedule is not None:
        instant = next_instant(duty.schedule, row.created_us if done == "added" else now_us, now_us, lambda _: False)
        next_us = None if instant is None else due_us(duty.schedule, row.session_id, instant)
    if call.json:
        call.emit({"session_id": row.session_id, "name": duty.name, "done": done, "next_us": next_us})
    at = f"; first instant {local_time(next_us)}" if next_us is not None else ""
    call.say(f"{done} the duty {duty.name} ({row.session_id}){at}")
    if not await runtime.is_served(row.session_id):
        call.note(f"nothing runs sessions here yet; start: {call.typed('serve')} (or {call.typed('worker')})")
