"""Environments and restored workspaces for new hands (S11)."""

from __future__ import annotations

from pathlib import Path

import anyio
import msgspec

from holdfast.brain.acts import jobs as jobs_act
from holdfast.brain.acts.setting_up import SetUp, set_up
from holdfast.brain.shift import Shift
from holdfast.environment.base import WORKSPACE, Environments, Laid, Made, Wanted
from holdfast.errors import (
    CannotRunSafely,
    EnvironmentFailed,
    HandsError,
    HandsLost,
    HeadMoved,
    SandboxUnavailable,
    StorageFull,
    UsageError,
    WorkspaceGone,
)
from holdfast.facts.hands import EgressSeen, EnvironmentRecorded, HandsRestored, Step
from holdfast.facts.model import AgentToolUse
from holdfast.facts.session import Environment, Service, SessionCreated, Workspace, travels
from holdfast.facts.tool import ToolDispatched
from holdfast.hands.base import Carrying, Hands, HandsSpec, Layer
from holdfast.hands.user import choose_user, make_ready
from holdfast.repo.base import Owner
from holdfast.session.fold.hands import required

TROUBLE = (EnvironmentFailed, UsageError, CannotRunSafely, HandsError)
"""Errors that leave a session without its environment. A full disk is a problem of the machine instead."""


async def dress(shift: Shift, spec: HandsSpec) -> HandsSpec:
    """Add the session's environment to a hands spec, building it first if necessary.

    Raises `HeadMoved` if it cannot be built and the work requires it: the failure is an event, decide again.
    """
    created = shift.state.created
    assert created is not None
    policy = created.environment
    shift.standing = ()
    if policy == Environment():
        return spec
    wanted: Wanted | None = None
    began = shift.doors.clock.monotonic_s()
    try:
        environments = _door(shift, created)
        user = await anyio.to_thread.run_sync(choose_user, created.workspace)
        wanted = await environments.look(created.workspace, policy, user.uid)
        if wanted.digest == shift.state.environment_failed:
            return spec
        made = await environments.find(wanted) if not wanted.empty else None
        if made is not None:
            took_ms = round((shift.doors.clock.monotonic_s() - began) * 1000, 3)
            record = msgspec.structs.replace(made.record, cached=True, duration_ms=took_ms)
        elif wanted.empty:
            record = EnvironmentRecorded(digest=wanted.digest, toolchains=wanted.toolchains, notes=wanted.notes)
        else:
            job = SetUp(environments, wanted, policy, created.workspace, (user.uid, user.gid))
            made = await set_up(shift, job)
            record = made.record
        spec = _dressed(spec, wanted, made, _dotenv(created, spec))
    except (StorageFull, SandboxUnavailable):
        raise
    except TROUBLE as error:
        await _failed(shift, wanted, str(error), error)
        return spec
    if shift.state.environment != wanted.digest:
        await shift.fact(record)
    shift.standing = wanted.services
    return spec


async def dress_aside(shift: Shift, spec: HandsSpec) -> tuple[HandsSpec, tuple[Service, ...]]:
    """Add the environment of another workspace than the session's own to a hands spec; return its services too.

    Records only the network requests of a set-up. Omits the `.env`, which needs the session's own proxy. Raises
    `EnvironmentFailed` or any error of creating hands; `HeadMoved` if a user stopped it.
    """
    created = shift.state.created
    assert created is not None
    policy = msgspec.structs.replace(created.environment, dotenv={}, submodules=False, lfs=False)
    if policy == Environment():
        return spec, ()
    environments = _door(shift, created)
    user = await anyio.to_thread.run_sync(choose_user, spec.workspace)
    wanted = await environments.look(spec.workspace, policy, user.uid)
    made = await environments.find(wanted) if not wanted.empty else None
    if made is None and not wanted.empty:
        made = await set_up(shift, SetUp(environments, wanted, policy, spec.workspace, (user.uid, user.gid)))
    return _dressed(spec, wanted, made, {}), wanted.services


def _door(shift: Shift, created: SessionCreated) -> Environments:
    if created.workspace.isolation == "none":
        raise EnvironmentFailed(
            "an environment is laid by the sandbox, and this session runs without one: leave --no-sandbox out, or the "
            "environment"
        )
    if shift.doors.environments is None or created.hands.provider not in ("", "bubblewrap"):
        raise EnvironmentFailed(
            "these hands cannot be given an environment: use the sandbox of this machine, or leave the environment out"
        )
    return shift.doors.environments


