"""What an iteration of a loop was and what the next one is: a plan, the outcomes of its calls, a verdict. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from holdfast.clock import rfc3339
from holdfast.facts.base import Usage, text_of
from holdfast.facts.codec import Event
from holdfast.facts.contract import Check, Item
from holdfast.facts.model import AgentToolUse
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.facts.user import UserMessage
from holdfast.kinds.loop.items import Board, checks_of
from holdfast.kinds.loop.prompt import PART_MAX, cut, promised
from holdfast.kinds.loop.spec import LOOK, RESTORE, STEP, LoopSpec
from holdfast.kinds.mission.contract.contents import command_line, metric_holds, metric_value
from holdfast.session.money import usd

Stage = Literal["analysis", "plan", "items"]

ASK = "ask_person"

_NOTES = re.compile(r"(?:\n\[\d+ (?:processes left behind|bytes of output)[^\n]*\])+\Z")
"""What the harness says below the output of a command that went well: the number in it is nobody's metric."""


class Step(msgspec.Struct, frozen=True):
    """One call of a plan.

    `purpose` is what it is for: `work`, `look`, `restore`, `check:0`, `again:ID:0`, `until`, `ask`, `step`.
    """

    name: str
    input: dict[str, object]
    purpose: str


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file as it was before an iteration. What is no UTF-8 is kept as bytes; `there` is False for no file."""

    text: str = ""
    raw: bytes = b""
    there: bool = True


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happens next, and everything that the one after it has to know.

    `files` are those that changed since the plan before. `idle` counts iterations without a change, `tried` are items
    that cannot be checked and had their turn. `cost_pico` is what the iteration before this plan said that it cost,
    None when it said nothing. `words` are what people said and no command was told yet.

    `again` are items that passed before and are checked again by this plan, `took_ms` is how long the checks of items
    took. `proven` is the tree that the checks of all items passed on; `unsteady` counts attempts at that which changed
    the tree, `accepted` says that a person accepted this.
    """

    kind: Literal["work", "check", "ask", "rest", "done", "failed"]
    say: str
    calls: tuple[Step, ...] = ()
    iteration: int = 0
    stage: Stage = "items"
    item: str = ""
    tries: int = 0
    files: dict[str, Kept] = {}
    tree: str = ""
    idle: int = 0
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


class Outcome(msgspec.Struct, frozen=True):
    """How a call of a plan ended."""

    end: Literal["ok", "error", "denied", "skipped", "cancelled", "unknown"]
    content: str
    exit_code: int | None
    timed_out: bool
    truncated: bool
    duration_ms: float | None
    at_us: int
    signal: int | None = None

    @property
    def ran(self) -> bool:
        """Whether it ran to an end that is known."""
        return self.end in ("ok", "error")

    def words(self) -> str:
        """How it ended, in a few words."""
        if self.end == "unknown":
            return "its outcome is unknown: whatever ran it was gone; it may have run in whole, in part or not at all"
        if not self.ran:
            return f"{self.end} before it ended"
        took = f" after {self.duration_ms / 1000:.1f} s" if self.duration_ms is not None else ""
        if self.timed_out:
            return f"ended at its time limit{took}"
        if self.signal:
            return f"ended by signal {self.signal}{took}"
        return f"exit status {self.exit_code or 0}{took}"


class Story(msgspec.Struct, frozen=True):
    """What the log says: the latest plan, the files before it, what became of its calls, what people said since."""

    plan: Plan | None
    files: dict[str, Kept]
    outcomes: dict[str, Outcome]
    words: tuple[str, ...]
    through_seq: int


