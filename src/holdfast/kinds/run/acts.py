"""Acts of a run: its project's hooks, checks on a copy of the workspace, and a commit at each park (S24, S25)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from holdfast.brain.acts import egress as egress_act
from holdfast.brain.acts import hands as hands_act
from holdfast.brain.acts.environment import dress_aside
from holdfast.brain.acts.jobs import stand_up
from holdfast.brain.acts.results import content_of
from holdfast.brain.shift import Acts, Shift, alongside
from holdfast.errors import (
    CannotRunSafely,
    EnvironmentFailed,
    Fenced,
    HandsError,
    HandsLost,
    HoldfastError,
    Refused,
    RepositoryUnfit,
)
from holdfast.facts.base import Fact
from holdfast.facts.model import AgentToolUse
from holdfast.facts.session import SessionError, Workspace
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.task import RepoCommitted
from holdfast.facts.tool import SCRIPTS, UNTIL, HookRan, ToolResult
from holdfast.hands.base import ExecRequest, ExecResult, Hands, HandsSpec
from holdfast.hands.user import choose_user
from holdfast.ids import new_hands_id
from holdfast.kinds.hooks import running
from holdfast.kinds.hooks.running import Hooked
from holdfast.kinds.run.kind import hooks_of, run_of, run_state
from holdfast.repo.base import Owner
from holdfast.session.state import Call
from holdfast.session.tools.output import SUBMIT_OUTPUT

LOST_MAX = 3
"""Attempts at a round of checks whose sandbox is lost."""

IDLE_S = 10.0
"""Idle time after which the sandbox of a killed brain's checks ends."""

OUTPUT_CAP = 10_000
"""Maximum bytes of a check's output that go back to the model."""

MOVES_MAX = 3
"""Attempts to move a branch that another process moves meanwhile."""

REFS = "refs/heads/holdfast/"


class RunActs(Acts):
    """Acts of a run in one shift. `committed_at` is the progress of the session at the latest try to commit."""

    def __init__(self, shift: Shift) -> None:
        super().__init__(shift)
        self.committed_at: tuple[int, ...] = ()
        self.hooks = _hooked(shift)
        self.answers = {**self.answers, SUBMIT_OUTPUT: _submit}

    async def before_call(self, hands: Hands, use: AgentToolUse) -> bool:
        """Run the project's hooks; a blocking one ends the call."""
        return self.hooks is None or await running.before(self.shift, hands, use, self.hooks) is None

    async def after_call(self, hands: Hands, use: AgentToolUse, result: ExecResult) -> tuple[Fact, ...]:
        """Run the project's hooks, whose events are recorded beside the result."""
        return () if self.hooks is None else await running.after(self.shift, hands, use, result, self.hooks)

    async def verify(self) -> None:
        """Run the project's hooks for a stop. Once they let the agent stop, run the checks."""
        state, plan = self.shift.state, self.hooks
        if plan is None or not plan.at_stop or run_state(state).let_go == state.responses:
            await self._check()
        elif state.hands is None or state.workspace_with:
            await hands_act.provision(self.shift)
        else:
            about_id = f"{state.session_id}.{state.responses}"
            ran = await running.at_stop(self.shift, plan, about_id, run_state(state).objections)
            if not ran.cancelled:
                await self.shift.fact(*(msgspec.structs.replace(fact, call_id="") for fact in ran.facts))

    async def _check(self) -> None:
        """Run every check on a copy of the workspace, and append the results together: a partial round never counts.

        A check that a killed brain began is run again.
        """
        shift, run = self.shift, run_of(self.shift.state)
        if shift.state.workspace_with:
            await hands_act.provision(shift)  # only lost hands have the workspace; the new ones continue with it
            return
        results: list[ExecResult] = []
        before = shift.state.mutated_seq
        for left in reversed(range(LOST_MAX)):
            try:
                results = await self.round(run.until, run.timeout_s)
                break
            except HandsLost:
                if not left:
                    raise
        if shift.state.stopping or shift.state.mutated_seq != before or any(each.cancelled for each in results):
            return
        facts = [_found(command, result) for command, result in zip(run.until, results, strict=True)]
        await shift.fact(*facts)

    async def round(self, commands: tuple[str, ...], timeout_s: float) -> list[ExecResult]:
        """Run the checks in fresh hands on a copy of the workspace."""
        shift, results = self.shift, []

        async def until_stopped() -> None:
            """End the running check when a user stops the session. Unlike for a call, no secret is handed out."""
            await shift.until_stopped()
            await hands.kill(shift.fence, call_id)

        async with copied(shift) as workspace, hands_on(shift, workspace) as hands:
            for number, command in enumerate(commands):
                call_id = f"{hands.identity.hands_id}.{number}"
                request = ExecRequest("bash", {"command": command}, timeout_s, output_cap=OUTPUT_CAP)
                await hands.start(shift.fence, call_id, request)
                results.append(await alongside(partial(hands.wait, shift.fence, call_id), until_stopped))
        return results

    async def before_end(self, ended: ShiftEnded) -> bool:
        """Commit the workspace once nothing runs in it any more. True if an event was appended: decide again."""
        shift = self.shift
        if not run_of(shift.state).commit or shift.state.workspace_with:
            return False
        if shift.state.hands is not None and not hands_act.kept(shift.state, ended):
            await hands_act.give_back(shift)
            return True
        progress = (shift.state.message_seq, shift.state.mutated_seq, shift.state.responses)
        if self.committed_at == progress:
            return False
        self.committed_at = progress
        head = shift.state.seq
        try:
            await _commit(shift, ended)
        except Refused:
            raise
        except HoldfastError as error:
            await shift.fact(SessionError(kind=type(error).__name__, message=f"not committed: {error}"))
        return shift.state.seq != head


