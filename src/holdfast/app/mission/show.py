"""`holdfast mission show`: the board of a mission: criteria, tasks and their dependencies, the queue, money."""

from __future__ import annotations

import argparse
import re
from typing import Any

from holdfast.app.call import SESSION, Call
from holdfast.app.compose import Runtime, open_runtime
from holdfast.app.exits import name_of, next_step
from holdfast.brain.recall import recall
from holdfast.errors import UsageError
from holdfast.kinds.mission.check.metrics import curve, metric_of, values
from holdfast.kinds.mission.fold.state import OVER, MissionState, TaskState, mission_of, of_mission
from holdfast.log.base import Which
from holdfast.service.event_lines import counted, one_line
from holdfast.session.costs import Cost, own_cost
from holdfast.session.decide.waits import unanswered
from holdfast.session.money import usd, usd_float
from holdfast.session.rows import SessionRow
from holdfast.session.state import State

COLUMNS = (
    ("planned", "to do"),
    ("working", "at work"),
    ("handed_in", "inspected"),
    ("inspected", "checked"),
    ("judging", "judged"),
    ("queued", "to be merged"),
    ("merged", "merged"),
    ("blocked", "blocked"),
    ("infeasible", "infeasible"),
    ("failed", "failed"),
    ("dropped", "dropped"),
)
"""Task status → its heading on the board."""

SHORT = 10

