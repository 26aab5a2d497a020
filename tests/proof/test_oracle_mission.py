"""Whole libraries without bodies, what their tests need, and the oracle of missions, each without a mission."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.clock import SystemClock
from holdfast.errors import UsageError
from holdfast.facts.base import Usage
from holdfast.model.base import Finish, ModelRequest, TextDelta, ToolCallDelta, ToolCallStart, ToolSpec
from holdfast.proof.oracle.answers import MissionAnswers, save_answers
from holdfast.proof.oracle.base import contains
from holdfast.proof.oracle.faults import Fault, parse_faults
from holdfast.proof.oracle.load import load_oracle
from holdfast.proof.oracle.worker import reads
from holdfast.proof.rebuild.contract import commands, make_contract, make_criteria
from holdfast.proof.rebuild.items import WorkItem, make_items, there_with
from holdfast.proof.rebuild.library import Library
from holdfast.proof.rebuild.strip import Block
from holdfast.proof.rebuild.stripped import Whole
from holdfast.session.context.conversation import Message, TextPart, ToolCallPart, ToolResultPart
from tests.proof.mini import SUITE, needed

# --- faults --------------------------------------------------------------------------------------------


def test_faults_are_read() -> None:
    assert parse_faults(["early_done:0.3", "tamper.skip_mark", "crash"]) == (
        Fault("early_done", 0.3),
        Fault("tamper", 1.0, "skip_mark"),
        Fault("crash", 1.0),
    )


@pytest.mark.parametrize("word", ["", "early", "early_done:", "early_done:x", "stuck:-1", "tamper.", "crash.x"])
def test_faults_that_cannot_be_meant(word: str) -> None:
    with pytest.raises(UsageError, match="--fault"):
        parse_faults([word])


def test_rates_are_kept_and_get_rarer(mini: Library, whole: Whole) -> None:
    found = answers(mini, whole, faults=[Fault("wander", 0.4)])
    seen = [msgspec.structs.replace(found, seed=seed) for seed in range(400)]
    first = sum(each.fault("worker", "W01", 0) is not None for each in seen)
    third = sum(each.fault("worker", "W01", 2) is not None for each in seen)
    assert 120 < first < 200
    assert 20 < third < 65
    assert all(each.fault("judge", "W01", 0) is None for each in seen)


# --- the oracle ----------------------------------------------------------------------------------------


def answers(mini: Library, whole: Whole, faults: Sequence[Fault] = (), share: float = 0.0) -> MissionAnswers:
    items = make_items(whole, needed(whole, SUITE), wanted=5)
    files = {path: file.data for path, file in mini.tree.items()} | whole.stripped
    return MissionAnswers(
        library=mini.pin,
        items=items,
        bodies=whole.bodies,
        criteria=make_criteria(items, share, 1),
        commands=commands(mini, items, SUITE),
        files=files,
        faults=tuple(faults),
    )


class Desk:
    """A folder with the tools of a worker, and a conversation that goes on as a brain would have it.

    Commands beside the task are run; those of a suite pass or not as `passes` says.
    """

    def __init__(self, found: MissionAnswers, folder: Path, goal: str, submit: str) -> None:
        path = folder / "oracle.json"
        save_answers(path, found)
        self.oracle = load_oracle(path, SystemClock())
        self.folder = folder / "work"
        for name, data in found.files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(data)
        self.messages = [Message("user", (TextPart(goal),))]
        self.submit = submit
        self.responses = 0
        self.commands: list[str] = []
        self.said: list[str] = []
        self.passes = True
        self.handed_in: dict[str, Any] | None = None

    def files(self) -> dict[str, str]:
        """What stands in the folder."""
        found = [path for path in self.folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.folder)): path.read_text() for path in found}

    def put(self, block: Block) -> None:
        """Write the true body of one."""
        path = self.folder / block.file
        path.write_text(path.read_text().replace(block.stub, block.true))

    async def turn(self) -> bool:
        """One more; False when it was the last: something was handed in, or nothing is called."""
        tools = tuple(ToolSpec(name, "", {}) for name in ("read", "edit", "bash", self.submit))
        request = ModelRequest("turn", "You are here.", tuple(self.messages), tools, 8_000, self.responses, 1)
        worst = self.oracle.worst_case_pico(request)
        words, calls, usage = "", {}, Usage()
        async for part in self.oracle.stream(request):
            match part:
                case TextDelta(text=text):
                    words += text
                case ToolCallStart(index=index, name=name):
                    calls[index] = [name, ""]
                case ToolCallDelta(index=index, fragment=fragment):
                    calls[index][1] += fragment
                case Finish(usage=found):
                    usage = found
        cost = self.oracle.cost_pico(usage)
        assert worst is not None
        assert cost is not None
        assert cost <= worst
        self.said.append(words)
        self.responses += 1
        inputs = {index: (name, msgspec.json.decode(text)) for index, (name, text) in calls.items()}
        called = tuple(
            ToolCallPart(f"{self.responses}.{index}", name, value) for index, (name, value) in inputs.items()
        )
        self.messages.append(Message("assistant", (TextPart(words), *called)))
        results = []
        for call in called:
            ok, content = self.run(call.name, dict(call.input))
            results.append(ToolResultPart(call.call_id, call.name, content, not ok))
        if results:
            self.messages.append(Message("user", tuple(results)))
        return bool(calls) and self.handed_in is None

    def run(self, name: str, value: dict[str, Any]) -> tuple[bool, str]:
        """What the tool answers."""
        if name == self.submit:
            self.handed_in = value
            return True, "Handed in."
        if name == "read":
            text = (self.folder / value["file_path"]).read_text()
            return True, "\n".join(f"{number}\t{line}" for number, line in enumerate(text.split("\n"), 1))
        if name == "edit":
            text = (self.folder / value["file_path"]).read_text()
            assert text.count(value["old_string"]) == 1
            (self.folder / value["file_path"]).write_text(text.replace(value["old_string"], value["new_string"]))
            return True, "edited"
        if name == "glob":
            return True, "\n".join(self.files())
        self.commands.append(value["command"])
        if value["command"].startswith(": "):
            done = subprocess.run(["bash", "-c", value["command"]], cwd=self.folder, capture_output=True, text=True)
            return done.returncode == 0, done.stdout + done.stderr
        return self.passes, "it ran"

    async def to_the_end(self) -> dict[str, Any] | None:
        """All turns; what was handed in."""
        self.handed_in = None
        for _ in range(60):
            if not await self.turn():
                break
        return self.handed_in

    def tell(self, text: str) -> None:
        """Say something to it."""
        self.messages.append(Message("user", (TextPart(text),)))


def last(found: MissionAnswers) -> WorkItem:
    """An item that depends on others."""
    return next(item for item in found.items if item.depends and len(item.bodies) > 2)


def desk(found: MissionAnswers, folder: Path, item: WorkItem) -> Desk:
    return Desk(found, folder, f"You do one task.\n\nYour task: {item.name}: {item.title}", "hand_in")


def right(found: MissionAnswers, item: WorkItem, at: Desk) -> int:
    """How many of the item's bodies are the true ones."""
    return sum(found.bodies[number].true in at.files()[found.bodies[number].file] for number in item.bodies)