async def _failed(shift: Shift, wanted: Wanted | None, message: str, error: Exception) -> None:
    """Record the failure. If the environment is required, the session parks and names the command to type."""
    created, state = shift.state.created, shift.state
    assert created is not None
    said = error if isinstance(error, EnvironmentFailed) else EnvironmentFailed("")
    steps = tuple(step for step in said.steps if isinstance(step, Step))
    seen = tuple(each for each in said.seen if isinstance(each, EgressSeen))
    files = wanted.files if wanted is not None else {}
    stops = required(created.environment)
    if stops:
        message = f"{message}\nMend that, then type: holdfast send {state.session_id} 'go on'"
    digest = wanted.digest if wanted is not None else ""
    await shift.fact(EnvironmentRecorded(digest=digest, files=files, steps=steps, error=message, seen=seen))
    if stops:
        raise HeadMoved("there is no environment for the work", folded=shift.decided_at, head=shift.state.seq)


def _dressed(spec: HandsSpec, wanted: Wanted, made: Made | None, files: dict[str, bytes]) -> HandsSpec:
    laid = () if made is None else made.laid
    return msgspec.structs.replace(
        spec,
        layers=(*spec.layers, *(layer(each) for each in laid if each.inside not in files)),
        held=(*spec.held, *(() if made is None else made.folders)),
        read_only={**{path: path for path in wanted.toolchains}, **spec.read_only},
        env={**wanted.env, **spec.env},
        files={**spec.files, **files},
        environment=wanted.digest,
    )


def layer(laid: Laid) -> Layer:
    """Convert an environment layer for the sandbox."""
    return Layer(laid.inside, (laid.path,), over=laid.how == "over", private=laid.how == "own")


def _dotenv(created: SessionCreated, spec: HandsSpec) -> dict[str, bytes]:
    """Return a `.env` with placeholders in place of the secrets' values."""
    wanted = created.environment.dotenv
    if not wanted:
        return {}
    if spec.network is None:
        raise EnvironmentFailed("`dotenv` needs the way outside that its secrets are bound to, and there is none")
    variables = {use.name: use.variable for use in created.egress.secrets}
    lines = []
    for name, secret in wanted.items():
        value = spec.network.env.get(variables.get(secret, ""))
        if value is None:
            raise EnvironmentFailed(
                f"`dotenv` gives {name} the secret {secret}, which this session may not use: add it under "
                "[[egress.secrets]] with a `variable`"
            )
        lines.append(f"{name}={value}\n")
    return {f"{WORKSPACE}/.env": "".join(lines).encode()}


async def start_services(shift: Shift, hands: Hands) -> None:
    """Start the environment's services in new hands, before the first call.

    Raises `HeadMoved` if one is not ready: that is an event, decide again.
    """
    for service in shift.standing:
        try:
            problem = await jobs_act.start_service(shift, hands, service)
        except HandsLost:
            raise
        except HandsError as error:
            problem = str(error)
        if problem:
            message = f"the service {service.name} of the environment is not ready. {problem}"
            await _failed(shift, None, message, EnvironmentFailed(message))


NAMED_MAX = 40
"""Maximum calls named in a note to the model."""


async def provision(shift: Shift, spec: HandsSpec) -> tuple[Hands, HandsRestored | None]:
    """Create hands on the session's workspace, wherever it is now; for an earlier version, also return what to record.

    Raises `WorkspaceGone` if neither its folder nor a usable snapshot exists.
    """
    continues = shift.state.workspace_with
    if not continues and await _moved_here(shift, spec.workspace):
        hands = await shift.doors.hands.provision(spec, shift.fence)
        return hands, await _told(shift, hands.identity.hands_id)
    try:
        return await shift.doors.hands.provision(msgspec.structs.replace(spec, continues=continues), shift.fence), None
    except WorkspaceGone:
        hands = await shift.doors.hands.provision(spec, shift.fence)
    except UsageError:
        if _begun(shift, spec.workspace):
            return await shift.doors.hands.provision(spec, shift.fence), None
        if not await _put_back(shift, spec.workspace):
            raise
        hands = await shift.doors.hands.provision(spec, shift.fence)
    return hands, await _told(shift, hands.identity.hands_id)


