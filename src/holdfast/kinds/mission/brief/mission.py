"""Lines of a brief for missions only: the status of criteria with evidence, merges, and other changes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.facts.codec import Event
from holdfast.facts.hands import EgressRecorded
from holdfast.facts.mission import ContractAmended, CriterionChecked, MissionOpened
from holdfast.facts.task import RepoCommitted, RepoMerged, TaskHandedIn, TaskInspected, TaskJudged
from holdfast.globs import matches
from holdfast.kinds.mission.brief.document import Example, Line, Tree, lined, listed, of, plain
from holdfast.kinds.mission.check.checking import Obstacle, exit_status, obstacle, telling
from holdfast.kinds.mission.conductor.ending import unmet_at_end
from holdfast.kinds.mission.fold.state import OVER, MissionState, TaskState

CURVE = 6
"""Most values of a metric that are shown, the latest ones."""

WANTED = {"at_least": "at least", "at_most": "at most", "equal": "exactly"}


class Known:
    """Mission with the events of its log by criterion and task."""

    def __init__(self, tree: Tree, mission: MissionState) -> None:
        self.tree, self.mission, self.name = tree, mission, tree.name
        self.criteria = mission.contract.criteria()
        self.unmet = unmet_at_end(mission)
        self.met = tuple(name for name in self.criteria if name not in self.unmet)
        self.checks: dict[str, list[Event]] = {}
        self.judged: dict[str, Event] = {}
        self.refused: list[str] = []
        self.inspected: dict[tuple[str, str], Event] = {}
        for event in tree.top.events:
            self._take(event)

    def _take(self, event: Event) -> None:
        match event.fact:
            case CriterionChecked(criteria=names):
                for name in names:
                    self.checks.setdefault(name, []).append(event)
            case TaskJudged(refused="", criteria=words):
                for each in words:
                    self.judged[each.criterion] = event
            case TaskInspected(task_id=task_id, tree=tree):
                self.inspected[task_id, tree] = event
            case EgressRecorded(seen=seen):
                self.refused += [each.host for each in seen if each.verdict == "refused"]

    @property
    def trees(self) -> list[str]:
        """Trees of the main branch, the base first."""
        facts = [event.fact for event in self.tree.events(MissionOpened, RepoMerged)]
        return [fact.tree for fact in facts if isinstance(fact, MissionOpened | RepoMerged)] or [""]

    def standing(self) -> str:
        """Result of the mission if it ended now."""
        merged = self.tree.events(RepoMerged)
        return f"what is merged stays on {branch(self.mission)}" if merged else "nothing was merged"

    def failing(self) -> list[Failing]:
        """Group unmet criteria whose last check failed by equal diagnostic lines."""
        found: dict[tuple[object, ...], Failing] = {}
        for name in self.unmet:
            each = self._failing(name)
            if each is not None:
                key = (each.said, each.obstacle, each.at_base is not None)
                known = found.get(key)
                found[key] = each if known is None else known._replace(names=(*known.names, name))
        return list(found.values())

    def _failing(self, name: str) -> Failing | None:
        runs = self.checks.get(name, [])
        if not runs or _check(runs[-1]).outcome == "pass":
            return None
        work = next((event for event in reversed(runs) if _check(event).tree not in self.trees), None)
        base = next((event for event in reversed(runs) if _check(event).tree in self.trees), None)
        last = work or runs[-1]
        fact, check = _check(last), self.criteria[name].check
        hosts = [host for host in dict.fromkeys(self.refused) if host in fact.output + fact.command]
        found = obstacle(fact.command, fact.output, timed_out=fact.outcome == "timeout", refused=hosts)
        if found is not None and base is not None and _check(base).outcome == "pass":
            found = None  # it passed here before, so the work broke it
        if fact.outcome == "timeout":
            said: tuple[str, ...] = (f"it did not end in {check.timeout_s:g} s",) if check else ()
        elif fact.value is not None:
            said = (self.metric(name),)
        else:
            said = telling(fact.output) or (exit_status(fact.exit_code),)
        where = "at the base" if base is None or _check(base).tree == self.trees[0] else "on the main branch"
        return Failing((name,), work, base, where, said, found)

    def metric(self, name: str) -> str:
        """Return the latest value of a metric, its target, and its earlier values; empty without a value."""
        curves = self.mission.curves
        values = [value for _, value in curves.get(name, ())]
        values = values or [value for event in self.checks.get(name, ()) if (value := _check(event).value) is not None]
        check = self.criteria[name].check if name in self.criteria else None
        if not values or check is None or check.metric is None:
            return ""
        off = f" (± {check.metric.tolerance:g})" if check.metric.tolerance else ""
        text = f"{values[-1]:g}, wants {WANTED[check.metric.direction]} {check.metric.target:g}{off}"
        curve = " → ".join(f"{value:g}" for value in values[-CURVE:])
        return f"{text}; values {curve}" if len(set(values)) > 1 else text


class Failing(NamedTuple):
    """Criteria whose check failed on a task's work and, if it ran there, at the base, with the diagnostic lines."""

    names: tuple[str, ...]
    on_work: Event | None
    at_base: Event | None
    base: str
    said: tuple[str, ...]
    obstacle: Obstacle | None

    def called(self) -> str:
        """Names of the criteria."""
        return listed(self.names)

    def example(self) -> Example:
        """Return the failure with its trees and the last diagnostic lines."""
        events = [each for each in (self.on_work, self.at_base) if each is not None]
        if self.on_work is None:
            where = f"fails {self.base}; no other tree was checked"
        elif self.at_base is None:
            where = f"fails; it did not run {self.base}"
        elif _check(self.at_base).outcome == "pass":
            where = f"fails; it passes {self.base}"
        else:
            where = f"fails, and fails {self.base} too"
        fact = _check(events[0])
        runs = f" ({fact.flaky or fact.runs} of {fact.runs} runs)" if fact.runs > 1 else ""
        text = f"{self.called()} {where}{runs}: {' / '.join(self.said)}"
        return Example(plain(text), tuple(of(each) for each in events), criteria=self.names)


