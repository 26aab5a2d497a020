"""`holdfast run`, before anything runs: a new session, or one that is there already.

Everything is checked first. What is refused leaves nothing behind: no session, no folder, no new owner.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.app.call import Call
from holdfast.app.compose import PROGRAM, Runtime
from holdfast.app.exits import name_of
from holdfast.app.models import find_model, settled_model
from holdfast.app.settings import egress_policy, hands_policy, policies
from holdfast.app.settings.agent_file import load_agent
from holdfast.app.settings.config import budget_pico, config_folder, pinned_rules
from holdfast.app.settings.prompts import load_prompts
from holdfast.app.settings.rules import load_rules
from holdfast.app.settings.trust import check_workspace
from holdfast.brain.recall import recall
from holdfast.clock import SystemClock
from holdfast.errors import SandboxUnavailable, UnknownSession, UsageError
from holdfast.facts.base import Usage
from holdfast.facts.session import Agent, Limits, SessionCreated, SessionUpdated, Workspace
from holdfast.hands.user import HandsUser, choose_user, make_ready, take_over
from holdfast.session.decide import is_idle
from holdfast.session.rows import SessionRow
from holdfast.session.tools import with_web

KEY_LENGTH = 200

GOAL_EXAMPLE = 'say what is wanted, for example: holdfast run "fix the failing test"'


async def existing(runtime: Runtime, key: str | None) -> SessionRow | None:
    """The session with exactly that key or id. A beginning is not enough: `job-1` is not `job-10`."""
    if key is None:
        return None
    if not key.strip() or not key.isprintable() or key.startswith("-") or len(key) > KEY_LENGTH:
        raise UsageError(
            f"--session-id {key!r} cannot be a key: it has 1 to {KEY_LENGTH} printable characters and no - in front, "
            "for example --session-id nightly-7"
        )
    try:
        row = await runtime.store.find(key)
    except UnknownSession:
        return None
    return row if key in (row.key, row.session_id) else None


async def open_session(
    call: Call, runtime: Runtime, *, agent: Agent | None = None, limits: Limits | None = None
) -> SessionRow:
    """Open a new session by the words of the command; with this agent and these limits where the verb has its own."""
    args, settings = call.args, call.settings
    if not args.goal.strip():
        unknown = f"there is no session {args.session_id!r} yet, and " if args.session_id else ""
        raise UsageError(f"{unknown}the goal is empty; {GOAL_EXAMPLE}")
    agent = agent or _agent(call)
    limits = limits or Limits(
        budget_pico=budget_pico(settings.budget_usd),
        max_turns=settings.max_turns,
        context_tokens=settings.context_tokens,
        max_output_tokens=settings.max_output_tokens,
        context=policies.context(settings),
        breakers=policies.breakers(settings),
        unpriced=args.unpriced,
    )
    people = policies.people(settings)
    egress = egress_policy.egress(
        settings, hosts=args.allow_host, registries=args.registries, secrets=args.secret or None
    )
    hands, environment = hands_policy.hands(settings), hands_policy.environment(settings)
    accounts = tuple(check_account(name) for name in dict.fromkeys(args.account))
    for name in (agent.model, *agent.fallbacks):
        check_model(call, name, None if limits.unpriced else limits.budget_pico)
    session_id = runtime.intake.new_session_id()
    workspace = _workspace(call, runtime, session_id)
    load_prompts(settings.prompts, workspace.path, settings.prompt_files)
    await check_machine(call, runtime, workspace)
    searchers = egress_policy.searchers(settings)
    with _ready(call, workspace, runtime.home.path):
        created = SessionCreated(
            goal=args.goal,
            agent=with_web(agent, egress, searchers),
            workspace=workspace,
            limits=limits,
            rules=pinned_rules(Path(workspace.path)),
            key=args.session_id or "",
            accounts=(session_id, *accounts),
            program=PROGRAM,
            people=people,
            hands=hands,
            egress=egress,
            environment=environment,
            searchers=searchers,
        )
        receipt = await runtime.intake.open(session_id, created)
    row = await runtime.store.find(receipt.session_id)
    if receipt.duplicate:  # another process was faster with the same key
        if workspace.disposable:
            shutil.rmtree(workspace.path)
        await continue_session(call, runtime, row)
    return row


async def continue_session(call: Call, runtime: Runtime, row: SessionRow) -> None:
    """A second `run` with the same key: raise limits, post another goal as a message, or just go on."""
    args = call.args
    state, _ = await recall(row.session_id, runtime.store, runtime.store, runtime.kinds)
    created = state.created
    assert created is not None
    _check_kept(call, created, row)
    cap = budget_pico(args.budget_usd or "")
    change = SessionUpdated(
        budget_pico=cap if cap != state.limits.budget_pico else None,
        max_turns=args.max_turns if args.max_turns != state.limits.max_turns else None,
    )
    changed, asked = change != SessionUpdated(), bool(args.goal.strip()) and args.goal != created.goal
    if changed or asked or not is_idle(state, SystemClock().now_us(), runtime.up()):
        for name in (created.agent.model, *created.agent.fallbacks):
            check_model(call, name, None if created.limits.unpriced else cap)
    if change.budget_pico is not None:
        await runtime.intake.check_cap(row, change.budget_pico)
    if changed:
        await runtime.intake.update(row, change)
    if asked:
        await runtime.intake.send(row, args.goal)


def _check_kept(call: Call, created: SessionCreated, row: SessionRow) -> None:
    """A session keeps its workspace, model, tools and rules. Words that say otherwise are not ignored."""
    args, agent = call.args, created.agent
    if args.workspace and str(check_folder(args.workspace)) != row.workspace:
        raise _kept(row, "--workspace", f"works in {row.workspace}")
    if args.model and settled_model(args.model, args.base_url) != agent.model:
        raise _kept(row, "--model", f"runs with {agent.model}")
    if args.fallback and _agent(call).fallbacks != agent.fallbacks:
        raise _kept(row, "--fallback", f"falls back on {', '.join(agent.fallbacks) or 'no other model'}")
    if args.account and tuple(args.account) != created.accounts[1:]:
        raise _kept(row, "--account", f"spends from {', '.join(created.accounts[1:]) or 'no shared account'}")
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
            f"session {name_of(row)} is there already; what it may talk to is changed with: "
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


def check_account(name: str) -> str:
    """A shared account that a person named. Raises `UsageError`."""
    kind, colon, rest = name.partition(":")
    if not (kind and colon and rest) or not name.isprintable() or len(name) > KEY_LENGTH:
        raise UsageError(f"--account {name!r} is no shared account: it is a kind and a name, such as project:web")
    return name


def check_model(call: Call, name: str, cap_pico: int | None) -> None:
    """Refuse a model that cannot be used, and a cap on one without a price."""
    model = find_model(name, call.settings)
    if cap_pico is not None and model.cost_pico(Usage(input_tokens=1)) is None:
        example = f'[prices."{name}"] input_per_mtok = 3.0 output_per_mtok = 15.0 in your own holdfast.toml'
        if name.startswith("scripted:"):
            example = '"price": {"input_per_mtok": 3.0, "output_per_mtok": 15.0} in its file'
        raise UsageError(
            f"{name} has no price, so a money budget cannot be kept; leave --budget out, say --unpriced to leave its "
            f"cost out of the count, or give the model a price, for example {example}"
        )


def _workspace(call: Call, runtime: Runtime, session_id: str) -> Workspace:
    args, user = call.args, call.settings.user
    isolation: Literal["sandbox", "none"] = "none" if args.no_sandbox else "sandbox"
    if args.workspace is None:
        if args.take_over:
            raise UsageError("--take-over needs a folder to give away, for example --workspace DIR --take-over")
        return Workspace(str(runtime.home.workspaces / session_id), True, user, isolation)
    return Workspace(str(check_folder(args.workspace)), False, user, isolation)


def check_folder(text: str) -> Path:
    """A workspace that a person named: it has to be there, a folder, and writable."""
    if not text:
        raise UsageError("--workspace '' names no folder; an example is --workspace .")
    path = Path(text).absolute()
    if not path.exists():
        raise UsageError(f"the workspace {text!r} does not exist; make it first: mkdir -p {path}")
    if not path.is_dir():
        raise UsageError(f"the workspace {path} is not a folder; name the folder that it is in")
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"the workspace {path} is not writable for you; choose another one, or change its mode")
    check_workspace(path, config_folder())
    return path.resolve()


async def check_machine(call: Call, runtime: Runtime, workspace: Workspace) -> None:
    """Refuse now, rather than at the first tool call, what the machine cannot do safely."""
    capabilities = await runtime.provider(workspace, hands_policy.hands(call.settings)).probe()
    if not capabilities.usable:
        bad = [finding for finding in capabilities.findings if finding.level in ("bad", "absent") and finding.fix]
        why = "; ".join(f"{finding.message}: {finding.fix}" for finding in bad)
        raise SandboxUnavailable(
            f"this machine cannot isolate tool calls ({why}); nothing was started. `holdfast doctor` says more; "
            "--no-sandbox runs them without isolation"
        )
    if workspace.isolation == "none":
        call.note("WARNING: tools run without a sandbox (--no-sandbox); the log records it")
    for finding in capabilities.findings:
        if finding.name == "landlock":
            call.note(f"WARNING: {finding.message}; the log records it")


@contextmanager
def _ready(call: Call, workspace: Workspace, home: Path) -> Iterator[None]:
    """The workspace is there and its user can work in it. One that was made for this is removed on an error."""
    path = Path(workspace.path)

    def tell(user: HandsUser) -> None:
        call.note(f"giving {path} and all in it to {user.name}, whom tool calls run as (--take-over)")

    if workspace.disposable:
        path.mkdir(mode=0o700)
    try:
        if call.args.take_over:
            take_over(path, workspace.user, tell=tell)
        make_ready(workspace, choose_user(workspace), home=home)
        yield
    except BaseException:
        if workspace.disposable:
            path.rmdir()
        raise
