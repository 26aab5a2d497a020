"""What happened while nobody looked, from the log by code: what is not done first, and no claim without an event. Pure.

The same events make the same brief. It is told as Markdown (`brief_text.markdown`), or taken as data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.facts.child import ChildFinished
from holdfast.facts.codec import Event
from holdfast.facts.mission import CriterionChecked, MissionFinished
from holdfast.facts.people import ApprovalRequested
from holdfast.facts.repo import RepoMerged
from holdfast.facts.shift import ShiftEnded, ShiftStarted
from holdfast.facts.tool import ToolResult
from holdfast.mission import brief_kinds, brief_mission, brief_money
from holdfast.mission.brief_mission import Known
from holdfast.mission.brief_shapes import Brief, Evidence, Example, Line, Part, Section, Tree, counted, of, plain
from holdfast.session.items import ItemRow, item_of, next_item
from holdfast.session.state import State

__all__ = ["Brief", "Evidence", "Example", "Line", "Section", "brief"]

NOT_DONE, WAITS, PASSED, MAIN, SPEND = "Not done", "Waits for you", "Proven", "Main line", "Spend"
WRONG, DRIFT, BESIDES, DID = "What went wrong", "Drift and what nobody asked for", "Besides", "What it did"


def brief(
    events: Sequence[Event],
    state: State,
    below: Iterable[Sequence[Event]] = (),
    *,
    since_us: int | None = None,
    running: bool = False,
) -> Brief:
    """What happened in a session, by its events, the state folded from them, and the logs of all sessions below it.

    With `since_us`, what happened is told from then on only; how things stand is told as it is. `running` says that a
    process holds it.
    """
    tree = Tree(events, below, since_us)
    found = brief_kinds.scan(tree)
    session_id = tree.top.session_id
    spent = brief_money.by_role(tree)
    money = brief_money.lines(spent, state.limits.budget_pico, session_id)
    waits = _waits(tree)
    if state.mission is not None:
        sections = _of_mission(tree, state, found, spent, money, waits, running=running)
    else:
        sections = _of_session(tree, state, found, money, waits, running=running)
    mission = state.created.mission if state.created is not None else None
    whole = [Section(title, lines) for title, lines in sections if lines]
    return Brief(
        session_id,
        mission.name if mission is not None else tree.top.created.key if tree.top.created else "",
        plain(state.created.goal if state.created is not None else ""),
        _headline(tree, state, running=running),
        state.seq,
        tuple(whole),
        _numbers(tree, state, found, spent, waits),
        since_us,
        mission.repo if mission is not None else "",
        state.mission.ref if state.mission is not None else "",
    )


Sections = list[tuple[str, tuple[Line, ...]]]
Found = dict[str, list[Example]]


def _of_mission(
    tree: Tree,
    state: State,
    found: Found,
    spent: dict[str, brief_money.Spent],
    money: tuple[Line, ...],
    waits: tuple[Line, ...],
    *,
    running: bool,
) -> Sections:
    assert state.mission is not None
    known = Known(tree, state.mission)
    session_id = tree.top.session_id
    passes = [event for seq in state.mission.passed.values() if (event := tree.top.at(seq)) is not None]
    unasked = brief_kinds.lines(brief_kinds.UNASKED, found, session_id)
    return [
        (
            NOT_DONE,
            (*_stands(tree, state, running=running), *brief_mission.unmet(known), *brief_mission.tasks(known)),
        ),
        (WAITS, waits),
        (PASSED, brief_mission.passed(known)),
        (MAIN, brief_mission.main_line(known)),
        (SPEND, money),
        (WRONG, (*brief_kinds.lines(brief_kinds.WRONG, found, session_id), *_failed(tree))),
        (DRIFT, (*unasked, *brief_mission.drift(known), *brief_money.since_pass(tree, passes, spent))),
        (BESIDES, brief_kinds.lines(brief_kinds.OTHER, found, session_id)),
    ]


def _of_session(
    tree: Tree, state: State, found: Found, money: tuple[Line, ...], waits: tuple[Line, ...], *, running: bool
) -> Sections:
    session_id = tree.top.session_id
    return [
        (NOT_DONE, _stands(tree, state, running=running)),
        (WAITS, waits),
        (DID, _calls(tree)),
        (SPEND, money),
        (WRONG, (*brief_kinds.lines(brief_kinds.WRONG, found, session_id), *_failed(tree))),
        (BESIDES, brief_kinds.lines(brief_kinds.OTHER, found, session_id)),
    ]


def _latest(tree: Tree) -> Event | None:
    """The event that says how the session stands."""
    return next(
        (
            event
            for event in reversed(tree.top.events)
            if isinstance(event.fact, ShiftEnded | ShiftStarted | MissionFinished)
        ),
        tree.top.events[0] if tree.top.events else None,
    )


def _headline(tree: Tree, state: State, *, running: bool) -> str:
    if running:
        return "running"
    if state.ended is None:
        return "not running, and not over"
    why = f" ({state.ended.reason})" if state.ended.reason else ""
    return f"{state.ended.status}{why}"


def _stands(tree: Tree, state: State, *, running: bool) -> tuple[Line, ...]:
    """How it stands, with the event that says so."""
    event = _latest(tree)
    if event is None:
        return ()
    detail = f": {state.ended.detail}" if state.ended is not None and state.ended.detail and not running else ""
    text = plain(f"{_headline(tree, state, running=running)}{detail}", 200)
    more = ("show", tree.top.session_id)
    done = state.ended is not None and state.ended.status == "done" and not running
    return (Line("stands", f"nothing; {text}" if done else text, evidence=(of(event),), more=more),)


def items_of(part: Part) -> dict[str, ItemRow]:
    """What people were asked in a log, by item, as it stands at its end."""
    items: dict[str, ItemRow] = {}
    for event in part.events:
        name = item_of(event)
        if name is not None and (item := next_item(items.get(name), event)) is not None:
            items[name] = item
    return items


def _waits(tree: Tree) -> tuple[Line, ...]:
    """Open questions of all sessions, each with the command that answers it."""
    examples = []
    for part in tree.parts:
        for item in items_of(part).values():
            event = part.at(item.seq)
            if item.status != "open" or event is None or not isinstance(event.fact, ApprovalRequested):
                continue
            who = f" ({tree.called(part)})" if tree.called(part) else ""
            text = plain(f"{item.kind}{who}: {item.title}")
            examples.append(Example(text, (of(event),), command=("approve", item.item_id)))
    if not examples:
        return ()
    text = f"{counted(len(examples), 'question')} without an answer"
    return (Line("waits", text, len(examples), examples=tuple(examples), more=("inbox",)),)


def _failed(tree: Tree) -> tuple[Line, ...]:
    """Sessions below that failed or were cancelled, by the last word of each."""
    last: dict[str, Event] = {}
    names = {part.session_id: tree.called(part) for part in tree.below}
    for event in tree.events(ChildFinished):
        assert isinstance(event.fact, ChildFinished)
        last[event.fact.child_id] = event
    examples = []
    for child_id, event in last.items():
        fact = event.fact
        assert isinstance(fact, ChildFinished)
        if fact.status in ("failed", "cancelled") and tree.new(event):
            name = names.get(child_id) or child_id
            examples.append(Example(plain(f"{name} {fact.status}: {fact.detail or fact.summary}"), (of(event),)))
    if not examples:
        return ()
    text = f"{counted(len(examples), 'session')} below failed or ended early"
    more = ("logs", tree.top.session_id, "--type", "child.finished")
    return (Line("child_failed", text, len(examples), examples=tuple(examples), more=more),)


def _calls(tree: Tree) -> tuple[Line, ...]:
    """How the calls of a session ended, by outcome."""
    ended: dict[str, list[Event]] = {}
    for event in tree.events(ToolResult):
        assert isinstance(event.fact, ToolResult)
        if tree.new(event):
            ended.setdefault(event.fact.outcome, []).append(event)
    if not ended:
        return ()
    total = sum(map(len, ended.values()))
    examples = tuple(Example(f"{len(each)} {outcome}", (of(each[-1]),)) for outcome, each in ended.items())
    more = ("logs", tree.top.session_id, "--type", "agent.tool_result")
    return (Line("calls", f"{counted(total, 'call')} ended", total, examples=examples, more=more),)


def _numbers(
    tree: Tree, state: State, found: Found, spent: dict[str, brief_money.Spent], waits: tuple[Line, ...]
) -> dict[str, int | None]:
    numbers: dict[str, int | None] = {f"{role}_pico": each.known for role, each in spent.items()}
    numbers["requests"] = sum(each.requests for each in spent.values())
    numbers["unpriced"] = sum(each.unpriced for each in spent.values())
    numbers["waits"] = sum(line.count for line in waits)
    numbers["sessions"] = len(tree.parts)
    numbers |= {kind.name: len(found.get(kind.name, ())) for kind in brief_kinds.KINDS}
    if state.mission is not None:
        known = Known(tree, state.mission)
        numbers["criteria"] = len(state.mission.contract.criteria())
        numbers["met"] = len(known.met)
        numbers["merged"] = sum(tree.new(event) for event in tree.events(RepoMerged))
        numbers["checks"] = sum(tree.new(event) for event in tree.events(CriterionChecked))
    return numbers