def _check(event: Event) -> CriterionChecked:
    assert isinstance(event.fact, CriterionChecked)
    return event.fact


def branch(mission: MissionState) -> str:
    """Name of the mission's main branch."""
    return plain(mission.ref.removeprefix("refs/heads/"))


# --- status ------------------------------------------------------------------------------------------


def stands(known: Known, told: frozenset[str]) -> tuple[Line, ...]:
    """Build lines for met criteria by evidence, unmet ones with reasons, and metrics, except those already `told`."""
    event, total = known.tree.latest(), len(known.criteria)
    if event is None:
        return ()
    text = f"{len(known.met)} of {total} criteria are met"
    if known.tree.since_us is not None:
        proofs = [proof for name in known.met if (proof := _proof(known, name)) is not None]
        text += f", {sum(map(known.tree.new, proofs))} of them since then"
    return (
        Line("stands", text, evidence=(of(event),), more=("mission", "show", known.name)),
        *_met(known),
        *_metrics(known, told),
        *_unmet(known, told),
        *_tasks(known),
    )


def is_unproven(mission: MissionState, name: str) -> bool:
    """Return True if a criterion's check was never seen to fail where it must. Older missions have no proofs at all."""
    proof = mission.proofs.get(name)
    return bool(mission.abilities or mission.proofs) and not (proof is not None and proof.shown)


def is_stale(mission: MissionState, name: str) -> bool:
    """Return True if a later merge changed files that a judge's verdict on this criterion was about."""
    return name in mission.stale


def _met(known: Known) -> tuple[Line, ...]:
    """Return met criteria by kind of evidence."""
    kinds: dict[str, list[Example]] = {"proven": [], "judged": [], "unproven": [], "stale": []}
    for name in (*known.met, *(each for each in known.unmet if is_stale(known.mission, each))):
        event = _proof(known, name) or known.judged.get(name)
        by_judge = event is not None and isinstance(event.fact, TaskJudged)
        kind = "stale" if is_stale(known.mission, name) else "judged" if by_judge else "proven"
        if kind == "proven" and is_unproven(known.mission, name):
            kind = "unproven"
        kinds[kind].append(Example(plain(name), (of(event),) if event is not None else (), criteria=(name,)))
    words = {
        "proven": "proven by checks",
        "judged": "accepted by a judge",
        "unproven": "not proven able to fail: the check passes, and was never seen to fail where it must",
        "stale": "no longer known: a later merge changed what its judge looked at",
    }
    more = ("mission", "show", known.name)
    return tuple(line for kind, found in kinds.items() for line in lined(kind, words[kind], found, more))


