"""A mission: the board of its criteria with the last evidence, its tasks, its merge queue, and its money."""

from __future__ import annotations

import msgspec

from holdfast.facts.mission import CriterionChecked
from holdfast.kinds.mission.fold.state import OVER, MissionState, TaskState, Verdict, of_mission
from holdfast.log.base import Log, Which
from holdfast.serve.pages.drawings import Bar, Gauge, Graph, bars, gauge, graph
from holdfast.service.sessions import Store, standing
from holdfast.session.costs import Cost, Costs, costs, own_cost
from holdfast.session.decide.waits import unanswered
from holdfast.session.money import HOUR_US, usd
from holdfast.session.rows import SessionRow
from holdfast.session.state import State

GROUPS = (
    ("Planned", ("planned",)),
    ("At work", ("working", "handed_in", "inspected")),
    ("Judged", ("judging",)),
    ("Queued", ("queued",)),
    ("Merged", ("merged",)),
    ("Given up", ("blocked", "infeasible", "failed", "dropped")),
)
"""Groups of tasks, with their statuses."""

CRITERIA = 300
"""Maximum number of criteria on a board."""

SHORT = 10


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A criterion. `state` is met, failing, unknown (after a merge that changed it), or never run.

    `since_seq` is the event since which it has passed, `seq` its last evidence, 0 for none.
    """

    name: str
    text: str
    state: str
    guard: bool
    rubric: bool
    since_seq: int = 0
    seq: int = 0
    command: str = ""
    exit_status: str = ""
    tree: str = ""
    at_us: int = 0
    flaky: int = 0


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task with its worker, tries, and cost."""

    name: str
    title: str
    status: str
    criteria: tuple[str, ...]
    after: tuple[str, ...]
    worker: str
    attempt: int
    sent_back: int
    cost: str
    why: str


class Mission(msgspec.Struct, frozen=True, kw_only=True):
    """A mission's page."""

    session_id: str
    name: str
    goal: str
    state: str
    detail: str
    over: bool
    met: int
    total: int
    branch: str
    main: str
    plan: str
    rows: tuple[Row, ...]
    more_rows: int
    groups: tuple[tuple[str, tuple[Task, ...]], ...]
    queue: tuple[str, ...]
    merging: str
    parts: tuple[str, ...]
    spent: str
    cap: str
    money: Gauge | None
    roles: tuple[tuple[str, str], ...]
    hours: tuple[tuple[str, int], ...]
    burn: tuple[Bar, ...]
    graph: Graph | None
    asks: tuple[str, ...]
    drift: tuple[tuple[str, str], ...]


async def page(store: Store, row: SessionRow, state: State) -> Mission:
    """Return the page of a mission."""
    mission = of_mission(state)
    below = await store.sessions(Which(root=row.root))
    spent = costs(below)
    running = row.session_id in await store.holders()
    criteria = list(mission.contract.criteria())
    cap = state.limits.budget_pico
    whole = spent[row.session_id].tree
    account = await store.account(row.accounts[0]) if row.accounts else None
    hours = [(f"{number * HOUR_US}", pico) for number, pico in (account.spend.hours if account is not None else ())]
    tasks = {name: _task(mission, task, spent) for name, task in mission.tasks.items()}
    merging = ""
    if mission.merge is not None:
        merging = ", ".join(mission.merge.tasks) or f"the base at {mission.merge.base[:SHORT]}"
    return Mission(
        session_id=row.session_id,
        name=row.key or row.session_id,
        goal=mission.contract.goal,
        state=standing(row, running=running),
        detail=row.detail,
        over=row.status in ("done", "failed", "cancelled"),
        met=len(mission.passed),
        total=len(criteria),
        branch=mission.ref,
        main=mission.main[:SHORT],
        plan=_plan(mission),
        rows=tuple([await _row(store, row, mission, name) for name in criteria[:CRITERIA]]),
        more_rows=max(0, len(criteria) - CRITERIA),
        groups=tuple(
            (title, mine)
            for title, statuses in GROUPS
            if (mine := tuple(task for task in tasks.values() if task.status in statuses))
        ),
        queue=tuple(name for name, task in mission.tasks.items() if task.status == "queued"),
        merging=merging,
        parts=tuple(", ".join(group) for group in mission.groups),
        spent=str(whole),
        cap="no cap" if cap is None else usd(cap),
        money=None if cap is None else gauge(whole.pico, cap),
        roles=_roles(below),
        hours=tuple(hours[-48:]),
        burn=bars([(label, pico, usd(pico)) for label, pico in hours[-48:]]),
        graph=graph([(task.name, task.status, mission.tasks[task.name].task.depends) for task in tasks.values()]),
        asks=tuple(ask.item_id for ask in unanswered(state)),
        drift=_drift(mission),
    )


