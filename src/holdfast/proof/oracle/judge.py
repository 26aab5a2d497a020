"""Oracle as a judge of a mission: it compares the files with the true bodies, or has one of its faults."""

from __future__ import annotations

import re
from typing import Any

from holdfast.errors import ModelError
from holdfast.model.base import ModelRequest
from holdfast.proof.oracle.answers import MissionAnswers
from holdfast.proof.oracle.base import contains, shown_lines
from holdfast.proof.oracle.faults import Fault, mutants
from holdfast.proof.oracle.worker import fault_mark, reads
from holdfast.proof.rebuild.contract import Criteria
from holdfast.proof.rebuild.strip import Block
from holdfast.sim.turns import Outcome, Turn, history

READS_MAX = 60
"""Reads before a judge decides with the files seen so far."""


class OracleJudge:
    """Next turn of a judge, from its conversation and the number of earlier judges of the same work."""

    def __init__(self, answers: MissionAnswers) -> None:
        self._answers = answers

    def next_turn(self, goal: str, request: ModelRequest, times: int) -> Turn:
        """Return the next turn. Raises `ModelError` for the fault `crash`."""
        names = re.findall(r"(?m)^\[(\S+)\] ", _section(goal, "Criteria"))
        what = ",".join(names)
        outcomes = [each for each in history(request.messages)]
        told = sum(isinstance(each, str) for each in outcomes)
        refused = sum(isinstance(each, Outcome) and each.name == "submit_verdict" and not each.ok for each in outcomes)
        fault = self._answers.fault("judge", what, times + told + refused)
        mark = fault_mark(fault.kind, what) if fault else ""
        asked = [each for each in self._answers.criteria if each.id in names]
        done = [each for each in outcomes if isinstance(each, Outcome)]
        unread = self._unread(asked, done)
        if unread and len(done) < READS_MAX:
            calls = tuple(call for file in unread for call in reads(self._answers, file))
            return Turn(f"I read {', '.join(unread)}.", calls)
        if fault is not None and fault.kind == "crash":
            if not any(each.name == "glob" for each in done):
                return Turn(f"{mark}I look around.", (("glob", {"pattern": "**/*.py"}),))
            raise ModelError("invalid_request", "the judge's request could not be answered")
        if fault is not None and fault.kind == "silent":
            return Turn(f"{mark}It looks reasonable to me.")
        return self._said(names, asked, done, goal, fault, mark)

    def _said(
        self, names: list[str], asked: list[Criteria], done: list[Outcome], goal: str, fault: Fault | None, mark: str
    ) -> Turn:
        seen = [each for each in done if each.name == "read" and each.ok]
        events = dict(re.findall(r"(?m)^- \[(\S+)\] pass \(event (\d+)\)", goal))
        verdicts = [self._verdict(each, seen, events) for each in asked]
        verdicts += [_unknown(name, events) for name in names if name not in {each.id for each in asked}]
        wrong = [each for each in verdicts if not each["passes"]]
        decision = "fail" if wrong else "pass"
        if fault is not None and fault.kind == "contradicts":
            decision, verdicts = _contradiction(verdicts)
        elif fault is not None and fault.kind == "lenient" and wrong:
            decision, verdicts = "pass", [each | {"passes": True, "issue": ""} for each in verdicts]
        else:
            mark = ""
        return Turn(
            f"{mark}My verdict: {decision}.", (("submit_verdict", {"decision": decision, "criteria": verdicts}),)
        )

    def _unread(self, asked: list[Criteria], done: list[Outcome]) -> list[str]:
        """Return unread files of the items whose rubric lines are to be judged."""
        items = [self._answers.item(name) for name in dict.fromkeys(each.item for each in asked if each.rubric)]
        read = {str(each.input.get("file_path")) for each in done if each.ok}
        return [file for file in sorted({file for item in items if item for file in item.files}) if file not in read]

    def _verdict(self, criterion: Criteria, seen: list[Outcome], events: dict[str, str]) -> dict[str, Any]:
        if criterion.id in events:
            return {"criterion": criterion.id, "passes": True, "evidence": [f"event {events[criterion.id]}"]}
        item = self._answers.item(criterion.item)
        blocks = [self._answers.bodies[number] for number in item.bodies] if item else []
        wrong = next((block for block in blocks if not _right(block, seen)), None)
        if wrong is None:
            places = [_place(block, (block.true,), seen) for block in blocks[:1]]
            return {"criterion": criterion.id, "passes": True, "evidence": places or ["README.md:1"]}
        issue = f"{', '.join(wrong.functions)} in {wrong.file} does not do what it is for"
        evidence = [_place(wrong, (wrong.stub, *mutants(wrong)), seen)]
        return {"criterion": criterion.id, "passes": False, "evidence": evidence, "issue": issue}


def _contradiction(verdicts: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """Build a decision that contradicts its criteria, with evidence that does not exist."""
    if all(each["passes"] for each in verdicts):
        return "fail", [each | {"evidence": ["no/such/file.py:1"]} for each in verdicts]
    return "pass", verdicts


def _unknown(name: str, events: dict[str, str]) -> dict[str, Any]:
    if name in events:
        return {"criterion": name, "passes": True, "evidence": [f"event {events[name]}"]}
    return {"criterion": name, "passes": False, "evidence": ["README.md:1"], "issue": "nothing is known of this"}


def _right(block: Block, seen: list[Outcome]) -> bool:
    return any(contains(_lines(each, block), block.true) for each in seen if _is_of(each, block))


def _place(block: Block, texts: tuple[str, ...], seen: list[Outcome]) -> str:
    """Return the place of one of the texts of a body, with its first line; line 1 of the file if none was seen."""
    for each in seen:
        if _is_of(each, block):
            lines = _lines(each, block)
            for text in texts:
                first = text.split("\n")[0]
                if contains(lines, text) and first in lines:
                    start = (each.input.get("view_range") or [1])[0]
                    return f"{block.file}:{int(lines.index(first)) + int(start)}: {first.strip()}"
    return f"{block.file}:1"


def _is_of(outcome: Outcome, block: Block) -> bool:
    return str(outcome.input.get("file_path")) == block.file


def _lines(outcome: Outcome, block: Block) -> list[str]:
    return shown_lines(outcome.content, (block,))


def _section(goal: str, title: str) -> str:
    """Return the text below a title, up to the next."""
    found = re.search(rf"(?ms)^# {re.escape(title)}\n\n(.*?)(?=\n\n# |\Z)", goal)
    return found.group(1) if found else ""
