"""Plans: tasks of a contract that workers can complete and verify one by one (dependency closure). Pure.

A task is closed if everything its criteria build on is in the task itself, in a task that is merged before it, or
already met. Two tasks that may touch the same files never run at the same time, whatever the plan says.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from holdfast.facts.mission import Contract, Item, Task
from holdfast.kinds.mission.contract.contents import find_ring
from holdfast.kinds.mission.fold.state import OVER, MissionState, TaskState

TASKS_MAX = 500
"""Most tasks of one plan."""

PARTS_DEPTH_MAX = 2
"""Depth limit: a task may be split into parts, and a part once more."""

SHOWN_MAX = 20
"""Most problems that are reported at once."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
_TAKEN = frozenset({"main", "head"})


class _Submitted(msgspec.Struct, frozen=True):
    tasks: tuple[Task, ...]
    note: str = ""
    drop: tuple[str, ...] = ()


def read_plan(submitted: Mapping[str, Any]) -> tuple[tuple[Task, ...], tuple[str, ...], str]:
    """Parse a submission of a planner: its tasks, the ids of live tasks that it drops, its note.

    An invalid submission has no tasks, and the note says why.
    """
    try:
        found = msgspec.convert(dict(submitted), _Submitted)
    except msgspec.ValidationError as error:
        return (), (), f"invalid plan: {error}"
    return found.tasks, found.drop, found.note


# --- problems of a plan ---------------------------------------------------------------------------


def plan_problems(
    tasks: Sequence[Task], mission: MissionState, task_id: str = "", dropped: Collection[str] = ()
) -> tuple[str, ...]:
    """Return problems that make a plan unusable, each described for its planner; empty if there are none.

    With `task_id`, the tasks are the parts of that task and share its criteria. Otherwise they must cover every
    criterion that is neither met nor in a task under way: a later plan replaces tasks that have not begun, and those
    `dropped`.
    """
    given_up = set(dropped)
    if task_id:
        given_up.add(task_id)
    elif mission.planned:
        given_up |= {task.task.id for task in mission.live() if task.status == "planned"}
    if not tasks and _wanted(mission, task_id, given_up):
        return ("The plan has no task, and criteria of the contract are not met.",)
    if len(tasks) > TASKS_MAX:
        return (f"The plan has {len(tasks)} tasks (limit {TASKS_MAX}): make larger ones.",)
    found = [
        *_dropping(mission, dropped),
        *_ids(tasks, mission),
        *_coverage(tasks, mission, task_id, given_up),
        *_edges(tasks, mission, given_up),
    ]
    if not found:
        found = [*_closure(tasks, mission, given_up), *_sizes(tasks, mission, task_id)]
    if len(found) > SHOWN_MAX:
        found = [*found[:SHOWN_MAX], f"And {len(found) - SHOWN_MAX} more problems."]
    return tuple(found)


def _dropping(mission: MissionState, drop: Collection[str]) -> Iterator[str]:
    for name in drop:
        task = mission.tasks.get(name)
        if task is None:
            yield f"Task {name} cannot be dropped: it does not exist."
        elif task.status in OVER:
            yield f"Task {name} cannot be dropped: it is already {task.status}."


def _ids(tasks: Sequence[Task], mission: MissionState) -> Iterator[str]:
    known = {name.casefold() for name in mission.tasks}
    for task in tasks:
        folded = task.id.casefold()
        if not _ID.fullmatch(task.id) or ".." in task.id or task.id.endswith((".", ".lock")) or folded in _TAKEN:
            yield (
                f"{task.id!r} is not a valid task id: use at most 60 letters, digits, `.`, `_` and `-`, "
                "and not `main` or `head`."
            )
        elif folded in known:
            yield f"The id {task.id} is taken by another task: choose another id."
        known.add(folded)
        if not task.title.strip():
            yield f"Task {task.id} has no title."


def _wanted(mission: MissionState, parent: str, drop: Collection[str]) -> list[str]:
    """Return the criteria that the plan must cover, in contract order."""
    if parent:
        return list(mission.tasks[parent].task.criteria) if parent in mission.tasks else []
    held = {name for task in mission.live() if task.task.id not in drop for name in task.task.criteria}
    held |= {*mission.passed, *mission.stale}
    return [each.id for each in mission.contract.criteria().values() if not each.guard and each.id not in held]


def _coverage(tasks: Sequence[Task], mission: MissionState, parent: str, drop: Collection[str]) -> Iterator[str]:
    known, wanted = mission.contract.criteria(), _wanted(mission, parent, drop)
    holder: dict[str, str] = {}
    for task in tasks:
        if not task.criteria:
            yield f"Task {task.id} has no criterion, so it can never be verified."
        for name in task.criteria:
            if name not in known:
                yield f"Task {task.id} names the criterion {name}, which the contract does not have."
            elif name in holder:
                yield f"The criterion {name} is in {holder[name]} and in {task.id}: it belongs to exactly one task."
            elif name not in wanted and not known[name].guard:
                yield f"Task {task.id} has the criterion {name}, which is {_why_not(mission, name, parent)}."
            holder.setdefault(name, task.id)
    for name in wanted:
        if name not in holder:
            yield f"No task has the criterion {name}: {known[name].text if name in known else 'it is gone'}"


