"""Sessions that a mission opens for its roles, and messages to them: each is one transaction over both logs (S4).

Preparation is idempotent: an unfinished checkout is removed and made again.
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
from holdfast.facts.mission import CriterionChecked, Mission, PlannerOpened, Role, RoleKind
from holdfast.facts.people import UserMessage, UserResume
from holdfast.facts.session import Agent, Limits, Parent, Rule, SessionCreated, SessionUpdated, Workspace
from holdfast.facts.shift import ChildMessaged, ChildOpened
from holdfast.facts.task import FindingNoted, JudgeOpened, TaskHandedIn, TaskInspected, TaskRefused, TaskStarted
from holdfast.hands.user import choose_user
from holdfast.ids import new_session_id
from holdfast.kinds.hooks.settings import EMPTY_TREES
from holdfast.kinds.mission import documents
from holdfast.kinds.mission.conductor.actions import OpenRole, RaiseChildren, TellRole
from holdfast.kinds.mission.fold.state import MissionState, of_mission
from holdfast.kinds.mission.role import briefing
from holdfast.kinds.mission.role.briefing import Past
from holdfast.kinds.mission.role.kind import role_of
from holdfast.kinds.mission.role.tools import SUBMITS
from holdfast.log.base import Post
from holdfast.repo.base import Owner
from holdfast.repo.repository import Repository
from holdfast.session.decide.taint import is_tainted
from holdfast.session.money import path_of
from holdfast.session.tools import CHILD_TOOLS

LOOKING = ("bash", "read", "glob", "grep")
"""Tools of planners and judges besides the one for their submission."""

RULES_CHARACTERS = 32_768
"""Most characters of a project's rules, which are in every context. Longer rules are cut, with a note."""

GUARDED_MAX = 300
"""Most read-only files in a worker's sandbox; each is a separate mount."""

PAGE = 5_000

GO_ON = "The budget or the cap was raised: go on."


class Opening(Acts):
    """Acts of a mission that opens roles. `filled` are prepared folders of unopened children, with their commits."""

    def __init__(self, shift: Shift) -> None:
        super().__init__(shift)
        self.filled: dict[str, str] = {}


def _folders(shift: Shift) -> dict[str, str]:
    assert isinstance(shift.acts, Opening)
    return shift.acts.filled


async def open_role(shift: Shift, action: OpenRole) -> None:
    """Open a child session for a role, in a folder of its own with the files of a commit."""
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
        # Created once per mission: submodules and large files need a `.git`, which a role does not have (S24).
        environment=msgspec.structs.replace(created.environment, submodules=False, lfs=False),
        searchers=created.searchers,
        role=_role(shift.state.session_id, created.mission, mission, action),
    )
    opened = ChildOpened(
        child_id=child_id, call_id="", goal=child.goal, name=child.agent.name, budget_pico=child.limits.budget_pico
    )
    facts = (*action.facts, opened, _what_for(child_id, action))
    await shift.decision(*facts, posts=[shift.post_to(child_id, "created", child)])
    filled = _folders(shift)
    filled.pop(child_id, None)
    for unused in list(filled):  # the conductor has changed its decision since
        shift.doors.discard(shift.doors.workspace(unused, of_repository(created)))
        del filled[unused]


def _child_id(shift: Shift, action: OpenRole) -> str:
    """Derive the child's id from the action, so that the next brain finds the folder after a crash."""
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
    """Fill the child's folder with the files of a commit that are not hidden.

    A folder from a dead shift may be incomplete and is removed. One from this shift is kept for a repeated decision.
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
    """Return a commit, or its tree without hidden files."""
    return await repository.graft(commit, EMPTY_TREES[len(commit)], hidden) if hidden else commit


def of_repository(created: SessionCreated) -> Workspace:
    """Folder template of the mission: checkouts of its repository."""
    assert created.mission is not None
    return msgspec.structs.replace(created.workspace, origin=created.mission.repo)


def owner_of(shift: Shift, workspace: Workspace) -> Owner | None:
    """Return the owner to give to a workspace's files; None where files keep their owner."""
    if shift.doors.uid(workspace) < 0:
        return None
    user = choose_user(workspace)
    return Owner(user.uid, user.gid)


