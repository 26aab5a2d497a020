"""What a loop does next, from what it has seen and what its checks said. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from holdfast.errors import ContractInvalid
from holdfast.facts.contract import Item
from holdfast.kinds.loop.chain import analysis_problem, branch_of, plan_problem
from holdfast.kinds.loop.guard import kept
from holdfast.kinds.loop.items import Board, checks_of, read_board
from holdfast.kinds.loop.plan import Plan, Stage, Step, again_calls, asking, work_calls
from holdfast.kinds.loop.prompt import ITEM_MAX, LAST_MAX, PART_MAX, cut, filled, shell
from holdfast.kinds.loop.spec import ANALYSIS, IDLE_MAX, PROGRESS, STEP, TRIES_MAX, LoopSpec
from holdfast.kinds.mission.contract.contents import in_words
from holdfast.session.money import usd

PROMPT_MAX = 100_000
PROGRESS_MAX = 768 * 1024

CHEAP_MS = 10_000.0
"""An item that passed is checked again after each iteration when its checks took no longer; all such, twice as long."""

STEADY_TRIES = 2
"""So often the checks of all items are run again when they change the folder; then a person is asked."""


class Seen(msgspec.Struct, frozen=True):
    """The workspace before an iteration: the loop's own files, AGENTS.md, the digest of the tree."""

    files: Mapping[str, bytes | None]
    agents: str
    tree: str


class Means(msgspec.Struct, frozen=True):
    """What may still be used: turns of the session for one more iteration, money, and what was spent so far."""

    another: bool
    budget_pico: int | None
    spent_pico: int


def next_plan(spec: LoopSpec, carried: Plan, seen: Seen, means: Means, *, over: bool) -> Plan:
    """The plan after `carried`, which has what is known by now. `over` says that `--until` has just succeeded."""
    carried = replace(carried, tree=seen.tree, files={})
    if over:
        return _ended(carried, f"`{spec.until}` succeeded after {_iterations(carried.iteration)}")
    if carried.stage != "items":
        return _stage(spec, carried, seen, means)
    board: Board | None = None
    if spec.items:
        data = seen.files.get(spec.items)
        try:
            if data is None:
                raise ContractInvalid(f"{spec.items} is not there, is no plain file, or is larger than a megabyte")
            board = read_board(data, spec.items)
        except ContractInvalid as error:
            return _ask(carried, f"The items cannot be read. Set {spec.items} right, then approve.", str(error))
        if board.finished() and not spec.until:
            return _finished(spec, carried, seen, means, board)
    return _bounded(carried, means, board) or _work(spec, carried, seen, board)


def _ended(carried: Plan, why: str) -> Plan:
    return replace(carried, kind="done", say=f"The loop is done: {why}.", calls=(), words=())


def _finished(spec: LoopSpec, carried: Plan, seen: Seen, means: Means, board: Board) -> Plan:
    """All items are said to pass: the end, once their checks have all passed on the tree that is there."""
    checked = tuple(item for item in board.items if checks_of(item))
    if carried.proven == seen.tree or carried.accepted or not checked:
        said = f"all {len(board.items)} items of {spec.items} pass after {_iterations(carried.iteration)}"
        changes = "; their checks change the folder, which a person accepted" if carried.accepted else ""
        return _ended(carried, said + changes)
    if carried.unsteady >= STEADY_TRIES:
        question = (
            "Each check passes, but the checks change the folder, so they never passed on the same files. Is it done?"
        )
        return _ask(carried, question, "Approve accepts this as done, or have the checks write elsewhere and approve.")
    stopped = _bounded(carried, means, board)
    if stopped is not None:
        return stopped
    say = "All items are said to pass: their checks are run again."
    calls = (*again_calls(checked), Step(STEP, {}, "step"))
    return replace(carried, kind="check", say=say, calls=calls, item="", again=tuple(item.id for item in checked))


def _again(carried: Plan, board: Board | None, item: Item | None) -> tuple[Item, ...]:
    """The items whose checks are run again after an iteration: the cheap ones, or all when it may be the last."""
    if board is None:
        return ()
    passing = [each for each in board.items if board.passes[each.id] and checks_of(each)]
    if item is not None and all(board.passes[each.id] for each in board.items if each.id != item.id):
        return tuple(passing)
    cheap = sorted((carried.took_ms.get(each.id, CHEAP_MS + 1), number) for number, each in enumerate(passing))
    chosen, left = [], CHEAP_MS * 2
    for took, number in cheap:
        left -= took
        if took > CHEAP_MS or left < 0:
            break
        chosen.append(passing[number])
    return tuple(chosen)


def _iterations(count: int) -> str:
    return f"{count} iteration" if count == 1 else f"{count} iterations"


def _ask(carried: Plan, question: str, why: str) -> Plan:
    return replace(carried, kind="ask", say=question, calls=asking(question, why))


def _bounded(carried: Plan, means: Means, board: Board | None) -> Plan | None:
    """A rest or a question where the loop may not simply go on; None where it may."""
    stands = ""
    if board is not None:
        stands = f"; {sum(board.passes.values())} of {len(board.items)} items pass"
    if not means.another:
        say = f"All iterations are used ({carried.iteration} so far){stands}."
        return replace(carried, kind="rest", say=say, calls=(Step(STEP, {}, "step"),))
    spent = means.spent_pico + (carried.cost_pico or 0)
    if means.budget_pico is not None and carried.cost_pico and spent >= means.budget_pico:
        say = f"The command says that it cost {usd(spent)} so far, of {usd(means.budget_pico)}{stands}."
        return replace(carried, kind="rest", say=say, calls=(Step(STEP, {}, "step"),))
    if carried.idle >= IDLE_MAX:
        question = f"The last {carried.idle} iterations changed nothing, and the checks say the same{stands}. Go on?"
        return _ask(carried, question, carried.last)
    return None