def _why_not(mission: MissionState, name: str, parent: str) -> str:
    if parent:
        return f"none of task {parent}, whose parts these are"
    if name in mission.passed:
        return "already met"
    if name in mission.stale:
        return "stale: a judge passed it, and it is judged again before the end"
    held = next((task.task.id for task in mission.live() if name in task.task.criteria), "")
    return f"in the task {held}, which is under way" if held else "not open"


def _edges(tasks: Sequence[Task], mission: MissionState, drop: Collection[str]) -> Iterator[str]:
    ids = {task.id for task in tasks}
    for task in tasks:
        for name in task.depends:
            if name in ids:
                continue
            other = mission.tasks.get(name)
            if other is None:
                yield f"Task {task.id} depends on {name}, which does not exist."
            elif name in drop or not _may_come(mission, other):
                yield f"Task {task.id} depends on {name}, which will never be merged."
    ring = find_ring({task.id: [name for name in task.depends if name in ids] for task in tasks})
    if ring:
        yield f"These tasks depend on each other in a cycle: {' -> '.join(ring)}."


def _closure(tasks: Sequence[Task], mission: MissionState, given_up: Collection[str]) -> Iterator[str]:
    """Yield criteria that build on items outside the task that are neither met nor merged before it."""
    items = {item.id: item for item in mission.contract.items}
    of = {criterion.id: item for item in mission.contract.items for criterion in item.criteria}
    every = {**{name: each.task for name, each in mission.tasks.items()}, **{task.id: task for task in tasks}}
    live = [each.task for each in mission.live() if each.task.id not in given_up]
    holder = {name: task.id for task in (*live, *tasks) for name in task.criteria}
    before = {task.id: _before(task.id, every) for task in tasks}
    for task in tasks:
        asked: set[tuple[str, str]] = set()
        for mine in {of[name].id: of[name] for name in task.criteria}.values():
            for needed in mine.depends:
                for criterion in items[needed].criteria if needed in items else ():
                    other = holder.get(criterion.id)
                    fine = criterion.id in mission.passed or other is None or other == task.id
                    if fine or other in before[task.id] or (needed, str(other)) in asked:
                        continue
                    asked.add((needed, str(other)))
                    yield (
                        f"Task {task.id} has criteria of {mine.id}, which builds on {needed}; that is in task {other}: "
                        f"make {task.id} depend on {other}, or combine the two."
                    )


def _before(name: str, every: Mapping[str, Task]) -> set[str]:
    """Return all tasks that are merged before a task."""
    found: set[str] = set()
    left = list(every[name].depends)
    while left:
        each = left.pop()
        if each not in found and each in every:
            found.add(each)
            left.extend(every[each].depends)
            left.extend(task.id for task in every.values() if task.parent == each)
    return found


def _sizes(tasks: Sequence[Task], mission: MissionState, parent: str) -> Iterator[str]:
    most = mission.policy.task_tokens
    if not parent or _depth(mission, parent) < PARTS_DEPTH_MAX:
        return
    for task in tasks:
        if task.split or (task.tokens > most and len(task.criteria) > 1):
            yield (
                f"Task {task.id} is a part of a part and still exceeds the limit of {most} tokens: make "
                "smaller tasks of it here."
            )


def _depth(mission: MissionState, name: str) -> int:
    """Return the depth of the parts of a task: 1 for a task of a first plan."""
    depth, above = 0, name
    while above and depth <= PARTS_DEPTH_MAX:
        depth += 1
        above = mission.tasks[above].task.parent if above in mission.tasks else ""
    return depth


def too_large(mission: MissionState) -> str | None:
    """Return the first task that a sub-planner must split before a worker starts, or None."""
    return next(
        (task.task.id for task in mission.live() if task.status == "planned" and _is_large(task, mission)), None
    )


def _is_large(task: TaskState, mission: MissionState) -> bool:
    """Return True if a task must be split. A task with one criterion is not, since its parts could not be verified."""
    planned = task.task
    large = planned.split or planned.tokens > mission.policy.task_tokens
    return large and len(planned.criteria) > 1 and _depth(mission, planned.parent) < PARTS_DEPTH_MAX


# --- a plan without a planner ----------------------------------------------------------------------


def plan_from_items(contract: Contract, skip: Collection[str] = ()) -> tuple[Task, ...]:
    """Make one task for each item with open criteria, most important first, each after its dependencies.

    Guards and the criteria in `skip` need no task.
    """
    used = set(_TAKEN)
    wanted: dict[str, Task] = {}
    for item in _in_order(contract.items):
        criteria = tuple(each.id for each in item.criteria if not each.guard and each.id not in skip)
        if criteria:
            wanted[item.id] = Task(
                id=_free(item.id, used),
                title=item.description.strip().partition("\n")[0][:120] or item.id,
                criteria=criteria,
                scope=item.paths,
                depends=tuple(wanted[each].id for each in item.depends if each in wanted),
                description="\n".join((item.description, *(f"- {step}" for step in item.steps))),
            )
    return tuple(wanted.values())