async def _moved_here(shift: Shift, workspace: Workspace) -> bool:
    """Restore the workspace if the session worked at another place since: a folder that was left here is not it."""
    state, folder = shift.state, Path(workspace.path)
    if state.work_home in ("", shift.doors.worker.place) or not workspace.disposable or not state.snapshot:
        return False
    await anyio.to_thread.run_sync(shift.doors.discard, workspace)
    if folder.exists():
        raise CannotRunSafely(
            f"the workspace {folder} was changed at another home since, and is not in this one; nothing was started: "
            "use the same path for the home as there"
        )
    return await _put_back(shift, workspace)


def _begun(shift: Shift, workspace: Workspace) -> bool:
    """Make the empty workspace of a session that another place opened and none worked on; False for any other one."""
    state, folder = shift.state, Path(workspace.path)
    untouched = not (state.mutated_seq or state.snapshot) and state.created is not None and travels(state.created)
    if not untouched or not shift.doors.worker.place or folder.exists():
        return False
    _make(workspace)
    return True


def _make(workspace: Workspace) -> None:
    """Make the folder of a workspace."""
    try:
        Path(workspace.path).mkdir(mode=0o755)
        make_ready(workspace, choose_user(workspace))
    except OSError as error:
        raise CannotRunSafely(
            f"the workspace {workspace.path} cannot be made again: {error.strerror}; nothing was started: on another "
            "machine, use the same path for the home as before"
        ) from error


async def _put_back(shift: Shift, workspace: Workspace) -> bool:
    """Restore the workspace from the last snapshot; False if the workspace exists and the error has another cause.

    On another machine than before, the home has the same path.
    """
    folder, state = Path(workspace.path), shift.state
    if folder.exists() or not (state.mutated_seq or state.snapshot):
        return False
    if shift.doors.shelf is None or not state.snapshot or not workspace.disposable:
        raise WorkspaceGone(
            f"the workspace {folder} is not there any more, and the work was only there; nothing was started: put it "
            f"back as it was, or fork the session from a snapshot (`holdfast fork {state.session_id}`)"
        )
    _make(workspace)
    user = choose_user(workspace)
    await shift.doors.shelf.restore(state.snapshot, folder, user=Owner(user.uid, user.gid))
    return True


async def _told(shift: Shift, hands_id: str) -> HandsRestored:
    state = shift.state
    unkept = await _unkept(shift)
    named = ", ".join(f"{name} {call_id}" for call_id, name in list(unkept.items())[:NAMED_MAX])
    gone = f"What these calls did after that is gone: {named}." if unkept else "No call changed it after that."
    content = (
        "[The sandbox was lost, and the workspace with it. The workspace is now as it was kept after event "
        f"{state.snapshot_seq} of the log. {gone} Look at it before you go on; files have to be read again.]"
    )
    return HandsRestored(
        hands_id=hands_id,
        snapshot=state.snapshot,
        through_seq=state.snapshot_seq,
        content=content,
        unkept=tuple(unkept),
    )


async def _unkept(shift: Shift) -> dict[str, str]:
    """Return the calls since the last snapshot that may have changed the workspace, with their tools' names."""
    created = shift.state.created
    assert created is not None
    names: dict[str, str] = {}
    for event in await shift.doors.log.read(shift.state.session_id):
        if isinstance(event.fact, AgentToolUse):
            names[event.fact.call_id] = event.fact.name
    out: dict[str, str] = {}
    for event in await shift.doors.log.read(shift.state.session_id, after=shift.state.snapshot_seq):
        fact = event.fact
        if isinstance(fact, ToolDispatched) and not fact.place:
            name = names.get(fact.call_id, "")
            tool = shift.state.tool(name)
            if tool is None or not tool.read_only:
                out[fact.call_id] = name
    return out


async def bring_back(shift: Shift, hands: Hands) -> None:
    """Copy the workspace back from the hands."""
    if hands.identity.holds_workspace and isinstance(hands, Carrying):
        await hands.bring_back(shift.fence)
