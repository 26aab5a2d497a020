"""The loop's own tools, run in the brain's process: they read the log and the loop's files, and run nothing (S25)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread
import msgspec
from msgspec.structs import replace

from holdfast.brain.custom import CustomResult, ToolRunner
from holdfast.brain.recall import recall
from holdfast.errors import ContractInvalid, HoldfastError
from holdfast.facts.base import Usage
from holdfast.facts.session import CustomTool, SessionCreated
from holdfast.kinds.loop import files as loop_files
from holdfast.kinds.loop.guard import content, differences, restored
from holdfast.kinds.loop.items import Board, marked, read_board
from holdfast.kinds.loop.next import Means, Seen, next_plan, with_files
from holdfast.kinds.loop.plan import Outcome, Plan, Story, Verdict, entry, judge, read_story
from holdfast.kinds.loop.prompt import LAST_MAX, PART_MAX, cut, reported
from holdfast.kinds.loop.spec import ANALYSIS, LOOK, PROGRESS, RESTORE, STEP, LoopSpec, spec_of
from holdfast.log.base import Log, Snapshots
from holdfast.session.tenant import only_agents

AGENTS = ("AGENTS.md", "CLAUDE.md")

T = TypeVar("T")


class Look(msgspec.Struct, frozen=True):
    """What a command left: what of it is put back, in words, and the digest of the tree."""

    notes: list[str]
    tree: str


@dataclass(frozen=True)
class Loop:
    """One loop: its session's log, what it was asked to do, its folder."""

    session_id: str
    spec: LoopSpec
    folder: Path
    log: Log
    snapshots: Snapshots

    async def story(self) -> Story:
        """What the log says by now."""
        return read_story(await self.log.read(self.session_id))

    async def look(self) -> str:
        """What the command left behind, as JSON."""
        story = await self.story()
        return msgspec.json.encode(await _in_thread(partial(self._look, story))).decode()

    async def restore(self) -> str:
        """Put back what is not the command's to change; in words, what that was."""
        story = await self.story()
        return await _in_thread(partial(self._restore, story))

    async def step(self) -> str:
        """Record the iteration that has ended, and plan the next: the plan as JSON."""
        story = await self.story()
        state, _ = await recall(self.session_id, self.log, self.snapshots, only_agents)
        limits = state.limits
        means = Means(state.responses + 2 <= limits.max_turns, limits.budget_pico, state.cost_pico)
        plan = await _in_thread(partial(self.recorded, story, means))
        return msgspec.json.encode(plan).decode()

    # --- on the folder, in a thread ----------------------------------------------------------------

    def _read(self, folder: int) -> dict[str, bytes | None]:
        names = [PROGRESS, *([self.spec.items] if self.spec.items else []), *([ANALYSIS] if self.spec.report else [])]
        return {name: loop_files.read(folder, name) for name in names}

    def _tree(self, folder: int) -> str:
        return loop_files.tree_digest(folder, frozenset((PROGRESS, self.spec.items)))

    def _look(self, story: Story) -> Look:
        stage = story.plan.stage if story.plan is not None else "items"
        with loop_files.opened(self.folder) as folder:
            return Look(differences(self.spec, stage, story.files, self._read(folder)), self._tree(folder))

    def _restore(self, story: Story) -> str:
        stage = story.plan.stage if story.plan is not None else "items"
        with loop_files.opened(self.folder) as folder:
            wrong = restored(self.spec, stage, story.files, self._read(folder))
            for name, data in wrong.items():
                loop_files.write(folder, name, data)
        return f"put back: {', '.join(wrong)}" if wrong else "nothing had to be put back"

    def recorded(self, story: Story, means: Means) -> Plan:
        """Record what that story tells and the folder does not say yet, and plan what is next. Safe to repeat."""
        over = False
        carried = story.plan or Plan("rest", "", stage="analysis" if self.spec.report else "items")
        carried = replace(carried, cost_pico=0, usage=Usage(), words=story.words, through_seq=story.through_seq)
        if story.plan is not None and story.plan.kind == "work" and "work" in story.outcomes:
            carried, over = self._close(story, story.plan, carried)
        elif story.plan is not None and story.plan.kind == "check" and story.outcomes:
            carried = self._checked(story, story.plan, carried)
        elif story.plan is not None and story.plan.kind == "ask" and "ask" in story.outcomes:
            answer = story.outcomes["ask"]
            if answer.end == "denied":
                why = f"a person ended the loop, asked: {story.plan.say}"
                return replace(carried, kind="failed", say=why, calls=(), files={})
            told = (answer.content,) if answer.end == "ok" and answer.content != "Yes." else ()
            accepted = carried.unsteady > 0
            carried = replace(carried, idle=0, tried=(), tries=min(carried.tries, 1), words=(*carried.words, *told))
            carried = replace(carried, unsteady=0, accepted=accepted)
        elif story.plan is not None and story.plan.kind == "failed" and story.words:
            carried = replace(carried, idle=0, tried=(), tries=min(carried.tries, 1))
        with loop_files.opened(self.folder) as folder:
            agents = next((data for name in AGENTS if (data := loop_files.read(folder, name)) is not None), b"")
            words = cut(agents.decode("utf-8", "replace"), PART_MAX)
            seen = Seen(self._read(folder), words, self._tree(folder))
        return with_files(next_plan(self.spec, carried, seen, means, over=over), story.files, seen)

    def _close(self, story: Story, plan: Plan, carried: Plan) -> tuple[Plan, bool]:
        """Record how an iteration ended: in progress.txt, in the items' file, in what is carried on."""
        work = story.outcomes["work"]
        look = self._looked(story)
        if "restore" not in story.outcomes or story.outcomes["restore"].end != "ok":
            self._restore(story)
        board = self._board(story) if plan.stage == "items" else None
        judged = plan.stage == "items"
        verdict = judge(self.spec, board, plan.item, story.outcomes, plan.again) if judged else _NOT_JUDGED
        used = reported(work.content, truncated=work.truncated)
        with loop_files.opened(self.folder) as folder:
            self._mark(folder, (plan.item,) if verdict.passed and board is not None else (), verdict.lost)
            self._note(folder, entry(self.session_id, plan, story.outcomes, verdict, look.notes, used.cost_pico))
        carried = replace(
            carried,
            idle=_idle(plan, work, look, verdict),
            signature=verdict.signature,
            took_ms={**plan.took_ms, **verdict.took_ms},
            proven=look.tree if verdict.whole else "",
            unsteady=0,
            accepted=False,
            cost_pico=used.cost_pico,
            usage=used.usage,
            last=_last(work, verdict, look),
        )
        return carried, verdict.over

    def _checked(self, story: Story, plan: Plan, carried: Plan) -> Plan:
        """What follows when the checks of all items were run again: the end, or items that do not pass any more."""
        verdict = judge(self.spec, self._board(story), "", story.outcomes, plan.again)
        if verdict.lost:
            with loop_files.opened(self.folder) as folder:
                self._mark(folder, (), verdict.lost)
                self._note(folder, entry(self.session_id, plan, story.outcomes, verdict, [], None))
        return replace(
            carried,
            took_ms={**plan.took_ms, **verdict.took_ms},
            proven=plan.tree if verdict.whole else "",
            unsteady=plan.unsteady + verdict.whole,
            last="\n".join((*verdict.lines, cut(verdict.failed, LAST_MAX - 1_000))) if verdict.lost else carried.last,
        )

    def _note(self, folder: int, more: str) -> None:
        """Add an entry to progress.txt, once."""
        text = loop_files.read(folder, PROGRESS) or b""
        if more.encode() not in text:
            loop_files.write(folder, PROGRESS, text.rstrip(b"\n") + (b"\n" if text else b"") + more.encode())

    def _looked(self, story: Story) -> Look:
        found = story.outcomes.get("look")
        if found is not None and found.end == "ok":
            return msgspec.json.decode(found.content, type=Look)
        return self._look(story)

    def _board(self, story: Story) -> Board | None:
        data = content(story.files.get(self.spec.items)) if self.spec.items else None
        return None if data is None else read_board(data, self.spec.items)

    def _mark(self, folder: int, passed: tuple[str, ...], lost: tuple[str, ...]) -> None:
        """Set `passes` of items, unless it is set, or their file is no more what it was: the next plan says that."""
        data = loop_files.read(folder, self.spec.items) if passed or lost else None
        if data is None:
            return
        try:
            board = read_board(data, self.spec.items)
        except ContractInvalid:
            return
        known = board.passes
        if any(known.get(name) is False for name in passed) or any(known.get(name) for name in lost):
            loop_files.write(folder, self.spec.items, marked(data, board, [n for n in passed if n in known], lost))