def _in_order(items: Sequence[Item]) -> list[Item]:
    """Sort by priority, with dependencies first."""
    known = {item.id: item for item in items}
    done: dict[str, Item] = {}
    for first in sorted(items, key=lambda item: item.priority):
        left, entered = [first], set[str]()
        while left:
            item = left[-1]
            needs = [known[each] for each in item.depends if each in known and each not in done and each not in entered]
            entered.add(item.id)
            if needs:
                left.append(needs[0])
            else:
                done.setdefault(item.id, left.pop())
    return list(done.values())


def free_id(wanted: str, taken: Collection[str]) -> str:
    """Return a free id for another task."""
    return _free(wanted, {*_TAKEN, *(name.casefold() for name in taken)})


def _free(wanted: str, used: set[str]) -> str:
    """Return a unique id for a task, close to the wanted one."""
    plain = re.sub(r"\.{2,}|[^A-Za-z0-9._-]+", "-", wanted).strip("-._")[:50] or "task"
    plain = plain.removesuffix(".lock")
    name, number = plain, 2
    while name.casefold() in used:
        name, number = f"{plain}-{number}", number + 1
    used.add(name.casefold())
    return name


# --- tasks that can begin --------------------------------------------------------------------------


def ready(mission: MissionState) -> list[TaskState]:
    """Return the tasks that workers can begin now, all at once, in plan order.

    Their dependencies are merged, and none may touch a file that a task under way, or an earlier one of these, may
    touch. A task without a scope may touch any file; the merge finds conflicts.
    """
    under_way = [task.task.scope for task in mission.live() if task.status != "planned" and task.task.scope]
    found: list[TaskState] = []
    for task in mission.live():
        if task.status != "planned" or _is_large(task, mission):
            continue
        if not all(_is_there(mission, name) for name in task.task.depends):
            continue
        if any(overlap(task.task.scope, scope) for scope in under_way):
            continue
        found.append(task)
        if task.task.scope:
            under_way.append(task.task.scope)
    return found


def stuck(mission: MissionState) -> list[tuple[TaskState, str]]:
    """Return tasks that can never begin, each with a dependency that can never be merged."""
    found = []
    for task in mission.live():
        if task.status == "planned":
            others = ((name, mission.tasks.get(name)) for name in task.task.depends)
            never = next((name for name, other in others if other is None or not _may_come(mission, other)), "")
            if never:
                found.append((task, never))
    return found


def _parts(mission: MissionState, name: str) -> list[TaskState]:
    return [task for task in mission.tasks.values() if task.task.parent == name]


def _is_there(mission: MissionState, name: str) -> bool:
    """Return True if a task is merged, or was split and all its parts are."""
    task = mission.tasks.get(name)
    if task is None:
        return False
    parts = _parts(mission, name) if task.status == "dropped" else []
    return task.status == "merged" or (bool(parts) and all(_is_there(mission, part.task.id) for part in parts))


def _may_come(mission: MissionState, task: TaskState) -> bool:
    """Return True if a task is merged or may still be merged."""
    if task.status not in OVER or task.status == "merged":
        return True
    parts = _parts(mission, task.task.id) if task.status == "dropped" else []
    return bool(parts) and all(_may_come(mission, part) for part in parts)


# --- globs that overlap ---------------------------------------------------------------------------


def overlap(one: Iterable[str], other: Iterable[str]) -> bool:
    """Return True if a path could match a glob of each side. May be true for globs that do not overlap."""
    others = [_glob_parts(glob) for glob in other]
    return any(_meet(_glob_parts(glob), parts) for glob in one for parts in others)


def _glob_parts(glob: str) -> tuple[str, ...]:
    parts = tuple(part for part in glob.split("/") if part not in ("", "."))
    return parts if parts and parts[-1] == "**" else (*parts, "**")


@lru_cache(maxsize=4096)
def _meet(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    if not one or not other:
        return all(part == "**" for part in (*one, *other))
    if one[0] == "**":
        return _meet(one[1:], other) or _meet(one, other[1:])
    if other[0] == "**":
        return _meet(one, other[1:]) or _meet(one[1:], other)
    return _names_meet(_letters(one[0]), _letters(other[0])) and _meet(one[1:], other[1:])


def _letters(name: str) -> str:
    """Replace each character set in a path part with `?`."""
    out, rest = "", name
    while rest:
        close = rest.find("]", 2) if rest[0] == "[" else -1
        out += "?" if close > 0 else rest[0]
        rest = rest[close + 1 :] if close > 0 else rest[1:]
    return out


@lru_cache(maxsize=4096)
def _names_meet(one: str, other: str) -> bool:
    if one[:1] == "*":
        return _names_meet(one[1:], other) or (bool(other) and _names_meet(one, other[1:]))
    if other[:1] == "*":
        return _names_meet(one, other[1:]) or (bool(one) and _names_meet(one[1:], other))
    if not one or not other:
        return one == other
    alike = one[0] == other[0] or "?" in (one[0], other[0])
    return alike and _names_meet(one[1:], other[1:])