def _proof(known: Known, name: str) -> Event | None:
    """Return the verdict on the main branch's tree if any, else the event by which the criterion counts as met."""
    mission = known.mission
    good = {_check(each).tree: each for each in known.checks.get(name, ()) if _check(each).outcome == "pass"}
    event = good.get(mission.main_tree)
    if event is None:
        event = known.tree.top.at(mission.passed.get(name) or mission.final_passed.get(name) or 0)
    if event is not None and isinstance(event.fact, RepoMerged):
        return good.get(event.fact.tree) or known.tree.top.at(mission.rubric.get(name, 0)) or event
    return event


def _metrics(known: Known, told: frozenset[str]) -> tuple[Line, ...]:
    """Return metrics that are not in an earlier line."""
    examples = tuple(
        Example(plain(f"{name}: {words}"), (of(runs[-1]),))
        for name, runs in known.checks.items()
        if name in known.met and name not in told and (words := known.metric(name))
    )
    return lined("metrics", "metrics", examples, ("mission", "show", known.name))


def _unmet(known: Known, told: frozenset[str]) -> tuple[Line, ...]:
    """Return unmet criteria that are not in an earlier line, each with the reason."""
    names = [name for name in known.unmet if name not in told and not is_stale(known.mission, name)]
    if not names:
        return ()
    failing = [each for each in known.failing() if not told.intersection(each.names)]
    checked = {name for each in failing for name in each.names}
    examples = [each.example() for each in failing]
    planned = {name for task in known.mission.tasks.values() for name in task.task.criteria}
    examples += [_why(known, name) for name in sorted(names, key=planned.__contains__) if name not in checked]
    more = ("mission", "show", known.name)
    return (Line("unmet", f"not met: {len(names)}", len(examples), examples=tuple(examples), more=more),)


def _why(known: Known, name: str) -> Example:
    """Explain an unmet criterion without a failing check."""
    tasks = [task for task in known.mission.tasks.values() if name in task.task.criteria]
    task = next((each for each in tasks if each.status not in OVER), tasks[-1] if tasks else None)
    event = known.judged.get(name)
    if event is not None and isinstance(event.fact, TaskJudged):
        word = next(each for each in event.fact.criteria if each.criterion == name)
        said = "a judge passed it, and it is not merged" if word.passes else f"a judge refused it: {word.issue}"
    elif known.checks.get(name):
        event = known.checks[name][-1]
        said = "its check passes on work that is not merged"
    else:
        said = "never judged" if known.criteria[name].check is None else "never checked"
    words = f"task {task.task.id} is {task.status.replace('_', ' ')}" if task is not None else "no task is for it"
    if task is not None and task.why:
        words += f": {task.why}"
    moved = known.tree.top.at(task.since_seq) if task is not None else None
    found = [of(each) for each in (event, moved) if each is not None] or [of(known.tree.top.events[0])]
    return Example(plain(f"{name}: {said}; {words}"), tuple(dict.fromkeys(found)), criteria=(name,))


def _tasks(known: Known) -> tuple[Line, ...]:
    """Return unfinished and given up tasks without an unmet criterion."""
    unmet, more = set(known.unmet), ("mission", "show", known.name)
    left = [task for task in known.mission.tasks.values() if not unmet.intersection(task.task.criteria)]
    open_ = [_task(known, task) for task in left if task.status not in OVER]
    given_up = [_task(known, task) for task in left if task.status in OVER - {"merged", "dropped"}]
    return (
        *lined("open", "unfinished tasks", open_, more),
        *lined("given_up", "tasks given up", given_up, more),
    )