_NOT_JUDGED = Verdict(False, False, (), "", "")


def _idle(plan: Plan, work: Outcome, look: Look, verdict: Verdict) -> int:
    """Iterations in a row without a change. One that was stopped counts neither way."""
    if not work.ran or plan.stage != "items":
        return plan.idle
    same = look.tree == plan.tree and not verdict.passed and plan.signature in ("", verdict.signature)
    return plan.idle + 1 if same else 0


def _last(work: Outcome, verdict: Verdict, look: Look) -> str:
    lines = [f"The command: {work.words()}.", *(f"- {line}" for line in (*verdict.lines, *look.notes))]
    if not verdict.failed and work.ran and (work.exit_code or work.timed_out):
        lines += ["Its output:", cut(work.content, LAST_MAX // 2)]
    return "\n".join([*lines, *([cut(verdict.failed, LAST_MAX - 1_000)] if verdict.failed else [])])


async def _in_thread(work: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(work)


@dataclass(frozen=True)
class LoopTool:
    """One of the loop's tools, a `ToolRunner`."""

    declared: CustomTool
    act: Callable[[], Awaitable[str]]

    @property
    def spec(self) -> CustomTool:
        """Its declaration."""
        return self.declared

    async def run(self, call_id: str, value: dict[str, Any], key: str) -> CustomResult:
        """Do it. What the machine refuses is the call's result, in words."""
        try:
            return CustomResult(True, await self.act())
        except (HoldfastError, OSError) as error:
            return CustomResult(False, str(error))

    async def probe(self, call_id: str, value: dict[str, Any], key: str) -> bool | None:
        """Never asked: each of these may be done twice."""
        return None


def loop_tools(session_id: str, created: SessionCreated, log: Log, snapshots: Snapshots) -> Mapping[str, ToolRunner]:
    """The tools of a loop's session; none for any other session."""
    spec = spec_of(created.agent)
    if spec is None:
        return {}
    loop = Loop(session_id, spec, Path(created.workspace.path), log, snapshots)
    acts: dict[str, Callable[[], Awaitable[str]]] = {LOOK: loop.look, RESTORE: loop.restore, STEP: loop.step}
    return {tool.name: LoopTool(tool, acts[tool.name]) for tool in created.agent.custom if tool.name in acts}