async def guarded(shift: Shift) -> tuple[str, ...]:
    """List the protected files of a worker's base, which its hands mount read-only.

    The ratchet covers new files, and all of them if there are too many to mount.
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
    """Return the project's rules: the root's first; rules of the task's folders follow and take precedence.

    A worker also gets the mission's lessons. A judge never gets them, since they quote workers.
    """
    found = await repository.files(action.commit, documents.PATHS)
    folders = []
    for glob in _scope(mission, action):
        parts = takewhile(lambda part: not set(part) & set("*?["), glob.removeprefix("./").split("/"))
        folders.append(f"{'/'.join(parts)}/.")
    rules = documents.rules_of(found, folders)
    if len(rules) > RULES_CHARACTERS:
        longer = "(The rules are cut here: read the rest in AGENTS.md or CLAUDE.md in the workspace.)"
        rules = f"{rules[:RULES_CHARACTERS]}\n\n{longer}"
    learned = documents.learned(mission.lessons) if action.kind == "worker" else ""
    return "\n\n".join(part for part in (rules, learned) if part)


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
    """Return the mission's agent in a role. Its submission needs no approval."""
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


# --- the goal ------------------------------------------------------------------------------------


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
        again = mission.replan_why or "all tasks of the last plan are over, and criteria are not met"
        why = again if action.round and not action.task_id else ""
        return briefing.planner_goal(mission, past, files, action.task_id, why)
    found = await repository.resolve(action.commit)
    history = await repository.history(action.commit, limit=10)
    tree = found.tree if found is not None else ""
    past = msgspec.structs.replace(past, checked=await _checked(shift, mission, tree, action.criteria))
    return briefing.worker_goal(mission, mission.tasks[action.task_id], past, history, tree)


async def _past(shift: Shift, task_id: str) -> Past:
    """Return the findings of all workers, and the submissions and refusals of a task."""
    facts = await _facts(shift, (FindingNoted, TaskHandedIn, TaskRefused))
    return Past(
        findings=tuple(fact for fact in facts if isinstance(fact, FindingNoted)),
        handed_in=tuple(f for f in facts if isinstance(f, TaskHandedIn) and f.task_id == task_id),
        refused=tuple(f for f in facts if isinstance(f, TaskRefused) and f.task_id == task_id),
    )


async def _checked(
    shift: Shift, mission: MissionState, tree: str, criteria: Sequence[str]
) -> tuple[tuple[int, CriterionChecked], ...]:
    """Return the check runs behind the verdicts on a tree, with their positions."""
    found = (mission.verdict(tree, name) for name in criteria)
    seqs = sorted({verdict.seq for verdict in found if verdict is not None})
    facts = [(seq, await shift.body(seq)) for seq in seqs]
    return tuple((seq, fact) for seq, fact in facts if isinstance(fact, CriterionChecked))


async def _unasked(shift: Shift, mission: MissionState, action: OpenRole) -> tuple[str, ...]:
    """Return the unrequested changes that inspections found in a task's tree, or in all merged trees."""
    trees = {action.tree}
    if not action.task_id:
        trees = {task.inspected_tree for task in mission.tasks.values() if task.status == "merged"}
    facts = await _facts(shift, (TaskInspected,))
    found = {fact.tree: fact.unasked for fact in facts if isinstance(fact, TaskInspected) and fact.tree in trees}
    return tuple(dict.fromkeys(word for unasked in found.values() for word in unasked))


async def _facts(shift: Shift, kinds: tuple[type[Fact], ...]) -> list[Fact]:
    """Return the mission's events of these kinds, oldest first."""
    facts: list[Fact] = []
    after = 0
    while events := await shift.doors.log.read(shift.state.session_id, after=after, limit=PAGE):
        facts.extend(event.fact for event in events if isinstance(event.fact, kinds))
        after = events[-1].seq
    return facts


# --- messages ------------------------------------------------------------------------------------


async def tell_role(shift: Shift, action: TellRole) -> None:
    """Append facts and send a message to a child, in one transaction."""
    said = UserMessage(content=(Text(action.text),))
    told = ChildMessaged(child_id=action.child_id, call_id="", text=action.text)
    await shift.decision(*action.facts, told, posts=[_to(shift, action.child_id, said)])


async def raise_children(shift: Shift, action: RaiseChildren) -> None:
    """Continue children that parked for the budget or a cap. A cap is raised by its original value."""
    facts = [ChildMessaged(child_id=each, call_id="", text=GO_ON) for each in action.child_ids]
    posts = [_to(shift, each, _more(shift, each)) for each in action.child_ids]
    await shift.decision(*facts, posts=posts)


def _more(shift: Shift, child_id: str) -> Fact:
    """Return the event that continues a child, depending on its park reason."""
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
    """Build a post to a child that is delivered at most once for a decision at this head."""
    parent = shift.state.session_id
    return shift.post_to(child_id, f"mission:{parent}:{shift.decided_at}", fact, actor=f"session:{parent}")
