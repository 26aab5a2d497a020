"""Outcome of a plan: the results of its calls in the log, the verdict on them, and the entry in progress.txt. Pure."""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from msgspec.structs import replace

from holdfast.clock import rfc3339
from holdfast.facts.base import text_of
from holdfast.facts.codec import Event
from holdfast.facts.mission import Check
from holdfast.facts.model import AgentToolUse
from holdfast.facts.people import UserMessage
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.kinds.loop.files import Board, Kept, checks_of
from holdfast.kinds.loop.plan import STEP, LoopSpec, Plan, probes
from holdfast.kinds.loop.prompt import TOKEN
from holdfast.kinds.mission.contract.contents import command_line, metric_holds, metric_value
from holdfast.session.money import usd

_NOTES = re.compile(r"(?:\n\[\d+ (?:processes left behind|bytes of output)[^\n]*\])+\Z")
"""Notes of the harness below the output of a command. Numbers in them are not metrics."""


class Outcome(msgspec.Struct, frozen=True):
    """Outcome of one call of a plan."""

    content: str
    end: Literal["ok", "error", "denied", "skipped", "cancelled", "unknown"] = msgspec.field(
        default="unknown", name="outcome"
    )
    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    truncated: bool = False
    duration_ms: float | None = None
    at_us: int = 0

    @property
    def ran(self) -> bool:
        """Return True if the call ran and its result is known."""
        return self.end in ("ok", "error")

    def words(self) -> str:
        """Short description of the outcome."""
        if self.end == "unknown":
            return "its outcome is unknown: its sandbox was lost; it may have run completely, in part, or not at all"
        if not self.ran:
            return f"{self.end} before it ended"
        took = f" after {self.duration_ms / 1000:.1f} s" if self.duration_ms is not None else ""
        if self.timed_out:
            return f"ended at its time limit{took}"
        if self.signal:
            return f"ended by signal {self.signal}{took}"
        return f"exit status {self.exit_code or 0}{took}"


class Story(msgspec.Struct, frozen=True):
    """Log of a loop: the latest plan, the previous files, the outcomes of its calls, and later user messages."""

    plan: Plan | None
    files: dict[str, Kept]
    outcomes: dict[str, Outcome]
    words: tuple[str, ...]
    through_seq: int


class StoryReader:
    """Reader of the log of a loop, event by event. A plan counts once its result is recorded."""

    def __init__(self) -> None:
        self.through_seq = 0
        self._plan: Plan | None = None
        self._files: dict[str, Kept] = {}
        self._calls: dict[str, str] = {}  # since the plan: call id → tool
        self._results: dict[str, Outcome] = {}
        self._said: list[tuple[int, str]] = []

    def take(self, event: Event) -> bool:
        """Apply an event. Return True if the story may be another one now."""
        self.through_seq = event.seq
        match event.fact:
            case AgentToolUse() as use:
                self._calls[use.call_id] = use.name
            case UserMessage(content=content):
                self._said.append((event.seq, text_of(content)))
            case ToolResult() as result if self._calls.get(result.call_id) == STEP and result.outcome == "ok":
                self._plan = msgspec.json.decode(result.content, type=Plan)
                self._files |= self._plan.files
                self._calls, self._results = {}, {}
            case ToolResult() | ToolOutcomeUnknown() as ended:
                found = msgspec.convert(ended, Outcome, from_attributes=True)
                self._results[ended.call_id] = replace(found, at_us=event.at_us)
            case _:
                return False
        return True

    def story(self) -> Story:
        """Return the story so far."""
        plan = self._plan
        outcomes: dict[str, Outcome] = {}
        for step, (call_id, name) in zip(plan.calls if plan is not None else (), self._calls.items(), strict=False):
            if name != step.name:
                break
            if call_id in self._results:
                outcomes[step.purpose] = self._results[call_id]
        heard = plan.through_seq if plan is not None else 0
        told = () if plan is None or "work" in outcomes else plan.words
        words = (*told, *(text for seq, text in self._said if seq > heard))
        return Story(plan, self._files, outcomes, words, self.through_seq)


