"""Missions: contract, policy, roles, plan, verification, and end."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.hands import HandsProvisioned


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number that a command prints on its last line, and what it has to be.

    `direction` says on which side of `target` is good; `tolerance` is how far off it may be, in the metric's own unit.
    """

    target: float
    tolerance: float = 0.0
    direction: Literal["at_least", "at_most", "equal"] = "at_least"


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command that tells whether a criterion is met: by its exit status, or by the number that it prints.

    `tests`, when there are any, are appended to the command. Checks with the same command can be run together then:
    when that passes, each of them does; when it does not, they are run one by one.

    `canary`, for a command whose runner is unknown, is a command that has to fail in the same tree: the same program on
    input that is wrong, named after `$CANARY`.
    """

    command: str
    tests: tuple[str, ...] = ()
    metric: Metric | None = None
    timeout_s: float = 600.0
    canary: str | msgspec.UnsetType = msgspec.UNSET


class Criterion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that has to hold. Without a check it is a rubric line, which a judge answers with evidence.

    A `guard` held before the work began and must go on to hold: an existing suite, say. With `needs_run` a
    judge cannot tell by reading: only a command that the judge ran shows that it holds.
    """

    id: str
    text: str
    check: Check | None = None
    guard: bool = False
    needs_run: bool = False


