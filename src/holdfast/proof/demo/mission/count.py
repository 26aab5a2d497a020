"""Statistics from the logs of a mission and its roles: cost by role, faults and their outcomes, verdicts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.app.compose import Runtime
from holdfast.facts.base import Fact, text_of
from holdfast.facts.codec import Event
from holdfast.facts.mission import CriterionChecked, MissionFinished, WorkSubmitted
from holdfast.facts.model import AgentMessage, AgentToolUse, ModelRequestEnd
from holdfast.facts.people import UserMessage
from holdfast.facts.session import SessionCreated
from holdfast.facts.shift import ChildOpened, ShiftStarted
from holdfast.facts.task import RatchetViolated, TaskHandedIn, TaskInspected, TaskJudged, TaskRefused, TaskStarted
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.kinds.mission.role.tools import SUBMITS
from holdfast.proof.oracle.faults import FAULT_PREFIX

_MARK = re.compile(r"^\[fault (\S+) (\S+)\]")


@dataclass(frozen=True)
class FaultCount:
    """Counts of one class of the oracle's faults, by outcome.

    `caught`: prevented, sent back, or not counted. `listed`: accepted and listed as unasked. `through`: accepted
    without a remark, because the result met every check.
    """

    had: int
    caught: int
    listed: int
    through: int


@dataclass
class MissionCounts:
    """Statistics of a mission. Costs are in pico-dollars, or None if a part is unknown."""

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
        """Total cost; None if a part is unknown."""
        known = [cost for cost in self.cost.values() if cost is not None]
        return sum(known) if len(known) == len(self.cost) else None


Family = Mapping[str, Sequence[Event]]
"""Session id → its events, the mission's own first."""


async def read_family(runtime: Runtime, session_id: str) -> dict[str, list[Event]]:
    """Read the logs of a mission and of all its descendants."""
    family: dict[str, list[Event]] = {}
    waiting = [session_id]
    while waiting:
        name = waiting.pop(0)
        if name not in family:
            family[name] = await runtime.store.read(name)
            waiting += [event.fact.child_id for event in family[name] if isinstance(event.fact, ChildOpened)]
    return family


def count_mission(family: Family) -> MissionCounts:
    """Count the events of a mission and its sessions."""
    counts = MissionCounts()
    names = list(family)
    for name in names:
        role = "mission" if name == names[0] else _role(family[name])
        counts.sessions[role] += 1
        counts.cost.setdefault(role, 0)
        counts.events += len(family[name])
        for event in family[name]:
            _count_any(counts, role, event.fact)
    seen: set[tuple[str, str, str]] = set()
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


def _count_own(counts: MissionCounts, fact: Fact, seen: set[tuple[str, str, str]]) -> None:
    match fact:
        case TaskRefused(kind=kind):
            counts.refused[kind] += 1
        case RatchetViolated(violations=violations):
            counts.rules.update(each.rule for each in violations)
        case TaskInspected(unasked=unasked):
            counts.unasked += len(unasked)
        case TaskJudged(decision=decision, refused=refused):
            counts.judged["not counted" if refused else decision] += 1
        case CriterionChecked(tree=tree, key=key, criteria=criteria):
            counts.checked += len(criteria)
            again = {(tree, key, name) for name in criteria}
            counts.checked_twice += len(again & seen)
            seen |= again
        case MissionFinished():
            counts.finished = fact
        case _:
            pass


# --- faults --------------------------------------------------------------------------------------


def _faults(family: Family, mission: str) -> dict[str, FaultCount]:
    """Match the attempts with a fault to their outcomes in the mission's log."""
    totals: dict[str, Counter[str]] = {}
    for child, events in family.items():
        if child != mission:
            ends = _ends(family[mission], child)
            for go in _goes(events):
                # Work that was not submitted or not accepted had no further effect.
                how = ends.pop(0) if go.handed_in and ends else "caught"
                how = "caught" if go.prevented else how
                if go.fault:
                    totals.setdefault(go.fault, Counter())[how] += 1
    return {
        kind: FaultCount(sum(each.values()), each["caught"], each["listed"], each["through"])
        for kind, each in sorted(totals.items())
    }


@dataclass
class _Go:
    """Attempt of a session at its task. `prevented`: the command of its fault failed."""

    fault: str = ""
    handed_in: bool = False
    prevented: bool = False


def _goes(events: Sequence[Event]) -> list[_Go]:
    """Return the attempts of a session. A new one begins with a message, with a refused submission, and when the fault
    ends because the worker was told to continue.
    """
    goes = [_Go()]
    calls: dict[str, AgentToolUse] = {}
    for event in events:
        fact = event.fact
        match fact:
            case AgentMessage(content=content):
                found = _MARK.match(text_of(content))
                if found is None and goes[-1].fault:
                    goes.append(_Go())
                elif found is not None:
                    goes[-1].fault = found.group(1)
            case AgentToolUse(call_id=call_id):
                calls[call_id] = fact
            case ToolResult(call_id=call_id, outcome="error") if call_id in calls:
                call = calls[call_id]
                if call.name in SUBMITS.values():
                    goes.append(_Go())
                elif str(call.input.get("command", "")).startswith(FAULT_PREFIX):
                    goes[-1].prevented = True
            case WorkSubmitted():
                goes[-1].handed_in = True
            case UserMessage():
                goes.append(_Go())
            case _:
                pass
    return goes


def _ends(events: Sequence[Event], child: str) -> list[str]:
    """Return the outcome of each submission of a child."""
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
            case TaskRefused(child_id=name, kind=kind) if name == child and kind != "silent" and ends:
                ends[-1] = "caught"
            case TaskJudged(child_id=name, refused=refused) if name == child:
                ends.append("caught" if refused else "through")
            case _:
                pass
    return ends
