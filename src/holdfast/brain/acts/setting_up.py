"""Set-up of an environment: a single run in hands of its own, with network access to little but package registries.

Packages come first, in hands without access to the workspace; later hands take system programs from that layer. Then
the commands run over the workspace: their writes go into the layer, and the workspace does not change. The layer is
kept only if all commands succeed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import anyio
import msgspec

from holdfast.brain.acts.egress import added
from holdfast.brain.shift import Shift, alongside
from holdfast.environment.base import SHARED, WORKSPACE, Draft, Environments, Laid, Made, Tools, Wanted
from holdfast.environment.layers import packages_laid
from holdfast.environment.recipes import APT_CONF, LIBRARIES, PLACES, VERSIONS, unpack, versions_of
from holdfast.errors import EnvironmentFailed, HandsError, HandsLost, HeadMoved
from holdfast.facts.hands import EgressRecorded, EgressSeen, EnvironmentRecorded, HandsProvisioned, Step
from holdfast.facts.session import EgressPolicy, Environment, Workspace
from holdfast.hands.base import ExecRequest, ExecResult, Hands, HandsSpec, Layer, Network
from holdfast.ids import new_hands_id

EPOCH = 1
"""Epoch of set-up hands. They belong to the process that holds the lock of their draft, not to a session's shift."""

SCRATCH = "/opt/scratch"
OUTPUT_BYTES = 6_000
SAID_CHARS = 1_500
"""Characters of a failed command's last output that its error shows."""


class SetUp(NamedTuple):
    """A set-up to run: its workspace, user, and group."""

    environments: Environments
    wanted: Wanted
    policy: Environment
    workspace: Workspace
    owner: tuple[int, int]


class _Run:
    """A set-up in progress."""

    def __init__(self, shift: Shift, job: SetUp, tools: Tools) -> None:
        self.shift = shift
        self.job = job
        self.tools = tools
        self.outside = f"{shift.state.session_id}-setup"
        self.opened = False
        self.network: Network | None = None
        self.steps: list[Step] = []
        self.began_s = shift.doors.clock.monotonic_s()
        self.packages: tuple[str, ...] = ()
        self.versions: dict[str, str] = {}


Fill = Callable[[_Run, Draft, Made | None], Awaitable[None]]
"""Builds one layer over the one below it."""


async def set_up(shift: Shift, job: SetUp) -> Made:
    """Build the environment, or use one that another process built meanwhile. Records the set-up's network requests.

    Raises `EnvironmentFailed`; `HeadMoved` if a user stopped it. Leaves only complete layers.
    """
    run = _Run(shift, job, await job.environments.tools())
    wanted = job.wanted
    failed: EnvironmentFailed | None = None
    try:
        base = None
        if wanted.packages:
            base = await _layer(run, Wanted(wanted.base, packages=wanted.packages), _packages, None)
            run.packages = base.record.packages
        return await _layer(run, wanted, _commands, base)
    except EnvironmentFailed as error:
        failed = error
    finally:
        with anyio.CancelScope(shield=True):
            seen = await _seen(run)
            if seen:
                await shift.fact(EgressRecorded(through=0, seen=seen, set_up=True))
            egress = shift.doors.egress
            if egress is not None and run.opened:
                await egress.forget(run.outside)
    message = str(failed)
    refused = sorted({f"{each.host}:{each.port}" for each in seen if each.verdict == "refused"})
    if refused:
        message += f"\nIt was refused {', '.join(refused[:8])}: name what it needs in `hosts` under [environment]."
    raise EnvironmentFailed(message, steps=tuple(run.steps), seen=seen) from None


