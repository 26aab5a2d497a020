"""What approvals and grants are bound to: the workspace, what a command can execute, one question per change (S21)."""

from __future__ import annotations

from collections import UserDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.facts.people import ApprovalRequested, ApprovalSuperseded
from holdfast.facts.session import Rule, Workspace
from holdfast.facts.tool import ToolDispatched
from holdfast.hands.base import ExecRequest
from holdfast.hands.fake.calls import Files
from holdfast.repo.fake import FakeShelf, Folder
from tests.brain.people_stage import PeopleStage
from tests.brain.stage import turn

WORK = Workspace("/var/lib", disposable=True)
"""A folder that exists, for who may own it; nothing touches it."""

JOB = {"name": "log", "command": "while true; do date >> run.dat; done", "timeout_s": 3_600}


def pace(call_id: str, request: ExecRequest) -> tuple[float, float]:
    """A job runs for an hour."""
    return (0.0, 3_600.0) if request.tool == "job" else (0.0, 0.0)


class Folders(UserDict[Path, Folder]):
    """The one workspace of the fake hands, as the shelf reads it."""

    def __init__(self, files: Files) -> None:
        self.files = files
        super().__init__()

    def __contains__(self, key: object) -> bool:
        return key == Path(WORK.path)

    def __getitem__(self, key: Path) -> Folder:
        return {path.removeprefix("/workspace/"): data for path, data in self.files.items()}


def staged(*commands: str, **more: Any) -> tuple[PeopleStage, Files]:
    """A stage on which these commands are called one after the other, and its workspace."""
    turns = [turn("", ("bash", {"command": command})) for command in commands]
    return on_stage(*turns, **more)


def on_stage(*turns: dict[str, Any], **more: Any) -> tuple[PeopleStage, Files]:
    stage = PeopleStage([*turns, turn("Done.")], workspace=WORK, **more)
    files = stage.hands.files(WORK.path)
    stage.doors = replace(stage.doors, shelf=FakeShelf(Folders(files)))
    for name in ("deploy.sh", "scripts/deploy.sh", "lib.sh", "README.md", "test_a.py", "Makefile"):
        files[f"/workspace/{name}"] = b"echo v1"
    files["/workspace/.gitignore"] = b"*.log\n/out/\n"
    files["/tmp/deploy.sh"] = b"echo v1"
    return stage, files


async def dispatched(stage: PeopleStage) -> int:
    return len(await stage.facts(ToolDispatched))


EVASIONS = [
    ("bash < deploy.sh", "deploy.sh"),
    ("bash dep*.sh", "deploy.sh"),
    ("F=deploy.sh; bash $F", "deploy.sh"),
    ("cd scripts && ./deploy.sh", "scripts/deploy.sh"),
    ("bash -c 'bash deploy.sh'", "deploy.sh"),
    ("bash -c '. ./lib.sh'", "lib.sh"),
    (f"true {'word ' * 70}; sh deploy.sh", "deploy.sh"),
    (f"sh {' '.join(f'a{number}' for number in range(70))} deploy.sh", "deploy.sh"),
    ("sh deploy.sh", "lib.sh"),
    ("make", "Makefile"),
    ("cat $(ls *.sh) | sh", "deploy.sh"),
    ("cat /tmp/deploy.sh | sh", "/tmp/deploy.sh"),
    ("sh ./out/gen.sh", "out/gen.sh"),
]


@pytest.mark.parametrize(("command", "path"), EVASIONS)
async def test_an_approval_does_not_hold_for_other_files(command: str, path: str) -> None:
    stage, files = staged(command)
    files["/workspace/out/gen.sh"] = b"echo v1"
    await stage.run()
    first = await stage.item()
    await stage.intake.approve(first)
    files[path if path.startswith("/") else f"/workspace/{path}"] = b"rm -rf /"
    await stage.wake()
    assert await dispatched(stage) == 0
    (over,) = await stage.facts(ApprovalSuperseded)
    assert path in over.reason
    await stage.intake.approve(await stage.item())
    await stage.wake()
    assert await dispatched(stage) == 1, "one new question for one change"
    assert len(await stage.facts(ApprovalRequested)) == 2


@pytest.mark.parametrize("path", ["run.log", "out/deep/x", "deep/other.log"])
async def test_ignored_files_may_change(path: str) -> None:
    stage, files = staged("sh deploy.sh")
    await stage.run()
    await stage.intake.approve(await stage.item())
    files[f"/workspace/{path}"] = b"new"
    await stage.wake()
    assert await dispatched(stage) == 1


