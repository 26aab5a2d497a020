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
from holdfast.app.settings.config import (
    Settings,
    accepted_hooks,
    budget_pico,
    config_folder,
    home_directory,
    pinned_rules,
)
from holdfast.app.settings.project import MISSION_FILE, has_hooks, read_mission
from holdfast.app.settings.prompts import load_prompts
from holdfast.app.settings.trust import check_workspace
from holdfast.app.trust_prompt import can_ask, confirmed
from holdfast.errors import CannotRunSafely, RepositoryUnfit, UsageError
from holdfast.facts.session import Agent, Limits, SessionCreated, Workspace
from holdfast.facts.task import HookFile, Run
from holdfast.service import opening
from holdfast.service.opening import (
    Change,
    NewSession,
    Policies,
    check_allowed,
    check_key,
    continue_session,
    find_by_key,
    open_session,
    state_of,
    top_level,
)
from holdfast.session.money import HOME_ACCOUNT
from holdfast.session.rows import SessionRow
from holdfast.session.tools import with_web

HOOKS_BYTES = 256 << 10
"""Most bytes of a project's hook settings and scripts, which the first event of a session holds."""

GOAL_EXAMPLE = 'state one, for example: holdfast run "fix the failing test"'


async def existing(runtime: Runtime, key: str | None) -> SessionRow | None:
    """Return the session that `--session-id` names exactly, None when there is none yet. Raises `UsageError`."""
    if key is None:
        return None
    check_key(key, "--session-id ")
    return await find_by_key(runtime.store, key)


def check_goal(call: Call) -> None:
    """Raise `UsageError` for a new session without a goal."""
    if not call.args.goal.strip():
        unknown = f"there is no session {call.args.session_id!r} yet, and " if call.args.session_id else ""
        raise UsageError(f"{unknown}the goal is empty; {GOAL_EXAMPLE}")


async def open_run(
    call: Call, runtime: Runtime, *, agent: Agent | None = None, limits: Limits | None = None, run: Run | None = None
) -> SessionRow:
    """Open a session from the arguments of the command; `agent` and `limits` replace those of the settings."""
    args, settings = call.args, call.settings
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
        run=run,
    )
    opened = await open_session(runtime.site, new, rules=pinned_rules, tell=call.note)
    if opened.duplicate:
        await continue_run(call, runtime, opened.row)
    return opened.row


async def choose_workspace(call: Call) -> None:
    """Set the workspace of a new session: the named folder, the repository, or, after a question, this folder.

    Raises `UsageError` without a repository, a terminal, `--workspace`, and `--scratch`.
    """
    args = call.args
    if args.scratch and args.workspace is not None:
        raise UsageError("--workspace and --scratch contradict each other; leave one of them out")
    if args.scratch or args.take_over:
        return  # --take-over needs a named folder
    if args.workspace:
        check_allowed(Path(args.workspace), Path(home_directory() or "/"))
        return
    if args.workspace is not None:
        return  # an empty name, which is refused with the other folders
    try:
        here = Path.cwd()
    except OSError:
        raise UsageError("the folder that you stand in is gone; change to another one, or use --scratch") from None
    folder = top_level(here)
    check_allowed(folder or here, Path(home_directory() or "/"))
    if folder is None and not await _agrees(call, here):
        raise UsageError(
            f"{here} is not in a git repository, and nothing was started: name the folder to work in, such as "
            "--workspace . (this one), or use a new and empty one with --scratch"
        )
    args.workspace = str(folder or here)


async def _agrees(call: Call, folder: Path) -> bool:
    """Ask on the terminal whether to work in this folder; False without one."""
    if not can_ask(call):
        return False
    call.note(f"{folder} is not in a git repository, so git can undo nothing there.")
    return await confirmed("Let the agent work in this folder?")


async def finishing(call: Call, runtime: Runtime) -> Run | None:
    """Return the checks, commits, and hooks of a new session; None without any. Raises `UsageError`."""
    args = call.args
    until = checks_of(call)
    if until and runtime.shelf is None:
        raise CannotRunSafely("--until runs its checks on a copy of the workspace, which needs git: install git first")
    run = Run(until=until, hooks=_hooks(call))
    if args.until_tries is not None:
        run = msgspec.structs.replace(run, sent_back_max=args.until_tries)
    if args.until_timeout is not None:
        run = msgspec.structs.replace(run, timeout_s=args.until_timeout)
    folder = None if args.workspace is None else top_level(Path(args.workspace).absolute())
    if args.commit:
        if folder is None or folder.resolve() != Path(args.workspace).resolve():
            raise UsageError(
                "--commit needs a workspace that is the top folder of a git repository; nothing was started"
            )
        try:
            head = (await runtime.repository(str(folder)).look()).head
        except RepositoryUnfit as error:
            raise UsageError(f"--commit: {error}") from error
        run = msgspec.structs.replace(run, commit=True, repo=str(folder.resolve()), base=head)
    return run if run.until or run.commit or run.hooks else None


def _hooks(call: Call) -> tuple[HookFile, ...]:
    """Return the hooks of the workspace as the user accepted them; say why they do not run. Raises `UsageError`."""
    if not call.args.workspace:
        return ()
    folder = Path(call.args.workspace).resolve()
    file = read_mission(folder / MISSION_FILE)
    if file is None or not has_hooks(file.named):
        return ()
    files = accepted_hooks(folder)
    if not files:
        why = file.problem or "you have not accepted them"
        call.note(
            f"holdfast run: the hooks in {folder / '.claude'} do not run: {why}; review them with: "
            f"{call.typed('trust', str(folder))}"
        )
        return ()
    if sum(len(data) for data in files.values()) > HOOKS_BYTES:
        raise UsageError(f"the hooks and their scripts in {folder} have over {HOOKS_BYTES} bytes; nothing was started")
    try:
        return tuple(
            HookFile(path, data.decode(), os.access(folder / path, os.X_OK)) for path, data in sorted(files.items())
        )
    except UnicodeDecodeError:
        raise UsageError(
            f"a file in {folder / '.claude' / 'hooks'} is not UTF-8 text; nothing was started. Move it elsewhere"
        ) from None


def checks_of(call: Call) -> tuple[str, ...]:
    """Return the commands of `--until`, each once. Raises `UsageError` for an empty one."""
    given: list[str] = call.args.until
    if any(not command.strip() for command in given):
        raise UsageError('--until needs a command, for example --until "pytest -q"')
    return tuple(dict.fromkeys(given))


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
    if call.args.verb == "run":
        _check_run_kept(call, state.created, row)
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


def _check_run_kept(call: Call, created: SessionCreated, row: SessionRow) -> None:
    """Refuse arguments of `run` that contradict the session's folder, checks, and commits."""
    args, run = call.args, created.run or Run()
    if args.scratch and not created.workspace.disposable:
        raise _kept(row, "--scratch", f"works in {row.workspace}")
    if args.commit and not run.commit:
        raise _kept(row, "--commit", "does not commit its workspace")
    if args.until and checks_of(call) != run.until:
        raise _kept(row, "--until", f"has these checks: {', '.join(run.until) or 'none'}")


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
