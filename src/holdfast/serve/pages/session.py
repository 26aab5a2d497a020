"""A session: its head, a window of its timeline, and its state, files, and context at an earlier event."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.brain.points import Point
from holdfast.errors import SnapshotFailed
from holdfast.facts.codec import Event
from holdfast.facts.model import ModelRequestEnd
from holdfast.facts.tool import ToolDispatched, ToolOutcomeUnknown, ToolResult
from holdfast.ids import Entropy
from holdfast.kinds.mission.brief.brief import cost_of
from holdfast.log.base import Log
from holdfast.repo.base import Shelf
from holdfast.serve.pages.drawings import Bar, Gauge, gauge, lanes
from holdfast.service.access_lines import outside_lines, warnings, weakness
from holdfast.service.event_lines import in_detail, in_full
from holdfast.service.sessions import Store, costs_of, standing
from holdfast.session.money import usd
from holdfast.session.rows import SessionRow
from holdfast.session.state import HandoffItem, State, SummaryItem

WINDOW = 200
"""Number of events in a window of the timeline."""

AFTER = 20
"""Number of events shown after the one that a link names."""

FOLDED = 500
"""Maximum number of characters in the folded details of a row; the page of the event has all of them."""

NAMED = 12
"""Maximum number of events that a field names."""

UNKNOWN = "outcome unknown"


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One event as a row. `verb` names its type, `outcome` the end of a call or request, empty for other events.

    `detail` is the beginning of its text if the line does not show all of it; `more` means that there is more of it.
    """

    seq: int
    at_us: int
    lane: str
    actor: str
    verb: str
    line: str
    outcome: str = ""
    cost: str = ""
    detail: str = ""
    more: bool = False


class Timeline(msgspec.Struct, frozen=True):
    """A window of events, oldest first. `older` and `newer` are positions to go to, 0 for none."""

    moments: tuple[Moment, ...]
    older: int
    newer: int
    activity: tuple[Bar, ...]


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a session: what it is, its state, its spend and context, and the lines about its sandbox."""

    session_id: str
    name: str
    goal: str
    model: str
    role: str
    state: str
    detail: str
    running: bool
    over: bool
    head: int
    epoch: int
    holder: str
    spent: str
    money: Gauge | None
    cap: str
    turns: str
    context: Gauge
    context_rows: tuple[tuple[str, str, int], ...]
    facts: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    marks: tuple[str, ...]
    created_us: int
    updated_us: int
    parent: str = ""
    origin: str = ""
    origin_seq: int = 0
    mission: bool = False
    items: bool = False
    open_items: tuple[str, ...] = ()


class Then(msgspec.Struct, frozen=True, kw_only=True):
    """A session after an earlier event: its state, the snapshot of its files, and what changed in them since.

    `fork_key` is the key of a fork made from this page, so that sending its form twice makes one fork; empty if the
    session cannot be forked there.
    """

    seq: int
    facts: tuple[tuple[str, str], ...]
    context: Gauge
    context_rows: tuple[tuple[str, str, int], ...]
    files: str
    changed: tuple[tuple[str, str], ...] = ()
    fork_key: str = ""


_LANES = {
    "agent": "model",
    "span": "model",
    "context": "model",
    "phase": "model",
    "rule": "model",
    "tool": "tool",
    "hands": "tool",
    "job": "tool",
    "service": "tool",
    "egress": "tool",
    "environment": "tool",
    "workspace": "tool",
    "user": "person",
    "approval": "person",
}
"""First part of an event type → lane; others are the harness's. An event of a user is in the lane `person`."""


def lane_of(event: Event) -> str:
    """Return the lane of an event."""
    if event.actor.startswith("user:"):
        return "person"
    if event.type == "agent.tool_result":
        return "tool"
    return _LANES.get(event.type.partition(".")[0], "harness")


def moment(event: Event, unfinished: dict[str, str]) -> Moment:
    """Return an event as a row. `unfinished` are the calls without an end, by id, in words."""
    fact = event.fact
    outcome = ""
    match fact:
        case ToolResult():
            outcome = fact.outcome + (f" ({fact.exit_code})" if fact.exit_code else "")
        case ToolOutcomeUnknown():
            outcome = UNKNOWN
        case ToolDispatched(call_id=call_id):
            outcome = unfinished.get(call_id, "")
        case ModelRequestEnd(outcome=ended):
            outcome = ended
    spent = cost_of(event)
    cost = "" if spent is None else "unpriced" if spent[1] else usd(spent[0])
    line, whole = in_detail(event).strip().removeprefix("→").strip(), in_full(event)
    shows = whole if " ".join(whole.split()) not in line else ""
    return Moment(
        seq=event.seq,
        at_us=event.at_us,
        lane=lane_of(event),
        actor=event.actor,
        verb=event.type.removeprefix("agent.").removeprefix("span.").replace("_", " ").replace(".", " "),
        line=line,
        outcome=outcome,
        cost=cost,
        detail=shows[:FOLDED],
        more=len(shows) > FOLDED,
    )


def unfinished(state: State, *, running: bool) -> dict[str, str]:
    """Return the dispatched calls without an end in words: at work in a live process, or of unknown outcome."""
    word = "running" if running else UNKNOWN
    return {call.call_id: word for call in state.open_calls() if call.attempt}


async def timeline(log: Log, row: SessionRow, open_calls: dict[str, str], at: int | None = None) -> Timeline:
    """Return the window of events that ends at `at`, by default at the end of the log."""
    last = row.head if at is None else min(at, row.head)
    first = max(1, last - WINDOW + 1)
    events = await log.read(row.session_id, after=first - 1, limit=last - first + 1)
    moments = tuple(moment(event, open_calls) for event in events)
    activity = lanes([(each.lane, each.at_us) for each in moments])
    newer = min(row.head, last + WINDOW) if last < row.head else 0
    return Timeline(moments, first - 1, newer, activity)