def _plan(mission: MissionState) -> str:
    if mission.planner_id:
        return "a planner is at work"
    if not mission.planned:
        return "not planned yet"
    return f"plan {mission.round + 1}, {len(mission.tasks)} tasks"


async def _row(log: Log, session: SessionRow, mission: MissionState, name: str) -> Row:
    """The row of a criterion, with its latest verdict on any tree."""
    criterion = mission.contract.criteria()[name]
    verdicts: list[tuple[Verdict, str]] = [
        (found[name], tree) for tree, found in mission.verdicts.items() if name in found
    ]
    verdict, tree = max(verdicts, key=lambda each: each[0].seq, default=(None, ""))
    if name in mission.stale:
        state = "unknown"
    elif name in mission.passed:
        state = "met"
    else:
        state = "never run" if verdict is None else "passes on a branch" if verdict.outcome == "pass" else "failing"
    row = Row(
        name=name,
        text=criterion.text,
        state=state,
        guard=criterion.guard,
        rubric=criterion.check is None,
        since_seq=mission.passed.get(name, 0),
        flaky=mission.flakes.get(name, 0),
    )
    if verdict is None:
        return row
    (event,) = await log.read(session.session_id, after=verdict.seq - 1, limit=1)
    fact = event.fact
    checked = isinstance(fact, CriterionChecked)
    return msgspec.structs.replace(
        row,
        seq=verdict.seq,
        command=fact.command if isinstance(fact, CriterionChecked) else "",
        exit_status=str(fact.exit_code) if isinstance(fact, CriterionChecked) and fact.exit_code is not None else "",
        tree=tree[:SHORT] if checked else "",
        at_us=event.at_us,
    )


def _task(mission: MissionState, task: TaskState, spent: dict[str, Costs]) -> Task:
    waits = [name for name in task.task.depends if name in mission.tasks and mission.tasks[name].status not in OVER]
    cost = spent.get(task.child_id)
    return Task(
        name=task.task.id,
        title=task.task.title,
        status=task.status,
        criteria=task.task.criteria,
        after=tuple(waits) if task.status == "planned" else (),
        worker=task.child_id,
        attempt=task.attempt,
        sent_back=task.iterations,
        cost=cost.tree.short if cost is not None else "",
        why=task.why,
    )


def _roles(below: list[SessionRow]) -> tuple[tuple[str, str], ...]:
    """The cost of each role."""
    found: dict[str, Cost] = {}
    for each in below:
        role = (each.name.partition(" ")[0] or "other") if each.parent else "mission"
        found[role] = found.get(role, Cost()) + own_cost(each)
    return tuple((role, str(cost)) for role, cost in sorted(found.items(), key=lambda each: -each[1].pico))


def _drift(mission: MissionState) -> tuple[tuple[str, str], ...]:
    """Figures that show whether a mission strays from its contract."""
    unasked = sum(task.unasked for task in mission.tasks.values())
    refused = sum(sum(task.refusals.values()) for task in mission.tasks.values())
    return (
        ("Contract digest", mission.digest[:SHORT]),
        ("Changes that nobody asked for", str(unasked)),
        ("Submissions refused", str(refused)),
        ("Flaky checks", str(len(mission.flakes))),
        ("Plans", str(mission.round + 1 if mission.planned else 0)),
    )
