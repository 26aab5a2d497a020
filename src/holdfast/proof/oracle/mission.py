"""Model that knows the answer to a whole mission, in every role: planner, worker, judge.

It recognizes its role by the tools of the request and its task by the goal. Every response is a function of the
conversation, the answers, the seed, and the number of earlier sessions with the same work. Conversations do not contain
that number, so it is counted in a file beside the answers.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from holdfast.clock import Clock
from holdfast.errors import ModelError
from holdfast.kinds.mission.role.tools import HAND_IN, SUBMIT_PLAN, SUBMIT_VERDICT
from holdfast.model.base import ModelRequest
from holdfast.proof.oracle.answers import MissionAnswers
from holdfast.proof.oracle.base import ComputedModel, note
from holdfast.proof.oracle.judge import OracleJudge
from holdfast.proof.oracle.worker import MEND, OracleWorker, widened
from holdfast.proof.rebuild.items import WorkItem
from holdfast.session.context.conversation import TextPart
from holdfast.sim.turns import Outcome, Turn, history

PLANS_MAX = 3
"""Refused plans before a planner gives up."""

TASK_TOKENS = 20_000

_DONE = "What is done shows in the files: read them before changing anything."


class MissionOracle(ComputedModel):
    """All roles of a mission on a stripped library. `asked` is a file with a line for each started session."""

    def __init__(self, answers: MissionAnswers, clock: Clock, asked: Path) -> None:
        super().__init__(f"oracle:{answers.library.partition('==')[0]}", clock, answers.delta_s)
        self._answers = answers
        self._asked_file = asked
        self._worker = OracleWorker(answers)
        self._judge = OracleJudge(answers)

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        """Return the cost of the request (S15): the response is known in advance and is the only one."""
        try:
            turn = self._next(request)
        except ModelError:
            turn = Turn("")
        return self.cost_pico(self._usage(request, turn))

    def _asked(self, request: ModelRequest) -> Turn:
        return self._next(request, asking=True)

    def _next(self, request: ModelRequest, *, asking: bool = False) -> Turn:
        if request.purpose != "turn":
            return note(request, _DONE, _DONE)
        goal = _goal(request)
        tools = {tool.name for tool in request.tools}
        if SUBMIT_PLAN in tools:
            return self._plan(goal, request)
        if SUBMIT_VERDICT in tools:
            digest = hashlib.sha256(goal.encode()).hexdigest()[:24]
            return self._judge.next_turn(goal, request, self._before(f"judge-{digest}", request, asking))
        item = self._item(goal)
        if HAND_IN in tools and item is not None:
            return self._worker.next_turn(item, goal, request, self._before(f"worker-{item.name}", request, asking))
        if HAND_IN in tools:
            words = {"status": "infeasible", "notes": "This task is none of those that I know."}
            return Turn("I do not know this task.", ((HAND_IN, words),))
        return Turn("I know missions on stripped libraries, and this is none.")

    def _item(self, goal: str) -> WorkItem | None:
        found = re.search(r"Your task: (W\d+)", goal)
        return self._answers.item(found.group(1)) if found else None

    def _before(self, what: str, request: ModelRequest, asking: bool) -> int:
        """Return the number of earlier sessions with the same work; this one is counted when `asking`."""
        try:
            known = self._asked_file.read_text().split()
        except FileNotFoundError:
            known = []
        if not request.responses and request.attempt == 1:
            if asking:
                with self._asked_file.open("a") as file:
                    file.write(f"{what}\n")
            return known.count(what)
        return max(0, known.count(what) - 1)

    # --- the planner ---

    def _plan(self, goal: str, request: ModelRequest) -> Turn:
        outcomes = [each for each in history(request.messages) if isinstance(each, Outcome)]
        if not outcomes:
            return Turn("First I look at what is there.", (("glob", {"pattern": "**/*.py"}),))
        refusals = sum(each.name == SUBMIT_PLAN and not each.ok for each in outcomes)
        if refusals >= PLANS_MAX:
            return Turn("I cannot make a plan that is taken.")
        tasks = self._tasks(goal)
        return Turn(f"{len(tasks)} tasks.", ((SUBMIT_PLAN, {"tasks": tasks, "note": "One task for each item."}),))

    def _tasks(self, goal: str) -> list[dict[str, Any]]:
        """Make a task for each item with open criteria, after the items that it depends on."""
        still = {name for name, state in re.findall(r"(?m)^\s*\[(\S+)\] (\w+)", goal) if state == "open"}
        listed = re.findall(r"(?m)^- (\S+): (\w+), criteria ([^\n(]*)", goal)
        over = ("planned", "merged", "blocked", "infeasible", "failed", "dropped")
        for _, status, criteria in listed:
            if status not in over:
                still -= set(re.split(r",\s*", criteria.strip()))
        taken = {name for name, _, _ in listed}
        names: dict[str, str] = {}
        tasks: list[dict[str, Any]] = []
        for item in self._answers.items:
            own = [each.id for each in self._answers.criteria if each.item == item.name and each.id in still]
            if not own:
                continue
            name = next(each for each in (item.name, *(f"{item.name}-{n}" for n in range(2, 99))) if each not in taken)
            names[item.name] = name
            # It was planned before and is still open: a judge may have been wrong about its dependencies.
            again = name != item.name
            scope = widened(item, self._answers).files if again else item.files
            more = f" {MEND}: {', '.join(scope)}." if again else ""
            tasks.append(
                {
                    "id": name,
                    "title": f"{item.name}: {item.title}"[:190],
                    "criteria": own,
                    "scope": list(scope),
                    "depends": [names[other] for other in item.depends if other in names],
                    "description": f"{item.name}: write the missing bodies of {item.title}.{more}",
                    "tokens": TASK_TOKENS,
                }
            )
        return tasks


def _goal(request: ModelRequest) -> str:
    """Return the pinned head of the context."""
    first = request.messages[0].parts if request.messages else ()
    return "\n\n".join([request.system, *(part.text for part in first if isinstance(part, TextPart))])
