"""Hooks and checks of a project for a worker: read from the commit that it begins from, and run at its submission."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.brain.acts import hands as hands_act
from holdfast.brain.shift import Shift
from holdfast.errors import HeadMoved
from holdfast.facts.mission import Role
from holdfast.facts.tool import SCRIPTS
from holdfast.kinds.hooks import running
from holdfast.kinds.hooks import settings as project
from holdfast.kinds.hooks.running import Hooked, Ran
from holdfast.kinds.mission.acts import worker
from holdfast.kinds.mission.acts.worker import working
from holdfast.kinds.mission.role.fold import role_state
from holdfast.kinds.mission.role.kind import role_of
from holdfast.session.state import Call


async def hooked(shift: Shift) -> Hooked | None:
    """Return the hooks of this session, or None."""
    role = role_of(shift.state)
    if role is None or role.kind != "worker" or not (role.hooks or role.checks or role.edit_checks):
        return None
    memory = working(shift)
    if memory.hooks is None:
        memory.hooks = await _read(shift, role)
    return memory.hooks if memory.hooks.hooks or memory.hooks.problems else None


async def _read(shift: Shift, role: Role) -> Hooked:
    files: Mapping[str, bytes] = {}
    scripts: dict[str, bytes] = {}
    programs: frozenset[str] = frozenset()
    if role.hooks and role.repo:
        repository = shift.doors.repository(role.repo)
        files = await repository.files(role.base, project.PATHS)
        scripts = {path: content for path, content in files.items() if path.startswith(f"{SCRIPTS}/")}
        if scripts:
            nothing = project.EMPTY_TREES[len(role.base)]
            alone = await repository.graft(nothing, role.base, project.PATHS)
            programs = frozenset(
                each.path for each in await repository.changes(nothing, alone) if each.mode == "100755"
            )
    settings = project.read(files)
    own = project.checks(role.checks, role.edit_checks)
    every = project.Settings((*settings.hooks, *own), settings.problems)
    return Hooked(every, scripts, programs, lambda: role_state(shift.state).hooked)


async def at_stop(shift: Shift, call: Call) -> Ran:
    """Run the hooks of a submission. A `refusal` means that the worker must go on.

    The caller appends the facts in the same decision as the call's result. Raises `HandsLost`, and `HeadMoved` once if
    hands had to be made.
    """
    plan = await hooked(shift)
    if plan is None or not plan.at_stop:
        return Ran()
    if shift.state.hands is None:
        await hands_act.provision(shift)
        raise HeadMoved("hands were made for hooks", folded=shift.decided_at, head=shift.state.seq)
    role = role_of(shift.state)
    working(shift).handed = await worker.look(shift, role) if role is not None and role.ref else ""
    back = sum(seq > shift.state.message_seq for seq in role_state(shift.state).sent_back.values())
    return await running.at_stop(shift, plan, call.call_id, back)