async def _layer(run: _Run, wanted: Wanted, fill: Fill, base: Made | None) -> Made:
    """Return one layer: an existing one, or a new one, which is complete or absent."""
    environments, doors = run.job.environments, run.shift.doors

    async def release(identity: HandsProvisioned) -> None:
        with contextlib.suppress(HandsError):
            await (await doors.hands.attach(identity)).release(EPOCH)

    async def stop_waiting() -> None:
        await run.shift.until_stopped()
        raise _stopped(run)

    got: list[Draft | Made] = []

    async def prepare() -> None:
        got.append(await environments.prepare(wanted, run.job.owner, release))

    try:
        await alongside(prepare, stop_waiting)
    except BaseException:
        with anyio.CancelScope(shield=True):
            for each in got:
                if isinstance(each, Draft):
                    await environments.give_up(each)
        raise
    (draft,) = got
    if isinstance(draft, Made):
        return msgspec.structs.replace(draft, record=msgspec.structs.replace(draft.record, cached=True))
    try:
        if not run.opened:
            run.began_s = doors.clock.monotonic_s()  # excludes the wait for another process that built it
        await _open(run)
        await fill(run, draft, base)
        record = EnvironmentRecorded(
            digest=wanted.digest,
            steps=tuple(run.steps),
            files=wanted.files,
            packages=run.packages,
            toolchains=wanted.toolchains,
            versions=run.versions,
            duration_ms=round((doors.clock.monotonic_s() - run.began_s) * 1000, 3),
            notes=wanted.notes,
            seen=await _seen(run),
        )
        return await environments.seal(draft, wanted, os.path.realpath(run.job.workspace.path), record, base)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await environments.give_up(draft)
        raise


async def _open(run: _Run) -> None:
    """Open network access to registries and to the hosts that the policy names, separate from the session's own."""
    egress = run.shift.doors.egress
    if run.opened:
        return
    run.opened = True
    if egress is None:
        return
    policy = EgressPolicy(allow=run.job.policy.hosts, registries=True)
    gateway = await egress.open(run.outside, policy, uid=run.job.owner[0])
    run.network = Network(gateway.socket, gateway.port, gateway.env, gateway.files)


async def _seen(run: _Run) -> tuple[EgressSeen, ...]:
    """Return the network requests so far, by host."""
    egress = run.shift.doors.egress
    if egress is None or not run.opened:
        return ()
    notes = await egress.notes(run.outside, 0)
    hosts: dict[tuple[str, int, str], EgressSeen] = {}
    for each in notes.seen:
        key = (each.host, each.port, each.verdict)
        short = msgspec.structs.replace(each, method="", path="")
        hosts[key] = short if key not in hosts else added(hosts[key], short)
    return tuple(hosts.values())[:64]


async def _packages(run: _Run, draft: Draft, base: Made | None) -> None:
    """Unpack the Debian packages, and list their libraries."""
    wanted = run.job.wanted.packages
    if not run.tools.apt:
        raise EnvironmentFailed(
            f"packages ({', '.join(wanted)}) are Debian's, and this machine has no apt; use `setup` or `toolchains`"
        )
    port = run.network.port if run.network is not None else 0
    conf = (APT_CONF.replace("@PORT@", str(port)) + run.tools.apt).encode()
    lists = "/var/lib/apt/lists"
    shown = {**run.tools.read_only, **({lists: lists} if os.path.isdir(lists) else {})}
    place = Workspace(draft.packages)
    spec = _spec(run, place, network=run.network, read_only=shown, files={f"{WORKSPACE}/apt.conf": conf})
    async with _Hands(run, draft, spec) as hands:
        said = await _step(run, hands, unpack(wanted), f"apt-get install {' '.join(wanted)}")
    run.packages = tuple(line for line in said.output.splitlines() if "=" in line and " " not in line)
    layers = tuple(_shown(each) for each in packages_laid(Path(draft.packages) / "root"))
    async with _Hands(run, draft, _spec(run, place, layers=layers)) as hands:
        await _step(run, hands, LIBRARIES, "")


def _shown(laid: Laid) -> Layer:
    return Layer(laid.inside, (laid.path,), over=laid.how == "over")


