"""What a mission's state knows: its contract, its plan, its verdicts, its main line. Folded from events alone."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.facts.child import ChildFinished
from holdfast.facts.codec import Event
from holdfast.facts.contract import Contract
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.mission import MissionPolicy, RoleKind, Task
from holdfast.facts.proof import Ability
from holdfast.facts.task import TaskJudged
from holdfast.session.state import State

TaskStatus = Literal[
    "planned", "working", "handed_in", "inspected", "judging", "queued", "merged",
    "blocked", "infeasible", "failed", "dropped",
]  # fmt: skip
"""`inspected`: nothing forbidden was found, its criteria are checked; `judging`: they pass, a judge looks."""

OVER = frozenset({"merged", "blocked", "infeasible", "failed", "dropped"})


class Verdict(msgspec.Struct, array_like=True):
    """What a check said about a criterion on a tree. `seq` is its `criterion.checked`, `key` says under what.

    `note` says why it is red, where its exit status does not.
    """

    seq: int
    outcome: Literal["pass", "fail", "error", "timeout"]
    key: str = ""
    note: str = ""


class CheckAbility(msgspec.Struct, array_like=True):
    """How the check of a criterion was seen to fail on `tree`, which no worker changed: its latest `check.probed`."""

    seq: int
    tree: str
    digest: str
    canary: Ability
    flip: Ability
    data: Ability
    hollow: Ability
    reports: bool = False


class Proof(msgspec.Struct, array_like=True):
    """What the latest `check.proved` of a criterion showed, and on which tree."""

    seq: int
    tree: str
    shown: tuple[str, ...] = ()


class TaskState(msgspec.Struct):
    """A task and how far it is.

    `attempt` counts workers, `iterations` what the present one handed in and was sent back. `base` is the commit it
    works on, `pristine` the commit of people that is in it; `commit` and `tree` are what was last handed in.
    `judge_id` is the judge of that tree, `judge_tries` how often one was asked about it, `verdict` what the last one
    said. `best_commit` passed `best_score` of its criteria, more than any other. `refusals` counts by kind.
    `violations` are what the ratchet or the scope refuses of `inspected_tree`, `only_scope` says that none is the
    ratchet's, `changed` how many files differ there from the base. `stopped` says that nobody handed `tree` in. The
    next worker starts from the commit `start`, when it is set; `conflicts` counts workers begun since the main line
    had moved. `since_seq` is where its status changed.
    """

    task: Task
    status: TaskStatus = "planned"
    child_id: str = ""
    ref: str = ""
    attempt: int = 0
    iterations: int = 0
    base: str = ""
    pristine: str = ""
    commit: str = ""
    tree: str = ""
    judge_id: str = ""
    judge_tries: int = 0
    judged: bool = False
    verdict: TaskJudged | None = None
    best_commit: str = ""
    best_score: int = -1
    refusals: dict[str, int] = {}
    violations: tuple[str, ...] = ()
    only_scope: bool = False
    changed: int = 0
    stopped: bool = False
    inspected_tree: str = ""
    start: str = ""
    conflicts: int = 0
    unasked: int = 0
    since_seq: int = 0
    why: str = ""


class OpenMerge(msgspec.Struct):
    """A merge that was intended and has no outcome yet (S23)."""

    seq: int
    batch: int
    ref: str
    onto: str
    tasks: tuple[str, ...]
    commit: str
    tree: str
    base: str = ""


class OpenVerification(msgspec.Struct):
    """A verification without an end. `hands` are those of its latest runs; `key` is that of its verdicts."""

    seq: int
    verification_id: str
    effect: str
    tree: str
    criteria: tuple[str, ...]
    hands: tuple[HandsProvisioned, ...] = ()
    key: str = ""


BASE = "base"
"""The effect that finds out what holds at the base."""

BEFORE = "before:"
"""The beginning of effects that find out what fails before a task's first worker."""

LAST = "last:"
"""The beginning of effects that prove all checks once more on the tree that a mission ends with."""


def only_looks(effect: str) -> bool:
    """Whether a verification only finds out what holds without a worker's work: a pass may be by chance there."""
    return effect == BASE or effect.startswith(BEFORE)


class ChildRole(msgspec.Struct):
    """What a child of a mission was opened for."""

    kind: RoleKind
    task_id: str = ""
    tree: str = ""
    criteria: tuple[str, ...] = ()
    round: int = 0


