"""`holdfast mission lint`: what is wrong with a contract, before it is sealed."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path

import msgspec

from holdfast.app.call import Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.mission.contract import find_contract, load_contract
from holdfast.app.mission.lint_runs import Ground, file_sizes, run_checks
from holdfast.app.mission.trust import mission_settings
from holdfast.app.running.opening import check_machine
from holdfast.app.screen.progress import counted
from holdfast.app.settings import egress_policy, hands_policy
from holdfast.app.settings.config import Settings
from holdfast.app.settings.mission_file import read_mission_file
from holdfast.errors import ContractInvalid
from holdfast.facts.contract import Contract
from holdfast.facts.mission import MissionPolicy
from holdfast.facts.session import Workspace
from holdfast.kinds.mission.contract.formats.files import marked
from holdfast.kinds.mission.lint import Finding, merged, static_findings
from holdfast.repo.repository import Repository


def arguments(parser: argparse.ArgumentParser) -> None:
    """The words of this one."""
    parser.add_argument(
        "contract", metavar="FILE", nargs="?", default="", help="the contract; the repository's if left out"
    )
    parser.add_argument("--repo", metavar="DIR", default=".", help="the git repository that it is for")
    parser.add_argument("--policy", metavar="FILE", default="", help="a mission.toml; the repository's when left out")
    parser.add_argument("--static", action="store_true", help="look at its words only; run no check")
    parser.add_argument("--user", metavar="NAME", help="run checks as this login; only root can")
    parser.add_argument("--no-sandbox", action="store_true", help="run checks without isolation")
    parser.add_argument("--json", action="store_true", help="print findings and the result as JSON lines")


async def run(call: Call) -> int:
    """Print what is wrong; 1 when something has to be mended first."""
    args = call.args
    folder = Path(args.repo).absolute()
    file = read_mission_file(Path(args.policy)) if args.policy else await mission_settings(call, folder)
    contract, data = load_contract(find_contract(folder, args.contract, file.contract), folder)
    contract = file.applied(contract)
    async with open_runtime(call.settings) as runtime:
        repository = runtime.repository(str(folder))
        standing = await repository.look()
        findings = await lint(
            call,
            runtime,
            contract,
            file.policy,
            repository,
            standing.head,
            settings=file.settings(call.settings),
            passing=marked(data, contract),
        )
    errors = sum(each.level == "error" for each in findings)
    for each in findings:
        _tell(call, each)
    _sum_up(call, contract, errors, len(findings) - errors)
    return 1 if errors else 0


def _tell(call: Call, finding: Finding) -> None:
    if call.json:
        call.emit({"type": "finding", **msgspec.to_builtins(finding)})
    else:
        call.say(_line(finding))


def _sum_up(call: Call, contract: Contract, errors: int, warnings: int) -> None:
    items, criteria = len(contract.items), len(contract.criteria())
    many = "1 criterion" if criteria == 1 else f"{criteria} criteria"
    if not call.json:
        call.say(
            f"{contract.source}: {counted(items, 'item')}, {many}, "
            f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
        )
        return
    numbers = {"items": items, "criteria": criteria, "errors": errors, "warnings": warnings}
    call.emit({"type": "result", "status": "failed" if errors else "done", **numbers, "exit_code": int(errors > 0)})


async def check(
    call: Call,
    runtime: Runtime,
    contract: Contract,
    policy: MissionPolicy,
    repository: Repository,
    base: str,
    settings: Settings | None = None,
) -> None:
    """Before a contract is sealed: note what is wrong, raise `ContractInvalid` when something has to be mended."""
    passing: Collection[str] = ()
    if contract.source:
        held = (await repository.files(base, [contract.source])).get(contract.source)
        passing = _marked(held, contract)
    findings = await lint(call, runtime, contract, policy, repository, base, settings=settings, passing=passing)
    for each in findings:
        call.note(_line(each))
    errors = sum(each.level == "error" for each in findings)
    if errors:
        raise ContractInvalid(
            f"{contract.source or 'the contract'} has {counted(errors, 'error')} and is not sealed; nothing was begun. "
            "Mend it and look again with `holdfast mission lint`, or seal it as it is with --no-lint"
        )


def _marked(held: bytes | None, contract: Contract) -> Collection[str]:
    """What the committed file says passes; nothing when it is another contract or none."""
    try:
        return marked(held, contract) if held is not None else ()
    except ContractInvalid:
        return ()


async def lint(
    call: Call,
    runtime: Runtime,
    contract: Contract,
    policy: MissionPolicy,
    repository: Repository,
    base: str,
    *,
    settings: Settings | None = None,
    passing: Collection[str] = (),
) -> list[Finding]:
    """All findings: of its words, and of its checks where they can be run. `passing` are items marked so."""
    settings = settings or call.settings
    near = Workspace("", True, settings.user, "none" if call.args.no_sandbox else "sandbox")
    args = call.args
    egress = egress_policy.egress(
        settings, hosts=getattr(args, "allow_host", ()), registries=getattr(args, "registries", False)
    )
    ground = Ground(repository, base, near, hands_policy.hands(settings), hands_policy.environment(settings), egress)
    has_checks = any(each.check is not None for each in contract.criteria().values())
    files = await file_sizes(runtime, ground)
    words = static_findings(contract, policy, files)
    if not has_checks or getattr(call.args, "static", False):
        return words
    await check_machine(call, runtime, near)
    outcome = await run_checks(runtime, ground, contract, passing, files)
    if outcome.not_run:
        call.note(f"checks were not run: {outcome.not_run}")
    return merged(words, outcome.findings, outcome.can_fail)


def _line(finding: Finding) -> str:
    return f"{finding.level:7}  {finding.kind}  {finding.criterion or finding.item}: {finding.message}"
