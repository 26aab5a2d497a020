"""What becomes of the tasks of a mission."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.facts.base import Fact

HandInStatus = Literal["done", "blocked", "infeasible", "stopped"]
"""What a worker says of its work; `stopped` is the harness's word for a tree that was left without handing in."""

RefusalKind = Literal["ratchet", "scope", "checks", "judge", "conflict", "regression", "empty", "silent"]


class TaskStarted(Fact, frozen=True, tag="task.started"):
    """A worker was opened for a task, in the same transaction. `attempt` counts workers from 1."""

    task_id: str
    child_id: str
    attempt: int
    base: str
    ref: str


class TaskHandedIn(Fact, frozen=True, tag="task.handed_in"):
    """A worker handed in. What it says is data: only `commit` and `tree`, which the harness made, count."""

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
    """Something that a worker found out and others may need: data, with its source."""

    task_id: str
    child_id: str
    text: str


class TaskInspected(Fact, frozen=True, tag="task.inspected"):
    """What the harness found in the difference between a task's base and its tree. `violations` are refused.

    `unasked` are changes that nobody asked for and that are let through, as words. `allowed` are protected paths that a
    person allowed to be changed, with the digests of their content, empty for one that may be gone.
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
    """Work was sent back to its worker: what is wrong, one actionable issue each, with evidence.

    With `restart` it is to be begun anew, from its base, by another worker.
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
    """A judge's word on one criterion: with evidence (a file with its line, an event), and an issue when it fails."""

    criterion: str
    passes: bool
    evidence: tuple[str, ...] = ()
    issue: str = ""


class TaskJudged(Fact, frozen=True, tag="task.judged"):
    """What a judge said. `refused` says why its verdict does not count, empty when it does."""

    child_id: str
    tree: str
    decision: Literal["pass", "fail", "restart", "escalate"]
    criteria: tuple[Judged, ...] = ()
    task_id: str = ""
    reason: str = ""
    refused: str = ""


class TaskQueued(Fact, frozen=True, tag="task.queued"):
    """A task's tree met all that it had to; it waits to be merged."""

    task_id: str
    commit: str
    tree: str


class TaskEnded(Fact, frozen=True, tag="task.ended"):
    """A task is over. `best` is the commit of its best iteration, when it was not merged."""

    task_id: str
    status: Literal["merged", "blocked", "infeasible", "failed", "dropped"]
    why: str = ""
    best: str = ""