class MissionState(msgspec.Struct):
    """Everything that the conductor looks at, beside the session's own state.

    `main` is the commit of the main line, `main_tree` its tree; all of `passed` pass there (S26). `green` says that its
    verdicts are complete. `verdicts` are by tree and criterion, for trees that may still matter. `tasks` are in the
    order of the plan. `groups` are parts of a red batch that are to be merged on their own, the next one first.
    `reports` are ends of children that nothing has answered yet. `followed` is the commit of the followed branch that
    is in the main line, `moved` where that branch is now when it has new ones, since `moved_seq`. `astray` is where the
    main line was found, when somebody moved it. `red_trees` are merges that were refused. `raised_seq` is where money
    was last raised. `rubric` has where a judge accepted a criterion, `stale` where a merge changed what that judge had
    looked at: it is neither met nor unmet until it is judged again. With `refused_base` it would not be green.
    `failures` are words of what was tried, for the next plan and for a person. `lessons` are lines that workers are
    given beside the rules. `allowed` are protected paths that a person allowed to be changed, with digests of their
    content. `noted_seq` is where the documents were last written. `measured` are values of metrics by tree and
    criterion, `curves` those of the main line, each with where it was found. `abilities` and `proofs` are by criterion,
    `proven_trees` the latest trees on which a check was proven able to fail, `greened` where each criterion passed for
    the first time, on whatever tree.
    """

    contract: Contract
    policy: MissionPolicy
    opened_seq: int = 0
    digest: str = ""
    ref: str = ""
    main: str = ""
    main_tree: str = ""
    followed: str = ""
    passed: dict[str, int] = {}
    verdicts: dict[str, dict[str, Verdict]] = {}
    tasks: dict[str, TaskState] = {}
    roles: dict[str, ChildRole] = {}
    reports: dict[str, ChildFinished] = {}
    planned: bool = False
    round: int = 0
    planner_id: str = ""
    plan_refusals: int = 0
    replan_seq: int = 0
    replan_why: str = ""
    merge: OpenMerge | None = None
    batches: int = 0
    groups: list[tuple[str, ...]] = []
    red_trees: list[str] = []
    verifications: dict[str, OpenVerification] = {}
    broken: dict[str, int] = {}
    moved: str = ""
    moved_seq: int = 0
    astray: str = ""
    refused_base: str = ""
    raised_seq: int = 0
    final_judge: str = ""
    final_tree: str = ""
    final_tries: int = 0
    final_verdict: TaskJudged | None = None
    final_passed: dict[str, int] = {}
    rubric: dict[str, int] = {}
    stale: dict[str, int] = {}
    escalated_seq: int = 0
    noted_seq: int = 0
    failures: list[str] = []
    lessons: list[str] = []
    flakes: dict[str, int] = {}
    measured: dict[str, dict[str, float]] = {}
    curves: dict[str, list[tuple[int, float]]] = {}
    allowed: dict[str, str] = {}
    abilities: dict[str, CheckAbility] = {}
    proofs: dict[str, Proof] = {}
    proven_trees: list[str] = []
    greened: dict[str, int] = {}
    finished: Literal["", "done", "failed", "cancelled"] = ""

    def verdict(self, tree: str, criterion: str) -> Verdict | None:
        """The recorded verdict, None when there is none."""
        return self.verdicts.get(tree, {}).get(criterion)

    def live(self) -> list[TaskState]:
        """Tasks that are not over, in the order of the plan."""
        return [task for task in self.tasks.values() if task.status not in OVER]


def mission_of(state: State) -> MissionState | None:
    """The mission that a session is, None for any other session."""
    own = state.tenant.own
    return own if isinstance(own, MissionState) else None


def of_mission(state: State) -> MissionState:
    """The mission that a session is. Only for sessions that are one."""
    own = state.tenant.own
    assert isinstance(own, MissionState)
    return own


FAILURES_KEPT = 60


def turn(task: TaskState, status: TaskStatus, event: Event) -> None:
    """A task is somewhere else now."""
    task.status, task.since_seq = status, event.seq


def note_failure(mission: MissionState, words: str) -> None:
    """Keep what was tried, for the next plan and for a person."""
    mission.failures.append(words[:500])
    del mission.failures[:-FAILURES_KEPT]
