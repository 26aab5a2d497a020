"""What a brief says of a mission alone: what is not done and why, what passes by which evidence, drift. Pure."""

from __future__ import annotations

from holdfast.facts.codec import Event
from holdfast.facts.contract import ContractAmended, ContractSealed
from holdfast.facts.mission import CriterionChecked, MissionOpened, MissionPlanned, MissionReplanned
from holdfast.facts.repo import BatchRefused, RepoMerged
from holdfast.facts.session import SessionCreated
from holdfast.facts.task import TaskEnded, TaskInspected, TaskJudged, TaskRefused
from holdfast.mission.brief_shapes import Evidence, Example, Line, Tree, counted, listed, of, plain
from holdfast.mission.contract import contract_digest
from holdfast.mission.ending import unmet_at_end
from holdfast.mission.globs import matches
from holdfast.session.state_mission import OVER, MissionState, TaskState

SHORT = 10


class Known:
    """A mission with what its log says of each criterion and task, found once."""

    def __init__(self, tree: Tree, mission: MissionState) -> None:
        self.tree, self.mission = tree, mission
        self.session_id = tree.top.session_id
        self.unmet = unmet_at_end(mission)
        self.met = tuple(name for name in mission.contract.criteria() if name not in self.unmet)
        self.last: dict[str, Event] = {}
        self.good: dict[tuple[str, str], Event] = {}
        self.task: dict[str, Event] = {}
        self.planned: dict[str, Event] = {}
        self.stated: Event | None = None
        for event in tree.top.events:
            self._take(event)

    def _take(self, event: Event) -> None:
        fact = event.fact
        match fact:
            case CriterionChecked():
                for name in fact.criteria:
                    self.last[name] = event
                    if fact.outcome == "pass":
                        self.good[name, fact.tree] = event
            case TaskJudged() if not fact.refused:
                for each in fact.criteria:
                    self.last[each.criterion] = event
            case TaskEnded() | TaskRefused():
                self.task[fact.task_id] = event
            case BatchRefused():
                for name in fact.culprits:
                    self.task[name] = event
            case MissionPlanned() | MissionReplanned():
                for task in fact.tasks:
                    self.planned[task.id] = event
            case SessionCreated() | ContractSealed() | ContractAmended():
                self.stated = event

    def at(self, seq: int) -> Event | None:
        """The mission's event at a position."""
        return self.tree.top.at(seq)


# --- not done ---------------------------------------------------------------------------------------


def unmet(known: Known) -> tuple[Line, ...]:
    """The criteria that are not met, each with why."""
    names = known.unmet
    if not names:
        return ()
    text = f"{len(names)} of {len(known.mission.contract.criteria())} criteria are not met"
    examples = tuple(_why(known, name) for name in names)
    return (Line("unmet", text, len(names), examples=examples, more=("mission", "show", known.session_id)),)


def _why(known: Known, name: str) -> Example:
    """Why a criterion is not met: what the last check or judge said, and how its task stands."""
    tasks = [task for task in known.mission.tasks.values() if name in task.task.criteria]
    task = next((each for each in tasks if each.status not in OVER), tasks[-1] if tasks else None)
    said, evidence = _said(known, name)
    if task is None:
        words = "no task is for it"
    else:
        stands = task.status if task.status in OVER else f"still {task.status.replace('_', ' ')}"
        words = f"task {task.task.id} is {stands}" + (f": {task.why}" if task.why else "")
        event = known.task.get(task.task.id) or known.planned.get(task.task.id)
        evidence += (of(event),) if event is not None else ()
    if not evidence and known.stated is not None:
        evidence = (of(known.stated),)
    return Example(plain(f"{name}: {said}; {words}"), tuple(dict.fromkeys(evidence)))


