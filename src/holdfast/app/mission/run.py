"""`holdfast mission run`: seal a contract, and work until it is met."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from holdfast.app.call import Call, positive, sandbox_arguments, wait_argument
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.mission import init as mission_init
from holdfast.app.mission import lint as mission_lint
from holdfast.app.mission.contract import find_contract, load_contract, mission_settings
from holdfast.app.models import settled_model
from holdfast.app.running.drive import detach, drive, observer_for
from holdfast.app.running.opening import existing, limits_of, policies_of, workspace_of
from holdfast.app.settings.config import accepted_hooks, budget_pico
from holdfast.app.settings.mission_file import MissionFile, read_mission_file
from holdfast.app.settings.project import has_hooks
from holdfast.app.settings.trust import require
from holdfast.clock import SystemClock
from holdfast.errors import UsageError
from holdfast.facts.mission import Contract, Mission, MissionPolicy
from holdfast.facts.session import Agent
from holdfast.kinds.hooks.settings import PATHS
from holdfast.kinds.mission.contract.contents import slug
from holdfast.kinds.mission.fold.state import mission_of
from holdfast.repo.repository import Repository
from holdfast.service.missions import check_repository, open_mission
from holdfast.service.opening import NewSession, check_machine, check_models, state_of
from holdfast.session.decide import is_idle
from holdfast.session.rows import SessionRow
from holdfast.session.tools import DEFAULT_TOOLS


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("contract", metavar="GOAL_OR_FILE", nargs="?", default="", help="Contract file, or a goal")
    parser.add_argument("--repo", metavar="DIR", default=".", help="The git repository; only refs of it change")
    parser.add_argument("--name", metavar="NAME", default="", help="Name of its branches: holdfast/NAME/…")
    parser.add_argument("--session-id", metavar="KEY", help="Key of the session; the same key continues it")
    parser.add_argument(
        "--model", metavar="M", help="Model for roles without one in mission.toml; not needed if all roles have one"
    )
    parser.add_argument("--base-url", metavar="URL", default="", help="URL of the model server")
    parser.add_argument("--budget", metavar="USD", dest="budget_usd", help="Budget in dollars for the whole mission")
    parser.add_argument("--unpriced", action="store_true", help="Allow models without a price under a budget")
    parser.add_argument(
        "--account", metavar="NAME", action="append", default=[], help="Spend from this shared account too"
    )
    parser.add_argument("--workers", metavar="N", type=positive, help="Number of workers at a time")
    parser.add_argument("--policy", metavar="FILE", default="", help="A mission.toml (default: the repository's)")
    parser.add_argument("--no-follow", action="store_true", help="Do not merge later commits of the branch")
    parser.add_argument("--no-lint", action="store_true", help="Seal the contract without checking it")
    sandbox_arguments(parser)
    parser.add_argument("--prompts", metavar="DIR", help="Folder with custom prompts")
    wait_argument(parser)
    parser.add_argument("--detach", action="store_true", help="Run in the background; return once the mission is saved")
    parser.add_argument("--plain", action="store_true", help="Print plain lines, without the live view")
    parser.add_argument("--json", action="store_true", help="Print events and the result as JSON lines")


async def run(call: Call) -> int:
    """Open the mission, or find the one with this key, and drive it."""
    async with open_runtime(call.settings) as runtime:
        row = await existing(runtime, call.args.session_id)
        if row is None:
            row = await opened(call, runtime)
        else:
            await _continue(call, runtime, row)
        call.note(f"mission {row.session_id}" + (f" (key {row.key})" if row.key else ""))
        if call.args.detach:
            return await detach(call, runtime, row)
        doors = await runtime.doors_for(row.session_id, observer=observer_for(call, row))
        return await drive(call, runtime, row.session_id, doors)


def _model_of_roles(policy: MissionPolicy) -> str:
    """The workers' model if each role that this policy uses has its own; otherwise empty: a default is needed."""
    needed = {"worker": True, "planner": policy.planner == "model", "judge": policy.judge != "off"}
    named = all(role in policy.models for role, is_used in needed.items() if is_used)
    return policy.models["worker"] if named else ""


