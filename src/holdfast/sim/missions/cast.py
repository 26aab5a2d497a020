"""Models of a simulated mission: planner, workers, and judges, with the scene's faults.

A response is a function of the conversation, the folder, and the seed, so a repeated request gets the same one.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

from holdfast.errors import ModelError
from holdfast.facts.base import Usage
from holdfast.facts.mission import Role
from holdfast.kinds.mission.role.tools import HAND_IN, SUBMIT_PLAN, SUBMIT_VERDICT
from holdfast.model.base import Finish, ModelRequest, StreamPart, TextDelta, ToolCallDelta, ToolCallStart
from holdfast.session.context.conversation import TextPart
from holdfast.sim.missions.scene import BASE, JUDGE_FAULTS, SHARED, WORKER_FAULTS, speed_of
from holdfast.sim.missions.world import MissionWorld
from holdfast.sim.process import Process
from holdfast.sim.script import PRICE
from holdfast.sim.turns import Outcome, Turn, history

TOKENS = 40
"""Tokens of every response, so that each request costs the same."""

COST_PICO = PRICE.cost(Usage(0, TOKENS))

PLAN_FLAWED = 0.2


class RoleDoor:
    """Model of one session of a mission, for one process."""

    def __init__(self, process: Process, world: MissionWorld, session_id: str) -> None:
        self.name = "sim:first"
        self._process = process
        self._world = world
        self._session = world.sessions[session_id]

    def worst_case_pico(self, request: ModelRequest) -> int | None:
        return COST_PICO

    def cost_pico(self, usage: Usage) -> int | None:
        return PRICE.cost(Usage(0, usage.output_tokens))

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        process, world = self._process, self._world
        await process.seam("model")
        world.requests += 1
        world.note(process.name, f"{self._session.script.name} model {request.responses}/{request.attempt}")
        await asyncio.sleep(world.chance.choice((0.0, 0.1, 3.0, 15.0)))
        turn = self._next(request)
        if turn.text:
            yield TextDelta(turn.text)
        for index, (name, value) in enumerate(turn.calls):
            await process.seam("part")
            yield ToolCallStart(index, name, f"c{request.responses}.{index}")
            yield ToolCallDelta(index, json.dumps(value))
        await process.seam("finish")
        yield Finish("tool_use" if turn.calls else "end_turn", Usage(request.input_tokens_estimate, TOKENS))

    def _next(self, request: ModelRequest) -> Turn:
        role = self._session.created.role
        assert role is not None, "a mission asks no model"
        seen = list(history(request.messages))
        if role.kind == "planner":
            return self._plan(request, role, seen)
        return self._judge(request, role, seen) if role.kind == "judge" else self._work(role, seen)

    def _before(self, role: Role, what: str) -> int:
        """Count earlier sessions with that role for the same item."""
        return self._world.roles_before(self._session.session_id, role.kind, what)

    # --- planner ---

    def _plan(self, request: ModelRequest, role: Role, seen: list[Outcome | str]) -> Turn:
        scene = self._world.scene
        goal = _goal(request)
        still = set(re.findall(r"(?m)^\s*\[(\S+)\] open", goal))
        taken = set(re.findall(r"(?m)^- (\S+): \w+, criteria ", goal))
        names: dict[str, str] = {}
        tasks: list[dict[str, Any]] = []
        for item in scene.items:
            own = [each.id for each in item.criteria if each.id in still]
            if not own:
                continue
            name = next(each for each in (item.id, *(f"{item.id}-{n}" for n in range(2, 99))) if each not in taken)
            names[item.id] = name
            depends = [names[other] for other in item.depends if other in names]
            title = f"{item.id}: its values"
            tasks.append({"id": name, "title": title, "criteria": own, "scope": list(item.paths), "depends": depends})
        asked = sum(isinstance(each, str) or each.name == SUBMIT_PLAN for each in seen)
        if len(tasks) > 1 and not asked and scene.chance("plan", self._before(role, "")).random() < PLAN_FLAWED:
            tasks.pop()
        return Turn("", ((SUBMIT_PLAN, {"tasks": tasks, "note": "one for each item"}),))

    # --- worker ---

    def _work(self, role: Role, seen: list[Outcome | str]) -> Turn:
        scene, item = self._world.scene, role.task_id.partition("-")[0]
        told = sum(isinstance(each, str) for each in seen)
        times = self._before(role, item) + told
        fault = scene.fault("worker", WORKER_FAULTS, item, times)
        if fault == "stuck":
            return Turn("I see no way on.")
        since = max((at for at, each in enumerate(seen) if isinstance(each, str)), default=-1)
        puts = [each for each in seen[since + 1 :] if isinstance(each, Outcome) and each.name == "bash"]
        if puts and not puts[-1].ok:  # its outcome is unknown: the same again, not a second step
            return Turn("", (("bash", dict(puts[-1].input)),))
        if not puts:
            chance = scene.chance("work", item, times)
            if item == "m":
                step = 0 if fault in ("early_done", "wrong_body") else chance.choice((-1, 0, 1, 1, 2, 3))
                now = speed_of(self._world.folder(self._session.created.workspace.path))
                files = {"src/speed.py": f"speed = {now + step}\n"}
            else:
                files = {f"src/m{item[1:]}.py": scene.module(item, fault, chance)}
            files |= self._beside(fault, role, item)
            self._world.faulty.update({fault} if fault else ())
            return Turn("", (("bash", {"command": f"put {json.dumps(files)}", "timeout_ms": 60_000}),))
        return Turn("", ((HAND_IN, {"status": "done", "notes": "All of it passes."}),))

    def _beside(self, fault: str, role: Role, item: str) -> dict[str, str]:
        """Return files that a faulty worker writes besides its task."""
        match fault:
            case "regress":
                others = [each.id for each in self._world.scene.items if each.id not in (item, "m")]
                victim = self._world.scene.chance("victim", item).choice(["", *others])
                return {f"src/m{victim[1:]}.py": "a = 0\nb = 0\n"} if victim else {BASE: "base = 0\n"}
            case "conflict":
                return {SHARED: f"head = '{role.task_id}'\n"}
            case "tamper" if item != "m":
                return {f"tests/test_m{item[1:]}.py": "def test_a():\n    pass\n\n\ndef test_b():\n    pass\n"}
            case "wander":
                return {f"extras_{item}.py": "more = 1\n"}
            case _:
                return {}

    # --- judge ---

    def _judge(self, request: ModelRequest, role: Role, seen: list[Outcome | str]) -> Turn:
        scene, world = self._world.scene, self._world
        goal = _goal(request)
        section = re.search(r"(?ms)^# Criteria\n\n(.*?)(?=\n\n# |\Z)", goal)
        names = re.findall(r"(?m)^\[(\S+)\] ", section.group(1) if section else "")
        events = dict(re.findall(r"(?m)^- \[(\S+)\] pass \(event (\d+)\)", goal))
        asked = sum(isinstance(each, str) or each.name == SUBMIT_VERDICT for each in seen)
        times = self._before(role, role.task_id.partition("-")[0]) + asked
        fault = scene.fault("judge", JUDGE_FAULTS, role.task_id.partition("-")[0], times)
        if fault == "crash":
            raise ModelError("invalid_request", "the judge's request could not be answered")
        if fault == "silent":
            return Turn("It looks reasonable to me.")
        files = world.folder(self._session.created.workspace.path)
        verdicts = [self._verdict(name, files, events) for name in names]
        wrong = [each["criterion"] for each in verdicts if not each["passes"]]
        if wrong and set(wrong) <= scene.rubric:
            before = world.tempted.get(self._session.session_id, False)
            world.tempted[self._session.session_id] = before or fault == "lenient"
        decision = "fail" if wrong else "pass"
        if fault == "contradicts":
            decision = "pass" if wrong else "fail"
        elif fault == "lenient" and wrong:
            decision = "pass"
            verdicts = [each | {"passes": True, "issue": ""} for each in verdicts]
        elif fault == "empty":
            decision = "pass"
            verdicts = [each | {"passes": True, "issue": "", "evidence": []} for each in verdicts]
        elif fault == "invents":
            decision = "pass"
            verdicts = [
                each | {"passes": True, "issue": "", "evidence": [self._wished(each["criterion"])]} for each in verdicts
            ]
        return Turn("", ((SUBMIT_VERDICT, {"decision": decision, "criteria": verdicts}),))

    def _verdict(self, name: str, files: dict[str, bytes], events: dict[str, str]) -> dict[str, Any]:
        scene = self._world.scene
        if name in events:
            return {"criterion": name, "passes": True, "evidence": [f"event {events[name]}"]}
        passes = scene.holds(files, name)
        issue = "" if passes else f"{name} is not as it should be"
        path = scene.wants[name][0]
        line = files.get(path, b"").decode("utf-8", "replace").partition("\n")[0]
        return {"criterion": name, "passes": passes, "evidence": [f"{path}:1: {line}"], "issue": issue}

    def _wished(self, name: str) -> str:
        """Return the line that would meet a criterion, quoted as if it existed."""
        path, value_of, value = self._world.scene.wants[name]
        first = next(each for each in self._world.scene.wants.values() if each[0] == path)
        return f"{path}:{1 if first[1] == value_of else 2}: {value_of} = {value}"


def _goal(request: ModelRequest) -> str:
    """Return the goal that opened the session."""
    first = request.messages[0].parts if request.messages else ()
    return "\n\n".join(part.text for part in first if isinstance(part, TextPart))