ACTS = RunActs


def _hooked(shift: Shift) -> Hooked | None:
    """Return the project's hooks of this session, or None."""
    files = run_of(shift.state).hooks
    if not files:
        return None
    scripts = [each for each in files if each.path.startswith(f"{SCRIPTS}/")]
    return Hooked(
        hooks_of(run_of(shift.state)),
        {each.path: each.content.encode() for each in scripts},
        frozenset(each.path for each in scripts if each.program),
        lambda: run_state(shift.state).hooked,
    )


async def _submit(shift: Shift, call: Call, value: dict[str, Any]) -> None:
    """Accept a valid output."""
    await shift.decision(ToolResult(call_id=call.call_id, outcome="ok", content="Your output is recorded."))


def _found(command: str, result: ExecResult) -> HookRan:
    """Return the event of a check; a failure is shown to the model."""
    failed = (
        f"[You stopped, but the work is not done: the check `{command}` fails. It ran in a fresh sandbox, on a copy of "
        f"the workspace without `.git` and without your processes. Its output:]\n{content_of(result)}"
    )
    return HookRan(
        event=UNTIL,
        command=command,
        exit_code=result.exit_code,
        blocked=not result.ok,
        content="" if result.ok else failed,
        duration_ms=result.duration_ms,
    )


# --- checks ------------------------------------------------------------------------------------------


@asynccontextmanager
async def copied(shift: Shift) -> AsyncIterator[Workspace]:
    """Provide a copy of the workspace, removed at the end of the block.

    A killed brain's copy is removed here; the epoch in the name keeps two brains apart.
    """
    shelf, created = shift.doors.shelf, shift.state.created
    assert created is not None
    if shelf is None:
        raise CannotRunSafely("the checks run on a copy of the workspace, which needs git: install it, then wake this")
    near = msgspec.structs.replace(created.workspace, origin=created.workspace.origin or created.workspace.path)
    kept = await hands_act.take_snapshot(shift, shift.state.seq)
    workspace = await anyio.to_thread.run_sync(_folder, shift, near)
    mine = True
    try:
        user = await anyio.to_thread.run_sync(choose_user, workspace)
        await shelf.restore(kept.snapshot, Path(workspace.path), user=Owner(user.uid, user.gid))
        yield workspace
    except Fenced:
        mine = False
        raise
    finally:
        if mine:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(shift.doors.discard, workspace)


def _folder(shift: Shift, near: Workspace) -> Workspace:
    """Make the folder of a copy, after removing those of this session's earlier brains."""
    name = f"{shift.state.session_id}-until-"
    workspace = shift.doors.workspace(f"{name}{shift.epoch}", near)
    for left in Path(workspace.path).parent.glob(f"{name}*"):
        shift.doors.discard(msgspec.structs.replace(workspace, path=str(left)))
    return shift.doors.workspace(f"{name}{shift.epoch}", near)


@asynccontextmanager
async def hands_on(shift: Shift, workspace: Workspace) -> AsyncIterator[Hands]:
    """Provide fresh hands on a copy, with the session's environment and policy, and without secrets."""
    doors, created = shift.doors, shift.state.created
    assert created is not None
    spec = HandsSpec(
        session_id=shift.state.session_id,
        hands_id=new_hands_id(doors.clock.now_us(), doors.entropy),
        workspace=workspace,
        read_only=workspace.read_only,
        env=workspace.env,
        policy=msgspec.structs.replace(created.hands, warm=1, idle_s=IDLE_S),
    )
    spec, services = await dress_aside(shift, spec)
    spec = msgspec.structs.replace(spec, network=await egress_act.network(shift, workspace))
    hands = await doors.hands.provision(spec, shift.fence)
    try:
        for service in services:
            if problem := await stand_up(shift, hands, service):
                raise EnvironmentFailed(f"the service {service.name} of the environment is not ready. {problem}")
        yield hands
    finally:
        with anyio.CancelScope(shield=True), suppress(HandsError):
            await hands.release(shift.fence)


# --- commits -----------------------------------------------------------------------------------------


async def _commit(shift: Shift, ended: ShiftEnded) -> None:
    """Commit the workspace to the session's branch, and record a new commit.

    Killed at any point, the branch is at its old or its new commit; the next park makes the same commit again (S23).
    Raises `RepositoryUnfit`.
    """
    state, run = shift.state, run_of(shift.state)
    assert state.created is not None
    repository, ref = shift.doors.repository(run.repo), REFS + state.session_id
    folder, user = Path(state.created.workspace.path), choose_user(state.created.workspace)
    owner, at_us = Owner(user.uid, user.gid), shift.doors.clock.now_us()
    message = f"{' '.join(state.created.goal.split())[:60]}: {ended.status}\n\nHoldfast-Session: {state.session_id}\n"
    for _ in range(MOVES_MAX):
        present = await repository.resolve(ref)
        old = present.commit if present is not None else None
        parent = old or run_state(state).commit or run.base
        made = await repository.commit(folder, (parent,), message, at_us, user=owner)
        if await repository.point(ref, made.commit, old):
            break
    else:
        raise RepositoryUnfit("another process keeps moving that branch; the work is safe in the workspace")
    if made.commit != run_state(state).commit:
        wip = ended.status != "done"
        fact = RepoCommitted(
            ref=ref, commit=made.commit, tree=made.tree, parent=parent, wip=wip, left_out=made.left_out
        )
        await shift.fact(fact)
