"""Lessons: lines for AGENTS.md, each with the failures that caused it. Pure.

A line is made from a template after the same failure happened twice; no model writes rules for others. The line quotes
a worker's finding as data. A user or the mission's policy accepts the line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.mission import LessonApplied, LessonProposed
from holdfast.facts.people import ApprovalDecided
from holdfast.facts.task import BatchRefused, FindingNoted, RatchetViolated, RepoConflicted, TaskInspected, TaskRefused
from holdfast.kinds.mission.check.judging import named
from holdfast.kinds.mission.documents import Told, one_line, turned_down

TWICE = 2
"""Failures of one kind before a line is proposed."""

FINDING_MAX = 160
LINE_MAX = 400


class Failure(NamedTuple):
    """Failure: its kind (`key`), a `line` that would have prevented it, and the task (`who`).

    With `others` it counts once for each task, since repeated tries of one worker are no lesson.
    """

    key: str
    seq: int
    line: str
    who: str
    others: bool = False


def due(told: Told) -> LessonProposed | None:
    """Return the next line to propose; None if there is none or the limit of lines is reached."""
    policy = told.mission.policy
    if policy.lessons == "off" or standing(told.events) >= policy.lesson_lines:
        return None
    known = {event.fact.key for event in told.events if isinstance(event.fact, LessonProposed)}
    seen: dict[str, list[Failure]] = {}
    for failure in _failures(told):
        if failure.key in known:
            continue
        before = seen.setdefault(failure.key, [])
        if failure.others and any(each.who == failure.who for each in before):
            continue
        before.append(failure)
        if len(before) >= TWICE:
            found = _found_out(told, {each.who for each in before}, before[0].seq)
            line = failure.line + (f' Finding: "{found}".' if found else "")
            return LessonProposed(line=line[:LINE_MAX], evidence=tuple(each.seq for each in before), key=failure.key)
    return None


def standing(events: Sequence[Event]) -> int:
    """Return the number of lines that were proposed and not denied."""
    denied = turned_down(events)
    proposed = [event.fact for event in events if isinstance(event.fact, LessonProposed)]
    return sum(fact.item_id not in denied for fact in proposed)


def taken(told: Told) -> list[LessonApplied]:
    """Return the lines to apply now: those that a user approved, or all if the policy says so."""
    applied = {event.fact.line for event in told.events if isinstance(event.fact, LessonApplied)}
    answers = {
        event.fact.item_id: event
        for event in told.events
        if isinstance(event.fact, ApprovalDecided) and event.fact.verdict == "approve"
    }
    out: list[LessonApplied] = []
    for event in told.events:
        fact = event.fact
        if not isinstance(fact, LessonProposed) or fact.line in applied:
            continue
        answer = answers.get(fact.item_id) if fact.item_id else None
        if answer is not None:
            out.append(LessonApplied(line=fact.line, by=answer.actor))
        elif not fact.item_id and told.mission.policy.lessons == "apply":
            out.append(LessonApplied(line=fact.line, by="policy"))
    return out


def _found_out(told: Told, who: set[str], since: int) -> str:
    """Return the latest finding noted since then in one of the failed tasks."""
    latest = ""
    for event in told.events:
        fact = event.fact
        if isinstance(fact, FindingNoted) and event.seq > since and fact.task_id in who:
            latest = fact.text
    flat = one_line(latest).replace('"', "'")
    return flat if len(flat) <= FINDING_MAX else f"{flat[: FINDING_MAX - 2]} …"


def _failures(told: Told) -> Iterator[Failure]:
    overruled = {path for event in told.events if isinstance(event.fact, TaskInspected) for path in event.fact.allowed}
    overruled |= named(told.mission.contract)
    for event in told.events:
        if isinstance(event.fact, RatchetViolated):
            left = tuple(each for each in event.fact.violations if each.path not in overruled)
            yield from _of(told, event.seq, msgspec.structs.replace(event.fact, violations=left))
        else:
            yield from _of(told, event.seq, event.fact)


def _of(told: Told, seq: int, fact: Fact) -> Iterator[Failure]:
    match fact:
        case RatchetViolated():
            for each in fact.violations:
                path = one_line(each.path)
                line = f"Do not change `{path}` unless a user allowed it: such changes are refused."
                yield Failure(f"ratchet:{each.rule}:{path}", seq, line, fact.task_id)
        case RepoConflicted():
            for path in fact.paths:
                line = f"Keep changes to `{one_line(path)}` small and in one place: branches conflicted there."
                yield Failure(f"conflict:{path}", seq, line, fact.task_id)
        case BatchRefused(culprits=culprits) if culprits:
            for name in fact.failed:
                line = f"Run {_check(told, name)} even if a change seems unrelated: merges broke it."
                yield Failure(f"regression:{name}", seq, line, culprits[0])
        case TaskRefused():
            yield from _refused(told, seq, fact)
        case _:
            return


def _refused(told: Told, seq: int, fact: TaskRefused) -> Iterator[Failure]:
    if fact.kind in ("checks", "judge"):
        known = told.mission.contract.criteria()
        # each issue of the harness begins with the id of a criterion
        firsts = (issue.partition(" is not met:")[0].partition(":")[0] for issue in fact.issues)
        for name in dict.fromkeys(name for name in firsts if name in known):
            if fact.kind == "checks":
                line = f"Run {_check(told, name)} before handing in: it failed for more than one worker."
            else:
                text = one_line(known[name].text)
                line = f'Compare the work with this before handing in: "{text}". Work was sent back for it.'
            yield Failure(f"{fact.kind}:{name}", seq, line, fact.task_id, others=True)
    elif fact.kind in _ALWAYS:
        yield Failure(fact.kind, seq, _ALWAYS[fact.kind], fact.task_id)


_ALWAYS: dict[str, str] = {
    "scope": "Change only files in the task's scope; name other necessary work in `next` when handing in.",
    "empty": "Look at the diff before handing in: work without a change is sent back.",
    "silent": "End by handing in, as done, blocked or infeasible: a worker that just stops is sent back.",
}


def _check(told: Told, name: str) -> str:
    criterion = told.mission.contract.criteria().get(name)
    if criterion is None or criterion.check is None:
        return f"the check of {one_line(name)}"
    return f"`{one_line(' '.join((criterion.check.command, *criterion.check.tests)))}`"