@pytest.mark.anyio
async def test_an_honest_worker(mini: Library, whole: Whole, tmp_path: Path) -> None:
    found = answers(mini, whole)
    item = last(found)
    at = desk(found, tmp_path, item)
    handed = await at.to_the_end()
    assert handed is not None
    assert handed["status"] == "done"
    assert right(found, item, at) == len(item.bodies)
    assert at.commands == [found.commands[item.name]]
    changed = {path for path, text in at.files().items() if text.encode() != found.files[path]}
    assert changed == set(item.files)


def test_a_long_file_is_read_in_pieces_that_overlap(
    whole: Whole, mini: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.proof.oracle.worker.READ_BYTES", 1_500)
    found = answers(mini, whole)
    for file in whole.true:
        calls = [value["view_range"] for _, value in reads(found, file) if "view_range" in value]
        if not calls:
            continue
        for text in (whole.true[file].decode(), whole.stripped[file].decode()):
            pieces = [text.split("\n")[first - 1 : last] for first, last in calls]
            for block in whole.bodies:
                if block.file == file:
                    standing = block.true if block.true in text else block.stub
                    assert any(contains(piece, standing) for piece in pieces), (file, block.functions)
    assert len(list(reads(found, "mini/days.py"))) > 1


@pytest.mark.anyio
async def test_a_worker_whose_tests_fail_says_so(mini: Library, whole: Whole, tmp_path: Path) -> None:
    found = answers(mini, whole)
    at = desk(found, tmp_path, last(found))
    at.passes = False
    handed = await at.to_the_end()
    assert handed is not None
    assert handed["status"] == "blocked"


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["early_done", "wrong_body", "regress", "wander", "conflict", "tamper"])
async def test_a_fault_then_better(kind: str, mini: Library, whole: Whole, tmp_path: Path) -> None:
    # A seed that has the fault at first, in a file of others, and no more when it was sent back.
    found = answers(mini, whole, [Fault(kind, 1.0)])
    item = last(found)
    seeds = (msgspec.structs.replace(found, seed=seed) for seed in range(2, 50))
    found = next(each for each in seeds if not each.fault("worker", item.name, 1))
    at = desk(found, tmp_path, item)
    for name in item.depends:
        other = found.item(name)
        assert other is not None
        for number in other.bodies:
            at.put(found.bodies[number])
    before = at.files()
    handed = await at.to_the_end()
    assert handed is not None
    assert handed["status"] == "done", "it claims what is not so"
    assert any(words.startswith(f"[fault {kind} {item.name}] ") for words in at.said)
    if kind in ("early_done", "wrong_body"):
        assert right(found, item, at) < len(item.bodies)
    elif kind == "regress":
        assert any("return None" in text and path not in item.files for path, text in at.files().items())
    else:
        assert any(command.startswith(": fault; ") for command in at.commands)
        assert {path for path, text in at.files().items() if before.get(path) != text} - set(item.files)
    at.said.clear()
    at.commands.clear()
    at.tell("It was sent back.")
    assert await at.to_the_end() is not None
    assert right(found, item, at) == len(item.bodies)
    assert not any("[fault" in words for words in at.said)
    after = at.files()
    assert {path for path in before.keys() | after.keys() if after.get(path) != before.get(path)} == set(item.files)
    assert any(command.startswith(": undo; ") for command in at.commands) is (kind in ("wander", "conflict", "tamper"))