GOAL_OF_LIST = re.compile(r"\AAll \d+ (entries|items) of .* hold\.\Z")
"""The goal that a contract has when its list of criteria names none."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("session", metavar="ID", help=SESSION)
    parser.add_argument("--json", action="store_true", help="Print JSON")


async def run(call: Call) -> int:
    """Print the board."""
    async with open_runtime(call.settings) as runtime:
        row = await runtime.store.find(call.args.session)
        state, _ = await recall(row.session_id, runtime.store, runtime.store, runtime.kinds)
        if mission_of(state) is None:
            raise UsageError(
                f"{name_of(row)} is not a mission; `{call.typed('show', name_of(row))}` describes the session"
            )
        spent = await spent_of(runtime, row)
        if call.json:
            call.emit(public(row, state, of_mission(state), spent))
        else:
            running = row.session_id in await runtime.store.holders()
            for line in board(row, state, of_mission(state), spent, running=running):
                call.say(line)
            call.say(await next_step(runtime.store, row, state, call.typed))
    return 0


async def spent_of(runtime: Runtime, row: SessionRow) -> dict[str, Cost]:
    """Return the cost of each role so far."""
    spent: dict[str, Cost] = {}
    for each in await runtime.store.sessions(Which(root=row.session_id)):
        role = (each.name.partition(" ")[0] or "other") if each.parent else "mission"
        if each.parent or each.cost_pico:
            spent[role] = spent.get(role, Cost()) + own_cost(each)
    return spent


def board(row: SessionRow, state: State, mission: MissionState, spent: dict[str, Cost], *, running: bool) -> list[str]:
    """Return the lines of the board."""
    total, met = len(mission.contract.criteria()), len(mission.passed)
    by_role = ", ".join(f"{role} {cost}" for role, cost in sorted(spent.items()))
    cap = f" of {usd(state.limits.budget_pico)}" if state.limits.budget_pico is not None else ""
    stands = "running" if running else f"{row.status}{f' ({row.reason})' if row.reason else ''}"
    goal = GOAL_OF_LIST.sub(r"(default) \g<0>", mission.contract.goal)
    lines = [
        f"{name_of(row)}  {stands}  {met} of {total} met",
        f"  goal       {one_line(goal, 80)}",
        f"  branch     {mission.ref or 'not begun'} at {mission.main[:SHORT] or '-'}",
        f"  money      {sum(spent.values(), Cost())}{cap}{f' ({by_role})' if by_role else ''}",
    ]
    if mission.planner_id:
        lines.append("  plan       a planner is at work")
    elif mission.planned:
        lines.append(f"  plan       {counted(mission.round + 1, 'plan')}, {counted(len(mission.tasks), 'task')}")
    if mission.merge is not None:
        what = ", ".join(mission.merge.tasks) or f"the base at {mission.merge.base[:SHORT]}"
        lines.append(f"  merging    {what}: {mission.merge.commit[:SHORT]}")
    for effect in mission.verifications.values():
        lines.append(f"  checking   {counted(len(effect.criteria), 'criterion')} on tree {effect.tree[:SHORT]}")
    for status, title in COLUMNS:
        tasks = [task for task in mission.tasks.values() if task.status == status]
        if tasks:
            lines += ["", f"{title} ({len(tasks)})", *(f"  {_task(mission, task)}" for task in tasks)]
    unmet = [name for name in mission.contract.criteria() if name not in {*mission.passed, *mission.stale}]
    if unmet:
        shown = [f"  {name}: {one_line(mission.contract.criteria()[name].text, 80)}" for name in unmet[:20]]
        more = [f"  … and {len(unmet) - 20} more"] if len(unmet) > 20 else []
        lines += ["", f"not met yet ({len(unmet)})", *shown, *more]
    found = [f"  {name}: {curve(mission, name)}" for name in mission.curves]
    if found:
        lines += ["", "values of metrics on the main branch", *found]
    if mission.stale:
        lines += ["", f"no longer known, judged again before the end: {', '.join(mission.stale)}"]
    if mission.flakes:
        known = ", ".join(f"{name} ({times}x)" for name, times in mission.flakes.items())
        lines += ["", f"flaky: {known}"]
    asks = unanswered(state)
    if asks:
        lines += ["", f"waiting for an answer: {', '.join(ask.item_id for ask in asks)}"]
    return [*lines, ""]


def _task(mission: MissionState, task: TaskState) -> str:
    waits = [name for name in task.task.depends if name in mission.tasks and mission.tasks[name].status not in OVER]
    parts = [f"{task.task.id}: {one_line(task.task.title, 60)}", f"[{', '.join(task.task.criteria[:4])}]"]
    if waits and task.status == "planned":
        parts.append(f"after {', '.join(waits)}")
    if task.attempt > 1:
        parts.append(f"worker {task.attempt}")
    if task.iterations:
        parts.append(f"sent back {task.iterations}x")
    if task.why:
        parts.append(one_line(task.why, 80))
    return "  ".join(parts)


def public(row: SessionRow, state: State, mission: MissionState, spent: dict[str, Cost]) -> dict[str, Any]:
    """Return the board as JSON data."""
    return {
        "session_id": row.session_id,
        "status": row.status,
        "reason": row.reason,
        "ref": mission.ref,
        "head": mission.main,
        "criteria": {
            name: {"text": each.text, "passes": name in mission.passed, "event": mission.passed.get(name)}
            | ({"no_longer_known": True} if name in mission.stale else {})
            | ({"values": values(mission, name)} if metric_of(mission, name) is not None else {})
            for name, each in mission.contract.criteria().items()
        },
        "tasks": {
            name: {
                "title": task.task.title,
                "status": task.status,
                "criteria": task.task.criteria,
                "depends": task.task.depends,
                "scope": task.task.scope,
                "workers": task.attempt,
                "refusals": task.refusals,
                "session_id": task.child_id,
                "commit": task.commit,
                "why": task.why,
            }
            for name, task in mission.tasks.items()
        },
        "queue": [name for name, task in mission.tasks.items() if task.status == "queued"],
        "merging": mission.merge.tasks if mission.merge else None,
        "plans": mission.round + 1 if mission.planned else 0,
        "flaky": mission.flakes,
        "spent_usd": {role: cost.usd for role, cost in spent.items()},
        "budget_usd": usd_float(state.limits.budget_pico) if state.limits.budget_pico is not None else None,
        "items": [ask.item_id for ask in unanswered(state)],
    }
