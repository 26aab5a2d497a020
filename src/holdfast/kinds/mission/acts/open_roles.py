"""Sessions that a mission opens for its roles: each act is one transaction over both logs (S4).

What comes before the transaction can be repeated: a checkout that was cut short is cleared away and made again. A
folder whose session was never opened belongs to nobody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import count, takewhile
from pathlib import Path

import msgspec

from holdfast.brain.shift import Acts, Shift
from holdfast.errors import RepositoryUnfit
from holdfast.facts.base import Fact, Text
from holdfast.facts.child import ChildMessaged, ChildOpened
from holdfast.facts.mission import CriterionChecked, Mission, PlannerOpened, Role, RoleKind
from holdfast.facts.session import Agent, Environment, Limits, Parent, Rule, SessionCreated, SessionUpdated, Workspace
from holdfast.facts.task import FindingNoted, JudgeOpened, TaskHandedIn, TaskInspected, TaskRefused, TaskStarted
from holdfast.facts.user import UserMessage, UserResume
from holdfast.hands.user import choose_user
from holdfast.ids import new_session_id
from holdfast.kinds.mission import documents
from holdfast.kinds.mission.conductor.actions import OpenRole, RaiseChildren, TellRole
from holdfast.kinds.mission.fold.state import MissionState, of_mission
from holdfast.kinds.mission.role import briefing
from holdfast.kinds.mission.role.briefing import Past
from holdfast.kinds.mission.role.hooks import EMPTY_TREES
from holdfast.kinds.mission.role.kind import role_of
from holdfast.kinds.mission.role.tools import SUBMITS
from holdfast.log.base import Post
from holdfast.repo.base import Owner
from holdfast.repo.repository import Repository
from holdfast.session.decide.taint import is_tainted
from holdfast.session.money import path_of
from holdfast.session.tools import CHILD_TOOLS

LOOKING = ("bash", "read", "glob", "grep")
"""What planners and judges work with, beside the tool that they hand in with."""

RULES_CHARACTERS = 32_768
"""The rules of a project stand in every context: longer ones are cut, and their reader is told."""

GUARDED_MAX = 300
"""Each file that is shown read-only is a mount of its own."""

PAGE = 5_000

GO_ON = "There is more to spend now: go on."


class Opening(Acts):
    """A mission that opens roles. `filled` are folders that were made for children that are not opened yet, each with
    its commit.
    """

    def __init__(self, shift: Shift) -> None:
        super().__init__(shift)
        self.filled: dict[str, str] = {}


def _folders(shift: Shift) -> dict[str, str]:
    assert isinstance(shift.acts, Opening)
    return shift.acts.filled


async def open_role(shift: Shift, action: OpenRole) -> None:
    """Open a child for a role, in a folder of its own with the files of a commit."""
    created, mission = shift.state.created, of_mission(shift.state)
    assert created is not None
    assert created.mission is not None
    assert mission is not None
    child_id = _child_id(shift, action)
    repository = shift.doors.repository(created.mission.repo)
    workspace = await _fill(shift, repository, child_id, action.commit, mission.contract.hidden)
    up = created.parent
    child = SessionCreated(
        goal=await _goal(shift, repository, action, mission),
        agent=_agent(created.agent, mission, action),
        workspace=workspace,
        limits=_limits(shift.state.limits, mission, action.kind),
        rules=await _rules(repository, action, mission),
        accounts=(child_id, *path_of(created, shift.state.session_id)),
        program=created.program,
        criteria=briefing.criterion_lines(mission, action.criteria) if action.kind == "worker" else (),
        parent=Parent(
            session_id=shift.state.session_id,
            call_id="",
            depth=(up.depth if up else 0) + 1,
            root=(up.root if up else "") or shift.state.session_id,
            tainted=is_tainted(shift.state),
        ),
        people=msgspec.structs.replace(created.people, owner=shift.state.owner),
        hands=created.hands,
        egress=shift.state.outside.policy,
        environment=_environment(created),
        searchers=created.searchers,
        role=_role(shift.state.session_id, created.mission, mission, action),
    )
    opened = ChildOpened(
        child_id=child_id, call_id="", goal=child.goal, name=child.agent.name, budget_pico=child.limits.budget_pico
    )
    facts = (*action.facts, opened, _what_for(child_id, action))
    await shift.decision(*facts, posts=[shift.post_to(child_id, "created", child)])
    _folders(shift).pop(child_id, None)
    _clear(shift, of_repository(created))


def _child_id(shift: Shift, action: OpenRole) -> str:
    """The id of the child for an action. It follows from what the mission is about to do, so that whoever takes over
    finds the folder that was begun.
    """
    state = shift.state
    what = (state.session_id, action.kind, action.task_id, action.attempt, action.round, action.commit)
    for number in count():
        drawn = hashlib.sha256(" ".join(map(str, (*what, number))).encode()).digest()
        child_id = new_session_id(state.created_us, lambda size, drawn=drawn: drawn[:size])
        if child_id not in state.children:
            return child_id
    raise AssertionError("numbers do not end")


def _what_for(child_id: str, action: OpenRole) -> Fact:
    if action.kind == "worker":
        return TaskStarted(
            task_id=action.task_id, child_id=child_id, attempt=action.attempt, base=action.base, ref=action.ref
        )
    if action.kind == "judge":
        return JudgeOpened(
            child_id=child_id,
            tree=action.tree,
            criteria=action.criteria,
            attempt=action.attempt,
            task_id=action.task_id,
        )
    return PlannerOpened(child_id=child_id, round=action.round, attempt=action.attempt, task_id=action.task_id)


# --- the folder ----------------------------------------------------------------------------------


async def _fill(shift: Shift, repository: Repository, child_id: str, commit: str, hidden: Sequence[str]) -> Workspace:
    """The child's folder with the files of a commit that are not hidden.

    Whatever a shift that died has left there is cleared away: nobody can tell how far it came. What this one made
    stays while the mission decides again.
    """
    created = shift.state.created
    assert created is not None
    near = of_repository(created)
    workspace = shift.doors.workspace(child_id, near)
    if _folders(shift).get(child_id) == commit:
        return workspace
    shift.doors.discard(workspace)
    workspace = shift.doors.workspace(child_id, near)
    shown = await without(repository, commit, hidden)
    await repository.checkout(shown, Path(workspace.path), user=owner_of(shift, workspace))
    _folders(shift)[child_id] = commit
    return workspace


async def without(repository: Repository, commit: str, hidden: Sequence[str]) -> str:
    """A commit, or its tree without what is hidden."""
    return await repository.graft(commit, EMPTY_TREES[len(commit)], hidden) if hidden else commit


def of_repository(created: SessionCreated) -> Workspace:
    """What folders of a mission are like: checkouts of its repository."""
    assert created.mission is not None
    return msgspec.structs.replace(created.workspace, origin=created.mission.repo)


def _clear(shift: Shift, near: Workspace) -> None:
    """Remove the folders that were filled for what was then decided otherwise."""
    for child_id in list(_folders(shift)):
        shift.doors.discard(shift.doors.workspace(child_id, near))
        del _folders(shift)[child_id]


def owner_of(shift: Shift, workspace: Workspace) -> Owner | None:
    """Whose the files of a workspace are; None where nobody asks."""
    if shift.doors.uid(workspace) < 0:
        return None
    user = choose_user(workspace)
    return Owner(user.uid, user.gid)


async def guarded(shift: Shift) -> tuple[str, ...]:
    """The protected files that a worker began with, which its hands show read-only. New ones are the ratchet's.

    What is too much to show file by file is left to the ratchet as well.
    """
    role = role_of(shift.state)
    if role is None or role.kind != "worker" or not role.protected:
        return ()
    try:
        found = await shift.doors.repository(role.repo).files(role.base, role.protected)
    except RepositoryUnfit:
        return ()
    return tuple(sorted(found)) if len(found) <= GUARDED_MAX else ()


async def _rules(repository: Repository, action: OpenRole, mission: MissionState) -> str:
    """The project's rules, the root's first; those of a folder that the task is in come later and go before them.

    A worker has the lines below them that were learned in this mission; they quote workers, so a judge never does.
    """
    found = await repository.files(action.commit, documents.PATHS)
    rules = documents.rules_of(found, [f"{_literal(glob)}/." for glob in _scope(mission, action)])
    if len(rules) > RULES_CHARACTERS:
        longer = "(The rules are longer than this: read AGENTS.md or CLAUDE.md in the workspace.)"
        rules = f"{rules[:RULES_CHARACTERS]}\n\n{longer}"
    learned = documents.learned(mission.lessons) if action.kind == "worker" else ""
    return "\n\n".join(part for part in (rules, learned) if part)


def _literal(glob: str) -> str:
    """The path that a glob begins with, up to where it stands for several."""
    return "/".join(takewhile(lambda part: not set(part) & set("*?["), glob.removeprefix("./").split("/")))


# --- the session ---------------------------------------------------------------------------------


def _scope(mission: MissionState, action: OpenRole) -> tuple[str, ...]:
    task = mission.tasks.get(action.task_id)
    return task.task.scope if task is not None else ()


def _role(mission_id: str, opened: Mission, mission: MissionState, action: OpenRole) -> Role:
    source = (mission.contract.source,) if mission.contract.source else ()
    worker = action.kind == "worker"
    return Role(
        kind=action.kind,
        mission_id=mission_id,
        task_id=action.task_id,
        repo=opened.repo,
        base=action.commit if worker else action.base,
        ref=action.ref if worker else "",
        protected=tuple(dict.fromkeys((*mission.contract.protected, *source))),
        scope=_scope(mission, action),
        contract_digest=mission.digest,
        hooks=worker and mission.policy.hooks,
        checks=mission.policy.checks if worker else (),
        edit_checks=mission.policy.edit_checks if worker else (),
        hidden=mission.contract.hidden if worker else (),
    )


def _agent(mine: Agent, mission: MissionState, action: OpenRole) -> Agent:
    """The mission's agent in a role. It hands in without asking anybody."""
    tool = SUBMITS[action.kind]
    own = mission.policy.models.get(action.kind, "")
    other = bool(own) and own != mine.model
    if action.kind == "worker":
        tools = (*(each for each in mine.tools if each not in CHILD_TOOLS), tool)
    else:
        tools = (*LOOKING, tool)
    return msgspec.structs.replace(
        mine,
        model=own or mine.model,
        fallbacks=() if other else mine.fallbacks,
        name=f"{action.kind} {action.task_id}".strip(),
        tools=tuple(dict.fromkeys(tools)),
        custom=mine.custom if action.kind == "worker" else (),
        rules=(*mine.rules, Rule(tool, "allow")),
    )