def _task(known: Known, task: TaskState) -> Example:
    event = known.tree.top.at(task.since_seq)
    why = f": {task.why}" if task.why else ""
    text = f"{task.task.id} ({task.status.replace('_', ' ')}){why}"
    return Example(plain(text), (of(event),) if event is not None else ())


# --- changes -----------------------------------------------------------------------------------------


def changed(known: Known) -> tuple[Line, ...]:
    """Build lines for merges, unmerged work, amendments, and files outside the stated paths."""
    return (*_merged(known), *_kept(known), *_amended(known), *_outside(known))


def _merged(known: Known) -> tuple[Line, ...]:
    """Return merges, newest first, each with the files of its tasks."""
    examples, before = [], known.trees[0]
    for event in known.tree.events(RepoMerged):
        fact = event.fact
        assert isinstance(fact, RepoMerged)
        what = listed(fact.tasks) if fact.tasks else f"new commits of the base, {fact.base[:10]}"
        files = "changes no file" if fact.tree == before else _files(known, fact.tasks)
        before = fact.tree
        if known.tree.new(event):
            text = f"{what}{': ' if files else ''}{files}"
            examples.append(Example(plain(text), (of(event),), (fact.commit,)))
    more = ("logs", known.name, "--type", "repo.merged")
    return lined("merged", f"merges on {branch(known.mission)}", examples[::-1], more)


def _files(known: Known, tasks: Iterable[str]) -> str:
    files: list[str] = []
    for name in tasks:
        task = known.mission.tasks.get(name)
        event = known.inspected.get((name, task.tree)) if task is not None else None
        if event is not None and isinstance(event.fact, TaskInspected):
            files += event.fact.files
    return listed(tuple(dict.fromkeys(files)))


def _kept(known: Known) -> tuple[Line, ...]:
    """Return unmerged work: the latest commit of each such task, with its files."""
    last: dict[str, Event] = {}
    for part in known.tree.parts:
        for event in part.events:
            if isinstance(event.fact, RepoCommitted | TaskHandedIn) and event.fact.task_id and event.fact.commit:
                last[event.fact.task_id] = event
    examples = []
    for name, event in last.items():
        task, fact = known.mission.tasks.get(name), event.fact
        assert isinstance(fact, RepoCommitted | TaskHandedIn)
        if task is None or task.status == "merged" or fact.tree in known.trees:
            continue
        looked = known.inspected.get((name, fact.tree))
        files = listed(looked.fact.files) if looked is not None and isinstance(looked.fact, TaskInspected) else ""
        where = task.ref.removeprefix("refs/heads/") or name
        text = f"{where}{': ' if files else ''}{files}"
        examples.append(Example(plain(text), (of(event),), (fact.commit,)))
    return lined("kept", "work of tasks that is not merged", examples, ("mission", "show", known.name))


def _amended(known: Known) -> tuple[Line, ...]:
    examples = []
    for event in known.tree.events(ContractAmended):
        fact = event.fact
        assert isinstance(fact, ContractAmended)
        weaker = f", WEAKER: {listed(fact.weakened)}" if fact.weakened else ", stricter or the same"
        reason = f": {fact.reason}" if fact.reason else ""
        examples.append(Example(plain(f"by {fact.author}{weaker}{reason}"), (of(event),)))
    return lined("amended", "amendments of the contract", examples, ("logs", known.name, "--type", "contract.amended"))


def _outside(known: Known) -> tuple[Line, ...]:
    """Return files changed by merged tasks outside the paths of all items."""
    items = known.mission.contract.items
    if not items or not all(item.paths for item in items):
        return ()
    globs = [glob for item in items for glob in item.paths]
    seen: dict[str, Event] = {}
    for name, task in known.mission.tasks.items():
        event = known.inspected.get((name, task.tree)) if task.status == "merged" else None
        if event is not None and isinstance(event.fact, TaskInspected):
            for path in event.fact.files:
                if not matches(path, globs):
                    seen.setdefault(path, event)
    examples = [Example(plain(path), (of(event),)) for path, event in seen.items()]
    more = ("logs", known.name, "--type", "task.inspected")
    return lined("outside_paths", "files changed outside the stated paths", examples, more)