def read_story(events: list[Event]) -> Story:
    """Read the log."""
    reader = StoryReader()
    for event in events:
        reader.take(event)
    return reader.story()


class Verdict(msgspec.Struct, frozen=True):
    """Verdict of a plan's checks. `passed` is for its item, `over` for the whole loop (`--until`).

    `lines` go into progress.txt, `signature` is equal for equal results, and `failed` is the output of failed checks.
    `lost` are items that passed before and no longer do; `whole` means that the checks of all items passed.
    """

    passed: bool = False
    over: bool = False
    lines: tuple[str, ...] = ()
    signature: str = ""
    failed: str = ""
    lost: tuple[str, ...] = ()
    whole: bool = False
    took_ms: dict[str, float] = {}


def judge(spec: LoopSpec, board: Board | None, plan: Plan, outcomes: dict[str, Outcome]) -> Verdict:
    """Judge a plan by the harness's own checks, ignoring the claims of the command."""
    items = {item.id: item for item in board.items} if board is not None else {}
    item = items.get(plan.item)
    failing: set[str] = set()
    took_ms: dict[str, float] = {}
    lines, marks, failed = [], [], []
    for purpose, name, check in probes(spec, item, [items[each] for each in plan.again if each in items]):
        found = outcomes.get(purpose, Outcome("", "skipped"))
        command = command_line(check)
        held = holds(check, found)
        if not held:
            failing.add(name)
        if found.ran:
            took_ms[name] = took_ms.get(name, 0.0) + (found.duration_ms or 0.0)
            how = f" ({found.words()})" if found.exit_code or found.timed_out or found.signal else ""
            lines.append(f"`{command}` {'passed' if held else f'failed{how}'}")
            failed += [] if held else [f"`{command}` failed:\n{found.content}"]
        else:
            lines.append(f"`{command}` was not run")
        if not (held and purpose.startswith("again:")):
            marks.append(f"{purpose}={f'{found.end}:{found.exit_code}' if purpose in outcomes else '-'}")
    over = bool(spec.until) and "" not in failing
    passed = item is not None and (item.id not in failing if checks_of(item) else over)
    unfailing = {plan.item, *plan.again} - failing
    all_held = all(name in unfailing for name, each in items.items() if checks_of(each))
    return Verdict(
        passed=passed,
        over=over,
        lines=tuple(lines),
        signature=" ".join(marks),
        failed="\n\n".join(failed),
        lost=tuple(name for name in plan.again if name in failing and name in took_ms),
        whole=board is not None and all_held and (passed or item is None),
        took_ms={name: took for name, took in took_ms.items() if name},
    )


def holds(check: Check, found: Outcome) -> bool:
    """Return True if a check passed."""
    if found.end != "ok" or found.timed_out or found.exit_code:
        return False
    if check.metric is None:
        return True
    value = metric_value(_NOTES.sub("", found.content))
    return value is not None and metric_holds(check.metric, value)


def entry(
    session_id: str, plan: Plan, outcomes: dict[str, Outcome], verdict: Verdict, notes: list[str], cost_pico: int | None
) -> str:
    """Write the progress.txt entry of an iteration. It is the same for the same log, so it is added only once."""
    lines = [*verdict.lines]
    head = f"## All items checked again after iteration {plan.iteration} of {session_id}"
    if plan.kind == "work":
        work = outcomes["work"]
        about = plan.item if plan.stage == "items" else plan.stage
        head = f"## Iteration {plan.iteration} of {session_id} - {about or 'until'}\n{rfc3339(work.at_us)[:19]}Z"
        cost = "it reported no cost" if cost_pico is None else f"it reported a cost of {usd(cost_pico)}"
        lines.insert(0, f"the command: {work.words()}; {cost}")
        if plan.stage == "items" and plan.item:
            passes = "passes" if verdict.passed else "does not pass yet"
            lines.append(f"{plan.item}: {passes}, by the harness's own checks")
        if TOKEN in work.content:
            notes = [*notes, "the stop token was in its output, which decides nothing"]
    lines += [f"{lost}: passed before and no longer does" for lost in verdict.lost]
    return "\n".join(["", head, *(f"- {line}" for line in (*lines, *notes))]) + "\n"
