"""What happens in a mission, as short lines for people."""

from __future__ import annotations

from holdfast.facts.base import Fact
from holdfast.facts.mission import (
    ContractAmended,
    ContractSealed,
    CriterionChecked,
    FlakeNoted,
    LessonApplied,
    LessonProposed,
    MissionEscalated,
    MissionFinished,
    MissionOpened,
    MissionPlanned,
    MissionReplanned,
    PlannerOpened,
    PlanRefused,
    VerificationEnded,
    VerificationStarted,
    WorkSubmitted,
)
from holdfast.facts.task import (
    BatchRefused,
    CheckProved,
    FindingNoted,
    JudgeOpened,
    MergeStarted,
    RatchetViolated,
    RepoCommitted,
    RepoConflicted,
    RepoMerged,
    RepoMoved,
    TaskEnded,
    TaskHandedIn,
    TaskJudged,
    TaskRefused,
    TaskStarted,
)
from holdfast.facts.tool import HookRan

SHORT = 10


def about_mission(fact: Fact) -> str:
    """A fact of a mission in a line; empty for one that is of another family, or no news."""
    return _whole(fact) or _word(fact) or _task(fact) or _main_line(fact)


def _whole(fact: Fact) -> str:
    match fact:
        case ContractSealed(items=items, criteria=criteria, digest=digest):
            return f"contract sealed: {items} items, {criteria} criteria (digest {digest[:SHORT]})"
        case ContractAmended(author=author, weakened=weakened):
            return f"contract amended by {author}" + (f"; weaker now: {', '.join(weakened)}" if weakened else "")
        case MissionOpened(ref=ref, base=base):
            return f"the main line {ref} begins at {base[:SHORT]}"
        case PlannerOpened(task_id=task_id):
            return f"a planner takes {task_id} apart" if task_id else "a planner is at work"
        case PlanRefused(problems=problems):
            return f"plan sent back: {problems[0] if problems else ''}"
        case MissionPlanned(tasks=tasks):
            return f"planned: {len(tasks)} tasks"
        case MissionReplanned(round=round_, tasks=tasks):
            return f"plan {round_ + 1}: {len(tasks)} tasks"
        case MissionEscalated(why=why):
            return f"a person is asked: {why}"
        case MissionFinished(status=status, met=met, unmet=unmet):
            return f"mission {status}: {len(met)} criteria met, {len(unmet)} not"
        case _:
            return ""


def _word(fact: Fact) -> str:
    match fact:
        case WorkSubmitted(kind=kind):
            return f"{kind} handed in"
        case HookRan(blocked=True) as hook:
            return f"hook {hook.event} sent it back: {hook.command}"
        case LessonProposed(line=line):
            return f"a line for AGENTS.md is proposed: {line}"
        case LessonApplied(line=line):
            return f"AGENTS.md has a new line: {line}"
        case _:
            return ""


def _task(fact: Fact) -> str:
    match fact:
        case TaskStarted(task_id=task_id, attempt=attempt):
            return f"{task_id}: worker {attempt} begins"
        case TaskHandedIn(task_id=task_id, status=status):
            return f"{task_id}: its worker stopped" if status == "stopped" else f"{task_id}: handed in ({status})"
        case FindingNoted(task_id=task_id, text=text):
            return f"{task_id} found out: {text}"
        case RatchetViolated(task_id=task_id, violations=found):
            return f"{task_id}: RATCHET {', '.join(f'{each.rule} {each.path}' for each in found[:3])}"
        case TaskRefused(task_id=task_id, kind=kind, issues=issues):
            return f"{task_id}: sent back ({kind}): {issues[0] if issues else ''}"
        case JudgeOpened(task_id=task_id):
            return f"{task_id or 'the whole'}: a judge looks"
        case TaskJudged(task_id=task_id, refused=refused) if refused:
            return f"{task_id or 'the whole'}: verdict refused: {refused}"
        case TaskJudged(task_id=task_id, decision=decision):
            return f"{task_id or 'the whole'}: judged: {decision}"
        case TaskEnded(task_id=task_id, status=status, why=why):
            return f"{task_id}: {status}: {why}"
        case _:
            return ""


def _main_line(fact: Fact) -> str:
    match fact:
        case VerificationStarted(criteria=criteria, tree=tree, run=0):
            return f"checking {len(criteria)} criteria on tree {tree[:SHORT]}"
        case CriterionChecked(criteria=criteria, outcome=outcome):
            named = criteria[0] if len(criteria) == 1 else f"{len(criteria)} criteria"
            return f"  {named}: {outcome}"
        case VerificationEnded(error=error) if error:
            return f"the checks could not be run: {error}"
        case CheckProved(criterion=name, shown=(), lost=()):
            return f"  {name}: not proven able to fail"
        case FlakeNoted(criterion=criterion, runs=runs, failures=failures):
            return f"flaky: {criterion} failed {failures} of {runs} runs on one tree"
        case RepoCommitted(ref=ref, commit=commit, wip=wip, left_out=left_out):
            without = f", without {', '.join(left_out[:3])}, which other systems take for .git" if left_out else ""
            return f"committed {commit[:SHORT]} to {ref}" + (" (not handed in)" if wip else "") + without
        case MergeStarted(tasks=tasks, base=base):
            return f"merging {', '.join(tasks) or f'the base at {base[:SHORT]}'}"
        case RepoMerged(commit=commit, tasks=tasks, passed=passed):
            return f"main line at {commit[:SHORT]}: {', '.join(tasks) or 'base'} in, {len(passed)} criteria pass"
        case RepoConflicted(task_id=task_id, paths=paths):
            return f"{task_id}: conflict in {', '.join(paths[:3])}; it begins anew"
        case RepoMoved(ref=ref, found=found):
            return f"{ref} was moved by somebody to {found[:SHORT]}"
        case BatchRefused(tasks=tasks, failed=failed):
            return f"the merge of {', '.join(tasks) or 'the base'} is red: {', '.join(failed[:3])}"
        case _:
            return ""
