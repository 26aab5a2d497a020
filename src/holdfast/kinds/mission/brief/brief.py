"""What happened while nobody looked, from the log by code: the decisions first, and no claim without an event. Pure.

The same events make the same brief. It is told as Markdown (`brief_text.markdown`), or taken as data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.facts.base import text_of
from holdfast.facts.child import ChildFinished
from holdfast.facts.codec import Event
from holdfast.facts.mission import CriterionChecked
from holdfast.facts.model import AgentMessage, ModelRequestEnd
from holdfast.facts.repo import RepoMerged
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.task import TaskRefused
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.facts.workspace import WorkspaceSnapshotted
from holdfast.kinds.mission.brief import events as brief_kinds
from holdfast.kinds.mission.brief import mission as brief_mission
from holdfast.kinds.mission.brief.decisions import asked, decisions, items_of, told
from holdfast.kinds.mission.brief.document import (
    Brief,
    Evidence,
    Example,
    Line,
    Section,
    Tree,
    counted,
    lined,
    of,
    plain,
)
from holdfast.kinds.mission.brief.mission import Known
from holdfast.kinds.mission.fold.state import mission_of, of_mission
from holdfast.session.money import usd
from holdfast.session.state import State


class Spent(msgspec.Struct):
    """What a role spent. `unpriced` requests are of unknown cost; `last` is where something was last spent."""

    pico: int = 0
    requests: int = 0
    unpriced: int = 0
    last: Evidence | None = None

    @property
    def known(self) -> int | None:
        """The cost in pico-dollars, None when nothing of it is known."""
        return None if self.unpriced and not self.pico else self.pico

    def cost(self) -> str:
        """The cost alone: an unknown one is said, never shown as nothing."""
        if not self.unpriced:
            return usd(self.pico)
        return f"at least {usd(self.pico)}" if self.pico else "unknown"

    def words(self) -> str:
        """The cost, and of how many requests."""
        requests = counted(self.requests, "request")
        if not self.unpriced:
            return f"{usd(self.pico)}, {requests}"
        without = f"{self.unpriced} of {requests} without a price"
        return f"at least {usd(self.pico)}, {without}" if self.pico else f"unknown cost, {without}"


def cost_of(event: Event) -> tuple[int, bool] | None:
    """What an event spends in pico-dollars, and whether something of it is unknown; None when it spends nothing."""
    fact = event.fact
    match fact:
        case ModelRequestEnd():
            return fact.cost_pico or 0, fact.cost_pico is None
        case ToolResult() | ToolOutcomeUnknown() if fact.cost_pico:
            return fact.cost_pico, False
        case ToolDispatched() if fact.settled_pico:
            return fact.settled_pico, False
        case _:
            return None


def by_role(tree: Tree, *, whole: bool = False) -> dict[str, Spent]:
    """What each role spent, of what is news; with `whole` since the beginning."""
    found: dict[str, Spent] = {}
    for part in tree.parts:
        role = tree.role(part)
        for event in part.events:
            cost = cost_of(event)
            if cost is None or not (whole or tree.new(event)):
                continue
            spent = found.setdefault(role, Spent())
            spent.pico += cost[0]
            spent.unpriced += cost[1]
            spent.requests += isinstance(event.fact, ModelRequestEnd)
            spent.last = of(event)
    return found


def total(spent: dict[str, Spent]) -> Spent:
    """All of it."""
    whole = Spent()
    for each in spent.values():
        whole.pico += each.pico
        whole.requests += each.requests
        whole.unpriced += each.unpriced
        whole.last = each.last or whole.last
    return whole


def lines(spent: dict[str, Spent], cap_pico: int | None, session_id: str) -> tuple[Line, ...]:
    """The money by role, the dearest first."""
    if not spent:
        return ()
    whole = total(spent)
    cap = f", cap {usd(cap_pico)}" if cap_pico is not None else ""
    ordered = sorted(spent.items(), key=lambda each: -each[1].pico)
    examples = tuple(
        Example(f"{role} {each.words()}", (each.last,) if each.last is not None else ()) for role, each in ordered
    )
    return (Line("spend", f"{whole.words()}{cap}", len(spent), examples=examples, more=("budget", session_id)),)


__all__ = ["Brief", "Evidence", "Example", "Line", "Section", "brief"]

DECIDE, STANDS, CHANGED, WRONG, MONEY = "Decide", "Stands", "Changed", "Went wrong", "Money"

Found = dict[str, list[Example]]


def brief(
    events: Sequence[Event],
    state: State,
    below: Iterable[Sequence[Event]] = (),
    *,
    since_us: int | None = None,
    running: bool = False,
    changed: Sequence[str] = (),
) -> Brief:
    """What happened in a session, by its events, the state folded from them, and the logs of all sessions below it.

    With `since_us`, what happened is told from then on only; how things stand is told as it is. `running` says that a
    process holds it. `changed` are paths that the first and the last kept workspace of a session differ by.
    """
    tree = Tree(events, below, since_us)
    known = Known(tree, of_mission(state)) if mission_of(state) is not None else None
    found = brief_kinds.scan(tree)
    spent = by_role(tree)
    decide = decisions(tree, state, known, running=running)
    sections = [
        (DECIDE, decide),
        (STANDS, _stands(tree, known, told(decide))),
        (CHANGED, (*_changed(tree, known, changed), *brief_kinds.lines(brief_kinds.NEWS, found, tree.top.session_id))),
        (WRONG, _wrong(tree, found, decide)),
        (MONEY, lines(spent, state.limits.budget_pico, tree.name)),
    ]
    mission = state.created.mission if state.created is not None else None
    return Brief(
        tree.top.session_id,
        mission.name if mission is not None else tree.top.created.key if tree.top.created else "",
        plain(state.created.goal if state.created is not None else ""),
        _headline(tree, state, len(decide), running=running),
        state.seq,
        tuple(Section(title, lines) for title, lines in sections if lines),
        _numbers(tree, known, found, spent),
        since_us,
        mission.repo if mission is not None else "",
        of_mission(state).ref if mission_of(state) is not None else "",
    )


# --- the first line ----------------------------------------------------------------------------------


def _headline(tree: Tree, state: State, needs: int, *, running: bool) -> str:
    """State, cost of all of it, and what it needs; of a mission also whether its main branch moved."""
    whole = total(by_role(tree, whole=True))
    words = f"{_state(state, running=running)} {_duration(duration_us(tree, running=running))}, needs "
    words += f"{counted(needs, 'decision')}." if needs else "nothing."
    words += f" Cost {whole.cost()}."
    if mission_of(state) is not None:
        merges = len(tree.events(RepoMerged))
        words += f" Main branch: {counted(merges, 'merge')}." if merges else " Main branch unchanged."
    return words


def _state(state: State, *, running: bool) -> str:
    if running:
        return "running for"
    if state.ended is None or state.ended.status == "released":
        return "interrupted after"
    if state.ended.status != "parked":
        return f"{state.ended.status} after"
    waits = {
        "person": "stopped after", "budget": "stopped by its budget after", "cap": "stopped by its cap after",
        "provider": "waiting for its model's provider after", "timer": "waiting for its timer after",
        "child": "waiting for its sessions after", "context": "stopped by its context after",
        "job": "waiting for its jobs after",
    }  # fmt: skip
    return waits[state.ended.reason or "person"]


def duration_us(tree: Tree, *, running: bool) -> int:
    """From the first event of the session to its last end; to its last event when it has none, or goes on."""
    own = tree.top.events
    ends = [event for event in own if isinstance(event.fact, ShiftEnded)]
    last = own[-1] if running or not ends else ends[-1]
    return last.at_us - own[0].at_us


def _duration(us: int) -> str:
    seconds = us // 1_000_000
    if seconds < 60:
        return f"{seconds} s"
    minutes, hours = seconds // 60, seconds // 3600
    return f"{minutes} min" if minutes < 120 else f"{hours} h {minutes % 60} min"


# --- sections ----------------------------------------------------------------------------------------


def _stands(tree: Tree, known: Known | None, elsewhere: frozenset[str]) -> tuple[Line, ...]:
    if known is not None:
        return brief_mission.stands(known, elsewhere)
    last = next((event for event in reversed(tree.top.events) if isinstance(event.fact, AgentMessage)), None)
    said = text_of(last.fact.content) if last is not None and isinstance(last.fact, AgentMessage) else ""
    if last is None or not said.strip():
        return ()
    return (Line("words", f"last words: {plain(said, 200)}", evidence=(of(last),), more=("show", tree.name)),)


def _changed(tree: Tree, known: Known | None, paths: Sequence[str]) -> tuple[Line, ...]:
    return brief_mission.changed(known) if known is not None else (*_files(tree, paths), *_calls(tree))


def _files(tree: Tree, paths: Sequence[str]) -> tuple[Line, ...]:
    """The files that the kept workspaces of a session differ by, with the last of these."""
    kept = [event for event in tree.top.events if isinstance(event.fact, WorkspaceSnapshotted) and event.fact.snapshot]
    examples = [Example(plain(path), (of(kept[-1]),)) for path in paths if kept]
    return lined("files", "files changed", examples, ("brief", tree.name, "--json"))


def _calls(tree: Tree) -> tuple[Line, ...]:
    """How the calls of a session ended, by outcome."""
    ended: dict[str, list[Event]] = {}
    for event in tree.events(ToolResult):
        assert isinstance(event.fact, ToolResult)
        if tree.new(event):
            ended.setdefault(event.fact.outcome, []).append(event)
    total = sum(map(len, ended.values()))
    examples = [Example(f"{len(each)} {outcome}", (of(each[-1]),)) for outcome, each in ended.items()]
    return lined("calls", "calls ended", examples, ("logs", tree.name, "--type", "agent.tool_result"), total)


def _wrong(tree: Tree, found: Found, decide: tuple[Line, ...]) -> tuple[Line, ...]:
    """What went otherwise than planned, but for what the decisions tell already."""
    lines = brief_kinds.lines(brief_kinds.WRONG, found, tree.top.session_id)
    names, items = told(decide), asked(decide)
    kept = [line for line in lines if not _is_told(tree, line, names, items)]
    return (*kept, *_failed(tree, " ".join(each.text for line in kept for each in line.examples)))


def _is_told(tree: Tree, line: Line, names: frozenset[str], items: frozenset[tuple[str, int]]) -> bool:
    """Whether a line has nothing but what a decision is about: its item, or its criteria."""
    for each in line.examples:
        session_id, seq = each.evidence[0].session_id, each.evidence[0].seq
        event = tree.top.at(seq) if session_id == tree.top.session_id else None
        if line.kind in ("escalated", "breaker", "cap"):
            # The item is in the transaction of its cause.
            if items.isdisjoint({(session_id, seq - 1), (session_id, seq + 1)}):
                return False
        elif line.kind == "sent_back" and event is not None and isinstance(event.fact, TaskRefused):
            checks = [tree.top.at(seq) for seq in event.fact.evidence]
            about = {name for check in checks if check and isinstance(check.fact, CriterionChecked)
                     for name in check.fact.criteria}  # fmt: skip
            if not about or not about <= names:
                return False
        else:
            return False
    return True


def _failed(tree: Tree, elsewhere: str) -> tuple[Line, ...]:
    """Sessions below that failed or were cancelled, by the last word of each, unless that stands `elsewhere`."""
    names = {part.session_id: tree.called(part) for part in tree.below}
    last = {event.fact.child_id: event for event in tree.events(ChildFinished) if isinstance(event.fact, ChildFinished)}
    examples = []
    for child_id, event in last.items():
        fact = event.fact
        assert isinstance(fact, ChildFinished)
        said = plain(fact.detail or fact.summary)
        if fact.status in ("failed", "cancelled") and tree.new(event) and not (said and said in elsewhere):
            examples.append(Example(f"{names.get(child_id) or child_id} {fact.status}: {said}", (of(event),)))
    more = ("logs", tree.name, "--type", "child.finished")
    return lined("child_failed", "sessions below that failed or ended early", examples, more)


def _numbers(tree: Tree, known: Known | None, found: Found, spent: dict[str, Spent]) -> dict[str, int | None]:
    numbers: dict[str, int | None] = {f"{role}_pico": each.known for role, each in spent.items()}
    numbers["requests"] = sum(each.requests for each in spent.values())
    numbers["unpriced"] = sum(each.unpriced for each in spent.values())
    numbers["waits"] = sum(item.status == "open" for part in tree.parts for item in items_of(part).values())
    numbers["sessions"] = len(tree.parts)
    numbers |= {kind.name: len(found.get(kind.name, ())) for kind in brief_kinds.KINDS}
    if known is not None:
        numbers["criteria"] = len(known.criteria)
        numbers["met"] = len(known.met)
        numbers["merged"] = sum(tree.new(event) for event in tree.events(RepoMerged))
        numbers["checks"] = sum(tree.new(event) for event in tree.events(CriterionChecked))
    return numbers
