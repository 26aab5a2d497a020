"""`holdfast mission lint`: find faults of a contract before it is sealed, in its text and by running its checks."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from holdfast.app.call import Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.mission.contract import find_contract, load_contract, mission_settings
from holdfast.app.settings import egress_policy, policies
from holdfast.app.settings.config import Settings
from holdfast.app.settings.mission_file import read_mission_file
from holdfast.brain.acts.environment import layer
from holdfast.clock import SystemClock
from holdfast.environment.store import LayerStore
from holdfast.errors import ContractInvalid, HandsError
from holdfast.facts.mission import Check, Contract, Criterion, Item, MissionPolicy
from holdfast.facts.session import EgressPolicy, Environment, HandsPolicy, Workspace
from holdfast.globs import matches
from holdfast.hands.base import ExecRequest, Hands, HandsSpec, Network
from holdfast.hands.user import choose_user
from holdfast.ids import new_hands_id, system_entropy
from holdfast.kinds.mission.check.ability.probes import Kind, mutant
from holdfast.kinds.mission.check.checking import Group, script
from holdfast.kinds.mission.contract.formats.files import marked
from holdfast.kinds.mission.lint import (
    Finding,
    Run,
    base_findings,
    hangs_anyway,
    merged,
    mutants_for,
    own_modules,
    passed_all_mutants,
    passes,
    seen_to_fail,
    static_findings,
)
from holdfast.kinds.mission.ratchet.planted import ENVIRONMENT
from holdfast.repo.base import Owner
from holdfast.repo.repository import Repository
from holdfast.service.event_lines import counted
from holdfast.service.opening import check_machine
from holdfast.session.egress import opens


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument(
        "contract", metavar="FILE", nargs="?", default="", help="The contract (default: the repository's)"
    )
    parser.add_argument("--repo", metavar="DIR", default=".", help="The git repository of the contract")
    parser.add_argument("--policy", metavar="FILE", default="", help="A mission.toml (default: the repository's)")
    parser.add_argument("--static", action="store_true", help="Examine the text only; run no check")
    parser.add_argument("--user", metavar="NAME", help="Run checks as this system user (root only)")
    parser.add_argument("--no-sandbox", action="store_true", help="Run checks without isolation")
    parser.add_argument("--json", action="store_true", help="Print findings and the result as JSON lines")


async def run(call: Call) -> int:
    """Print the findings; exit status 1 when one of them is an error."""
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
        if call.json:
            call.emit({"type": "finding", **msgspec.to_builtins(each)})
        else:
            call.say(_line(each))
    _sum_up(call, contract, errors, len(findings) - errors)
    return 1 if errors else 0


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
    """Print the findings of a contract before it is sealed. Raises `ContractInvalid` when one is an error."""
    passing: Collection[str] = ()
    if contract.source:
        held = (await repository.files(base, [contract.source])).get(contract.source)
        with contextlib.suppress(ContractInvalid):  # the committed file is another contract
            passing = marked(held, contract) if held is not None else ()
    findings = await lint(
        call, runtime, contract, policy, repository, base, settings=settings, passing=passing, warns=False
    )
    for each in findings:
        call.note(_line(each))
    errors = sum(each.level == "error" for each in findings)
    if errors:
        raise ContractInvalid(
            f"{contract.source or 'the contract'} has {counted(errors, 'error')} and was not sealed; nothing was "
            "started. Fix it and check again with `holdfast mission lint`, or seal it as it is with --no-lint"
        )


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
    warns: bool = True,
) -> list[Finding]:
    """Return all findings, also of checks that can run. `passing` are items so marked; `warns` prints warnings."""
    settings = settings or call.settings
    near = Workspace("", True, settings.user, "none" if call.args.no_sandbox else "sandbox")
    args = call.args
    egress = egress_policy.egress(
        settings, hosts=getattr(args, "allow_host", ()), registries=getattr(args, "registries", False)
    )
    ground = Ground(repository, base, near, policies.hands(settings), policies.environment(settings), egress)
    has_checks = any(each.check is not None for each in contract.criteria().values())
    files = await file_sizes(runtime, ground)
    words = static_findings(contract, policy, files)
    if not has_checks or getattr(call.args, "static", False):
        return words
    for warning in await check_machine(runtime.site, near, ground.policy):
        if warns:
            call.note(warning)
    outcome = await run_checks(runtime, ground, contract, passing, files)
    if outcome.not_run:
        call.note(f"checks were not run: {outcome.not_run}")
    return merged(words, outcome.findings, outcome.can_fail)


def _line(finding: Finding) -> str:
    return f"{finding.level:7}  {finding.kind}  {finding.criterion or finding.item}: {finding.message}"


# --- runs of checks, before any work: at the base, and on trees where nothing works ------------------
#
# They run in hands and share a checkout of each tree; a fault counts only if it also occurs on a separate checkout.

_EPOCH = 1


class Ground(msgspec.Struct, frozen=True):
    """The commit and the hands settings that checks run with: those of the mission's workers."""

    repository: Repository
    commit: str
    near: Workspace
    policy: HandsPolicy = HandsPolicy()
    environment: Environment = Environment()
    egress: EgressPolicy = EgressPolicy()


