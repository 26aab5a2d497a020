"""Origin of a line of a file: the merge, the task, the call, and the verdicts behind it. Pure.

The line is traced back along the main branch of a mission, by comparing the file before and after each merge that
touched it. The log names those merges.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.facts.codec import Event
from holdfast.facts.mission import CriterionChecked, MissionOpened
from holdfast.facts.model import AgentToolUse
from holdfast.facts.task import RepoMerged, TaskHandedIn, TaskInspected, TaskJudged, TaskQueued
from holdfast.facts.tool import ToolResult
from holdfast.kinds.mission.brief.document import Evidence, of, plain
from holdfast.kinds.mission.fold.state import MissionState

SHORT = 10

WRITES = ("write", "edit", "bash", "start_job")
"""Tools whose calls may contain the text of a line."""


class Link(msgspec.Struct, frozen=True):
    """Step back: its description, its event or commit, and the arguments of the command that shows it."""

    what: str
    text: str
    evidence: tuple[Evidence, ...] = ()
    commit: str = ""
    command: tuple[str, ...] = ()


class Merge(msgspec.Struct, frozen=True):
    """Merge that may have changed a file: the main branch before and after, and the tasks in it."""

    event: Event
    onto: str
    commit: str
    tree: str
    tasks: tuple[str, ...]
    base: str


class Written(msgspec.Struct, frozen=True):
    """Line, its file, and the log of the worker that submitted it; empty if there is none."""

    path: str
    line: str
    worker: Sequence[Event] = ()


def mapped(newer: str, older: str, line: int) -> int | None:
    """Return the number of a line in the older text, counted from 1; None if the newer text added it."""
    new, old = newer.splitlines(), older.splitlines()
    if not 1 <= line <= len(new):
        return None
    for tag, old_from, _, new_from, new_to in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if new_from <= line - 1 < new_to:
            return old_from + line - new_from if tag == "equal" else None
    return None


def suspects(events: Sequence[Event], path: str) -> list[Merge]:
    """Return merges that may have changed a file, newest first: those of tasks that touched it, and of the base."""
    touched: set[str] = set()
    for event in events:
        if isinstance(event.fact, TaskInspected) and path in event.fact.files:
            touched.add(event.fact.task_id)
    found = []
    for event in reversed(events):
        fact = event.fact
        if isinstance(fact, RepoMerged) and (fact.base or not touched.isdisjoint(fact.tasks)):
            tasks = tuple(name for name in fact.tasks if name in touched)
            found.append(Merge(event, fact.onto, fact.commit, fact.tree, tasks, fact.base))
    return found


def handed_in(events: Sequence[Event], task_id: str, before: int) -> Event | None:
    """Return the submission of a task that was merged by the event `before`."""
    commit = ""
    for event in reversed(events[: before - 1]):
        fact = event.fact
        if isinstance(fact, TaskQueued) and fact.task_id == task_id and not commit:
            commit = fact.commit
        if isinstance(fact, TaskHandedIn) and fact.task_id == task_id and (not commit or fact.commit == commit):
            return event
    return None


def beginning(events: Sequence[Event]) -> Event | None:
    """Return the event that opened a mission."""
    return next((event for event in events if isinstance(event.fact, MissionOpened)), None)


def wrote(events: Sequence[Event], path: str, text: str) -> Event | None:
    """Return a worker's latest successful call that contains a line, preferably one about the file. Best effort."""
    wanted = text.strip()
    ended = {
        event.fact.call_id for event in events if isinstance(event.fact, ToolResult) and event.fact.outcome == "ok"
    }
    near: Event | None = None
    for event in reversed(events):
        fact = event.fact
        if not isinstance(fact, AgentToolUse) or fact.name not in WRITES or fact.call_id not in ended or not wanted:
            continue
        words = [str(value) for name, value in fact.input.items() if name not in ("file_path", "old_string")]
        if any(wanted in each for each in words):
            about = [str(value) for value in fact.input.values()]
            if any(path in each or each.removeprefix("./") == path for each in about):
                return event
            near = near or event
    return near


def chain(
    mission: MissionState, events: Sequence[Event], merge: Merge, hand_in: Event | None, written: Written
) -> list[Link]:
    """Return the steps from a merge that introduced a line back to the verdicts behind it, nearest first."""
    top = merge.event.session_id
    tasks = ", ".join(merge.tasks)
    what = f"with {tasks}" if tasks else f"with new commits of the followed branch, {merge.base[:SHORT]}"
    links = [
        Link("merged", what, (of(merge.event),), merge.commit, ("logs", top, "--after", str(merge.event.seq - 1))),
    ]
    if hand_in is None or not isinstance(hand_in.fact, TaskHandedIn):
        return links
    fact = hand_in.fact
    task = mission.tasks.get(fact.task_id)
    title = plain(task.task.title, 100).removeprefix(f"{fact.task_id}: ") if task is not None else ""
    links.append(Link("task", f"{fact.task_id}: {title}", (of(hand_in),), fact.commit, ("mission", "show", top)))
    links.append(Link("worker", fact.child_id, command=("show", fact.child_id)))
    links.append(_call(written, fact.child_id))
    if task is not None:
        links += _criteria(mission, events, merge, task.task.criteria)
    return links


def _call(written: Written, child_id: str) -> Link:
    event = wrote(written.worker, written.path, written.line)
    if event is None:
        text = "no call in its log contains this exact line; a command or a formatter may have written it"
        return Link("call", text, command=("logs", child_id, "--type", "agent.tool_use"))
    assert isinstance(event.fact, AgentToolUse)
    about = plain(str(event.fact.input.get("file_path") or event.fact.input.get("command") or ""), 80)
    return Link(
        "call",
        f"{event.fact.name} {about} (the latest call with this line)",
        (of(event),),
        command=("logs", child_id, "--after", str(event.seq - 1)),
    )


def _criteria(mission: MissionState, events: Sequence[Event], merge: Merge, names: Iterable[str]) -> list[Link]:
    """Return the criteria of the task, each with the verdict on the merged tree."""
    known = mission.contract.criteria()
    links = []
    for name in names:
        event = _verdict(events, merge.tree, name)
        text = f"{name}: {plain(known[name].text, 100) if name in known else 'no longer in the contract'}"
        if event is None:
            links.append(Link("criterion", f"{text} (no verdict on the merged tree)"))
            continue
        how = "a judge passed it" if isinstance(event.fact, TaskJudged) else "its check passed on the merged tree"
        command = ("logs", event.session_id, "--after", str(event.seq - 1))
        links.append(Link("criterion", f"{text} ({how})", (of(event),), command=command))
    return links


def _verdict(events: Sequence[Event], tree: str, name: str) -> Event | None:
    judged: Event | None = None
    for event in reversed(events):
        fact = event.fact
        if (
            isinstance(fact, CriterionChecked)
            and fact.tree == tree
            and name in fact.criteria
            and fact.outcome == "pass"
        ):
            return event
        if isinstance(fact, TaskJudged) and not fact.refused:
            if judged is None and any(each.criterion == name and each.passes for each in fact.criteria):
                judged = event
    return judged