def read_story(events: list[Event]) -> Story:
    """The story so far. A plan counts once its result is in the log."""
    uses: dict[str, AgentToolUse] = {}
    plan: Plan | None = None
    files: dict[str, Kept] = {}
    since: list[str] = []
    results: dict[str, Outcome] = {}
    said: list[tuple[int, str]] = []
    for event in events:
        match event.fact:
            case AgentToolUse() as use:
                uses[use.call_id] = use
                since.append(use.call_id)
            case UserMessage(content=content):
                said.append((event.seq, text_of(content)))
            case ToolResult() as result:
                use_of = uses.get(result.call_id)
                if use_of is not None and use_of.name == STEP and result.outcome == "ok":
                    plan = msgspec.json.decode(result.content, type=Plan)
                    files |= plan.files
                    since, results = [], {}
                    continue
                results[result.call_id] = _outcome(result, event.at_us)
            case ToolOutcomeUnknown() as lost:
                results[lost.call_id] = Outcome("unknown", lost.content, None, False, False, None, event.at_us)
            case _:
                pass
    outcomes: dict[str, Outcome] = {}
    if plan is not None:
        for step, call_id in zip(plan.calls, since, strict=False):
            if uses[call_id].name != step.name:
                break
            if call_id in results:
                outcomes[step.purpose] = results[call_id]
    heard = plan.through_seq if plan is not None else 0
    told = () if plan is None or "work" in outcomes else plan.words
    words = (*told, *(text for seq, text in said if seq > heard))
    return Story(plan, files, outcomes, words, events[-1].seq if events else 0)


def _outcome(result: ToolResult, at_us: int) -> Outcome:
    return Outcome(
        result.outcome,
        result.content,
        result.exit_code,
        result.timed_out,
        result.truncated,
        result.duration_ms,
        at_us,
        result.signal,
    )


class Verdict(msgspec.Struct, frozen=True):
    """What the checks of an iteration said. `passed` is for its item, `over` for the whole loop by `--until`.

    `lines` are for people, `signature` is equal for equal results, `failed` is the output of what failed. `lost` are
    items that passed before and do not any more; `whole` says that the checks of all items passed.
    """

    passed: bool
    over: bool
    lines: tuple[str, ...]
    signature: str
    failed: str
    lost: tuple[str, ...] = ()
    whole: bool = False
    took_ms: dict[str, float] = {}


def judge(
    spec: LoopSpec, board: Board | None, item_id: str, outcomes: dict[str, Outcome], again: tuple[str, ...] = ()
) -> Verdict:
    """The verdict of the harness's own checks; what the command said about itself is not looked at."""
    item = board.find(item_id) if board is not None else None
    checks = checks_of(item) if item is not None else ()
    results = [
        (command_line(check), _holds(check, f"check:{n}", outcomes), f"check:{n}") for n, check in enumerate(checks)
    ]
    count = len(results)
    lost, held = [], {item_id}
    for name in again if board is not None else ():
        other = board.find(name) if board is not None else None
        both = [(f"again:{name}:{n}", check) for n, check in enumerate(checks_of(other) if other is not None else ())]
        results += [(command_line(check), _holds(check, purpose, outcomes), purpose) for purpose, check in both]
        if all(_holds(check, purpose, outcomes) for purpose, check in both):
            held.add(name)
        elif any(purpose in outcomes and outcomes[purpose].ran for purpose, _ in both):
            lost.append(name)
    over = False
    if spec.until:
        over = _holds(Check(spec.until), "until", outcomes)
        results.append((spec.until, over, "until"))
    own = [holds for _, holds, _ in results[:count]]
    passed = item is not None and (all(own) if own else over)
    lines = tuple(
        f"`{command}` {'passed' if holds else _why(outcomes.get(purpose))}" for command, holds, purpose in results
    )
    failed = "\n\n".join(
        f"`{command}` failed:\n{outcomes[purpose].content}"
        for command, holds, purpose in results
        if not holds and purpose in outcomes and outcomes[purpose].ran
    )
    telling = (purpose for _, holds, purpose in results if not (holds and purpose.startswith("again:")))
    signature = " ".join(f"{purpose}={_mark(outcomes.get(purpose))}" for purpose in telling)
    whole = board is not None and all(each.id in held for each in board.items if checks_of(each))
    return Verdict(
        passed,
        over,
        lines,
        signature,
        failed,
        tuple(lost),
        whole and (passed or item is None),
        _took(outcomes, item_id),
    )


