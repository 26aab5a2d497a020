"""Agent of a loop: its request, its model (which is code), and its tools, which run on the host."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from anyio.lowlevel import checkpoint
from anyio.to_thread import run_sync
from msgspec.structs import replace

from holdfast.brain.doors import FIRST, Attempt, CustomResult, ToolRunner
from holdfast.brain.recall import recall
from holdfast.errors import ContractInvalid, HoldfastError, ModelError
from holdfast.facts.base import Usage
from holdfast.facts.session import Agent, CustomTool, SessionCreated
from holdfast.kinds import LOOP
from holdfast.kinds.loop import files
from holdfast.kinds.loop.files import ANALYSIS, PROGRESS, Board, Kept, mark, read_board
from holdfast.kinds.loop.outcome import Outcome, Story, Verdict, entry, judge, read_story
from holdfast.kinds.loop.plan import (
    ASK,
    GO_ON,
    LOOK,
    NEXT,
    NO_PROGRAM,
    RESTORE,
    STEP,
    LoopSpec,
    Means,
    Plan,
    Seen,
    asking,
    next_plan,
    rest_s,
)
from holdfast.kinds.loop.prompt import LAST_MAX, PART_MAX, cut, reported
from holdfast.log.base import Log, Snapshots
from holdfast.model.base import Finish, ModelRequest, StreamPart, TextDelta, ToolCallDelta, ToolCallStart
from holdfast.session.context.conversation import ToolCallPart, ToolResultPart
from holdfast.session.tenant import only_agents

_KEY = "x-holdfast-loop"
_OUTPUT_MAX = 200


def loop_agent(spec: LoopSpec) -> Agent:
    """Return the agent of a session with this loop. Its tools may be repeated: a second run finds the work done."""
    request = {_KEY: msgspec.json.decode(msgspec.json.encode(spec))}
    described = {
        LOOK: "Inspect the workspace after the command of the loop. Changes nothing.",
        RESTORE: "Restore files that the command of the loop must not change.",
        STEP: "Record the iteration that has ended, and plan the next one.",
    }
    tools = []
    for name, text in described.items():
        schema = {"type": "object", "properties": {}, **(request if name == STEP else {})}
        tools.append(CustomTool(name, text, schema, on_unknown="retry", timeout_s=600.0, read_only=name == LOOK))
    return Agent(model=LOOP, name="loop", tools=("bash", ASK), custom=tuple(tools))


def spec_of(agent: Agent) -> LoopSpec | None:
    """Return the agent's loop, or None if it has none."""
    step = next((tool for tool in agent.custom if tool.name == STEP), None)
    return msgspec.convert(step.input_schema.get(_KEY), LoopSpec) if step is not None and agent.model == LOOP else None


def plan_of(request: ModelRequest) -> Plan | None:
    """Return the plan in the latest result, or None.

    Notes and messages may follow the plan. They do not cancel its work: the next plan includes the messages. A plan
    without work is made again.
    """
    last = request.messages[-1] if request.messages else None
    results = [part for part in last.parts if isinstance(part, ToolResultPart)] if last is not None else []
    if last is None or last.role != "user" or not results or results[-1].name != STEP or results[-1].is_error:
        return None
    plan = msgspec.json.decode(results[-1].content, type=Plan)
    followed = last.parts[-1] is not results[-1]
    return None if followed and plan.kind in ("rest", "done", "failed") else plan


def _trouble(request: ModelRequest) -> str:
    """Return the error of the planning call if it was the only call; empty if it did not fail."""
    if len(request.messages) < 2:
        return ""
    asked, answered = request.messages[-2:]
    names = [part.name for part in asked.parts if isinstance(part, ToolCallPart)]
    last = answered.parts[-1]
    if names not in ([STEP], [ASK, STEP]) or not isinstance(last, ToolResultPart):
        return ""
    return "" if last.content.startswith("Not run:") else last.content