def _said(known: Known, name: str) -> tuple[str, tuple[Evidence, ...]]:
    event = known.last.get(name)
    if event is None:
        return "never checked", ()
    fact = event.fact
    if isinstance(fact, TaskJudged):
        word = next(each for each in fact.criteria if each.criterion == name)
        return ("a judge passed it, and it is not merged" if word.passes else f"judge: {word.issue}"), (of(event),)
    assert isinstance(fact, CriterionChecked)
    where = "on the main line" if fact.tree == known.mission.main_tree else f"on tree {fact.tree[:SHORT]}"
    return f"last check: {fact.outcome} {where}", (of(event),)


def tasks(known: Known) -> tuple[Line, ...]:
    """Tasks that came to nothing, and those that are not over."""
    lines: list[Line] = []
    more = ("mission", "show", known.session_id)
    lost = [_task(known, task) for task in known.mission.tasks.values() if task.status in OVER - {"merged", "dropped"}]
    if lost:
        lines.append(
            Line("given_up", f"{counted(len(lost), 'task')} given up", len(lost), examples=_all(lost), more=more)
        )
    live = [_task(known, task) for task in known.mission.live()]
    if live:
        lines.append(Line("open", f"{counted(len(live), 'task')} not over", len(live), examples=_all(live), more=more))
    return tuple(lines)


def _all(examples: list[Example]) -> tuple[Example, ...]:
    return tuple(examples)


def _task(known: Known, task: TaskState) -> Example:
    event = known.at(task.since_seq)
    best = (task.best_commit,) if task.best_commit else ()
    ended = known.task.get(task.task.id)
    if ended is not None and isinstance(ended.fact, TaskEnded):
        event, best = ended, ((ended.fact.best,) if ended.fact.best else ())
    else:
        best = ()
    why = f": {task.why}" if task.why else ""
    kept = "; its best work is kept" if best else ""
    return Example(
        plain(f"{task.task.id} ({task.status.replace('_', ' ')}){why}{kept}"),
        (of(event),) if event is not None else (),
        best,
    )


# --- proven ------------------------------------------------------------------------------------------


def passed(known: Known) -> tuple[Line, ...]:
    """The criteria that are met, each with the verdict that says so."""
    mission, tree = known.mission, known.tree
    total = len(mission.contract.criteria())
    examples = [_proof(known, name) for name in known.met]
    if tree.since_us is not None:
        fresh = [each for each in examples if any(_is_new(known, one) for one in each.evidence)]
        text = f"{len(known.met)} of {total} criteria pass on the main line, {len(fresh)} since then"
        examples = fresh or examples
    else:
        text = f"{len(known.met)} of {total} criteria pass on the main line"
    if not examples:
        return ()
    more = ("mission", "show", known.session_id)
    return (Line("passed", text, len(known.met), examples=tuple(examples), more=more),)


def _is_new(known: Known, evidence: Evidence) -> bool:
    event = known.at(evidence.seq)
    return event is not None and known.tree.new(event)


def _proof(known: Known, name: str) -> Example:
    """A verdict on the main line's tree if there is one, else what the state goes by."""
    mission = known.mission
    seq = mission.passed.get(name) or mission.final_passed.get(name) or 0
    event = known.good.get((name, mission.main_tree)) or known.at(seq)
    if event is not None and isinstance(event.fact, RepoMerged):
        judged = known.at(mission.rubric.get(name, 0))
        event = known.good.get((name, event.fact.tree)) or judged or event
    kind = event.fact if event is not None else None
    how = "a judge" if isinstance(kind, TaskJudged) else "its check"
    return Example(plain(f"{name} ({how})"), (of(event),) if event is not None else ())


def main_line(known: Known) -> tuple[Line, ...]:
    """The commits of the main line, the newest first."""
    events = [event for event in known.tree.events(RepoMerged) if known.tree.new(event)]
    if not events:
        return ()
    examples = []
    for event in reversed(events):
        fact = event.fact
        assert isinstance(fact, RepoMerged)
        what = listed(fact.tasks) if fact.tasks else f"new commits of the base, {fact.base[:SHORT]}"
        examples.append(Example(plain(what), (of(event),), (fact.commit,)))
    text = f"{counted(len(events), 'merge')} on {plain(known.mission.ref.removeprefix('refs/heads/'))}"
    more = ("logs", known.session_id, "--type", "repo.merged")
    return (Line("merged", text, len(events), examples=tuple(examples), more=more),)


