"""Rules of every mission world: the main branch, verdicts, judges, and the end.

Each rule yields a sentence for each violation. The criteria that a tree meets are known from its files, apart from all
checks; a role's submission is read in its own log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast.facts.mission import CriterionChecked, MissionOpened, VerificationEnded, VerificationStarted
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.task import (
    BatchRefused,
    CheckProved,
    JudgeOpened,
    MergeStarted,
    RepoConflicted,
    RepoMerged,
    TaskInspected,
    TaskJudged,
    TaskQueued,
)
from holdfast.sim.invariants import Violation, log, rest
from holdfast.sim.invariants.history import History
from holdfast.sim.missions import caps
from holdfast.sim.missions.scene import SPEED, speed_of
from holdfast.sim.missions.world import FOLLOWED, MAIN, MissionHistory, MissionWorld

Rule = Callable[[MissionHistory], Iterator[str]]


def done_means_met(history: MissionHistory) -> Iterator[str]:
    """A mission is done only if each criterion with a check is met by the files of its main branch."""
    if history.finished is None:
        return
    event, end = history.finished
    if end.head != history.main:
        yield f"it ended at {event.seq} on {end.head[:7]}, and its main line is at {history.main[:7]}"
    lies = sorted((set(end.met) & history.executable) - history.true(end.head))
    if lies:
        yield f"it ended as {end.status} with {', '.join(lies)} met, which the files do not show"
    left = sorted(set(history.criteria) - set(end.met))
    if end.status == "done" and left:
        yield f"it is done without {', '.join(left)}"


def verdicts_are_true(history: MissionHistory) -> Iterator[str]:
    """S25: the result of a check on a tree is what its files meet."""
    for event, fact in history.of(CriterionChecked):
        true = history.true(fact.tree)
        for name in fact.criteria:
            if (fact.outcome == "pass" and name not in true) or (fact.outcome == "fail" and name in true):
                yield f"{name} is recorded as {fact.outcome} on {fact.tree[:7]} at {event.seq}, which is wrong"


def green_is_proven(history: MissionHistory) -> Iterator[str]:
    """S25: a check counts as passed for the first time only after it was shown on that tree that it can fail, or
    cannot.
    """
    seen: set[str] = set()
    for event, fact in history.of(CriterionChecked):
        for name in fact.criteria if fact.outcome == "pass" else ():
            proofs = [each for _, each in history.of(CheckProved, event.seq) if each.criterion == name]
            here = [each for each in proofs if each.tree == fact.tree]
            if not (proofs if name in seen else here) or any(each.lost for each in here):
                yield f"{name} counts as passed on {fact.tree[:7]} at {event.seq}, and its check was not proven"
            seen.add(name)


def the_last_tree_is_proven(history: MissionHistory) -> Iterator[str]:
    """S25: a mission is done only if each check was proven on its last tree."""
    if history.finished is None or history.finished[1].status != "done":
        return
    event, end = history.finished
    tree = [*(fact.tree for _, fact in history.of(MissionOpened)), *(fact.tree for _, fact in history.merged())][-1]
    proven = {fact.criterion for _, fact in history.of(CheckProved, event.seq) if fact.tree == tree and not fact.lost}
    left = sorted(set(end.met) & history.executable - proven)
    if left:
        yield f"it is done, and {', '.join(left)} was not proven on its last tree"


def verdicts_are_made_once(history: MissionHistory) -> Iterator[str]:
    """S25: no verdict is made twice for the same tree under the same key."""
    known: dict[tuple[str, str, str], int] = {}
    for event, fact in history.of(CriterionChecked):
        for name in fact.criteria:
            first = known.setdefault((fact.tree, fact.key, name), event.seq)
            if first != event.seq:
                yield f"{name} was checked on {fact.tree[:7]} at {first} and again at {event.seq}"


def main_line_stays_green(history: MissionHistory) -> Iterator[str]:
    """S26: each first-parent commit of the main branch keeps all that passed before it, and what passes is recorded."""
    opened = next(history.of(MissionOpened), None)
    if opened is None:
        return
    merged = history.merged()
    steps = [opened[1].base, *(fact.commit for _, fact in merged)]
    if list(dict.fromkeys(steps)) != [each for each in reversed(history.world.line(history.main)) if each in steps]:
        yield "the first-parent line is not what was merged, step by step"
    if len(history.world.line(history.main)) != len(set(steps)):
        yield f"the main line has {len(history.world.line(history.main))} commits, the log {len(set(steps))}"
    kept = history.passing(opened[1].tree, merged[0][0].seq if merged else 2**62)
    for event, fact in merged:
        kept |= set(fact.passed)
        kept -= history.withdrawn(event.seq)
        lost = sorted(kept & history.executable - history.true(fact.commit))
        if lost:
            yield f"{', '.join(lost)} passed, and the step at {event.seq} does not keep it"
        unrecorded = sorted(set(fact.passed) & history.executable - history.passing(fact.tree, event.seq))
        if unrecorded:
            yield f"{', '.join(unrecorded)} counts as passed at {event.seq} without a verdict on that tree"


def metrics_do_not_get_worse(history: MissionHistory) -> Iterator[str]:
    """S26: below its target, a metric keeps its best value, and a merge for the metric improves it."""
    opened = next(history.of(MissionOpened), None)
    if opened is None or SPEED not in history.criteria:
        return
    metric, tasks = history.scene.metric, history.tasks_for(SPEED)
    best = speed_of(history.world.tree(opened[1].base))
    for event, fact in history.merged():
        value = speed_of(history.world.tree(fact.commit))
        reached = value >= metric.target - metric.tolerance
        if not reached and value < best - metric.tolerance:
            yield f"the speed was {best} and is {value} since the step at {event.seq}"
        if not reached and tasks & set(fact.tasks) and value <= best + metric.tolerance:
            yield f"the step at {event.seq} is for the speed, which was {best} and is {value}"
        best = max(best, value)


def passed_only_grows(history: MissionHistory) -> Iterator[str]:
    """S26: each merge is checked for all criteria that have passed on the main branch."""
    before: set[str] = set()
    for event, fact in history.merged():
        gone = sorted(before - set(fact.passed) - history.withdrawn(event.seq))
        if gone:
            yield f"the step at {event.seq} was not checked for {', '.join(gone)}, which had passed"
        before |= set(fact.passed)


def only_words_of_judges_count(history: MissionHistory) -> Iterator[str]:
    """A judge that is silent, contradicts itself, or fails never counts as a pass; each verdict that counts is in its
    own log.
    """
    if history.policy.judge == "per_task":
        for event, queued in history.of(TaskQueued):
            judged = [each for _, each in history.of(TaskJudged, event.seq) if each.tree == queued.tree]
            yield from _word(history, judged, f"task {queued.task_id} was queued at {event.seq}")
    end = history.finished
    if end is not None and end[1].status == "done" and history.policy.judge == "at_end":
        judged = [each for _, each in history.of(TaskJudged, end[0].seq) if not each.task_id]
        last = [each for each in judged if history.world.tree(each.tree) == history.world.tree(end[1].head)]
        yield from _word(history, last, "the mission is done")


def _word(history: MissionHistory, judged: list[TaskJudged], what: str) -> Iterator[str]:
    if not judged:
        yield f"{what}, and no judge was heard"
        return
    last = judged[-1]
    said = history.words_of(last.child_id)
    asked = next(fact for _, fact in history.of(JudgeOpened) if fact.child_id == last.child_id)
    verdicts = said.get("criteria") or []
    assert isinstance(verdicts, list)
    good = {each["criterion"] for each in verdicts if each["passes"] and each["evidence"]}
    if said.get("decision") != "pass" or len(good) < len(verdicts) or set(asked.criteria) - good:
        yield f"{what}, and its judge said {said.get('decision', 'nothing')} of {', '.join(sorted(good)) or 'nothing'}"


def false_accepts_are_of_lenient_judges(history: MissionHistory) -> Iterator[str]:
    """A rubric line that is not met counts as met only by the verdict of a lenient judge."""
    end = history.finished
    for name in () if end is None else end[1].met:
        if name in history.scene.rubric:
            for child_id in history.accepted_wrongly(name):
                if not history.world.tempted.get(child_id):
                    yield f"{name} was accepted by {child_id}, which did not say so, and is not met"


def judged_is_what_is_there(history: MissionHistory) -> Iterator[str]:
    """S26: a rubric criterion is met only by a verdict on the content that the main branch has at the end."""
    if history.finished is None:
        return
    event, end = history.finished
    main = history.world.tree(end.head)
    for name in sorted(set(end.met) & history.scene.rubric):
        judged = [fact for _, fact in history.of(TaskJudged, event.seq) if not fact.refused]
        said = [fact for fact in judged if any(each.criterion == name for each in fact.criteria)]
        path = history.scene.wants[name][0]
        if not said or history.world.tree(said[-1].tree).get(path) != main.get(path):
            yield f"{name} is met by a judge that looked at another {path} than the main line has"


def intents_come_first(history: MissionHistory) -> Iterator[str]:
    """S23: the main branch moves only to recorded intents that were not refused; checks start after their event."""
    for move in history.world.moves:
        if move.ref != MAIN or move.new == history.world.base.commit:
            continue
        started = [fact for _, fact in history.of(MergeStarted, move.head + 1) if fact.commit == move.new]
        if not started:
            yield f"the main line was moved to {move.new[:7]} at {move.head}, without an intent"
            continue
        refused = [fact for _, fact in history.of(BatchRefused, move.head + 1) if fact.batch == started[-1].batch]
        if refused:
            yield f"the main line was moved to {move.new[:7]} at {move.head}, which had been refused"
    begun: dict[str, int] = {}
    for event, announced in history.of(VerificationStarted):
        begun.setdefault(announced.verification_id, event.seq)
    ended = {fact.verification_id: event.seq for event, fact in history.of(VerificationEnded)}
    for event, fact in history.of(CriterionChecked):
        if not begun.get(fact.verification_id, 2**62) < event.seq < ended.get(fact.verification_id, 2**62):
            yield f"the verdict at {event.seq} belongs to no verification that was under way"
    for asked in history.world.record.asked:
        if asked.verb == "start" and asked.session_id == history.world.mission_id:
            if begun.get(asked.call_id.partition(".")[0], 2**62) > asked.head:
                yield f"the check {asked.call_id} began at {asked.head}, before it was announced"


def merges_are_intended(history: MissionHistory) -> Iterator[str]:
    """S23: each merge equals its recorded intent."""
    for event, fact in history.of(RepoMerged):
        started = [each for _, each in history.of(MergeStarted, event.seq) if each.batch == fact.batch]
        if not started or (started[-1].commit, started[-1].onto, started[-1].tasks) != (
            fact.commit,
            fact.onto,
            fact.tasks,
        ):
            yield f"the step at {event.seq} is none that was intended"


def nothing_forbidden_is_merged(history: MissionHistory) -> Iterator[str]:
    """S24: the tests on the main branch are unchanged, and files outside the scope are absent or listed."""
    files, base = history.world.tree(history.main), history.world.tree(history.world.base.commit)
    if {k: v for k, v in files.items() if k.startswith("tests/")} != {
        k: v for k, v in base.items() if k.startswith("tests/")
    }:
        yield "tests on the main line are not as they were"
    listed = " ".join(word for _, fact in history.of(TaskInspected) for word in fact.unasked)
    for path in files:
        if path.startswith("extras_") and (history.policy.scope == "refuse" or path not in listed):
            yield f"{path} is on the main line, although it is outside the scope"


def people_lose_nothing(history: MissionHistory) -> Iterator[str]:
    """The branch of the users is not moved, and a commit taken in from it stays in the main branch with its files."""
    world = history.world
    last = world.human[-1] if world.human else world.base.commit
    if world.repository.refs[FOLLOWED] != last:
        yield "the branch of people is not where they left it"
    taken = [fact.base for _, fact in history.of(RepoMerged) if fact.base]
    notes: set[str] = set()
    for commit in taken:
        if not world.has(commit, history.main):
            yield f"{commit[:7]} counts as taken in, and is not in the main line"
        notes |= {path for path in world.tree(commit) if path.startswith("notes/")}
    for path in sorted(notes - set(world.tree(history.main))):
        yield f"{path} of a person is not on the main line any more"
    if history.finished is None or history.finished[1].status != "done" or not history.scene.follows:
        return
    refused = {fact.commit for _, fact in history.of(RepoConflicted) if not fact.task_id}
    red = {fact.batch for _, fact in history.of(BatchRefused) if not fact.tasks}
    refused |= {fact.base for _, fact in history.of(MergeStarted) if fact.batch in red}
    for commit, head in zip(world.human, world.human_heads, strict=True):
        seen = head < history.finished[0].seq - 1
        if seen and not world.has(commit, history.main) and not any(world.has(commit, each) for each in refused):
            yield f"{commit[:7]} was committed at {head} and is neither taken in nor refused"


def it_rests_with_a_reason(history: MissionHistory) -> Iterator[str]:
    """S27: every mission comes to rest as done, failed, or parked with a stated reason."""
    ends = [fact for _, fact in history.of(ShiftEnded)]
    if not ends:
        yield "it never rested"
        return
    last = ends[-1]
    if last.status == "parked" and not (last.reason in ("budget", "person") and last.detail):
        yield f"it rests as parked for {last.reason or 'nothing'} ({last.detail})"
    if last.status not in ("parked", "done", "failed"):
        yield f"it rests as {last.status}"
    said = history.finished[1].status if history.finished is not None else "parked"
    if said != last.status:
        yield f"it is {said} and its shift ended as {last.status}"


RULES: tuple[Rule, ...] = (
    done_means_met,
    verdicts_are_true,
    green_is_proven,
    the_last_tree_is_proven,
    verdicts_are_made_once,
    main_line_stays_green,
    passed_only_grows,
    metrics_do_not_get_worse,
    only_words_of_judges_count,
    false_accepts_are_of_lenient_judges,
    judged_is_what_is_there,
    intents_come_first,
    merges_are_intended,
    nothing_forbidden_is_merged,
    people_lose_nothing,
    it_rests_with_a_reason,
    *caps.ALL,
)

OF_SESSION = (
    log.chain_holds,
    log.acknowledged_is_kept,
    log.stale_writers_are_refused,
    log.leases_exclude,
    log.rows_follow,
    log.fold_is_one,
    log.requests_settle_once,
    rest.hands_are_given_back,
)
"""Invariants of sessions that also hold for a mission and its roles."""

OF_WORLD = (rest.nothing_unexplained, log.spend_stays_under_the_cap)


def judge_mission(world: MissionWorld, approvals: int, only: str = "") -> list[Violation]:
    """Return violations in a mission world after the calm, with `only` of that rule alone."""
    found: list[Violation] = []
    history = MissionHistory(world, approvals)
    for rule in RULES:
        if only in ("", rule.__name__):
            found += [Violation(rule.__name__, each) for each in rule(history)]
    for of_world in OF_WORLD:
        if only in ("", of_world.__name__):
            found += [Violation(of_world.__name__, each) for each in of_world(world)]
    wanted = [each for each in OF_SESSION if only in ("", each.__name__)]
    for session in world.sessions.values() if wanted else ():
        one = History(world, session)
        for of_session in wanted:
            found += [Violation(of_session.__name__, each) for each in of_session(one)]
    return found
