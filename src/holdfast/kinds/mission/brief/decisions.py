"""Decisions that a brief asks for: each once, with the commands to run and their consequences. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.facts.codec import Event
from holdfast.facts.people import ApprovalRequested, ItemKind
from holdfast.kinds import LOOP
from holdfast.kinds.mission.brief.document import Line, Option, Part, Tree, of, plain
from holdfast.kinds.mission.brief.items import again, run_of
from holdfast.kinds.mission.brief.mission import Known
from holdfast.session.money import usd
from holdfast.session.rows import ItemRow, item_of, next_item
from holdfast.session.state import State

LEADS: dict[ItemKind, tuple[str, str]] = {
    "escalation": ("it goes on", "it stops"),
    "change": ("this content of the protected files counts from now on", "the hand-in is refused"),
    "tool": ("the call runs once", "the call does not run, and the agent is told"),
    "question": ("it goes on with your answer", "it goes on without an answer"),
    "budget": ("the cap is raised and it goes on", "it stays parked"),
    "unknown": ("the call runs once more", "the agent is told that the outcome is unknown"),
    "egress": ("the secret may be used", "the secret stays locked"),
    "flake": ("the criterion is taken out of the contract", "the criterion stays, and is run again when it fails"),
    "lesson": ("the line goes into AGENTS.md", "the line is dropped"),
}
"""Kind of item → the consequences of approval and denial; the most urgent kind first."""

AGAIN = "one more plan"


def decisions(tree: Tree, state: State, known: Known | None, *, running: bool) -> tuple[Line, ...]:
    """Return open items of all sessions, and the reason that the session waits without an item."""
    found: dict[str, tuple[int, Line]] = {}
    for part in tree.parts:
        for item in items_of(part).values():
            event = part.at(item.seq)
            if item.status != "open" or event is None or not isinstance(event.fact, ApprovalRequested):
                continue
            line, key = _item(tree, part, item, event, known), event.fact.account_id or item.item_id
            if item.kind == "escalation" and part is tree.top and run_of(state) is not None:
                line = replace(line, options=(*line.options, again(tree)))
            if key in found:  # two workers asked for the same budget
                line = replace(found[key][1], evidence=(*found[key][1].evidence, *line.evidence))
            found[key] = (list(LEADS).index(item.kind), line)
    lines = tuple(line for _, line in sorted(found.values(), key=lambda each: each[0]))
    if running or any(line.kind != "lesson" for line in lines):
        return lines
    return (*_without_item(tree, state), *lines)


def items_of(part: Part) -> dict[str, ItemRow]:
    """Return the items of a log by id, in their final state."""
    items: dict[str, ItemRow] = {}
    for event in part.events:
        name = item_of(event)
        if name is not None and (item := next_item(items.get(name), event)) is not None:
            items[name] = item
    return items


def _item(tree: Tree, part: Part, item: ItemRow, event: Event, known: Known | None) -> Line:
    fact = event.fact
    assert isinstance(fact, ApprovalRequested)
    if item.kind == "escalation" and part is tree.top and known is not None:
        return _mission_stuck(known, item.item_id, fact, event)
    who = f"{tree.called(part)}: " if tree.called(part) else ""
    words = fact.title if item.kind != "question" else fact.action
    why = f" ({plain(fact.why, 120)})" if fact.why and fact.why not in words else ""
    yes, no = LEADS[item.kind]
    if item.kind == "question" and part.created is not None and part.created.agent.model == LOOP:
        yes, no = "the loop goes on", "the loop ends as failed"
    if item.kind == "budget" and fact.proposed_pico is not None:
        yes = f"the cap becomes {usd(fact.proposed_pico)} and it goes on"
    approve = ("answer", item.item_id, "ANSWER") if fact.needs_words else ("approve", item.item_id)
    options = (
        Option("answer" if fact.needs_words else "approve", (approve,), yes),
        Option("deny", (("deny", item.item_id),), no),
    )
    text = plain(f"{who}{words}{why}")
    return Line("waits", text, evidence=(of(event),), more=("inbox", item.item_id), options=options)


# --- a stuck mission -----------------------------------------------------------------------------


def _mission_stuck(known: Known, item_id: str, fact: ApprovalRequested, event: Event) -> Line:
    """Describe the decision about a stuck mission: its failing checks with their last output, and the options."""
    failing = known.failing()
    blocked = [each for each in failing if each.obstacle is not None]
    options: list[Option] = []
    approve = ("approve", item_id)
    ways = [each.obstacle for each in blocked if each.obstacle is not None]
    hosts = dict.fromkeys(way.what for way in ways if way.kind == "network" and way.what)
    if hosts:
        allow = tuple(("egress", known.name, "--allow", host, "--no-wake") for host in hosts)
        options.append(Option("allow it", (*allow, approve), f"{AGAIN}; its checks may connect to {', '.join(hosts)}"))
    again = "the same failure again" if failing and len(blocked) == len(failing) else AGAIN
    if not hosts:
        options.append(Option("go on", ((*approve, "--note", "NOTE"),), f"{again}; the note goes to its planner"))
    amend = ("mission", "amend", known.name, "FILE", "--weaken")
    options.append(Option("change it", (amend, approve), f"{AGAIN}, for the contract in FILE"))
    options.append(Option("end it", (("deny", item_id),), f"the mission ends as failed; {known.standing()}"))
    text = "; ".join(f"{each.called()} cannot pass here: {each.obstacle.words()}" for each in blocked if each.obstacle)
    text = text or f"go on? {fact.why or fact.title}"
    if hosts:
        text += "; approving alone leads to the same failure"
    examples = tuple(each.example() for each in failing)
    return Line(
        "waits", plain(text), len(examples) or 1, (of(event),), examples=examples, more=("inbox", item_id),
        options=tuple(options),
    )  # fmt: skip


# --- sessions that wait without an item ----------------------------------------------------------


def _without_item(tree: Tree, state: State) -> tuple[Line, ...]:
    ended, name = state.ended, tree.name
    event = tree.latest()
    if event is None or (ended is not None and ended.status in ("done", "failed", "cancelled")):
        return ()
    wake = Option("go on", (("wake", name),), "it goes on where it stopped")
    if ended is None or ended.status == "released":
        return (_waiting("no process runs it, and it is not finished", event, wake),)
    detail = ended.detail or f"it is parked ({ended.reason})"
    match ended.reason:
        case "budget" if ended.due_us is None:
            options = (Option("raise it", (("budget", name, "--set", "USD"),), "it goes on under that cap"),)
        case "cap":
            more = ("run", "--session-id", name, "--max-turns", str(2 * state.limits.max_turns))
            options = (Option("raise it", (more,), "it goes on with twice as many turns"),)
        case "person":
            options = (wake,)
        case _:
            return ()
    cancel = Option("end it", (("cancel", name),), "it ends as cancelled")
    return (_waiting(detail, event, *options, cancel),)


def _waiting(text: str, event: Event, *options: Option) -> Line:
    return Line("stopped", plain(text), evidence=(of(event),), options=options)


def told(lines: tuple[Line, ...]) -> frozenset[str]:
    """Return the criteria that these lines are about."""
    return frozenset(name for line in lines for each in line.examples for name in each.criteria)


def asked(lines: tuple[Line, ...]) -> frozenset[tuple[str, int]]:
    """Return the lines' own evidence, as pairs of session and position."""
    return frozenset((each.session_id, each.seq) for line in lines for each in line.evidence)