def _limits(mine: Limits, mission: MissionState, kind: RoleKind) -> Limits:
    policy = mission.policy
    return msgspec.structs.replace(
        mine,
        budget_pico=policy.task_budget_pico,
        max_turns=policy.turns.get(kind, mine.max_turns),
        context=msgspec.structs.replace(mine.context, strategy=policy.context),
    )


def _environment(created: SessionCreated) -> Environment:
    """The mission's own, which is made once. Submodules and large files need a `.git`, and a role has none (S24)."""
    return msgspec.structs.replace(created.environment, submodules=False, lfs=False)


# --- what it is told -----------------------------------------------------------------------------


async def _goal(shift: Shift, repository: Repository, action: OpenRole, mission: MissionState) -> str:
    if action.kind == "judge":
        past = Past(
            checked=await _checked(shift, mission, action.tree, action.criteria),
            unasked=await _unasked(shift, mission, action),
        )
        sides = [await without(repository, each, mission.contract.hidden) for each in (action.base, action.commit)]
        diff = await repository.diff(*sides, max_bytes=4 * briefing.DIFF_CHARACTERS)
        return briefing.judge_goal(mission, action.criteria, action.tree, diff, past)
    past = await _past(shift, action.task_id)
    if action.kind == "planner":
        files = sorted(await repository.files(await without(repository, action.commit, mission.contract.hidden)))
        return briefing.planner_goal(mission, past, files, action.task_id, _why_again(mission, action))
    found = await repository.resolve(action.commit)
    history = await repository.history(action.commit, limit=10)
    tree = found.tree if found is not None else ""
    past = msgspec.structs.replace(past, checked=await _checked(shift, mission, tree, action.criteria))
    return briefing.worker_goal(mission, mission.tasks[action.task_id], past, history, tree)


