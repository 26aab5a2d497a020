"""Plan of a loop: its next step, derived from the workspace files and the results of its checks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.errors import ContractInvalid
from holdfast.facts.base import Usage
from holdfast.facts.mission import Check, Item
from holdfast.kinds.loop.files import (
    ANALYSIS,
    PROGRESS,
    Board,
    Kept,
    check_tasks,
    checks_of,
    read_analysis,
    read_board,
)
from holdfast.kinds.loop.prompt import ITEM_MAX, LAST_MAX, PART_MAX, cut, filled, shell
from holdfast.kinds.mission.contract.contents import command_line, in_words
from holdfast.session.money import usd

LOOK, RESTORE, STEP, ASK = "loop_look", "loop_restore", "loop_step", "ask_person"

GO_ON = "Go on."
"""The answer that a loop's questions propose: approval alone gives it."""
"""Tools of a loop besides bash: inspect a command's result, undo forbidden changes, record and plan, ask the user."""

PROMPT_MAX = 100_000
PROGRESS_MAX = 768 * 1024

IDLE_MAX = 3
"""Consecutive iterations without a change before the loop asks the user."""

NO_PROGRAM = frozenset({126, 127})
"""Exit statuses of a shell that found no program to run."""

FIRST_REST_S, LONGEST_REST_S = 5.0, 1_800.0
"""Wait after an iteration whose command failed and changed nothing, as in an outage; triples with each, to a limit."""

TRIES_MAX = 3
"""Attempts of a chain stage to produce its file before the loop asks the user."""

STEADY_TRIES = 2
"""Runs of all checks that may change the folder before the loop asks the user."""

CHEAP_MS = 10_000.0
"""Longest checks of a passed item that run again after each iteration; those of all items may take twice that."""

UNTIL_TIMEOUT_S = 900.0
CHECK_TIMEOUT_MAX_S = 3_600.0


class LoopSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Loop request. `items` names the items file, or is empty with `until` alone.

    `template` is the prompt of an iteration; with a `report`, two stages with prompts of their own come first.
    """

    command: tuple[str, ...]
    items: str = ""
    until: str = ""
    timeout_s: float = 3_600.0
    template: str = ""
    report: str = ""
    analysis_template: str = ""
    plan_template: str = ""


class Step(msgspec.Struct, frozen=True):
    """Tool call of a plan.

    `purpose` is one of `work`, `look`, `restore`, `check:0`, `again:ID:0`, `until`, `ask`, `step`.
    """

    name: str
    input: dict[str, object]
    purpose: str


NEXT = Step(STEP, {}, "step")


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """Next step of a loop, and the data that the following plan needs.

    `files` are those that changed since the previous plan. `idle` counts iterations without a change; `failing` counts
    the latest iterations whose command failed and changed nothing: its provider may be away, so the next one begins
    later (`rest_s`). `tried` are items without a check that had their turn. `cost_pico` is the cost that the previous
    command reported, or None. `words` are user messages that no prompt has contained yet.

    `again` are passed items that this plan checks again; `took_ms` is the duration of item checks. `proven` is the tree
    on which the checks of all items passed; `unsteady` counts such attempts that changed the tree, and `accepted` means
    that the user accepted this.
    """

    kind: Literal["work", "check", "ask", "rest", "done", "failed"]
    say: str
    calls: tuple[Step, ...] = ()
    iteration: int = 0
    stage: Literal["analysis", "plan", "items"] = "items"
    item: str = ""
    tries: int = 0
    files: dict[str, Kept] = {}
    tree: str = ""
    idle: int = 0
    failing: int = 0
    signature: str = ""
    tried: tuple[str, ...] = ()
    cost_pico: int | None = 0
    usage: Usage | None = Usage()
    again: tuple[str, ...] = ()
    took_ms: dict[str, float] = {}
    proven: str = ""
    unsteady: int = 0
    accepted: bool = False
    last: str = ""
    analysis: str = ""
    words: tuple[str, ...] = ()
    through_seq: int = 0


def rest_s(plan: Plan) -> float:
    """Seconds before the work of the plan begins."""
    return min(LONGEST_REST_S, FIRST_REST_S * 3.0 ** min(plan.failing - 1, 20)) if plan.failing else 0.0


class Seen(msgspec.Struct, frozen=True):
    """Workspace before an iteration: the loop's own files, AGENTS.md, and the digest of the tree."""

    files: Mapping[str, bytes | None]
    agents: str
    tree: str


class Means(msgspec.Struct, frozen=True):
    """Limits of the session: turns left for an iteration, the budget, and the spend."""

    another: bool
    budget_pico: int | None
    spent_pico: int


class Probe(NamedTuple):
    """Check that the harness runs after an iteration. `item` is the item that it verifies, empty for `until`."""

    purpose: str
    item: str
    check: Check


