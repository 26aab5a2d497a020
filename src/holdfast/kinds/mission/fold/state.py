"""State of a mission: its contract, plan, verdicts, and main branch. Folded from events alone."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.facts.codec import Event
from holdfast.facts.hands import HandsProvisioned
from holdfast.facts.mission import Contract, MissionPolicy, RoleKind, Task
from holdfast.facts.shift import ChildFinished
from holdfast.facts.task import Ability, TaskJudged
from holdfast.session.state import State

TaskStatus = Literal[
    "planned", "working", "handed_in", "inspected", "judging", "queued", "merged",
    "blocked", "infeasible", "failed", "dropped",
]  # fmt: skip
"""`inspected`: no violation was found, its checks run; `judging`: they pass, and a judge looks at the work."""

OVER = frozenset({"merged", "blocked", "infeasible", "failed", "dropped"})


class Verdict(msgspec.Struct, array_like=True):
    """Outcome of a criterion's check on a tree. `seq` is its `criterion.checked`, `key` the conditions of the run.

    `note` explains a red verdict with a green exit status.
    """

    seq: int
    outcome: Literal["pass", "fail", "error", "timeout"]
    key: str = ""
    note: str = ""


class CheckAbility(msgspec.Struct, array_like=True):
    """Kinds of probes on which a criterion's check failed on `tree`, without worker changes: latest `check.probed`."""

    seq: int
    tree: str
    digest: str
    canary: Ability
    flip: Ability
    data: Ability
    hollow: Ability
    reports: bool = False


class Proof(msgspec.Struct, array_like=True):
    """Latest `check.proved` of a criterion: its result and tree."""

    seq: int
    tree: str
    shown: tuple[str, ...] = ()


class TaskState(msgspec.Struct):
    """Task and its progress.

    `attempt` counts workers, `iterations` the refused submissions of the present one. `base` is the commit that it
    works on, `pristine` the latest commit of the followed branch in it; `commit` and `tree` were submitted last.
    `judge_id` is the judge of that tree, `judge_tries` counts its judges, `verdict` is the last one. `best_commit`
    passed `best_score` of its criteria, more than any other. `refusals` counts by kind. `violations` are those of the
    ratchet or the scope in `inspected_tree`; `only_scope` means that none is the ratchet's; `changed` counts the files
    that differ there from the base. `stopped` means that the worker stopped without submitting `tree`. The next worker
    starts from the commit `start` when it is set; `conflicts` counts workers that began after a merge conflict.
    `since_seq` is the position at which the status changed.
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
    """Merge that was recorded as an intent and has no outcome yet (S23)."""

    seq: int
    batch: int
    ref: str
    onto: str
    tasks: tuple[str, ...]
    commit: str
    tree: str
    base: str = ""


class OpenVerification(msgspec.Struct):
    """Verification that has not ended. `hands` are those of its latest runs, `key` is the key of its verdicts."""

    seq: int
    verification_id: str
    effect: str
    tree: str
    criteria: tuple[str, ...]
    hands: tuple[HandsProvisioned, ...] = ()
    key: str = ""


BASE = "base"
"""Effect that verifies the base before the work."""

BEFORE = "before:"
"""Prefix of effects that run a task's checks before its first worker."""

LAST = "last:"
"""Prefix of effects that prove all checks once more on the last tree of a mission."""


def only_looks(effect: str) -> bool:
    """Return True if a verification only inspects a tree without a worker's work, where a pass may be by chance."""
    return effect == BASE or effect.startswith(BEFORE)


class ChildRole(msgspec.Struct):
    """Role of a child, and the task or tree that it was opened for."""

    kind: RoleKind
    task_id: str = ""
    tree: str = ""
    criteria: tuple[str, ...] = ()
    round: int = 0


class MissionState(msgspec.Struct):
    """State of a mission, in addition to the kernel's state of its session.

    `main` is the commit of the main branch, `main_tree` its tree; all of `passed` pass there (S26). `verdicts` are by
    tree and criterion, for trees that may still matter. `tasks` are in the order of the plan. `groups` are parts of a
    red batch that are merged on their own, the next one first. `reports` are ends of children that the conductor has
    not handled yet. `followed` is the commit of the followed branch that is in the main branch, `moved` its new commit,
    seen at `moved_seq`; `refused_base` is one with which the main branch would be red. `astray` is the commit to which
    another process moved the main branch. `red_trees` are refused merges. `raised_seq` is the position at which a
    budget was last raised. `rubric` has the positions at which judges accepted criteria; `stale` those of merges that
    changed what a judge had looked at: such a criterion is neither met nor unmet until it is judged again. `failures`
    describe failed attempts, for the next plan and for the user. `lessons` are lines that workers get besides the
    rules. `allowed` are protected paths that a user allowed to change, with digests of their content. `noted_seq` is
    the position up to which the documents were last written. `measured` are values of metrics by tree and criterion,
    `curves` those on the main branch with their positions. `abilities` and `proofs` are by criterion; `proven_trees`
    are the latest trees on which a check was proven able to fail; `greened` has the position at which each criterion
    passed for the first time, on any tree.
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
        """Return the recorded verdict of a criterion on a tree, if any."""
        return self.verdicts.get(tree, {}).get(criterion)

    def live(self) -> list[TaskState]:
        """Unfinished tasks, in the order of the plan."""
        return [task for task in self.tasks.values() if task.status not in OVER]


def mission_of(state: State) -> MissionState | None:
    """Return the state of a mission's session; None for any other session."""
    own = state.tenant.own
    return own if isinstance(own, MissionState) else None


def of_mission(state: State) -> MissionState:
    """Return the state of a mission's session."""
    own = state.tenant.own
    assert isinstance(own, MissionState)
    return own


FAILURES_KEPT = 60


def turn(task: TaskState, status: TaskStatus, event: Event) -> None:
    """Set the status of a task and the position of the change."""
    task.status, task.since_seq = status, event.seq


def note_failure(mission: MissionState, words: str) -> None:
    """Keep a failure, for the next plan and for the user."""
    mission.failures.append(words[:500])
    del mission.failures[:-FAILURES_KEPT]
