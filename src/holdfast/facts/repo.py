"""What the harness did to a repository. Nothing else writes to it (S23, S24)."""

from __future__ import annotations

from holdfast.facts.base import Fact


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
    """A ref is where nobody of this mission put it. `followed`: it is the branch whose commits are taken in."""

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
