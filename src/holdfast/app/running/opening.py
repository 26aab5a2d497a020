"""The request of `holdfast run`: arguments and settings resolved into a new session, or checked against an open one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.app.call import Call
from holdfast.app.compose import Runtime
from holdfast.app.exits import name_of
from holdfast.app.models import settled_model
from holdfast.app.settings import egress_policy, policies
from holdfast.app.settings.agent_file import load_agent, load_rules
from holdfast.app.settings.config import Settings, budget_pico, config_folder, pinned_rules
from holdfast.app.settings.prompts import load_prompts
from holdfast.app.settings.trust import check_workspace
from holdfast.errors import UsageError
from holdfast.facts.session import Agent, Limits, SessionCreated, Workspace
from holdfast.service import opening
from holdfast.service.opening import (
    Change,
    NewSession,
    Policies,
    check_key,
    continue_session,
    find_by_key,
    open_session,
    state_of,
)
from holdfast.session.money import HOME_ACCOUNT
from holdfast.session.rows import SessionRow
from holdfast.session.tools import with_web

GOAL_EXAMPLE = 'state one, for example: holdfast run "fix the failing test"'


async def existing(runtime: Runtime, key: str | None) -> SessionRow | None:
    """Return the session that `--session-id` names exactly, None when there is none yet. Raises `UsageError`."""
    if key is None:
        return None
    check_key(key, "--session-id ")
    return await find_by_key(runtime.store, key)


async def open_run(
    call: Call, runtime: Runtime, *, agent: Agent | None = None, limits: Limits | None = None
) -> SessionRow:
    """Open a session from the arguments of the command; `agent` and `limits` replace those of the settings."""
    args, settings = call.args, call.settings
    if not args.goal.strip():
        unknown = f"there is no session {args.session_id!r} yet, and " if args.session_id else ""
        raise UsageError(f"{unknown}the goal is empty; {GOAL_EXAMPLE}")
    agent = agent or _agent(call)
    given = policies_of(settings, args.allow_host, args.registries, args.secret or None)
    if args.take_over and args.workspace is None:
        raise UsageError("--take-over needs a folder to give away, for example --workspace DIR --take-over")
    workspace = workspace_of(settings, args.workspace, sandbox=not args.no_sandbox)
    load_prompts(settings.prompts, workspace.path, settings.prompt_files)
    new = NewSession(
        goal=args.goal,
        agent=with_web(agent, given.egress, given.searchers),
        workspace=workspace,
        limits=limits or limits_of(settings, unpriced=args.unpriced),
        policies=given,
        key=args.session_id or "",
        accounts=tuple(dict.fromkeys(args.account)),
        take_over=args.take_over,
    )
    opened = await open_session(runtime.site, new, rules=pinned_rules, tell=call.note)
    if opened.duplicate:
        await continue_run(call, runtime, opened.row)
    return opened.row


def limits_of(settings: Settings, *, unpriced: bool, **changes: Any) -> Limits:
    """The limits of a new session from the settings; `changes` override them."""
    limits = Limits(
        budget_pico=budget_pico(settings.budget_usd),
        max_turns=settings.max_turns,
        context_tokens=settings.context_tokens,
        max_output_tokens=settings.max_output_tokens,
        context=policies.context(settings),
        breakers=policies.breakers(settings),
        unpriced=unpriced,
    )
    return msgspec.structs.replace(limits, **changes)


def policies_of(
    settings: Settings, hosts: Sequence[str], registries: bool, secrets: Sequence[str] | None = None
) -> Policies:
    """The policies of a new session from the settings, with additional hosts and registries."""
    return Policies(
        people=policies.people(settings),
        hands=policies.hands(settings),
        egress=egress_policy.egress(settings, hosts=hosts, registries=registries, secrets=secrets),
        environment=policies.environment(settings),
        searchers=egress_policy.searchers(settings),
    )


async def check_machine(call: Call, runtime: Runtime, workspace: Workspace) -> None:
    """Refuse what the machine cannot do safely, and report weak isolation. Raises `SandboxUnavailable`."""
    for warning in await opening.check_machine(runtime.site, workspace, policies.hands(call.settings)):
        call.note(warning)


async def continue_run(call: Call, runtime: Runtime, row: SessionRow) -> None:
    """Apply a second `run` with the same key: raise limits, post another goal as a message, or just continue."""
    args = call.args
    state = await state_of(runtime.site, row)
    assert state.created is not None
    _check_kept(call, state.created, row)
    change = Change(goal=args.goal, budget_pico=budget_pico(args.budget_usd or ""), max_turns=args.max_turns)
    await continue_session(runtime.site, row, state, change)


def _check_kept(call: Call, created: SessionCreated, row: SessionRow) -> None:
    """Refuse arguments that contradict the session's workspace, model, tools, or rules, which do not change."""
    args, agent = call.args, created.agent
    if args.workspace and str(check_folder(args.workspace)) != row.workspace:
        raise _kept(row, "--workspace", f"works in {row.workspace}")
    if args.model and settled_model(args.model, args.base_url) != agent.model:
        raise _kept(row, "--model", f"runs with {agent.model}")
    if args.fallback and _agent(call).fallbacks != agent.fallbacks:
        raise _kept(row, "--fallback", f"falls back on {', '.join(agent.fallbacks) or 'no other model'}")
    shared = tuple(account for account in created.accounts[1:] if account != HOME_ACCOUNT)
    if args.account and tuple(args.account) != shared:
        raise _kept(row, "--account", f"spends from {', '.join(shared) or 'no shared account'}")
    if args.unpriced and not created.limits.unpriced:
        raise _kept(row, "--unpriced", "counts only what has a price")
    if args.agent:
        named = msgspec.structs.replace(_agent(call), model=agent.model, rules=agent.rules)
        if named != agent:
            raise _kept(row, "--agent", f"has another agent, {agent.name}")
    if (args.rules or args.rule_flags) and load_rules(args.rules, args.rule_flags) != agent.rules:
        raise _kept(row, "--rules, --allow, --ask and --deny", "has other rules")
    if args.allow_host or args.registries or args.secret:
        raise UsageError(
            f"session {name_of(row)} exists already; change the hosts and secrets that it may use with: "
            f"{call.typed('egress', name_of(row), '--allow', 'HOST')}"
        )
    if args.user and args.user != created.workspace.user:
        raise _kept(row, "--user", f"runs tools as {created.workspace.user or 'the default user'}")
    if args.no_sandbox and created.workspace.isolation != "none":
        raise _kept(row, "--no-sandbox", "runs its tools in the sandbox")


