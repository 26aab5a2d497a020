"""`holdfast run`: one agent, one session."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

from holdfast.app.call import Call
from holdfast.app.compose import PROGRAM, Runtime, find_model, open_runtime
from holdfast.app.config import budget_pico, load_agent, load_rules, pinned_rules
from holdfast.app.drive import drive, observer_for
from holdfast.brain.doors import Doors
from holdfast.errors import SandboxUnavailable, UnknownSession, UsageError
from holdfast.facts.base import Usage
from holdfast.facts.session import Agent, Limits, SessionCreated, SessionUpdated, Workspace
from holdfast.hands.user import choose_user, take_over
from holdfast.session.rows import SessionRow


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this verb."""
    parser.add_argument("goal", metavar="GOAL", nargs="?", default="", help="what is wanted, in words")
    parser.add_argument("--workspace", metavar="DIR", help="the folder to work in; a fresh one when left out")
    parser.add_argument("--model", metavar="M", help="provider:name, such as scripted:FILE")
    parser.add_argument("--agent", metavar="FILE", default="", help="an agent as TOML: name, model, system, tools")
    parser.add_argument("--session-id", metavar="KEY", default="", help="a key of your own; a second run continues it")
    parser.add_argument("--budget", metavar="USD", dest="budget_usd", help="money cap in dollars")
    parser.add_argument("--max-turns", metavar="N", type=positive, help="cap on model responses")
    parser.add_argument("--rules", metavar="FILE", default="", help="permission rules as TOML")
    parser.add_argument("--allow", metavar="TOOL", action="append", default=[], help="allow a tool (glob)")
    parser.add_argument("--deny", metavar="TOOL", action="append", default=[], help="deny a tool (glob)")
    parser.add_argument("--user", metavar="NAME", help="run tools as this login; only root can")
    parser.add_argument("--take-over", action="store_true", help="give the workspace to the tools' user (root only)")
    parser.add_argument("--no-sandbox", action="store_true", help="run tools without isolation; recorded in the log")
    parser.add_argument("--detach", action="store_true", help="return once the session is durable")
    parser.add_argument("--json", action="store_true", help="print events and the result as JSON lines")


def positive(text: str) -> int:
    """A whole number of 1 or more."""
    try:
        value = int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from error
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is below 1")
    return value


async def run(call: Call) -> int:
    """Open the session, or find the one with this key, and drive it."""
    async with open_runtime(call.settings) as runtime:
        row = await _existing(runtime, call.args.session_id)
        if row is None:
            row = await _open(call, runtime)
        else:
            await _continue(call, runtime, row)
        call.note(f"session {row.session_id}, workspace {row.workspace}")
        if call.args.detach:
            return _detach(call, runtime, row)
        return await drive(call, runtime, row.session_id, doors_of(call, runtime, await workspace_of(runtime, row)))


def doors_of(call: Call, runtime: Runtime, workspace: Workspace) -> Doors:
    """Doors for a session, watched by this command."""
    return runtime.doors(workspace, observer=observer_for(call))


async def workspace_of(runtime: Runtime, row: SessionRow) -> Workspace:
    """The workspace that the session was opened on."""
    (first,) = await runtime.store.read(row.session_id, limit=1)
    assert isinstance(first.fact, SessionCreated)
    return first.fact.workspace


async def _existing(runtime: Runtime, key: str) -> SessionRow | None:
    if not key:
        return None
    try:
        return await runtime.store.find(key)
    except UnknownSession:
        return None


async def _open(call: Call, runtime: Runtime) -> SessionRow:
    args, settings = call.args, call.settings
    if not args.goal.strip():
        raise UsageError('the goal is empty; say what is wanted, for example: holdfast run "fix the failing test"')
    agent = load_agent(args.agent, settings.model)
    rules = load_rules(args.rules, args.allow, args.deny)
    agent = Agent(agent.model, agent.name, agent.system, agent.tools, rules)
    limits = Limits(
        budget_pico=budget_pico(settings.budget_usd),
        max_turns=settings.max_turns,
        context_tokens=settings.context_tokens,
        max_output_tokens=settings.max_output_tokens,
    )
    _check_model(agent, limits)
    session_id = runtime.intake.new_session_id()
    workspace = _workspace(call, runtime, session_id)
    await check_hands(call, runtime, workspace)
    created = SessionCreated(
        goal=args.goal,
        agent=agent,
        workspace=workspace,
        limits=limits,
        rules=pinned_rules(Path(workspace.path)),
        key=args.session_id,
        accounts=(session_id,),
        program=PROGRAM,
    )
    receipt = await runtime.intake.open(session_id, created)
    return await runtime.store.find(receipt.session_id)