def _work(spec: LoopSpec, carried: Plan, seen: Seen, board: Board | None) -> Plan:
    if len(seen.files.get(PROGRESS) or b"") > PROGRESS_MAX:
        return _ask(carried, f"{PROGRESS} is too long to go on with. Move it elsewhere, then approve.", "")
    item = choose(spec, carried, board)
    if board is not None and item is None and not board.finished():
        bare = ", ".join(each.id for each in board.unfinished())
        question = f"Nothing can tell whether {bare} is done: there is no `check` and no --until. How to go on?"
        return _ask(
            carried,
            question,
            f"Look at the work. Set `passes` in {spec.items} yourself, or give the items a `check`, then approve; each "
            "that still has none gets another iteration. Deny ends the loop.",
        )
    checks = checks_of(item) if item is not None else ()
    parts = _parts(spec, carried, seen, board, item)
    command = shell(spec.command, cut(filled(spec.template, parts), PROMPT_MAX))
    again = _again(carried, board, item)
    number = carried.iteration + 1
    about = f"{item.id}, {item.description.splitlines()[0][:100]}" if item is not None else f"`{spec.until}` fails"
    tried = carried.tried
    if item is not None and not checks and not spec.until:
        tried = tuple(dict.fromkeys((*tried, item.id)))
    return replace(
        carried,
        kind="work",
        say=f"Iteration {number}: {about}.",
        calls=work_calls(spec, command, checks, again),
        iteration=number,
        item=item.id if item is not None else "",
        again=tuple(each.id for each in again),
        tried=tried,
    )


def choose(spec: LoopSpec, carried: Plan, board: Board | None) -> Item | None:
    """The next unfinished item; one that nothing can check has one turn."""
    if board is None:
        return None
    first = board.unfinished()
    waiting = [*first, *(item for item in board.items if not board.passes[item.id] and item not in first)]
    return next((each for each in waiting if spec.until or checks_of(each) or each.id not in carried.tried), None)


def _parts(spec: LoopSpec, carried: Plan, seen: Seen, board: Board | None, item: Item | None) -> dict[str, str]:
    """What goes into the prompt."""
    shown = f"Make `{spec.until}` succeed."
    wanted = [f"`{spec.until}` passes"] if spec.until else []
    left = "Nothing else."
    if item is not None and board is not None:
        shown = cut(board.entries[item.id], ITEM_MAX)
        wanted = [in_words(check) for check in checks_of(item)] or wanted
        others = [each for each in board.unfinished() if each.id != item.id]
        left = "\n".join(f"- {each.id}: {each.description.splitlines()[0][:100]}" for each in others[:50]) or left
    return {
        **_shared(carried, seen),
        "item": shown,
        "check": "; ".join(wanted) or "a person who looks at it says so",
        "left": left,
        "progress": cut((seen.files.get(PROGRESS) or b"").decode("utf-8", "replace"), PART_MAX).strip() or "(empty)",
    }


def _shared(carried: Plan, seen: Seen) -> dict[str, str]:
    return {
        "agents": seen.agents.strip() or "(none)",
        "last": cut(carried.last, LAST_MAX).strip() or "(this is the first)",
        "words": "\n\n".join(carried.words)[-PART_MAX:] or "(nothing)",
    }


# --- a chain ---------------------------------------------------------------------------------------


def _stage(spec: LoopSpec, carried: Plan, seen: Seen, means: Means) -> Plan:
    """The next plan of a chain's first two stages. `tries` counts what a stage was asked so far."""
    file = ANALYSIS if carried.stage == "analysis" else spec.items
    found = seen.files.get(file)
    problem = analysis_problem(found) if carried.stage == "analysis" else plan_problem(found, spec)
    if carried.tries and not problem:
        fresh = replace(carried, tries=0, last="", idle=0)
        if carried.stage == "analysis":
            analysis = (found or b"").decode("utf-8", "replace")
            return next_plan(spec, replace(fresh, stage="plan", analysis=analysis), seen, means, over=False)
        return next_plan(spec, replace(fresh, stage="items"), seen, means, over=False)
    if carried.tries:
        carried = replace(carried, last=problem)
    if carried.tries >= TRIES_MAX:
        return _ask(
            carried, f"{file} is still not right after {carried.tries} tries. Set it right, then approve.", problem
        )
    stopped = _bounded(carried, means, None)
    if stopped is not None:
        return stopped
    parts = {**_shared(carried, seen), "report": spec.report, "analysis": carried.analysis}
    if carried.stage == "plan":
        parts["branch"] = branch_of(carried.analysis)
    template = spec.analysis_template if carried.stage == "analysis" else spec.plan_template
    number = carried.iteration + 1
    return replace(
        carried,
        kind="work",
        say=f"Iteration {number}: {_STAGES[carried.stage]}.",
        calls=work_calls(replace(spec, until=""), shell(spec.command, cut(filled(template, parts), PROMPT_MAX)), ()),
        iteration=number,
        item="",
        tries=carried.tries + 1,
    )


_STAGES: dict[Stage, str] = {"analysis": "read the report, write analysis.json", "plan": "write the plan, prd.json"}


def with_files(plan: Plan, before: Mapping[str, object], seen: Seen) -> Plan:
    """The plan with those of the loop's files that are not as the log has them by now."""
    now = {name: kept(data) for name, data in seen.files.items() if name != ANALYSIS}
    return replace(plan, files={name: each for name, each in now.items() if before.get(name) != each})
