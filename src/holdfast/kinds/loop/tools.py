"""Tools of a loop, run in the brain's process: they read the log and the loop's files, and execute nothing (S25)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from anyio.to_thread import run_sync
from msgspec.structs import replace

from holdfast.brain.custom import CustomResult, ToolRunner
from holdfast.brain.recall import recall
from holdfast.errors import ContractInvalid, HoldfastError
from holdfast.facts.base import Usage
from holdfast.facts.session import CustomTool, SessionCreated
from holdfast.kinds.loop import folder as files
from holdfast.kinds.loop.agent import spec_of
from holdfast.kinds.loop.folder import ANALYSIS, PROGRESS, Board, Kept, mark, read_board
from holdfast.kinds.loop.outcome import Outcome, Story, Verdict, entry, judge, read_story
from holdfast.kinds.loop.plan import LOOK, RESTORE, STEP, LoopSpec, Means, Plan, Seen, next_plan
from holdfast.kinds.loop.prompt import LAST_MAX, PART_MAX, cut, reported
from holdfast.log.base import Log, Snapshots
from holdfast.session.tenant import only_agents

AGENTS = ("AGENTS.md", "CLAUDE.md")


class Look(msgspec.Struct, frozen=True):
    """State of the folder after a command: notes on what is put back, and the digest of the tree."""

    notes: list[str]
    tree: str


@dataclass(frozen=True)
class LoopTool:
    """One tool of a loop, a `ToolRunner`: its declaration, the session's log, the request, the folder."""

    spec: CustomTool
    session_id: str
    loop: LoopSpec
    folder: Path
    log: Log
    snapshots: Snapshots

    async def run(self, call_id: str, value: dict[str, Any], key: str) -> CustomResult:
        """Run it. An error of the machine becomes the call's result."""
        try:
            return CustomResult(True, await self._result())
        except (HoldfastError, OSError) as error:
            return CustomResult(False, str(error))

    async def probe(self, call_id: str, value: dict[str, Any], key: str) -> bool | None:
        """Never called: each of these may be repeated."""
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
        """Record the outcomes that the folder does not show yet, and make the next plan. Safe to repeat."""
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
            told = (answer.content,) if answer.end == "ok" and answer.content != "Yes." else ()
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
        """Record the end of an iteration in progress.txt, the items' file, and the plan; True when all is done."""
        work, look, restore = (story.outcomes.get(purpose) for purpose in ("work", "look", "restore"))
        assert work is not None
        left = msgspec.json.decode(look.content, type=Look) if look and look.end == "ok" else self._look(story)
        if restore is None or restore.end != "ok":
            self._restore(story)
        verdict = judge(self.loop, self._board(story), plan, story.outcomes) if plan.stage == "items" else Verdict()
        used = reported(work.content, truncated=work.truncated)
        self._write(story, plan, verdict, left.notes, used.cost_pico)
        idle = plan.idle
        if work.ran and plan.stage == "items":
            same = left.tree == plan.tree and not verdict.passed and plan.signature in ("", verdict.signature)
            idle = plan.idle + 1 if same else 0
        carried = replace(
            plan,
            idle=idle,
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
        """Record the result of checking all items again: the end of the loop, or items that no longer pass."""
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
            with contextlib.suppress(ContractInvalid):  # a file that is no longer readable: the next plan asks
                if data is not None and (now := mark(data, self.loop.items, passed, verdict.lost)) != data:
                    files.write(folder, self.loop.items, now)
            text = files.read(folder, PROGRESS) or b""
            if more.encode() not in text:
                files.write(folder, PROGRESS, text.rstrip(b"\n") + (b"\n" if text else b"") + more.encode())


def _restarted(plan: Plan) -> Plan:
    """The plan with its counts of failed attempts reset, after a person answered."""
    return replace(plan, idle=0, tried=(), tries=min(plan.tries, 1))


def _last(work: Outcome, verdict: Verdict, notes: list[str]) -> str:
    """How an iteration went, for the prompt of the next one."""
    lines = [f"The command: {work.words()}.", *(f"- {line}" for line in (*verdict.lines, *notes))]
    if verdict.failed:
        lines.append(cut(verdict.failed, LAST_MAX - 1_000))
    elif work.ran and (work.exit_code or work.timed_out):
        lines += ["Its output:", cut(work.content, LAST_MAX // 2)]
    return "\n".join(lines)


def loop_tools(session_id: str, created: SessionCreated, log: Log, snapshots: Snapshots) -> Mapping[str, ToolRunner]:
    """The tools of a loop's session."""
    spec = spec_of(created.agent)
    if spec is None:
        return {}
    folder = Path(created.workspace.path)
    own = [tool for tool in created.agent.custom if tool.name in (LOOK, RESTORE, STEP)]
    return {tool.name: LoopTool(tool, session_id, spec, folder, log, snapshots) for tool in own}