def _check_model(agent: Agent, limits: Limits) -> None:
    model = find_model(agent.model)
    if limits.budget_pico is not None and model.cost_pico(Usage(input_tokens=1)) is None:
        raise UsageError(
            f"{agent.model} has no price, so a money budget cannot be kept; leave --budget out, "
            'or give the model a price, for example "price": {"input_per_mtok": 3.0, "output_per_mtok": 15.0}'
        )


def _workspace(call: Call, runtime: Runtime, session_id: str) -> Workspace:
    args = call.args
    isolation: Literal["sandbox", "none"] = "none" if args.no_sandbox else "sandbox"
    user = call.settings.user
    if not args.workspace:
        path = runtime.home.workspaces / session_id
        path.mkdir(mode=0o755)
        return Workspace(str(path), True, user, isolation)
    path = check_folder(args.workspace)
    if args.take_over:
        call.note(f"giving {path} and all in it to the tools' user (--take-over) …")
        call.note(f"it belongs to {take_over(path, user).name} now")
    return Workspace(str(path), False, user, isolation)


def check_folder(text: str) -> Path:
    """A workspace that a person named: it has to be there, a folder, and writable."""
    path = Path(text).absolute()
    if not path.exists():
        raise UsageError(f"the workspace {path} does not exist; make it first: mkdir -p {path}")
    if not path.is_dir():
        raise UsageError(f"the workspace {path} is not a folder; name the folder that it is in")
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"the workspace {path} is not writable for you; choose another one, or change its mode")
    return path.resolve()


async def check_hands(call: Call, runtime: Runtime, workspace: Workspace) -> None:
    """Refuse now, rather than at the first tool call, what the machine cannot do safely."""
    capabilities = await runtime.provider(workspace).probe()
    if not capabilities.usable:
        bad = [finding for finding in capabilities.findings if finding.level in ("bad", "absent") and finding.fix]
        why = "; ".join(f"{finding.message}: {finding.fix}" for finding in bad)
        raise SandboxUnavailable(
            f"this machine cannot isolate tool calls ({why}); nothing was started. `holdfast doctor` says more; "
            "--no-sandbox runs them without isolation"
        )
    if workspace.isolation == "none":
        call.note("WARNING: tools run without a sandbox (--no-sandbox); the log records it")
    choose_user(workspace)


async def _continue(call: Call, runtime: Runtime, row: SessionRow) -> None:
    """A second `run` with the same key: raise limits, post another goal as a message, or just wake."""
    args = call.args
    if args.workspace and str(check_folder(args.workspace)) != row.workspace:
        raise UsageError(
            f"session {row.key} works in {row.workspace}, not in {args.workspace}; leave --workspace out, "
            "or use another --session-id"
        )
    cap = budget_pico(args.budget_usd or "")
    if cap is not None or args.max_turns is not None:
        await runtime.intake.update(row, SessionUpdated(budget_pico=cap, max_turns=args.max_turns))
    (first,) = await runtime.store.read(row.session_id, limit=1)
    assert isinstance(first.fact, SessionCreated)
    if args.goal.strip() and args.goal != first.fact.goal:
        await runtime.intake.send(row, args.goal)


def _detach(call: Call, runtime: Runtime, row: SessionRow) -> int:
    """Start `wake` in a process of its own, which outlives this one and its terminal."""
    settings = call.settings
    command = [sys.executable, "-m", "holdfast", "wake", row.session_id, "--home", str(runtime.home.path)]
    command += ["--db", settings.db] if settings.db else []
    log = runtime.home.logs / f"{row.session_id}.log"
    with log.open("ab") as output:
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
    if call.json:
        call.emit({"type": "detached", "session_id": row.session_id, "workspace": row.workspace})
    else:
        call.say(f"{row.session_id} goes on in the background; follow it with: holdfast logs {row.session_id} -f")
    return 0