class LoopModel:
    """Model that responds with the calls of the plan. Its price is the cost that the loop's command reported."""

    def __init__(self) -> None:
        self.name = LOOP
        self._cost_pico: int | None = 0

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        """Smallest amount that must be free before an iteration begins, since its cost is unknown until it ends."""
        plan = plan_of(request)
        return 1 if plan is not None and plan.kind == "work" else 0

    def cost_pico(self, usage: Usage) -> int | None:
        """Cost of the previous iteration as its command reported it, or None."""
        return self._cost_pico

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Yield the calls of the plan, or the call that makes one. Raises `ModelError` if the loop has failed."""
        await checkpoint()
        plan = plan_of(request)
        if plan is None:
            trouble = _trouble(request)  # a retry cannot fix this, but a user can
            question = "The loop cannot go on. Fix the problem, then approve."
            plan = Plan("ask", "", asking(question, trouble) if trouble else (NEXT,))
        self._cost_pico = plan.cost_pico
        if plan.kind == "failed":
            raise ModelError("invalid_request", plan.say)
        if plan.kind == "work" and plan.failing and request.attempt == 1:
            why = f"an iteration failed and changed nothing. {plan.last.splitlines()[0]}"
            raise ModelError("unavailable", why, retry_after_s=rest_s(plan))
        if plan.say:
            yield TextDelta(plan.say)
        for index, call in enumerate(plan.calls):
            yield ToolCallStart(index, call.name, f"loop_{request.responses}_{index}")
            yield ToolCallDelta(index, msgspec.json.encode(call.input).decode())
        yield Finish("tool_use" if plan.calls else "end_turn", plan.usage or Usage(), counted=plan.usage is not None)


# --- tools -------------------------------------------------------------------------------------------

AGENTS = ("AGENTS.md", "CLAUDE.md")


class Look(msgspec.Struct, frozen=True):
    """State of the folder after a command: notes on restored files, and the digest of the tree."""

    notes: list[str]
    tree: str


@dataclass(frozen=True)
class LoopTool:
    """Tool of a loop (a `ToolRunner`): its declaration, the session's log, the request, the folder."""

    spec: CustomTool
    session_id: str
    loop: LoopSpec
    folder: Path
    log: Log
    snapshots: Snapshots

    async def run(self, call_id: str, value: dict[str, Any], key: str, attempt: Attempt = FIRST) -> CustomResult:
        """Run the tool. An error of the machine becomes the result of the call."""
        try:
            return CustomResult(True, await self._result())
        except (HoldfastError, OSError) as error:
            return CustomResult(False, str(error))

    async def probe(self, call_id: str, value: dict[str, Any], key: str, attempt: Attempt = FIRST) -> bool | None:
        """Never called, since each of these tools may be repeated."""
        return None

    async def _result(self) -> str:
        story = read_story(await self.log.read(self.session_id))
        if self.spec.name == RESTORE:
            return await run_sync(self._restore, story)
        if self.spec.name == LOOK:
            return msgspec.json.encode(await run_sync(self._look, story)).decode()
        state, _ = await recall(self.session_id, self.log, self.snapshots, only_agents)
        limits = state.limits
        means = Means(state.responses + 2 <= limits.max_turns, limits.budget_pico, state.cost_pico)
        return msgspec.json.encode(await run_sync(self.recorded, story, means)).decode()

    # --- on the folder, in a thread ----------------------------------------------------------------

    def _read(self, folder: int) -> dict[str, bytes | None]:
        names = [PROGRESS, *([self.loop.items] if self.loop.items else []), *([ANALYSIS] if self.loop.report else [])]
        return {name: files.read(folder, name) for name in names}

    def _guard(self, folder: int, story: Story) -> tuple[list[str], dict[str, bytes]]:
        writes_items = story.plan is not None and story.plan.stage != "items"
        return files.guard("" if writes_items else self.loop.items, story.files, self._read(folder))

    def _look(self, story: Story) -> Look:
        with files.opened(self.folder) as folder:
            return Look(self._guard(folder, story)[0], files.tree_digest(folder, self.loop.items))

    def _restore(self, story: Story) -> str:
        with files.opened(self.folder) as folder:
            wrong = self._guard(folder, story)[1]
            for name, data in wrong.items():
                files.write(folder, name, data)
        return f"put back: {', '.join(wrong)}" if wrong else "nothing had to be put back"

    def recorded(self, story: Story, means: Means) -> Plan:
        """Record the outcomes that the folder does not show yet, and make the next plan. Idempotent."""
        carried = story.plan or Plan("rest", "", stage="analysis" if self.loop.report else "items")
        carried = replace(carried, cost_pico=0, usage=Usage(), words=story.words, through_seq=story.through_seq)
        over = False
        if carried.kind == "work" and "work" in story.outcomes:
            carried, over = self._worked(story, carried)
        elif carried.kind == "check" and story.outcomes:
            carried = self._checked(story, carried)
        elif carried.kind == "ask" and (answer := story.outcomes.get("ask")) is not None:
            if answer.end == "denied":
                why = f"a person ended the loop, asked: {carried.say}"
                return replace(carried, kind="failed", say=why, calls=(), files={})
            told = (answer.content,) if answer.end == "ok" and answer.content not in (GO_ON, "Yes.") else ()
            carried = replace(_restarted(carried), words=(*carried.words, *told))
            carried = replace(carried, unsteady=0, accepted=carried.unsteady > 0)
        elif carried.kind == "failed" and story.words:
            carried = _restarted(carried)
        with files.opened(self.folder) as folder:
            agents = next((data for name in AGENTS if (data := files.read(folder, name)) is not None), b"")
            seen = Seen(
                self._read(folder),
                cut(agents.decode("utf-8", "replace"), PART_MAX),
                files.tree_digest(folder, self.loop.items),
            )
        plan = next_plan(self.loop, carried, seen, means, over=over)
        kept = {name: Kept.of(data) for name, data in seen.files.items() if name != ANALYSIS}
        return replace(plan, files={name: each for name, each in kept.items() if story.files.get(name) != each})

    def _worked(self, story: Story, plan: Plan) -> tuple[Plan, bool]:
        """Record an iteration in progress.txt, the items file, and the plan. Return True if all items are done."""
        work, look, restore = (story.outcomes.get(purpose) for purpose in ("work", "look", "restore"))
        assert work is not None
        left = msgspec.json.decode(look.content, type=Look) if look and look.end == "ok" else self._look(story)
        if restore is None or restore.end != "ok":
            self._restore(story)
        verdict = judge(self.loop, self._board(story), plan, story.outcomes) if plan.stage == "items" else Verdict()
        used = reported(work.content, truncated=work.truncated)
        self._write(story, plan, verdict, left.notes, used.cost_pico)
        idle, failing, tries = plan.idle, 0, plan.tries
        if left.tree == plan.tree and work.ran and work.exit_code and work.exit_code not in NO_PROGRAM:
            failing, tries = plan.failing + 1, max(0, plan.tries - 1)
        elif work.ran and plan.stage == "items":
            same = left.tree == plan.tree and not verdict.passed and plan.signature in ("", verdict.signature)
            idle = plan.idle + 1 if same else 0
        carried = replace(
            plan,
            idle=idle,
            failing=failing,
            tries=tries,
            signature=verdict.signature,
            took_ms={**plan.took_ms, **verdict.took_ms},
            proven=left.tree if verdict.whole else "",
            unsteady=0,
            accepted=False,
            cost_pico=used.cost_pico,
            usage=used.usage,
            last=_last(work, verdict, left.notes),
        )
        return carried, verdict.over

    def _checked(self, story: Story, plan: Plan) -> Plan:
        """Record the result of checking all items again: the loop ends, or some items no longer pass."""
        verdict = judge(self.loop, self._board(story), plan, story.outcomes)
        if verdict.lost:
            self._write(story, plan, verdict, [], None)
            plan = replace(plan, last="\n".join((*verdict.lines, cut(verdict.failed, LAST_MAX - 1_000))))
        return replace(
            plan,
            took_ms={**plan.took_ms, **verdict.took_ms},
            proven=plan.tree if verdict.whole else "",
            unsteady=plan.unsteady + verdict.whole,
        )

    def _board(self, story: Story) -> Board | None:
        data = story.files.get(self.loop.items, Kept(there=False)).data
        return None if data is None else read_board(data, self.loop.items)

    def _write(self, story: Story, plan: Plan, verdict: Verdict, notes: list[str], cost_pico: int | None) -> None:
        """Set `passes` of items, and add an entry to progress.txt, once."""
        more = entry(self.session_id, plan, story.outcomes, verdict, notes, cost_pico)
        passed = (plan.item,) if verdict.passed else ()
        with files.opened(self.folder) as folder:
            data = files.read(folder, self.loop.items) if passed or verdict.lost else None
            with contextlib.suppress(ContractInvalid):  # the file became unreadable: the next plan asks the user
                if data is not None and (now := mark(data, self.loop.items, passed, verdict.lost)) != data:
                    files.write(folder, self.loop.items, now)
            text = files.read(folder, PROGRESS) or b""
            if more.encode() not in text:
                files.write(folder, PROGRESS, text.rstrip(b"\n") + (b"\n" if text else b"") + more.encode())