def _took(outcomes: dict[str, Outcome], item_id: str) -> dict[str, float]:
    """How long the checks of each item took, for those that ran."""
    took: dict[str, float] = {}
    for purpose, found in outcomes.items():
        kind, _, rest = purpose.partition(":")
        name = item_id if kind == "check" else rest.rpartition(":")[0]
        if kind in ("check", "again") and found.ran:
            took[name] = took.get(name, 0.0) + (found.duration_ms or 0.0)
    return took


def _holds(check: Check, purpose: str, outcomes: dict[str, Outcome]) -> bool:
    found = outcomes.get(purpose)
    if found is None or found.end != "ok" or found.timed_out or found.exit_code:
        return False
    if check.metric is None:
        return True
    value = metric_value(_NOTES.sub("", found.content))
    return value is not None and metric_holds(check.metric, value)


def _why(found: Outcome | None) -> str:
    if found is None or not found.ran:
        return "was not run"
    return f"failed ({found.words()})" if found.exit_code or found.timed_out or found.signal else "failed"


def _mark(found: Outcome | None) -> str:
    return "-" if found is None else f"{found.end}:{found.exit_code}"


def entry(
    session_id: str, plan: Plan, outcomes: dict[str, Outcome], verdict: Verdict, notes: list[str], cost_pico: int | None
) -> str:
    """What is added to progress.txt about an iteration. The same for the same log, so that it is added once."""
    if plan.kind == "check":
        head = f"## All items checked again after iteration {plan.iteration} of {session_id}"
        lines = [*verdict.lines, *(f"{lost}: passed before and does not any more" for lost in verdict.lost)]
        return "\n".join(["", head, *(f"- {line}" for line in lines)]) + "\n"
    work = outcomes["work"]
    cost = "it does not say what it cost" if cost_pico is None else f"it says that it cost {usd(cost_pico)}"
    lines = [
        "",
        heading(session_id, plan),
        f"{rfc3339(work.at_us)[:19]}Z",
        f"- the command: {work.words()}; {cost}",
        *(f"- {line}" for line in verdict.lines),
    ]
    if plan.stage == "items" and plan.item:
        lines.append(
            f"- {plan.item}: {'passes' if verdict.passed else 'does not pass yet'}, by the harness's own checks"
        )
    lines += [f"- {lost}: passed before and does not any more" for lost in verdict.lost]
    lines += [f"- {note}" for note in notes]
    if promised(work.content):
        lines.append("- the stop token was in its output: a hint, which decides nothing")
    return "\n".join(lines) + "\n"


def heading(session_id: str, plan: Plan) -> str:
    """The first line of an entry of progress.txt."""
    about = plan.item if plan.stage == "items" else plan.stage
    return f"## Iteration {plan.iteration} of {session_id} - {about or 'until'}"


def work_calls(
    spec: LoopSpec, command: str, checks: tuple[Check, ...], again: tuple[Item, ...] = ()
) -> tuple[Step, ...]:
    """The calls of an iteration: the command, a look at what it left, putting back, the checks, the next plan."""
    calls = [Step("bash", {"command": command, "timeout_ms": int(spec.timeout_s * 1000)}, "work")]
    calls += [Step(LOOK, {}, "look"), Step(RESTORE, {}, "restore")]
    for number, check in enumerate(checks):
        calls.append(_check_call(command_line(check), check.timeout_s, f"check:{number}"))
    calls += again_calls(again)
    if spec.until:
        calls.append(_check_call(spec.until, 900.0, "until"))
    return (*calls, Step(STEP, {}, "step"))


def again_calls(items: Iterable[Item]) -> list[Step]:
    """The checks of items that passed before."""
    return [
        _check_call(command_line(check), check.timeout_s, f"again:{item.id}:{number}")
        for item in items
        for number, check in enumerate(checks_of(item))
    ]


def _check_call(command: str, timeout_s: float, purpose: str) -> Step:
    return Step("bash", {"command": command, "timeout_ms": int(min(timeout_s, 3600.0) * 1000)}, purpose)


def asking(question: str, why: str) -> tuple[Step, ...]:
    """The calls of a plan that asks a person."""
    return (Step(ASK, {"question": question, "why": cut(why, PART_MAX)}, "ask"), Step(STEP, {}, "step"))
