"""Checks of a contract, run before any work: at the base, and on trees where nothing works. In hands, never here.

Runs share a checkout of each tree. What a run convicts a check of counts only when it happens on a checkout of its own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from holdfast.app.compose import Runtime
from holdfast.brain.acts.environment import layer
from holdfast.clock import SystemClock
from holdfast.environment.store import LayerStore
from holdfast.errors import HandsError
from holdfast.facts.contract import Check, Contract, Criterion, Item
from holdfast.facts.session import EgressPolicy, Environment, HandsPolicy, Workspace
from holdfast.globs import matches
from holdfast.hands.base import ExecRequest, Hands, HandsSpec, Network
from holdfast.hands.user import choose_user
from holdfast.ids import new_hands_id, system_entropy
from holdfast.kinds.mission.check.ability.probes import Kind, mutant
from holdfast.kinds.mission.check.checking import Group, script
from holdfast.kinds.mission.lint import (
    Finding,
    Run,
    base_findings,
    convicted,
    hangs_anyway,
    mutants_for,
    own_modules,
    passes,
    seen_to_fail,
)
from holdfast.kinds.mission.ratchet.planted import ENVIRONMENT
from holdfast.repo.base import Owner
from holdfast.repo.repository import Repository
from holdfast.session.outside import opens

_EPOCH = 1


class Ground(msgspec.Struct, frozen=True):
    """What checks are run on: a commit of a repository, in hands like those of the mission's workers."""

    repository: Repository
    commit: str
    near: Workspace
    policy: HandsPolicy = HandsPolicy()
    environment: Environment = Environment()
    egress: EgressPolicy = EgressPolicy()


class Outcome(msgspec.Struct):
    """What was found, which criteria were seen to fail, and why checks were not run, if they were not."""

    findings: list[Finding] = []
    can_fail: set[str] = set()
    not_run: str = ""


async def file_sizes(runtime: Runtime, ground: Ground) -> dict[str, int]:
    """The files of the base with their sizes in bytes. Nothing of it is run."""
    async with _checkout(runtime, ground, None, ()) as workspace:
        return await anyio.to_thread.run_sync(_sizes, Path(workspace.path))


async def run_checks(
    runtime: Runtime, ground: Ground, contract: Contract, marked: Collection[str] = (), files: Collection[str] = ()
) -> Outcome:
    """Run all checks of a contract. `marked` are items that its file says pass, `files` those of the base."""
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
            # A proxy that lets nothing more through than a mission's notes which host it is.
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
        outcome.findings.append(convicted(item, criterion))


class _Yard:
    """Hands on each tree that is needed, made when it is needed first."""

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
        """Why checks cannot be run as they would be for a mission: its environment is not made yet, or has services."""
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
            return "the environment of this repository is not made yet; the first `holdfast run` there makes it"
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
        """Run a check on a tree: one that others ran on too, or with `alone` a clean one.

        `watched` gives it a proxy whatever the policy is, so that each host that it wants is known.
        """
        command = script(Group(("",), (check,)))
        key = (kind, alone, watched, command, check.timeout_s)
        if key not in self.known:
            self.known[key] = (
                await self._alone(kind, check, command, watched=watched)
                if alone
                else await self._beside(kind, check, command)
            )
        return self.known[key]

    async def _alone(self, kind: Kind | None, check: Check, command: str, *, watched: bool) -> Run:
        async with self._hands(kind, watched=watched) as hands:
            run = await self._call(hands, check, command)
            if not watched:
                return run
            notes = await self.runtime.egress.notes(Path(hands.identity.workspace).name, 0)
        refused = tuple(dict.fromkeys(each.host for each in notes.seen if each.verdict == "refused"))
        return msgspec.structs.replace(run, refused=refused)

    async def _beside(self, kind: Kind | None, check: Check, command: str) -> Run:
        if kind not in self.shared:
            self.shared[kind] = await self.stack.enter_async_context(self._hands(kind))
        return await self._call(self.shared[kind], check, command)

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
        """The way outside that a mission's checks have: by its policy, without secrets. It goes with the hands."""
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
    """The files of the base in a folder of their own, made into a mutant; gone at the end of the block."""
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


def _sizes(folder: Path) -> dict[str, int]:
    return {path: (folder / path).stat().st_size for path in _files(folder)}


def _mutate(folder: Path, kind: Kind, protected: tuple[str, ...]) -> None:
    """Before anything ran there: whatever is not protected becomes what it is in that mutant."""
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