async def test_a_rule_may_name_the_files_that_count() -> None:
    for path, runs in (("README.md", 1), ("lib.sh", 0), ("deploy.sh", 0)):
        stage, files = staged("sh deploy.sh", rules=(Rule("bash", "ask", bound_to=("lib.*", "conf/*")),))
        await stage.run()
        await stage.intake.approve(await stage.item())
        files[f"/workspace/{path}"] = b"new"
        await stage.wake()
        assert await dispatched(stage) == runs, path


async def test_a_pending_approval_outlives_the_logs_of_a_job() -> None:
    rules = (Rule("*", "allow"), Rule("bash", "ask"), Rule("job_start", "allow"))
    for command in ("sh deploy.sh", "echo hi > out.txt"):
        for path in ("run.dat", "other.dat"):
            turns = (turn("", ("job_start", JOB)), turn("", ("bash", {"command": command})))
            stage, files = on_stage(*turns, rules=rules, pace=pace, more_tools=("job_start",))
            await stage.run()
            request = await stage.request()
            assert request.uncounted == ("run.dat",)
            assert "run.dat" in request.touches
            await stage.intake.approve(await stage.item())
            files[f"/workspace/{path}"] = b"line"
            await stage.wake()
            expected = 2 if path == "run.dat" or command.startswith("echo") else 1
            assert await dispatched(stage) == expected, (command, path)


# --- grants ----------------------------------------------------------------------------------------


async def granted(stage: PeopleStage, uses: int = 5, match: str | None = None) -> None:
    """Run up to the question, and answer it with a grant."""
    await stage.run()
    item = await stage.item()
    await stage.intake.approve(item, grant=await stage.intake.grant_for(item, uses=uses, match=match))


async def test_pytest_under_a_grant_is_not_asked_about_when_other_files_change() -> None:
    edits = [("write", {"file_path": name, "content": name}) for name in ("NOTES.md", "docs/a.md", "x.json", "y.txt")]
    turns = [turn("", ("bash", {"command": "pytest -q"}))]
    for edit in edits:
        turns += [turn("", edit), turn("", ("bash", {"command": "pytest -q"}))]
    stage, files = on_stage(*turns)
    await granted(stage)
    outcome = await stage.wake()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    assert len(await stage.facts(ApprovalRequested)) == 1
    assert files["/workspace/y.txt"] == b"y.txt"


REWRITTEN = [
    ("pytest -q", "test_a.py", None),
    ("pytest -q", "conftest.py", None),
    ("pytest -q", "pytest.ini", None),
    ("python test_a.py", "json.py", None),
    ("sh deploy.sh", "deploy.sh", None),
    ("sh deploy.sh", "lib.sh", None),
    ("./deploy.sh", "deploy.sh", None),
    ("make", "Makefile", None),
    ("sh scripts/deploy.sh", "scripts/deploy.sh", "sh scripts/*"),
    ("cd scripts && sh deploy.sh", "scripts/deploy.sh", None),
]


@pytest.mark.parametrize(("command", "path", "match"), REWRITTEN)
async def test_a_grant_does_not_hold_for_a_rewritten_program(command: str, path: str, match: str | None) -> None:
    call = ("bash", {"command": command})
    edit = ("bash", {"command": "true"})
    rules = (Rule("bash", "ask"), Rule("bash", "allow", "true"))

    def effect(said: str, files: Files) -> tuple[int, str]:
        if said == "true":
            files[f"/workspace/{path}"] = b"rm -rf /"
        return 0, ""

    turns = (turn("", call), turn("", call), turn("", edit), turn("", call), turn("", call))
    stage, _ = on_stage(*turns, rules=rules, effect=effect)
    await granted(stage, match=match)
    await stage.wake()
    assert len(await stage.facts(ApprovalRequested)) == 2
    assert await dispatched(stage) == 3, "two under the grant, the edit, and none after it"
    (over,) = await stage.facts(ApprovalSuperseded)
    assert path in over.reason
    await stage.intake.approve(await stage.item())
    outcome = await stage.wake()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    assert len(await stage.facts(ApprovalRequested)) == 2, "the grant holds again for what was shown"


async def test_what_a_granted_call_changes_by_itself_is_no_change() -> None:
    call = ("bash", {"command": "make"})

    def effect(said: str, files: Files) -> tuple[int, str]:
        files["/workspace/made"] = files.get("/workspace/made", b"") + b"x"
        return 0, ""

    stage, _ = on_stage(*[turn("", call)] * 3, effect=effect)
    await granted(stage)
    outcome = await stage.wake()
    assert outcome.ended is not None
    assert outcome.ended.status == "done"
    assert len(await stage.facts(ApprovalRequested)) == 1