# --- drift ------------------------------------------------------------------------------------------


def drift(known: Known) -> tuple[Line, ...]:
    """How far the work is from what was stated."""
    return (*_digest(known), *_amended(known), *_touched(known), *_outside(known))


def _digest(known: Known) -> tuple[Line, ...]:
    sealed = [event for event in known.tree.events(ContractSealed, ContractAmended)]
    mission = known.mission
    if not sealed or not mission.digest:
        return ()
    last = sealed[-1]
    same = contract_digest(mission.contract) == mission.digest
    if not same:
        text = f"the contract is NOT the one that was sealed as {mission.digest[:SHORT]}"
    elif isinstance(last.fact, ContractAmended):
        text = f"the contract was amended, its digest is {mission.digest[:SHORT]} now"
    else:
        text = f"goal and contract are as sealed, digest {mission.digest[:SHORT]}"
    return (Line("digest", text, evidence=(of(last),)),)


def _amended(known: Known) -> tuple[Line, ...]:
    examples = []
    for event in known.tree.events(ContractAmended):
        fact = event.fact
        assert isinstance(fact, ContractAmended)
        weaker = f", WEAKER: {listed(fact.weakened)}" if fact.weakened else ", stricter or the same"
        reason = f": {fact.reason}" if fact.reason else ""
        examples.append(Example(plain(f"by {fact.author}{weaker}{reason}"), (of(event),)))
    if not examples:
        return ()
    more = ("logs", known.session_id, "--type", "contract.amended")
    text = counted(len(examples), "amendment")
    return (Line("amended", text, len(examples), examples=tuple(examples), more=more),)


def _touched(known: Known) -> tuple[Line, ...]:
    """Which of the stated criteria the plan has tasks for."""
    if not known.planned:
        return ()
    stated = known.mission.contract.criteria()
    planned = {name for task in known.mission.tasks.values() for name in task.task.criteria}
    left = [name for name, each in stated.items() if name not in planned and not each.guard]
    wanted = [name for name, each in stated.items() if not each.guard]
    text = f"{len(wanted) - len(left)} of {len(wanted)} stated criteria have tasks"
    if left:
        text += f"; none for {listed(left)}"
    evidence = dict.fromkeys(of(event) for event in known.planned.values())
    return (Line("touched", text, len(left), evidence=tuple(evidence)[-3:]),)


def _outside(known: Known) -> tuple[Line, ...]:
    """Files that merged tasks changed and that are in the paths of no item."""
    items = known.mission.contract.items
    if not items or not all(item.paths for item in items):
        return ()
    globs = [glob for item in items for glob in item.paths]
    merged = {(name, task.tree) for name, task in known.mission.tasks.items() if task.status == "merged"}
    seen: dict[str, Event] = {}
    looked: list[Event] = []
    for event in known.tree.events(TaskInspected):
        fact = event.fact
        assert isinstance(fact, TaskInspected)
        if (fact.task_id, fact.tree) in merged:
            looked.append(event)
            for path in fact.files:
                if path not in seen and not matches(path, globs):
                    seen[path] = event
    if not looked:
        return ()
    if not seen:
        return (Line("outside_paths", "no merged change is outside the stated paths", 0, evidence=(of(looked[-1]),)),)
    examples = tuple(Example(plain(path), (of(event),)) for path, event in seen.items())
    more = ("logs", known.session_id, "--type", "task.inspected")
    text = f"{counted(len(seen), 'file')} changed outside the stated paths"
    return (Line("outside_paths", text, len(seen), examples=examples, more=more),)


def began(known: Known) -> tuple[Evidence, ...]:
    """Where the mission's work began."""
    return tuple(of(event) for event in known.tree.events(MissionOpened)[:1])
