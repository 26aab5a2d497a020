"""What the logs of a mission and of its roles say: money by role, faults and what became of them, judges' words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.app.compose import Runtime
from holdfast.facts.base import Fact, text_of
from holdfast.facts.child import ChildOpened
from holdfast.facts.codec import Event
from holdfast.facts.mission import CriterionChecked, MissionFinished
from holdfast.facts.model import AgentMessage, ModelRequestEnd
from holdfast.facts.session import SessionCreated
from holdfast.facts.shift import ShiftStarted
from holdfast.facts.task import RatchetViolated, TaskHandedIn, TaskInspected, TaskJudged, TaskRefused, TaskStarted
from holdfast.facts.tool import ToolOutcomeUnknown

_MARK = re.compile(r"^\[fault (\S+) (\S+)\]")


@dataclass(frozen=True)
class FaultCount:
    """One class of faults: sessions that had it, and how each such time ended.

    `caught` times were sent back or did not count. `listed` were let through and listed as unasked. `through` came
    through without a word: what they did met every check that there was.
    """

    had: int
    caught: int
    listed: int
    through: int


@dataclass
class MissionCounts:
    """Everything that is counted. Money is in pico-dollars, None where some of it is unknown."""

    cost: dict[str, int | None] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    presumed: int = 0
    sessions: Counter[str] = field(default_factory=Counter)
    faults: dict[str, FaultCount] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    judged: Counter[str] = field(default_factory=Counter)
    checked: int = 0
    checked_twice: int = 0
    unasked: int = 0
    unknown: int = 0
    events: int = 0
    shifts: int = 0
    finished: MissionFinished | None = None

    @property
    def cost_pico(self) -> int | None:
        """All of it; None when some is unknown."""
        known = [cost for cost in self.cost.values() if cost is not None]
        return sum(known) if len(known) == len(self.cost) else None


Family = Mapping[str, Sequence[Event]]
"""Session id → its events; the mission's own first."""


async def read_family(runtime: Runtime, session_id: str) -> dict[str, list[Event]]:
    """The logs of a mission and of all sessions below it."""
    family: dict[str, list[Event]] = {}
    waiting = [session_id]
    while waiting:
        name = waiting.pop(0)
        if name not in family:
            family[name] = await runtime.store.read(name)
            waiting += [event.fact.child_id for event in family[name] if isinstance(event.fact, ChildOpened)]
    return family


def count_mission(family: Family) -> MissionCounts:
    """Count them."""
    counts = MissionCounts()
    names = list(family)
    for name in names:
        role = "mission" if name == names[0] else _role(family[name])
        counts.sessions[role] += 1
        counts.cost.setdefault(role, 0)
        counts.events += len(family[name])
        for event in family[name]:
            _count_any(counts, role, event.fact)
    seen: set[tuple[str, str]] = set()
    for event in family[names[0]]:
        _count_own(counts, event.fact, seen)
    counts.faults = _faults(family, names[0])
    return counts


def _role(events: Sequence[Event]) -> str:
    first = events[0].fact if events else None
    return first.role.kind if isinstance(first, SessionCreated) and first.role else "other"


def _count_any(counts: MissionCounts, role: str, fact: Fact) -> None:
    match fact:
        case ModelRequestEnd(cost_pico=cost, outcome=outcome):
            counts.requests[role] += 1
            counts.presumed += outcome == "presumed"
            before = counts.cost[role]
            counts.cost[role] = None if before is None or cost is None else before + cost
        case ShiftStarted():
            counts.shifts += 1
        case ToolOutcomeUnknown():
            counts.unknown += 1
        case _:
            pass


def _count_own(counts: MissionCounts, fact: Fact, seen: set[tuple[str, str]]) -> None:
    match fact:
        case TaskRefused(kind=kind):
            counts.refused[kind] += 1
        case RatchetViolated(violations=violations):
            counts.rules.update(each.rule for each in violations)
        case TaskInspected(unasked=unasked):
            counts.unasked += len(unasked)
        case TaskJudged(decision=decision, refused=refused):
            counts.judged["not counted" if refused else decision] += 1
        case CriterionChecked(tree=tree, criteria=criteria):
            counts.checked += len(criteria)
            again = {(tree, name) for name in criteria}
            counts.checked_twice += len(again & seen)
            seen |= again
        case MissionFinished():
            counts.finished = fact
        case _:
            pass


# --- faults --------------------------------------------------------------------------------------


def _faults(family: Family, mission: str) -> dict[str, FaultCount]:
    """Each session's goes at its work, and for each that had a fault what the mission made of it."""
    totals: dict[str, Counter[str]] = {}
    for child, events in family.items():
        if child == mission:
            continue
        goes, ends = _goes(events), _ends(family[mission], child)
        if _role(events) == "judge":
            # Only its last go is heard: those before it were sent back on the spot.
            ends = [*(["caught"] * (len(goes) - len(ends))), *ends]
        for place, kind in enumerate(goes):
            if kind:
                how = ends[place] if place < len(ends) else "caught"
                totals.setdefault(kind, Counter())[how] += 1
    return {
        kind: FaultCount(sum(each.values()), each["caught"], each["listed"], each["through"])
        for kind, each in sorted(totals.items())
    }


def _goes(events: Sequence[Event]) -> list[str]:
    """The fault of each go that a session had at its work: from its beginning, or from when it was told something."""
    goes = [""]
    for event in events:
        fact = event.fact
        if isinstance(fact, AgentMessage):
            found = _MARK.match(text_of(fact.content))
            if found:
                goes[-1] = found.group(1)
        elif fact.__struct_config__.tag == "user.message":
            goes.append("")
    return goes


def _ends(events: Sequence[Event], child: str) -> list[str]:
    """How each go of a child ended. One that came to no end that counts was caught."""
    ends: list[str] = []
    task = ""
    for event in events:
        match event.fact:
            case TaskStarted(child_id=name, task_id=task_id) if name == child:
                task = task_id
            case TaskHandedIn(child_id=name) if name == child:
                ends.append("through")
            case TaskInspected(task_id=task_id, unasked=unasked) if task_id == task and ends and unasked:
                ends[-1] = "listed"
            case TaskRefused(child_id=name) if name == child:
                if ends and ends[-1] != "caught":
                    ends[-1] = "caught"
                else:
                    ends.append("caught")
            case TaskJudged(child_id=name, refused=refused) if name == child:
                ends.append("caught" if refused else "through")
            case _:
                pass
    return ends
