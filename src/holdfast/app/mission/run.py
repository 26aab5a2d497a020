"""`holdfast mission run`: seal a contract, and work until it is met."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec

from holdfast.app.arguments import positive
from holdfast.app.call import Call
from holdfast.app.compose import PROGRAM, Runtime, open_runtime
from holdfast.app.mission import init as mission_init
from holdfast.app.mission import lint as mission_lint
from holdfast.app.mission.contract import find_contract, load_contract
from holdfast.app.mission.trust import mission_settings
from holdfast.app.models import settled_model
from holdfast.app.running.detach import detach
from holdfast.app.running.drive import drive, observer_for
from holdfast.app.running.opening import check_account, check_machine, check_model, existing
from holdfast.app.settings import egress_policy, hands_policy, policies
from holdfast.app.settings.config import budget_pico
from holdfast.app.settings.mission_file import MissionFile, accepted_hooks, read_mission_file
from holdfast.app.settings.project_files import has_hooks
from holdfast.app.settings.trust import require
from holdfast.brain.recall import recall
from holdfast.clock import SystemClock
from holdfast.errors import RepositoryUnfit, UsageError
from holdfast.facts.contract import Contract
from holdfast.facts.mission import Mission, MissionPolicy
from holdfast.facts.session import Agent, Limits, SessionCreated, Workspace
from holdfast.kinds.mission.contract.contents import slug
from holdfast.kinds.mission.fold.state import mission_of
from holdfast.kinds.mission.role import hooks
from holdfast.repo.repository import Repository, Standing
from holdfast.session.decide import is_idle
from holdfast.session.rows import SessionRow
from holdfast.session.tools import DEFAULT_TOOLS


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this one."""
    parser.add_argument("contract", metavar="GOAL_OR_FILE", nargs="?", default="", help="a contract file, or a goal")
    parser.add_argument("--repo", metavar="DIR", default=".", help="the git repository; it is not touched but for refs")
    parser.add_argument("--name", metavar="NAME", default="", help="what its branches are called: holdfast/NAME/…")
    parser.add_argument("--session-id", metavar="KEY", help="a key of your own; a second run continues it")
    parser.add_argument("--model", metavar="M", help="provider:name for all roles that mission.toml does not name")
    parser.add_argument("--base-url", metavar="URL", default="", help="the model's server, such as your own")
    parser.add_argument("--budget", metavar="USD", dest="budget_usd", help="money cap in dollars, for all of it")
    parser.add_argument("--unpriced", action="store_true", help="under a cap, count only models that have a price")
    parser.add_argument("--account", metavar="NAME", action="append", default=[], help="a shared account besides")
    parser.add_argument("--workers", metavar="N", type=positive, help="workers at a time")
    parser.add_argument("--policy", metavar="FILE", default="", help="a mission.toml; the repository's when left out")
    parser.add_argument("--no-follow", action="store_true", help="do not take in what people commit to the branch")
    parser.add_argument("--no-lint", action="store_true", help="seal the contract as it is")
    parser.add_argument("--allow-host", metavar="HOST", action="append", default=[], help="let tools talk to this host")
    parser.add_argument("--registries", action="store_true", help="let tools reach this machine's package registries")
    parser.add_argument("--secret", metavar="NAME", action="append", default=[], help="let tools use this secret")
    parser.add_argument("--user", metavar="NAME", help="run tools as this login; only root can")
    parser.add_argument("--no-sandbox", action="store_true", help="run tools without isolation; recorded in the log")
    parser.add_argument("--prompts", metavar="DIR", help="a folder with prompts of your own")
    parser.add_argument("--detach", action="store_true", help="return once the mission is durable")
    parser.add_argument("--plain", action="store_true", help="lines only, nothing redrawn, also on a terminal")
    parser.add_argument("--json", action="store_true", help="print events and the result as JSON lines")


async def run(call: Call) -> int:
    """Open the mission, or find the one with this key, and drive it."""
    async with open_runtime(call.settings) as runtime:
        row = await existing(runtime, call.args.session_id)
        if row is None:
            row = await _open(call, runtime)
        else:
            await _continue(call, runtime, row)
        call.note(f"mission {row.session_id}" + (f" (key {row.key})" if row.key else ""))
        if call.args.detach:
            return await detach(call, runtime, row)
        doors = await runtime.doors_for(row.session_id, observer=observer_for(call, row))
        return await drive(call, runtime, row.session_id, doors)


