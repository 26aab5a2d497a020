"""Brief of a session or mission, made from its log by code: decisions first, and no claim without an event. Pure.

The same events make the same brief. `document.markdown` renders it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.facts.base import text_of
from holdfast.facts.codec import Event
from holdfast.facts.hands import WorkspaceSnapshotted
from holdfast.facts.mission import CriterionChecked
from holdfast.facts.model import AgentMessage, ModelRequestEnd
from holdfast.facts.shift import ChildFinished, ShiftEnded
from holdfast.facts.task import RepoMerged, TaskRefused
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.kinds.items.state import ItemsState
from holdfast.kinds.mission.brief import events as brief_kinds
from holdfast.kinds.mission.brief import items as brief_items
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
    """Spend of a role. `unpriced` requests are of unknown cost; `last` is the latest spending event."""

    pico: int = 0
    requests: int = 0
    unpriced: int = 0
    last: Evidence | None = None

    @property
    def known(self) -> int | None:
        """Known cost in pico-dollars, or None."""
        return None if self.unpriced and not self.pico else self.pico

    def cost(self) -> str:
        """Cost as text. An unknown cost is called unknown, never 0."""
        if not self.unpriced:
            return usd(self.pico)
        return f"at least {usd(self.pico)}" if self.pico else "unknown"

    def words(self) -> str:
        """Cost and number of requests, as text."""
        requests = counted(self.requests, "request")
        if not self.unpriced:
            return f"{usd(self.pico)}, {requests}"
        without = f"{self.unpriced} of {requests} without a price"
        return f"at least {usd(self.pico)}, {without}" if self.pico else f"unknown cost, {without}"


def cost_of(event: Event) -> tuple[int, bool] | None:
    """Return the spend of an event in pico-dollars, and True if part of it is unknown; None if it spends nothing."""
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
    """Sum the spend by role in new events, or in all with `whole`."""
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
    """Return the total spend."""
    whole = Spent()
    for each in spent.values():
        whole.pico += each.pico
        whole.requests += each.requests
        whole.unpriced += each.unpriced
        whole.last = each.last or whole.last
    return whole


def lines(spent: dict[str, Spent], cap_pico: int | None, session_id: str) -> tuple[Line, ...]:
    """Return lines of spend by role, the highest first."""
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

DECIDE, STANDS, CHANGED, WRONG, MONEY = "Decisions", "Status", "Changes", "Problems", "Cost"

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
    """Build the brief of a session from its events, the folded state, and the logs of its descendants.

    With `since_us` it covers events after that time, but the present status in full. `running` means that a process
    holds the session. `changed` are paths that differ between its first and last workspace snapshots.
    """
    tree = Tree(events, below, since_us)
    known = Known(tree, of_mission(state)) if mission_of(state) is not None else None
    run = brief_items.run_of(state)
    found = brief_kinds.scan(tree)
    spent = by_role(tree)
    decide = decisions(tree, state, known, running=running)
    sections = [
        (DECIDE, decide),
        (STANDS, _stands(tree, known, told(decide)) if run is None else brief_items.stands(tree, state, run)),
        (CHANGED, (*_changed(tree, known, changed), *brief_kinds.lines(brief_kinds.NEWS, found, tree.top.session_id))),
        (WRONG, _wrong(tree, found, decide, run)),
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
        {**_numbers(tree, known, found, spent), **(brief_items.numbers(run) if run else {})},
        since_us,
        mission.repo if mission is not None else "",
        of_mission(state).ref if mission_of(state) is not None else "",
    )


# --- the first line ----------------------------------------------------------------------------------


def _headline(tree: Tree, state: State, needs: int, *, running: bool) -> str:
    """Return status, number of decisions, and total cost; for a mission also its merges."""
    whole = total(by_role(tree, whole=True))
    seconds = duration_us(tree, running=running) // 1_000_000
    minutes, hours = seconds // 60, seconds // 3600
    took = f"{seconds} s" if seconds < 60 else f"{minutes} min" if minutes < 120 else f"{hours} h {minutes % 60} min"
    words = f"{_state(state, running=running)} {took}, needs "
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
    """Time from a session's first event to its last end of a shift; to its last event if it runs or no shift ended."""
    own = tree.top.events
    ends = [event for event in own if isinstance(event.fact, ShiftEnded)]
    last = own[-1] if running or not ends else ends[-1]
    return last.at_us - own[0].at_us


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
    """List the changes of a mission; for another session, changed files and the number of calls by outcome."""
    if known is not None:
        return brief_mission.changed(known)
    kept = [event for event in tree.top.events if isinstance(event.fact, WorkspaceSnapshotted) and event.fact.snapshot]
    files = [Example(plain(path), (of(kept[-1]),)) for path in paths if kept]
    ended: dict[str, list[Event]] = {}
    for event in tree.events(ToolResult):
        assert isinstance(event.fact, ToolResult)
        if tree.new(event):
            ended.setdefault(event.fact.outcome, []).append(event)
    total = sum(map(len, ended.values()))
    calls = [Example(f"{len(each)} {outcome}", (of(each[-1]),)) for outcome, each in ended.items()]
    return (
        *lined("files", "files changed", files, ("brief", tree.name, "--json")),
        *lined("calls", "calls ended", calls, ("logs", tree.name, "--type", "agent.tool_result"), total),
    )


def _wrong(tree: Tree, found: Found, decide: tuple[Line, ...], run: ItemsState | None) -> tuple[Line, ...]:
    """List problems, except those that a decision covers. Failed sessions of a run over a list are only tries."""
    lines = brief_kinds.lines(brief_kinds.WRONG, found, tree.top.session_id)
    names, items = told(decide), asked(decide)
    kept = [line for line in lines if not _is_told(tree, line, names, items)]
    if run is not None:
        return (*brief_items.quarantined(tree, run), *kept)
    return (*kept, *_failed(tree, " ".join(each.text for line in kept for each in line.examples)))


def _is_told(tree: Tree, line: Line, names: frozenset[str], items: frozenset[tuple[str, int]]) -> bool:
    """Return True if all examples of a line are about an item or criteria of a decision."""
    for each in line.examples:
        session_id, seq = each.evidence[0].session_id, each.evidence[0].seq
        event = tree.top.at(seq) if session_id == tree.top.session_id else None
        if line.kind in ("escalated", "breaker", "cap"):
            # The item is in the same transaction as its cause.
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
    """List failed or cancelled descendants, with the reason unless it is in the text `elsewhere`."""
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