def probes(spec: LoopSpec, item: Item | None, again: Sequence[Item]) -> list[Probe]:
    """Return the checks of an item, of passed items that are checked again, and of the loop."""
    found = [Probe(f"check:{n}", item.id, check) for n, check in enumerate(checks_of(item))] if item else []
    for each in again:
        found += [Probe(f"again:{each.id}:{n}", each.id, check) for n, check in enumerate(checks_of(each))]
    return [*found, Probe("until", "", Check(spec.until, timeout_s=UNTIL_TIMEOUT_S))] if spec.until else found


def asking(question: str, why: str) -> tuple[Step, ...]:
    """Return the calls that ask the user."""
    given: dict[str, object] = {"question": question, "why": cut(why, PART_MAX), "options": [GO_ON]}
    return (Step(ASK, given, "ask"), NEXT)


def next_plan(spec: LoopSpec, carried: Plan, seen: Seen, means: Means, *, over: bool = False) -> Plan:
    """Return the plan after `carried`, which has the latest results. `over` means that `--until` has just succeeded."""
    carried = replace(carried, tree=seen.tree, files={})
    if over:
        return _done(carried, f"`{spec.until}` succeeded")
    if carried.stage != "items":
        return _stage(spec, carried, seen, means)
    board: Board | None = None
    if spec.items:
        data = seen.files.get(spec.items)
        try:
            if data is None:
                raise ContractInvalid(f"{spec.items} is missing, not a regular file, or larger than 1 MiB")
            board = read_board(data, spec.items)
        except ContractInvalid as error:
            return _ask(carried, f"The items cannot be read. Repair {spec.items}, then approve.", str(error))
        if not board.unfinished() and not spec.until:
            return _all_pass(spec, carried, means, board)
    return _stopped(carried, means, board) or _work(spec, carried, seen, board)


def _done(carried: Plan, why: str, more: str = "") -> Plan:
    count = f"{carried.iteration} iteration{'' if carried.iteration == 1 else 's'}"
    return replace(carried, kind="done", say=f"The loop is done: {why} after {count}{more}.", calls=(), words=())


def _ask(carried: Plan, question: str, why: str) -> Plan:
    return replace(carried, kind="ask", say=question, calls=asking(question, why))


def _check_steps(found: Sequence[Probe]) -> list[Step]:
    most = CHECK_TIMEOUT_MAX_S
    return [_bash(command_line(check), min(check.timeout_s, most), purpose) for purpose, _, check in found]


def _bash(command: str, timeout_s: float, purpose: str) -> Step:
    return Step("bash", {"command": command, "timeout_ms": int(timeout_s * 1000)}, purpose)


def _stopped(carried: Plan, means: Means, board: Board | None) -> Plan | None:
    """Return a pause or a question if a limit is reached; None if the loop may continue."""
    stands = f"; {len(board.passing)} of {len(board.items)} items pass" if board is not None else ""
    spent = means.spent_pico + (carried.cost_pico or 0)
    if not means.another:
        say = f"All iterations are used ({carried.iteration} so far){stands}."
    elif means.budget_pico is not None and carried.cost_pico and spent >= means.budget_pico:
        say = f"The command reported a cost of {usd(spent)} so far, of {usd(means.budget_pico)}{stands}."
    elif carried.idle >= IDLE_MAX:
        question = f"The last {carried.idle} iterations changed nothing, with the same check results{stands}. Go on?"
        return _ask(carried, question, carried.last)
    else:
        return None
    return replace(carried, kind="rest", say=say, calls=(NEXT,))


def _all_pass(spec: LoopSpec, carried: Plan, means: Means, board: Board) -> Plan:
    """Return the plan when all items are marked: done once all checks have passed on one tree."""
    checked = [item for item in board.items if checks_of(item)]
    if carried.proven == carried.tree or carried.accepted or not checked:
        changes = "; their checks change the folder, which a person accepted" if carried.accepted else ""
        return _done(carried, f"all {len(board.items)} items of {spec.items} pass", changes)
    if carried.unsteady >= STEADY_TRIES:
        question = (
            "Each check passes, but the checks change the folder, so they never passed on the same files. Is it done?"
        )
        return _ask(carried, question, "Approve accepts this as done, or have the checks write elsewhere and approve.")
    if (stopped := _stopped(carried, means, board)) is not None:
        return stopped
    say = "All items are marked as passing: their checks are run again."
    calls = (*_check_steps(probes(spec, None, checked)), NEXT)
    return replace(carried, kind="check", say=say, calls=calls, item="", again=tuple(item.id for item in checked))