@pytest.mark.anyio
async def test_anxious_and_stuck(mini: Library, whole: Whole, tmp_path: Path) -> None:
    found = answers(mini, whole, [Fault("anxious", 1.0)])
    at = desk(found, tmp_path, last(found))
    assert await at.to_the_end() is None
    found = answers(mini, whole, [Fault("stuck", 1.0)])
    (tmp_path / "other").mkdir()
    at = desk(found, tmp_path / "other", last(found))
    handed = await at.to_the_end()
    assert handed is not None
    assert handed["status"] == "blocked"
    assert len(at.commands) == 40
    assert len(set(at.commands)) == 1


@pytest.mark.anyio
async def test_the_plan_has_every_open_criterion_once(mini: Library, whole: Whole, tmp_path: Path) -> None:
    found = answers(mini, whole, share=0.5)
    contract = make_contract(mini, found.items, found.criteria, SUITE, ())
    assert sum(each.check is None for each in contract.criteria().values()) == round(len(found.criteria) / 2)
    lines = [f"  [{name}] open: {each.text}" for name, each in contract.criteria().items()]
    lines[0] = lines[0].replace("] open", "] MET (event 3)")
    goal = "# The contract\n\n" + "\n".join(lines) + "\n\n# Tasks so far\n\n- W02: failed, criteria W02.1"
    at = Desk(found, tmp_path, goal, "submit_plan")
    plan = await at.to_the_end()
    assert plan is not None
    criteria = [name for task in plan["tasks"] for name in task["criteria"]]
    assert sorted(criteria) == sorted(set(contract.criteria()) - {found.criteria[0].id})
    names = [task["id"] for task in plan["tasks"]]
    assert "W02-2" in names
    for place, task in enumerate(plan["tasks"]):
        assert set(task["depends"]) <= set(names[:place])