async def _commands(run: _Run, draft: Draft, base: Made | None) -> None:
    """Run the commands over the workspace, one after the other."""
    job = run.job
    layers = (
        *(_shown(each) for each in (base.laid if base is not None else ())),
        Layer(WORKSPACE, (), upper=draft.workspace, over=True),
        Layer(SHARED, (), upper=draft.shared),
        Layer(SCRATCH, (), upper=draft.scratch),
    )
    env = {**run.tools.env, "PATH": job.wanted.env["PATH"], "HOME": f"{SCRATCH}/home", "TMPDIR": f"{SCRATCH}/tmp"}
    shown = {path: path for path in job.wanted.toolchains}
    own_dotenv = os.path.isfile(os.path.join(job.workspace.path, ".env"))
    spec = _spec(
        run,
        job.workspace,
        network=run.network,
        layers=layers,
        env=env,
        read_only=shown,
        held=(base.folder,) if base is not None else (),
        files={f"{WORKSPACE}/.env": b""} if job.policy.dotenv and own_dotenv else {},
    )
    async with _Hands(run, draft, spec) as hands:
        await _step(run, hands, PLACES, "")
        for command in job.wanted.commands:
            await _step(run, hands, command, command)
        run.versions = versions_of((await _step(run, hands, VERSIONS, "")).output)


def _spec(run: _Run, workspace: Workspace, **more: object) -> HandsSpec:
    doors = run.shift.doors
    created = run.shift.state.created
    assert created is not None
    hands_id = new_hands_id(doors.clock.now_us(), doors.entropy)
    return HandsSpec(run.shift.state.session_id, hands_id, workspace, policy=created.hands, **more)  # type: ignore[arg-type]


class _Hands:
    """Context manager for set-up hands: recorded beside the draft, released at the end of the block."""

    def __init__(self, run: _Run, draft: Draft, spec: HandsSpec) -> None:
        self._run = run
        self._draft = draft
        self._spec = spec
        self._hands: Hands | None = None

    async def __aenter__(self) -> Hands:
        self._hands = await self._run.shift.doors.hands.provision(self._spec, EPOCH)
        await self._run.job.environments.begun(self._draft, self._hands.identity)
        return self._hands

    async def __aexit__(self, *_: object) -> None:
        if self._hands is not None:
            with anyio.CancelScope(shield=True), contextlib.suppress(HandsLost):
                await self._hands.release(EPOCH)


async def _step(run: _Run, hands: Hands, command: str, shown: str) -> ExecResult:
    """Run one command to its end; record it as `shown` unless that is empty. Raises `EnvironmentFailed`."""
    left = run.began_s + run.job.policy.timeout_s - run.shift.doors.clock.monotonic_s()
    call_id = f"set_up_{len(run.steps)}_{'step' if shown else 'own'}"
    request = ExecRequest("bash", {"command": command}, max(left, 1.0), output_cap=OUTPUT_BYTES)

    async def end_when_stopped() -> None:
        await run.shift.until_stopped()
        await hands.kill(EPOCH, call_id)

    await hands.start(EPOCH, call_id, request)
    try:
        result = await alongside(lambda: hands.wait(EPOCH, call_id), end_when_stopped)
    except HandsLost as error:
        raise EnvironmentFailed(f"the hands of the set-up were ended: {error}") from None
    if result.cancelled:
        raise _stopped(run)
    said = "" if result.ok else result.output[-SAID_CHARS:].strip()
    if shown:
        run.steps.append(Step(shown[:2000], result.exit_code, result.duration_ms, said))
    if not result.ok:
        raise EnvironmentFailed(_told(shown or command, result, said))
    return result


def _stopped(run: _Run) -> HeadMoved:
    return HeadMoved("the set-up was stopped", folded=run.shift.decided_at, head=run.shift.state.seq)


def _told(command: str, result: ExecResult, said: str) -> str:
    first = command.partition("\n")[0][:200]
    if result.timed_out:
        how = "was not done in the time that `timeout_s` under [environment] gives"
    elif result.limit:
        how = f"went over the limit of {result.limit}"
    else:
        how = f"ended with status {result.exit_code if result.exit_code is not None else f'signal {result.signal}'}"
    return f"The set-up before the work failed: `{first}` {how}. Nothing of it was kept. It said last:\n{said}"