def _restarted(plan: Plan) -> Plan:
    """Return the plan with its failure counts reset, after the user answered."""
    return replace(plan, idle=0, failing=0, tried=(), tries=min(plan.tries, 1))


def _last(work: Outcome, verdict: Verdict, notes: list[str]) -> str:
    """Summarize an iteration for the next prompt."""
    output = [line for line in work.content.splitlines() if line.strip() and not line.startswith("[")]
    said = f" Its output ends with: {cut(output[-1], _OUTPUT_MAX)}" if output and work.exit_code else ""
    lines = [f"The command: {work.words()}.{said}", *(f"- {line}" for line in (*verdict.lines, *notes))]
    if verdict.failed:
        lines.append(cut(verdict.failed, LAST_MAX - 1_000))
    elif work.ran and (work.exit_code or work.timed_out):
        lines += ["Its output:", cut(work.content, LAST_MAX // 2)]
    return "\n".join(lines)


def loop_tools(session_id: str, created: SessionCreated, log: Log, snapshots: Snapshots) -> Mapping[str, ToolRunner]:
    """Return the tools of a loop session."""
    spec = spec_of(created.agent)
    if spec is None:
        return {}
    folder = Path(created.workspace.path)
    own = [tool for tool in created.agent.custom if tool.name in (LOOK, RESTORE, STEP)]
    return {tool.name: LoopTool(tool, session_id, spec, folder, log, snapshots) for tool in own}
