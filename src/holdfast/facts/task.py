"""Tasks, merges, commits, and the probes of checks."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.facts.base import Fact

HandInStatus = Literal["done", "blocked", "infeasible", "stopped"]
"""Status that a worker reports. `stopped` is set by the harness for a tree left without handing in."""

RefusalKind = Literal["ratchet", "scope", "checks", "judge", "conflict", "regression", "empty", "silent"]


class TaskStarted(Fact, frozen=True, tag="task.started"):
    """A worker was opened for a task, in the same transaction. `attempt` counts workers from 1."""

    task_id: str
    child_id: str
    attempt: int
    base: str
    ref: str


class TaskHandedIn(Fact, frozen=True, tag="task.handed_in"):
    """A worker handed in. Its report is data: only `commit` and `tree`, which the harness made, count."""

    task_id: str
    child_id: str
    status: HandInStatus
    commit: str = ""
    tree: str = ""
    notes: str = ""
    concerns: tuple[str, ...] = ()
    deviations: tuple[str, ...] = ()
    next: str = ""


class FindingNoted(Fact, frozen=True, tag="finding.noted"):
    """A finding of a worker that others may need: data, with its source."""

    task_id: str
    child_id: str
    text: str


class TaskInspected(Fact, frozen=True, tag="task.inspected"):
    """Findings of the harness in the difference between a task's base and its tree. `violations` are refused.

    `unasked` are unrequested changes that are accepted, in words. `allowed` are protected paths that a user allowed to
    be changed, with the digests of their content, empty for one that may be gone.
    """

    task_id: str
    tree: str
    files: tuple[str, ...] = ()
    lines: int = 0
    violations: tuple[Violation, ...] = ()
    unasked: tuple[str, ...] = ()
    allowed: dict[str, str] = {}


class Violation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that the ratchet or the scope refuses. `rule` is its name, such as `test_deleted`."""

    rule: str
    path: str
    detail: str = ""


class RatchetViolated(Fact, frozen=True, tag="ratchet.violated"):
    """A worker's tree weakens what is protected. It is refused, and the worker is told."""

    task_id: str
    tree: str
    violations: tuple[Violation, ...]


class TaskRefused(Fact, frozen=True, tag="task.refused"):
    """Work was returned to its worker: one actionable issue per problem, with evidence.

    With `restart` another worker starts over from the base.
    """

    task_id: str
    child_id: str
    kind: RefusalKind
    issues: tuple[str, ...]
    tree: str = ""
    evidence: tuple[int, ...] = ()
    restart: bool = False


class JudgeOpened(Fact, frozen=True, tag="judge.opened"):
    """A judge was opened for a task's tree, in the same transaction; without a task, for the whole mission."""

    child_id: str
    tree: str
    criteria: tuple[str, ...]
    attempt: int
    task_id: str = ""


class Judged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A judge's verdict on one criterion: its evidence (a file with its line, an event), and an issue when it fails."""

    criterion: str
    passes: bool
    evidence: tuple[str, ...] = ()
    issue: str = ""


class TaskJudged(Fact, frozen=True, tag="task.judged"):
    """Verdict of a judge. `refused` says why it does not count, empty when it does."""

    child_id: str
    tree: str
    decision: Literal["pass", "fail", "restart", "escalate"]
    criteria: tuple[Judged, ...] = ()
    task_id: str = ""
    reason: str = ""
    refused: str = ""


class TaskQueued(Fact, frozen=True, tag="task.queued"):
    """A task's tree met its requirements and waits to be merged."""

    task_id: str
    commit: str
    tree: str


class TaskEnded(Fact, frozen=True, tag="task.ended"):
    """A task is over. `best` is the commit of its best iteration, when it was not merged."""

    task_id: str
    status: Literal["merged", "blocked", "infeasible", "failed", "dropped"]
    why: str = ""
    best: str = ""


class HookFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A settings file of hooks or a script of theirs, as the user accepted it. `program` means executable."""

    path: str
    content: str
    program: bool = False


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Checks, commits, and hooks of a plain session (`holdfast run`).

    `until` are commands that must succeed in a fresh sandbox, on a copy of the workspace, before the session is done.
    Failures go back to the model at most `sent_back_max` times in a row; then a user is asked. Each command may take
    `timeout_s`. With `commit`, the workspace is committed to `refs/heads/holdfast/<session>` of the repository `repo`
    whenever the session parks or ends, on top of the commit `base`. `hooks` are the project's, which run around the
    agent's calls and when it stops; `.claude` in the workspace does not count.
    """

    until: tuple[str, ...] = ()
    sent_back_max: int = 5
    timeout_s: float = 600.0
    repo: str = ""
    base: str = ""
    commit: bool = False
    hooks: tuple[HookFile, ...] = ()