def _work(spec: LoopSpec, carried: Plan, seen: Seen, board: Board | None) -> Plan:
    progress = seen.files.get(PROGRESS) or b""
    if len(progress) > PROGRESS_MAX:
        return _ask(carried, f"{PROGRESS} is too long to go on with. Move it elsewhere, then approve.", "")
    item = choose(spec, carried, board)
    left = board.unfinished() if board is not None else []
    if left and item is None:
        return _ask(
            carried,
            f"No check can tell when {', '.join(each.id for each in left)} is done: there is no `check` and no "
            "--until. How to go on?",
            f"Look at the work. Set `passes` in {spec.items} yourself, or give the items a `check`, then approve; each "
            "that still has none gets another iteration. Deny ends the loop.",
        )
    about, shown = f"`{spec.until}` fails", f"Make `{spec.until}` succeed."
    wanted = [f"`{spec.until}` passes"] if spec.until else []
    others = "Nothing else."
    if item is not None and board is not None:
        about, shown = _line(item, ", "), cut(board.entries[item.id], ITEM_MAX)
        wanted = [in_words(check) for check in checks_of(item)] or wanted
        others = "\n".join([f"- {_line(each, ': ')}" for each in left if each.id != item.id][:50]) or others
        if not wanted:
            carried = replace(carried, tried=tuple(dict.fromkeys((*carried.tried, item.id))))
    parts = {
        "item": shown,
        "check": "; ".join(wanted) or "a person confirms it",
        "left": others,
        "progress": cut(progress.decode("utf-8", "replace"), PART_MAX).strip() or "(empty)",
    }
    again = _again(carried, board, item)
    carried = replace(carried, item=item.id if item is not None else "", again=tuple(each.id for each in again))
    return _iteration(spec, carried, seen, about, spec.template, parts, probes(spec, item, again))


def _line(item: Item, between: str) -> str:
    return f"{item.id}{between}{item.description.splitlines()[0][:100]}"


def choose(spec: LoopSpec, carried: Plan, board: Board | None) -> Item | None:
    """Choose the next unfinished item. An item without a check gets one turn."""
    if board is None:
        return None
    first = board.unfinished()
    waiting = [*first, *(item for item in board.items if item.id not in board.passing and item not in first)]
    return next((each for each in waiting if spec.until or checks_of(each) or each.id not in carried.tried), None)


def _again(carried: Plan, board: Board | None, item: Item | None) -> list[Item]:
    """Return passed items to check again after an iteration: those with quick checks, or all if it may be the last."""
    if board is None:
        return []
    passed = [each for each in board.items if each.id in board.passing and checks_of(each)]
    if item is not None and len(board.passing) == len(board.items) - 1:
        return passed
    chosen, total_ms = [], 0.0
    for each in sorted(passed, key=lambda each: carried.took_ms.get(each.id, CHEAP_MS + 1)):
        took_ms = carried.took_ms.get(each.id, CHEAP_MS + 1)
        total_ms += took_ms
        if took_ms > CHEAP_MS or total_ms > 2 * CHEAP_MS:
            break
        chosen.append(each)
    return chosen


def _iteration(
    spec: LoopSpec,
    carried: Plan,
    seen: Seen,
    about: str,
    template: str,
    parts: Mapping[str, str],
    checks: Sequence[Probe],
) -> Plan:
    """Plan an iteration: run the command, inspect and undo its changes, run the checks, plan again."""
    shared = {
        "agents": seen.agents.strip() or "(none)",
        "last": cut(carried.last, LAST_MAX).strip() or "(this is the first)",
        "words": "\n\n".join(carried.words)[-PART_MAX:] or "(nothing)",
    }
    command = shell(spec.command, cut(filled(template, {**shared, **parts}), PROMPT_MAX))
    calls = (
        _bash(command, spec.timeout_s, "work"),
        Step(LOOK, {}, "look"),
        Step(RESTORE, {}, "restore"),
        *_check_steps(checks),
        NEXT,
    )
    number = carried.iteration + 1
    return replace(carried, kind="work", say=f"Iteration {number}: {about}.", calls=calls, iteration=number)


def _stage(spec: LoopSpec, carried: Plan, seen: Seen, means: Means) -> Plan:
    """Plan the first two stages of a chain. `tries` counts the attempts of a stage to produce its file."""
    first = carried.stage == "analysis"
    name = ANALYSIS if first else spec.items
    data = seen.files.get(name)
    if carried.tries:
        try:
            if first:
                read_analysis(data)
            else:
                check_tasks(data, name, until=spec.until)
        except ContractInvalid as error:
            carried = replace(carried, last=str(error))
        else:
            analysis = (data or b"").decode("utf-8", "replace") if first else carried.analysis
            carried = replace(carried, tries=0, last="", idle=0, stage="plan" if first else "items", analysis=analysis)
            return next_plan(spec, carried, seen, means)
    if carried.tries >= TRIES_MAX:
        question = f"{name} is still invalid after {carried.tries} attempts. Repair it, then approve."
        return _ask(carried, question, carried.last)
    if (stopped := _stopped(carried, means, None)) is not None:
        return stopped
    about, template = "read the report, write analysis.json", spec.analysis_template
    parts = {"report": spec.report, "analysis": carried.analysis}
    if not first:
        about, template = "write the plan, prd.json", spec.plan_template
        parts["branch"] = read_analysis(carried.analysis.encode()).branch_name
    carried = replace(carried, item="", tries=carried.tries + 1)
    return _iteration(spec, carried, seen, about, template, parts, ())