async def opened(call: Call, runtime: Runtime, *, owner: str = "") -> SessionRow:
    """Check everything, then open, for this owner if named. A refused mission leaves nothing behind."""
    args, settings = call.args, call.settings
    folder = Path(args.repo).resolve()
    repository = runtime.repository(str(folder))
    standing = await repository.look()
    check_repository(str(folder), standing)
    file = read_mission_file(Path(args.policy)) if args.policy else await mission_settings(call, folder)
    settings = file.settings(settings)
    policy = file.policy if args.workers is None else msgspec.structs.replace(file.policy, workers=args.workers)
    require(file.ignored, "checks", "edit_checks")
    policy = await _with_accepted_hooks(call, folder, policy, repository, standing.head)
    if not settings.model:
        require(settings.ignored, "model")
    model = settled_model(settings.model or _model_of_roles(policy), args.base_url)
    limits = limits_of(settings, unpriced=args.unpriced, max_children=4 * policy.workers + 8)
    cap = None if limits.unpriced else limits.budget_pico
    check_models(runtime.site, (model, *policy.models.values()), cap)
    contract = await _contract(call, runtime, folder, file)
    policies = policies_of(settings, args.allow_host, args.registries, args.secret or None)
    if owner:
        policies = msgspec.structs.replace(policies, people=msgspec.structs.replace(policies.people, owner=owner))
    new = NewSession(
        goal=contract.goal,
        agent=Agent(model=model, name="mission", tools=DEFAULT_TOOLS),
        workspace=workspace_of(settings, None, sandbox=not args.no_sandbox),
        limits=limits,
        policies=policies,
        key=args.session_id or "",
        accounts=tuple(dict.fromkeys(args.account)),
        mission=Mission(
            name=args.name or file.name or slug(Path(contract.source).stem or contract.goal),
            repo=str(folder),
            base=standing.head,
            contract=contract,
            follow="" if args.no_follow else file.follow or standing.branch,
            policy=policy,
        ),
    )
    await check_machine(runtime.site, new.workspace, new.policies.hands)
    if not args.no_lint:
        await mission_lint.check(call, runtime, contract, policy, repository, standing.head, settings)
    if standing.dirty:
        names = ", ".join(standing.dirty[:3]) + (" …" if len(standing.dirty) > 3 else "")
        call.note(f"uncommitted changes stay as they are and are not part of the mission: {names}")
    return (await open_mission(runtime.site, repository, new, tell=call.note)).row


async def _with_accepted_hooks(
    call: Call, folder: Path, policy: MissionPolicy, repository: Repository, base: str
) -> MissionPolicy:
    """Return the policy, without hooks when those of the commit differ from the accepted ones."""
    if not policy.hooks:
        return policy
    committed = await repository.files(base, PATHS)
    if not has_hooks(committed) or committed == accepted_hooks(folder):
        return policy
    call.note(
        "holdfast mission: the hooks in .claude do not run: you have not accepted them as they are in the base commit "
        f"of the mission; review them with: {call.typed('trust', str(folder))}"
    )
    return msgspec.structs.replace(policy, hooks=False)


async def _contract(call: Call, runtime: Runtime, folder: Path, file: MissionFile) -> Contract:
    """Return the contract of the named file, of the repository, or one that an initializer makes of the goal."""
    wanted = call.args.contract
    named = Path(wanted).is_file() or (folder / wanted).is_file() or wanted.endswith((".json", ".md"))
    if wanted and not named:
        made = await mission_init.contract_for(call, runtime, wanted, folder)
        return msgspec.structs.replace(file.applied(made), goal=made.goal)
    contract, _ = load_contract(find_contract(folder, wanted, file.contract), folder)
    return file.applied(contract)


async def _continue(call: Call, runtime: Runtime, row: SessionRow) -> None:
    """Apply a second run with the same key: raise the cap, or just continue."""
    state = await state_of(runtime.site, row)
    if mission_of(state) is None:
        raise UsageError(f"{row.key} is not a mission; use another --session-id")
    cap = budget_pico(call.args.budget_usd or "")
    if cap is not None and cap != state.limits.budget_pico:
        await runtime.intake.check_cap(row, cap)
        await runtime.intake.set_cap(row, row.accounts[0], "total", cap)
    elif not is_idle(state, SystemClock().now_us(), runtime.up()):
        call.note("continuing the mission")