def _why_again(mission: MissionState, action: OpenRole) -> str:
    if action.task_id or not action.round:
        return ""
    return mission.replan_why or "all tasks of the last plan are over, and criteria are not met"


async def _past(shift: Shift, task_id: str) -> Past:
    """What workers said, and what of this task was sent back."""
    facts = await _facts(shift, (FindingNoted, TaskHandedIn, TaskRefused))
    return Past(
        findings=tuple(fact for fact in facts if isinstance(fact, FindingNoted)),
        handed_in=tuple(f for f in facts if isinstance(f, TaskHandedIn) and f.task_id == task_id),
        refused=tuple(f for f in facts if isinstance(f, TaskRefused) and f.task_id == task_id),
    )


async def _checked(
    shift: Shift, mission: MissionState, tree: str, criteria: Sequence[str]
) -> tuple[tuple[int, CriterionChecked], ...]:
    """The runs of checks that the verdicts on a tree come from, with their positions."""
    found = (mission.verdict(tree, name) for name in criteria)
    seqs = sorted({verdict.seq for verdict in found if verdict is not None})
    facts = [(seq, await shift.body(seq)) for seq in seqs]
    return tuple((seq, fact) for seq, fact in facts if isinstance(fact, CriterionChecked))


async def _unasked(shift: Shift, mission: MissionState, action: OpenRole) -> tuple[str, ...]:
    """Changes that nobody asked for, as inspections found them: in a task's tree, or in all that was merged."""
    trees = {action.tree}
    if not action.task_id:
        trees = {task.inspected_tree for task in mission.tasks.values() if task.status == "merged"}
    facts = await _facts(shift, (TaskInspected,))
    found = {fact.tree: fact.unasked for fact in facts if isinstance(fact, TaskInspected) and fact.tree in trees}
    return tuple(dict.fromkeys(word for unasked in found.values() for word in unasked))