class Outcome(msgspec.Struct):
    """The findings of all runs, the criteria seen to fail, and the reason if checks were not run."""

    findings: list[Finding] = []
    can_fail: set[str] = set()
    not_run: str = ""


async def file_sizes(runtime: Runtime, ground: Ground) -> dict[str, int]:
    """Return the files of the base with their sizes in bytes. Runs no code of it."""
    async with _checkout(runtime, ground, None, ()) as workspace:
        folder = Path(workspace.path)
        return {path: (folder / path).stat().st_size for path in await anyio.to_thread.run_sync(_files, folder)}


async def run_checks(
    runtime: Runtime, ground: Ground, contract: Contract, marked: Collection[str] = (), files: Collection[str] = ()
) -> Outcome:
    """Run all checks of a contract. `marked` are items that its file marks as passing, `files` those of the base."""
    outcome = Outcome()
    async with AsyncExitStack() as stack:
        yard = _Yard(runtime, ground, (*contract.protected, *contract.hidden), stack, own_modules(files, contract))
        outcome.not_run = await yard.lacks()
        if outcome.not_run:
            return outcome
        for item in contract.items:
            for criterion in item.criteria:
                if criterion.check is not None:
                    await _one(yard, item, criterion, criterion.check, outcome, marked=item.id in marked)
    return outcome


async def _one(yard: _Yard, item: Item, criterion: Criterion, check: Check, outcome: Outcome, *, marked: bool) -> None:
    run = await yard.run(None, check)
    found = base_findings(item, criterion, run, marked=marked, own=yard.own)
    if any(each.kind not in ("does_not_exist", "hangs") for each in found):
        run = await yard.run(None, check, alone=True)
        found = base_findings(item, criterion, run, marked=marked, own=yard.own)
        if any(each.kind == "needs_network" for each in found):
            # A proxy with the mission's policy records the host that is needed.
            watched = await yard.run(None, check, alone=True, watched=True)
            found = base_findings(item, criterion, watched, marked=marked, own=yard.own) or found
    elif run.timed_out and (await yard.run("hollow", check)).timed_out:
        found = [hangs_anyway(each) for each in found]
    if seen_to_fail(check, run):
        outcome.can_fail.add(criterion.id)
    outcome.findings += found
    kinds = mutants_for(check) if passes(check, run) else ()
    for alone in (False, True):
        for kind in kinds:
            if not passes(check, await yard.run(kind, check, alone=alone)):
                outcome.can_fail.add(criterion.id)
                return
    if kinds:
        outcome.findings.append(passed_all_mutants(item, criterion))