async def _open(call: Call, runtime: Runtime) -> SessionRow:
    """Check everything first; what is refused leaves nothing behind."""
    args, settings = call.args, call.settings
    folder = Path(args.repo).resolve()
    repository = runtime.repository(str(folder))
    standing = await repository.look()
    check_standing(folder, standing)
    file = read_mission_file(Path(args.policy)) if args.policy else await mission_settings(call, folder)
    settings = file.settings(settings)
    policy = file.policy if args.workers is None else msgspec.structs.replace(file.policy, workers=args.workers)
    require(file.ignored, "checks", "edit_checks")
    policy = await _with_accepted_hooks(call, folder, policy, repository, standing.head)
    limits = Limits(
        budget_pico=budget_pico(settings.budget_usd),
        max_turns=settings.max_turns,
        context_tokens=settings.context_tokens,
        max_output_tokens=settings.max_output_tokens,
        context=policies.context(settings),
        breakers=policies.breakers(settings),
        unpriced=args.unpriced,
        max_children=4 * policy.workers + 8,
    )
    if not settings.model:
        require(settings.ignored, "model")
    model = settled_model(settings.model, args.base_url)
    for name in dict.fromkeys((model, *policy.models.values())):
        check_model(call, name, None if limits.unpriced else limits.budget_pico)
    contract = await _contract(call, runtime, folder, file)
    session_id = runtime.intake.new_session_id()
    workspace = Workspace(
        str(runtime.home.workspaces / session_id), True, settings.user, "none" if args.no_sandbox else "sandbox"
    )
    await check_machine(call, runtime, workspace)
    if not args.no_lint:
        await mission_lint.check(call, runtime, contract, policy, repository, standing.head, settings)
    if standing.dirty:
        call.note(f"changes that nobody committed are left as they are, and are not part of it: {_few(standing.dirty)}")
    created = SessionCreated(
        goal=contract.goal,
        agent=Agent(model=model, name="mission", tools=DEFAULT_TOOLS),
        workspace=runtime.fresh_workspace(session_id, workspace),
        limits=limits,
        key=args.session_id or "",
        accounts=(session_id, *(check_account(name) for name in dict.fromkeys(args.account))),
        program=PROGRAM,
        people=policies.people(settings),
        hands=hands_policy.hands(settings),
        egress=egress_policy.egress(
            settings, hosts=args.allow_host, registries=args.registries, secrets=args.secret or None
        ),
        environment=hands_policy.environment(settings),
        searchers=egress_policy.searchers(settings),
        mission=Mission(
            name=await _free(repository, args.name or file.name or slug(Path(contract.source).stem or contract.goal)),
            repo=str(folder),
            base=standing.head,
            contract=contract,
            follow="" if args.no_follow else file.follow or standing.branch,
            policy=policy,
        ),
    )
    receipt = await runtime.intake.open(session_id, created)
    return await runtime.store.find(receipt.session_id)


async def _with_accepted_hooks(
    call: Call, folder: Path, policy: MissionPolicy, repository: Repository, base: str
) -> MissionPolicy:
    """The policy without hooks, when those of the commit are not the ones that the user accepted."""
    if not policy.hooks:
        return policy
    committed = await repository.files(base, hooks.PATHS)
    if not has_hooks(committed) or committed == accepted_hooks(folder):
        return policy
    call.note(
        "holdfast mission: the hooks in .claude do not run: you have not accepted them as they are in the commit that "
        f"the mission begins from; see what they are: {call.typed('trust', str(folder))}"
    )
    return msgspec.structs.replace(policy, hooks=False)


def check_standing(folder: Path, standing: Standing) -> None:
    """Raise `RepositoryUnfit` for a repository that branches cannot be made from or merged in soundly."""
    if standing.shallow:
        raise RepositoryUnfit(
            f"{folder} is a shallow clone, so branches cannot be merged soundly; nothing was changed. Fetch the rest: "
            "git fetch --unshallow"
        )
    if standing.submodules:
        raise RepositoryUnfit(
            f"{folder} has submodules, which workers' copies would be without; nothing was changed. Run the mission in "
            "the submodule itself, or in a copy where their files are committed"
        )


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")


async def _contract(call: Call, runtime: Runtime, folder: Path, file: MissionFile) -> Contract:
    """The contract of the file that is named, of the repository, or one that an initializer makes of the goal."""
    wanted = call.args.contract
    named = Path(wanted).is_file() or (folder / wanted).is_file() or wanted.endswith((".json", ".md"))
    if wanted and not named:
        made = await mission_init.contract_for(call, runtime, wanted, folder)
        return msgspec.structs.replace(file.applied(made), goal=made.goal)
    contract, _ = load_contract(find_contract(folder, wanted, file.contract), folder)
    return file.applied(contract)


async def _free(repository: Repository, wanted: str) -> str:
    """The name, with a number behind it when a mission of that name has branches already."""
    name, number = wanted, 1
    while await repository.resolve(f"refs/heads/holdfast/{name}/main") is not None:
        number += 1
        name = f"{wanted}-{number}"
    return name


async def _continue(call: Call, runtime: Runtime, row: SessionRow) -> None:
    """A second run with the same key: raise the cap, or just go on."""
    state, _ = await recall(row.session_id, runtime.store, runtime.store, runtime.kinds)
    if mission_of(state) is None:
        raise UsageError(f"{row.key} is an ordinary session and no mission; use another --session-id")
    cap = budget_pico(call.args.budget_usd or "")
    if cap is not None and cap != state.limits.budget_pico:
        await runtime.intake.check_cap(row, cap)
        await runtime.intake.set_cap(row, row.accounts[0], "total", cap)
    elif not is_idle(state, SystemClock().now_us(), runtime.up()):
        call.note("going on where it was")