async def _facts(shift: Shift, kinds: tuple[type[Fact], ...]) -> list[Fact]:
    """The mission's events of these kinds, oldest first."""
    facts: list[Fact] = []
    after = 0
    while events := await shift.doors.log.read(shift.state.session_id, after=after, limit=PAGE):
        facts.extend(event.fact for event in events if isinstance(event.fact, kinds))
        after = events[-1].seq
    return facts


# --- later ---------------------------------------------------------------------------------------


async def tell_role(shift: Shift, action: TellRole) -> None:
    """Append facts and say something to a child: one transaction."""
    said = UserMessage(content=(Text(action.text),))
    told = ChildMessaged(child_id=action.child_id, call_id="", text=action.text)
    await shift.decision(*action.facts, told, posts=[_to(shift, action.child_id, said)])


async def raise_children(shift: Shift, action: RaiseChildren) -> None:
    """Have children go on that stopped for money or a cap. A cap is raised by as much as it was at first."""
    facts = [ChildMessaged(child_id=each, call_id="", text=GO_ON) for each in action.child_ids]
    posts = [_to(shift, each, _more(shift, each)) for each in action.child_ids]
    await shift.decision(*facts, posts=posts)


def _more(shift: Shift, child_id: str) -> Fact:
    """What lets a child go on, by the reason that it stopped for."""
    mission = of_mission(shift.state)
    report = mission.reports.get(child_id)
    role = mission.roles.get(child_id)
    if report is None or role is None:
        return UserResume(reason=GO_ON)
    limits = _limits(shift.state.limits, mission, role.kind)
    if report.reason == "cap":
        return SessionUpdated(max_turns=report.turns + limits.max_turns)
    if report.reason == "context":
        return SessionUpdated(context_tokens=limits.context_tokens)
    return UserResume(reason=GO_ON)


def _to(shift: Shift, child_id: str, fact: Fact) -> Post:
    """A post to a child, once for what was decided at this head."""
    parent = shift.state.session_id
    return shift.post_to(child_id, f"mission:{parent}:{shift.decided_at}", fact, actor=f"session:{parent}")