def _kept(row: SessionRow, flag: str, what: str) -> UsageError:
    return UsageError(
        f"session {name_of(row)} {what}, and that does not change; leave {flag} out, or use another --session-id"
    )


def _agent(call: Call) -> Agent:
    args = call.args
    agent = load_agent(args.agent, call.settings.model)
    rules = load_rules(args.rules, args.rule_flags)
    fallbacks = tuple(settled_model(name, "") for name in (args.fallback or agent.fallbacks))
    model = settled_model(agent.model, args.base_url)
    return msgspec.structs.replace(agent, model=model, rules=rules, fallbacks=fallbacks)


def workspace_of(settings: Settings, folder: str | None, *, sandbox: bool, user: str = "") -> Workspace:
    """The workspace of a new session: the named folder, or a fresh folder in the home."""
    path = "" if folder is None else str(check_folder(folder))
    return Workspace(path, folder is None, user or settings.user, "sandbox" if sandbox else "none")


def check_folder(text: str) -> Path:
    """Return a named workspace as a path. It must be an existing, writable folder."""
    if not text:
        raise UsageError("--workspace '' names no folder; for example --workspace .")
    path = Path(text).absolute()
    if not path.exists():
        raise UsageError(f"the workspace {text!r} does not exist; make it first: mkdir -p {path}")
    if not path.is_dir():
        raise UsageError(f"the workspace {path} is not a folder; name the folder that it is in")
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"the workspace {path} is not writable for you; choose another one, or change its mode")
    check_workspace(path, config_folder())
    return path.resolve()