class _Yard:
    """Hands on each tree, created at their first use."""

    def __init__(
        self, runtime: Runtime, ground: Ground, protected: tuple[str, ...], stack: AsyncExitStack, own: Collection[str]
    ) -> None:
        self.runtime = runtime
        self.ground = ground
        self.protected = protected
        self.stack = stack
        self.own = own
        self.shared: dict[Kind | None, Hands] = {}
        self.known: dict[tuple[Kind | None, bool, bool, str, float], Run] = {}
        self.calls = 0
        self.spec = HandsSpec("", "", ground.near)

    async def lacks(self) -> str:
        """Return why checks cannot run as in a mission: its environment is not set up yet, or has services."""
        policy = msgspec.structs.replace(self.ground.environment, dotenv={})
        if policy == Environment() or self.ground.near.isolation == "none":
            return ""
        store = LayerStore(self.runtime.home.path / "environments", SystemClock())
        async with _checkout(self.runtime, self.ground, None, ()) as workspace:
            user = await anyio.to_thread.run_sync(choose_user, workspace)
            wanted = await store.look(workspace, policy, user.uid)
        if wanted.services:
            return "they need services, which only a mission starts"
        made = None if wanted.empty else await store.find(wanted)
        if made is None and not wanted.empty:
            return "the environment of this repository is not set up yet; the first `holdfast run` there does that"
        self.spec = msgspec.structs.replace(
            self.spec,
            layers=tuple(layer(each) for each in made.laid) if made else (),
            held=made.folders if made else (),
            read_only={path: path for path in wanted.toolchains},
            env=wanted.env,
            environment=wanted.digest,
        )
        return ""

    async def run(self, kind: Kind | None, check: Check, *, alone: bool = False, watched: bool = False) -> Run:
        """Run a check on a shared tree, or with `alone` on a clean one.

        `watched` adds a proxy under any policy, to record each host that the check contacts.
        """
        command = script(Group(("",), (check,)))
        key = (kind, alone, watched, command, check.timeout_s)
        if key not in self.known:
            if alone:
                self.known[key] = await self._alone(kind, check, command, watched=watched)
            else:
                if kind not in self.shared:
                    self.shared[kind] = await self.stack.enter_async_context(self._hands(kind))
                self.known[key] = await self._call(self.shared[kind], check, command)
        return self.known[key]

    async def _alone(self, kind: Kind | None, check: Check, command: str, *, watched: bool) -> Run:
        async with self._hands(kind, watched=watched) as hands:
            run = await self._call(hands, check, command)
            if not watched:
                return run
            notes = await self.runtime.egress.notes(Path(hands.identity.workspace).name, 0)
        refused = tuple(dict.fromkeys(each.host for each in notes.seen if each.verdict == "refused"))
        return msgspec.structs.replace(run, refused=refused)

    async def _call(self, hands: Hands, check: Check, command: str) -> Run:
        self.calls += 1
        call = f"lint.{self.calls}"
        await hands.start(_EPOCH, call, ExecRequest("bash", {"command": command}, check.timeout_s))
        result = await hands.wait(_EPOCH, call)
        return Run(result.exit_code, result.output, result.timed_out)

    @asynccontextmanager
    async def _hands(self, kind: Kind | None, *, watched: bool = False) -> AsyncIterator[Hands]:
        async with _checkout(self.runtime, self.ground, kind, self.protected) as workspace, AsyncExitStack() as stack:
            name = Path(workspace.path).name
            spec = msgspec.structs.replace(
                self.spec,
                session_id=name,
                network=await self._network(name, workspace, stack, watched=watched),
                hands_id=new_hands_id(SystemClock().now_us(), system_entropy),
                workspace=workspace,
                read_only={**self.spec.read_only, **workspace.read_only},
                env={**self.spec.env, **workspace.env, **ENVIRONMENT},
                policy=self.ground.policy,
            )
            hands = await self.runtime.provider(workspace, self.ground.policy).provision(spec, _EPOCH)
            try:
                yield hands
            finally:
                with anyio.CancelScope(shield=True), contextlib.suppress(HandsError):
                    await hands.release(_EPOCH)

    async def _network(
        self, name: str, workspace: Workspace, stack: AsyncExitStack, *, watched: bool
    ) -> Network | None:
        """The network of a mission's checks: by its policy, without secrets. Closed together with the hands."""
        policy = msgspec.structs.replace(self.ground.egress, secrets=())
        if workspace.isolation == "none" or not (watched or opens(policy)):
            return None
        uid = (await anyio.to_thread.run_sync(choose_user, workspace)).uid
        gateway = await self.runtime.egress.open(name, policy, uid=uid)
        stack.push_async_callback(self.runtime.egress.forget, name)
        stack.push_async_callback(self.runtime.egress.close, name)
        return Network(gateway.socket, gateway.port, gateway.env, gateway.files)


@asynccontextmanager
async def _checkout(
    runtime: Runtime, ground: Ground, kind: Kind | None, protected: tuple[str, ...]
) -> AsyncIterator[Workspace]:
    """A checkout of the base, turned into a mutant; removed at the end of the block."""
    name = f"lint-{new_hands_id(SystemClock().now_us(), system_entropy)}"
    workspace = runtime.fresh_workspace(name, ground.near)
    try:
        user = await anyio.to_thread.run_sync(choose_user, workspace)
        folder = Path(workspace.path)
        await ground.repository.checkout(ground.commit, folder, user=Owner(user.uid, user.gid))
        if kind is not None:
            await anyio.to_thread.run_sync(_mutate, folder, kind, protected)
        yield workspace
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(runtime.discard, workspace)


def _files(folder: Path) -> list[str]:
    found = []
    for top, _, names in os.walk(folder):
        inside = os.path.relpath(top, folder)
        found += [name if inside == "." else f"{inside}/{name}" for name in names]
    return sorted(path for path in found if not (folder / path).is_symlink())


def _mutate(folder: Path, kind: Kind, protected: tuple[str, ...]) -> None:
    """Rewrite every unprotected file as the mutant requires, before anything runs there."""
    for path in _files(folder):
        if matches(path, protected):
            continue
        file = folder / path
        data = file.read_bytes()
        changed = mutant(path, data, kind)
        if changed is None:
            file.unlink()
        elif changed != data:
            file.write_bytes(changed)