@pytest.mark.anyio
async def test_a_later_plan_mends_what_a_judge_let_through(mini: Library, whole: Whole, tmp_path: Path) -> None:
    found = answers(mini, whole)
    item = last(found)
    goal = f"[{item.name}.1] open: what it does\n\n# Tasks so far\n\n- {item.name}: blocked, criteria {item.name}.1"
    plan = await Desk(found, tmp_path, goal, "submit_plan").to_the_end()
    assert plan is not None
    (task,) = [each for each in plan["tasks"] if each["title"].startswith(item.name)]
    near = {found.bodies[number].file for number in there_with(item, found.items)}
    assert set(task["scope"]) == near > set(item.files)
    (tmp_path / "worker").mkdir()
    at = Desk(found, tmp_path / "worker", f"Your task: {task['title']}\n\n{task['description']}", "hand_in")
    handed = await at.to_the_end()
    assert handed is not None
    assert handed["status"] == "done"
    files = at.files()
    assert all(found.bodies[n].true in files[found.bodies[n].file] for n in there_with(item, found.items))


def judging(found: MissionAnswers, folder: Path) -> Desk:
    lines = "\n".join(
        f"[{each.id}] {each.name} (checked by the harness: a judge reads the work)" for each in found.criteria
    )
    evidence = "\n".join(f"- [{each.id}] no check was run: judge it yourself" for each in found.criteria)
    return Desk(found, folder, f"# Criteria\n\n{lines}\n\n# What the harness found\n\n{evidence}", "submit_verdict")


@pytest.mark.anyio
async def test_a_judge_sees_what_is_missing(mini: Library, whole: Whole, tmp_path: Path) -> None:
    found = answers(mini, whole, share=1.0)
    at = judging(found, tmp_path)
    for number in range(1, 28):
        at.put(found.bodies[number])
    verdict = await at.to_the_end()
    assert verdict is not None
    assert verdict["decision"] == "fail"
    wrong = [each for each in verdict["criteria"] if not each["passes"]]
    owner = next(item.name for item in found.items if 0 in item.bodies)
    assert {each["criterion"] for each in wrong} == {each.id for each in found.criteria if each.item == owner}
    assert all("_scale" in each["issue"] for each in wrong)
    (place,) = wrong[0]["evidence"]
    file, line, text = place.split(":", 2)
    assert "_scale" in at.files()[file].split("\n")[int(line) - 1]
    assert "_scale" in text
    again = judging(found, tmp_path)
    for block in found.bodies:
        again.put(block)
    verdict = await again.to_the_end()
    assert verdict is not None
    assert verdict["decision"] == "pass"


@pytest.mark.anyio
async def test_the_next_judge_of_the_same_is_another(mini: Library, whole: Whole, tmp_path: Path) -> None:
    found = answers(mini, whole, [Fault("silent", 1.0)], share=1.0)
    what = ",".join(each.id for each in found.criteria)
    seeds = (msgspec.structs.replace(found, seed=seed) for seed in range(50))
    found = next(each for each in seeds if not each.fault("judge", what, 1))
    assert await judging(found, tmp_path).to_the_end() is None
    assert await judging(found, tmp_path).to_the_end() is not None