async def head(store: Store, row: SessionRow, state: State, items: Sequence[str] = ()) -> Head:
    """Return the head of a session. `items` are its open inbox items."""
    running = row.session_id in await store.holders()
    costs = (await costs_of(store, row))[row.session_id]
    cap = state.limits.budget_pico
    created = state.created
    sandbox = _sandbox(state)
    facts = {"Model": row.model, "Workspace": row.workspace, "Sandbox": sandbox}
    facts |= {name.capitalize(): value for name, value in outside_lines(state).items()}
    open_calls = ", ".join(f"{call.name} {call.call_id}" for call in state.open_calls())
    facts |= {"Open calls": open_calls} if open_calls else {}
    live = ", ".join(job.command or job.name for job in state.live_jobs())
    facts |= {"Jobs": live} if live else {}
    return Head(
        session_id=row.session_id,
        name=row.key or row.session_id,
        goal=created.goal if created is not None else row.goal,
        model=row.model,
        role=created.role.kind if created is not None and created.role is not None else row.name,
        state=standing(row, running=running),
        detail=row.detail,
        running=running,
        over=row.status in ("done", "failed", "cancelled"),
        head=row.head,
        epoch=row.epoch,
        holder=row.holder,
        spent=str(costs),
        money=None if cap is None else gauge(costs.tree.pico, cap),
        cap="no cap" if cap is None else usd(cap),
        turns=f"{state.responses:,} of at most {state.limits.max_turns:,}",
        context=_context(state),
        context_rows=context_rows(state),
        facts=tuple(facts.items()),
        warnings=tuple(warnings(state)),
        marks=tuple(row.marks.split()),
        created_us=row.created_us,
        updated_us=row.updated_us,
        parent=row.parent,
        origin=row.origin,
        origin_seq=row.origin_seq,
        mission=created is not None and created.mission is not None,
        items=created is not None and created.items is not None,
        open_items=tuple(items),
    )


async def then(shelf: Shelf | None, point: Point, now: str, entropy: Entropy) -> Then:
    """Return a session at a point of its log. `now` is its latest snapshot, to compare the files with."""
    state = point.state
    forkable = point.kept and (state.created is None or state.created.mission is None)
    files = f"kept after e{point.kept_seq}" if point.kept else "not kept"
    if not point.kept and point.later_seq:
        files += f"; first kept after e{point.later_seq}"
    if point.trouble and not point.kept:
        files += f": {point.trouble}"
    changed: tuple[tuple[str, str], ...] = ()
    if shelf is not None and point.kept and now and now != point.kept:
        try:
            found = await shelf.changes(point.kept, now)
        except SnapshotFailed:
            found = []
        changed = tuple((each.kind, each.path) for each in found if not each.ignored)[:WINDOW]
    open_calls = ", ".join(f"{call.name} {call.call_id}" for call in state.open_calls())
    name = point.row.key or state.session_id[-6:]
    unseen = [f"e{item.seq}" for item in state.pending]
    more = f", and {len(unseen) - NAMED} more" if len(unseen) > NAMED else ""
    facts = {
        "State": standing(point.row, running=False) if not state.in_shift else "in a shift",
        "Turns": f"{state.responses:,}",
        "Spend": usd(state.cost_pico) + ("+" if state.unpriced else ""),
        "Open calls": open_calls or "none",
        "Not yet seen by the model": ", ".join(unseen[:NAMED]) + more or "nothing",
        "Sandbox": _sandbox(state),
    }
    return Then(
        seq=state.seq,
        facts=tuple(facts.items()),
        context=_context(state),
        context_rows=context_rows(state),
        files=files,
        changed=changed,
        fork_key=f"{name[:60]}-at-{state.seq}-{entropy(4).hex()}" if forkable else "",
    )


def _sandbox(state: State) -> str:
    hands = state.hands
    if hands is None:
        unsandboxed = state.created is not None and state.created.workspace.isolation == "none"
        return "none now" + ("; calls run without a sandbox" if unsandboxed else "")
    return f"{hands.provider}, uid {hands.uid}" + (f"; {weakness(hands)}" if weakness(hands) else "")


def _line(state: State) -> int:
    limits = state.limits
    if limits.context.strategy == "off":
        return limits.context_tokens
    return min(limits.context_tokens, limits.context.line_tokens)


def _used(state: State) -> int:
    return state.window_tokens + sum(item.tokens for item in state.pending)


def _context(state: State) -> Gauge:
    marks = [(float(_line(state)), "renewed here", 0)]
    at = 0.0
    for item in state.window:
        at += item.tokens
        if isinstance(item, SummaryItem):
            marks.append((at, "summary", item.seq))
        elif isinstance(item, HandoffItem):
            marks.append((at, "reset", item.seq))
    return gauge(_used(state), state.limits.context_tokens, marks)


def context_rows(state: State) -> tuple[tuple[str, str, int], ...]:
    """Return the table of the context gauge: label, tokens, and the event of a mark, 0 for none."""
    rows = [("In use", f"{_used(state):,} tokens", 0), ("Renewed at", f"{_line(state):,} tokens", 0)]
    rows.append(("Limit", f"{state.limits.context_tokens:,} tokens", 0))
    for item in state.window:
        if isinstance(item, SummaryItem):
            rows.append((f"Summary of the turns through e{item.through_seq}", f"{item.tokens:,} tokens", item.seq))
        elif isinstance(item, HandoffItem):
            rows.append(("Fresh context after a reset", f"{item.tokens:,} tokens", item.seq))
    return tuple(rows)