class RepoCommitted(Fact, frozen=True, tag="repo.committed"):
    """A working tree was committed to `ref`, a branch of the mission. `wip` says that its work was not handed in.

    Documents of a mission tell of events up to `through_seq`. `left_out` are the first of the paths that some system
    takes for `.git`, which were not committed. `by_checks` are the first of the paths that hooks or checks of the
    project wrote when the worker handed in: they are as the worker left them.
    """

    ref: str
    commit: str
    tree: str
    parent: str = ""
    task_id: str = ""
    wip: bool = False
    through_seq: int = 0
    left_out: tuple[str, ...] = ()
    by_checks: tuple[str, ...] = ()


class MergeStarted(Fact, frozen=True, tag="merge.started"):
    """Branches are about to become part of the main line: `commit` is what it is moved to, from `onto` (S23).

    `tasks` are in the order they are merged in. `base` is the commit of the followed branch that is taken in, if any.
    """

    batch: int
    ref: str
    onto: str
    tasks: tuple[str, ...]
    commit: str
    tree: str
    base: str = ""


class RepoMerged(Fact, frozen=True, tag="repo.merged"):
    """The main line was moved. `passed` are criteria that pass there, all of them by recorded verdicts (S26).

    `touched` are criteria that a judge had accepted and that are no longer known: each with the first of the paths that
    its judge looked at and that are different now.
    """

    batch: int
    ref: str
    commit: str
    tree: str
    onto: str
    tasks: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    base: str = ""
    touched: dict[str, tuple[str, ...]] = {}


class RepoConflicted(Fact, frozen=True, tag="repo.conflicted"):
    """A task's branch does not merge with the main line; it goes back to be done on a fresh base."""

    task_id: str
    onto: str
    commit: str
    paths: tuple[str, ...]


class RepoMoved(Fact, frozen=True, tag="repo.moved"):
    """A ref is at a commit that this mission did not put there. `followed`: it is the branch whose commits are taken
    in.
    """

    ref: str
    expected: str
    found: str
    followed: bool = False


class BatchRefused(Fact, frozen=True, tag="batch.refused"):
    """A merged tree was red. `tasks` were in it; `culprits` are those that made it so, when that is known.

    `groups` are the parts to merge next, one after the other; tasks in none of them wait with the others again.
    """

    batch: int
    onto: str
    tree: str
    tasks: tuple[str, ...]
    failed: tuple[str, ...]
    culprits: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()


Ability = Literal["yes", "no", "impossible", "base"]
"""`impossible`: there is no such probe for this check. `base`: the check fails on the base, which shows nothing."""

TestOutcome = Literal["passed", "failed", "skipped"]

TESTS_MAX = 20_000
"""The tests of a check are recorded by name unless there are more of them."""


class CheckProbed(Fact, frozen=True, omit_defaults=True, tag="check.probed"):
    """Ways in which the check of a criterion can fail, measured on `tree`, which no worker changed.

    `digest` covers its command and runner configuration; under another one it is measured again. `canary`: its runner
    reports a failing test placed beside its tests. `flip`: it reports a test whose expected value was replaced, or
    fails when the judging programs expect something else. `data`: it reports a test when the files with expected values
    differ. `hollow`: it fails when the product does not work. `tests` are the outcomes reported by test id, empty when
    there are none or more than can be kept; `collected` counts them, `passed` those that passed.
    """

    criterion: str
    tree: str
    digest: str
    canary: Ability
    flip: Ability
    data: Ability
    hollow: Ability
    reports: bool = False
    collected: int = 0
    passed: int = 0
    tests: dict[str, TestOutcome] = {}
    duration_ms: float = 0.0


class CheckProved(Fact, frozen=True, omit_defaults=True, tag="check.proved"):
    """A check was about to count as passed on `tree`, and was run again where it has to fail.

    `shown` are the kinds of probes that it failed on; none means that it is not proven able to fail. `lost` are those
    that it no longer fails on although it did when it was probed, and `apart` when it passes only beside test files
    that were added; `output` is then the end of the check's own output and `probe_output` that of the first probe that
    was not seen. `key` is that of the verdict.
    """

    criterion: str
    tree: str
    key: str = ""
    shown: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    output: str = ""
    probe_output: str = ""
    runs: int = 0
    duration_ms: float = 0.0