class Item(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of a feature list: what is wanted and when it counts as done. A lower `priority` comes first.

    `paths` are globs of what it is about, `depends` the ids of items that come before it; both may be empty.
    """

    id: str
    description: str
    category: str = ""
    steps: tuple[str, ...] = ()
    priority: int = 0
    criteria: tuple[Criterion, ...] = ()
    paths: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()


class Contract(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Definition of done. `protected` are globs of files that no worker may change: tests, configuration of tests and
    CI, the contract itself. `source` is the path of its file, relative to the repository. Files that match `hidden` are
    in no checkout of a worker, planner, or judge; checks that name them are run with them.
    """

    goal: str
    items: tuple[Item, ...]
    protected: tuple[str, ...] = ()
    source: str = ""
    hidden: tuple[str, ...] = ()

    def criteria(self) -> dict[str, Criterion]:
        """All criteria by id, in the order of the items."""
        return {criterion.id: criterion for item in self.items for criterion in item.criteria}


class ContractSealed(Fact, frozen=True, tag="contract.sealed"):
    """The contract counts from here on. `digest` is over its canonical bytes, `pristine` over the protected files."""

    digest: str
    items: int
    criteria: int
    author: str = ""


class ContractAmended(Fact, frozen=True, tag="contract.amended"):
    """The contract was changed by a person, or made stricter. `weakened` are the criteria that became weaker or went.

    `item_id` is the item in the inbox by which a person allowed that.
    """

    wakes = True

    contract: Contract
    digest: str
    author: str
    reason: str = ""
    weakened: tuple[str, ...] = ()
    item_id: str = ""


RoleKind = Literal["initializer", "planner", "worker", "judge"]


class MissionPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Policy of a mission. Each setting is an assumption about models, documented in docs/missions.md.

    `models` and `turns` are by role; a role that is not named has the mission's own. `planner` "items" makes one task
    of each item by code. `judge` sees each task, only the end, or nothing. `gate` checks each branch before it is
    merged, several merged together, or lets branches into an integration branch that a green one follows. `workers` run
    at a time; a worker may hand in `max_iterations` times, then a fresh one begins, `max_attempts` in all;
    `max_replans` plans follow the first, then a user is asked. `judge_tries` bounds asking a judge again. A red check
    is rerun `flake_reruns` times before it counts; one that was never green must pass `confirm_runs` times, and a
    metric is the median of as many runs; after `plateau` tasks without improvement a user is asked. At most `batch`
    branches are checked together. `scope` and `dependencies` decide about changes that were not asked for. `lessons`
    for AGENTS.md are proposed to a user, applied, or not collected; at most `lesson_lines` of them are kept.
    `task_tokens` is the most that a task may need, so that it fits one context. `hooks` enables those of the
    repository; `checks` are commands that run when a worker hands in, `edit_checks` those that run after each write or
    edit.
    """

    planner: Literal["model", "items"] = "model"
    judge: Literal["per_task", "at_end", "off"] = "per_task"
    gate: Literal["each", "batch", "green_branch"] = "batch"
    context: Literal["auto", "compaction", "reset", "hybrid", "off"] = "auto"
    workers: int = 2
    max_iterations: int = 3
    max_attempts: int = 2
    max_replans: int = 2
    judge_tries: int = 3
    batch: int = 8
    flake_reruns: int = 3
    confirm_runs: int = 3
    scope: Literal["refuse", "list"] = "refuse"
    dependencies: Literal["refuse", "list"] = "refuse"
    lessons: Literal["ask", "apply", "off"] = "ask"
    lesson_lines: int = 40
    task_tokens: int = 60_000
    task_budget_pico: int | None = None
    models: dict[str, str] = {}
    turns: dict[str, int] = {}
    hooks: bool = True
    checks: tuple[str, ...] = ()
    edit_checks: tuple[str, ...] = ()
    documents: bool = True
    plateau: int = 3


class Mission(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Mission of a session: its repository, start commit and branch, contract, and policy.

    `name` is in the refs: `refs/heads/holdfast/<name>/main`. `follow` is the full name of the ref whose new commits are
    taken in while the mission works, empty for none.
    """

    name: str
    repo: str
    base: str
    contract: Contract
    follow: str = ""
    policy: MissionPolicy = MissionPolicy()


class Role(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Role of a session in a mission.

    A worker's tree starts as the commit `base` and is committed to `ref` by the harness whenever it parks. `protected`,
    `hidden`, and `scope` are globs; hidden files are not in its folder, and stay as at the base. `hooks`, `checks`, and
    `edit_checks` are as in the mission's policy.
    """

    kind: RoleKind
    mission_id: str = ""
    task_id: str = ""
    repo: str = ""
    base: str = ""
    ref: str = ""
    protected: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    contract_digest: str = ""
    hooks: bool = False
    checks: tuple[str, ...] = ()
    edit_checks: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One task of a plan: what one worker does in one context.

    `criteria` are ids of the contract, `scope` globs of what may be changed (empty: everything unprotected), `depends`
    ids of tasks that are merged first. `tokens` is what the planner thinks it needs; `split` asks for a sub-planner
    whatever that is. `parent` is the task that it is a part of, when a sub-planner made it.
    """

    id: str
    title: str
    criteria: tuple[str, ...]
    scope: tuple[str, ...] = ()
    depends: tuple[str, ...] = ()
    description: str = ""
    tokens: int = 0
    parent: str = ""
    split: bool = False


class MissionOpened(Fact, frozen=True, tag="mission.opened"):
    """Work begins on `base`, which the main line `ref` was set to."""

    name: str
    ref: str
    base: str
    tree: str


class MissionPlanned(Fact, frozen=True, tag="mission.planned"):
    """The first plan. `child_id` is the planner, empty when code made it."""

    tasks: tuple[Task, ...]
    child_id: str = ""
    note: str = ""


class MissionReplanned(Fact, frozen=True, tag="mission.replanned"):
    """A later plan: `tasks` are added, `dropped` are given up. `why` has the verified results and failures."""

    round: int
    tasks: tuple[Task, ...]
    dropped: tuple[str, ...] = ()
    child_id: str = ""
    why: str = ""


class PlannerOpened(Fact, frozen=True, tag="planner.opened"):
    """A planner was opened, in the same transaction: for round 0 the first plan; with a task, for its parts."""

    child_id: str
    round: int
    attempt: int
    task_id: str = ""


class PlanRefused(Fact, frozen=True, tag="plan.refused"):
    """A plan cannot be worked by: what is wrong with it was said to its planner."""

    child_id: str
    problems: tuple[str, ...]


class ReplanAsked(Fact, frozen=True, tag="mission.replan_asked"):
    """A person wants a new plan; `reason` is for the planner."""

    wakes = True

    reason: str = ""


class MissionEscalated(Fact, frozen=True, tag="mission.escalated"):
    """A person is asked how to go on: `tried` is what was done before, `item_id` the item in the inbox."""

    why: str
    tried: tuple[str, ...] = ()
    item_id: str = ""


class MissionFinished(Fact, frozen=True, tag="mission.finished"):
    """The mission is over. `met` and `unmet` are criteria; `head` is the last commit of the main line."""

    status: Literal["done", "failed", "cancelled"]
    head: str
    met: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    detail: str = ""


class VerificationStarted(Fact, frozen=True, tag="verification.started"):
    """Checks are about to run on a clean checkout of `tree`, with the protected files as they were (S25).

    `effect` names what it is for, as the conductor does; `criteria` are those that have no recorded verdict there.
    It is appended before each run, counted by `run` from 0, with the `hands` that it goes to: after a crash the run is
    found there. `key` is that of its verdicts.
    """

    verification_id: str
    effect: str
    tree: str
    criteria: tuple[str, ...]
    commit: str = ""
    key: str = ""
    hands: HandsProvisioned | None = None
    run: int = 0


class CriterionChecked(Fact, frozen=True, omit_defaults=True, tag="criterion.checked"):
    """One run of a check, and what it says about these criteria on that tree.

    `key` is the digest of (tree, contract, environment, pristine files): with a criterion's id it stands for one check
    under one set of circumstances, and is answered once (S25). `flaky` is how many of `runs` failed, when some passed.
    `value` is a metric's. `output` is its end, as data. `note` says why it is red although it may have exited with 0.
    """

    verification_id: str
    tree: str
    criteria: tuple[str, ...]
    outcome: Literal["pass", "fail", "error", "timeout"]
    runs: int
    key: str = ""
    command: str = ""
    exit_code: int | None = None
    value: float | None = None
    output: str = ""
    duration_ms: float = 0.0
    flaky: int = 0
    note: str = ""


class VerificationEnded(Fact, frozen=True, tag="verification.ended"):
    """All its checks have a verdict; or it could not be done, and `error` says why."""

    verification_id: str
    effect: str
    tree: str
    error: str = ""


class WorkSubmitted(Fact, frozen=True, tag="work.submitted"):
    """A role handed in what it was opened for: a worker its work, a planner a plan, a judge a verdict."""

    call_id: str
    kind: RoleKind
    body: dict[str, Any]


class FlakeNoted(Fact, frozen=True, tag="flake.noted"):
    """A check said different things about the same tree. Its verdict is that of its reruns, never a pass by itself."""

    criterion: str
    tree: str
    runs: int
    failures: int


class LessonProposed(Fact, frozen=True, tag="lesson.proposed"):
    """A line for AGENTS.md, with the failure that earned it: events of this log, or of the session `child_id`.

    `key` names what went wrong: it earns one line, whatever its words.
    """

    line: str
    evidence: tuple[int, ...]
    child_id: str = ""
    item_id: str = ""
    key: str = ""


class LessonApplied(Fact, frozen=True, tag="lesson.applied"):
    """A line went into AGENTS.md, by a person or by policy."""

    line: str
    by: str
    commit: str = ""
