"""Hooks of a project around a worker's calls: scripts as people have them, in hands in memory and in real ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast.brain.acts import hands as hands_act
from holdfast.errors import HandsLost, HeadMoved
from holdfast.facts.mission import WorkSubmitted
from holdfast.facts.people import ApprovalRequested
from holdfast.facts.session import Rule, Workspace
from holdfast.facts.task import RepoCommitted
from holdfast.facts.tool import NOT_HANDED_IN, HookRan, ToolDispatched, ToolResult
from holdfast.hands.user import choose_user
from holdfast.kinds.hooks.running import LOSSES, Ran
from holdfast.kinds.mission.acts import hooks as hooks_act
from holdfast.session.state import Call
from tests.brain.hooking import SCRIPTS, HookStage, open_killable, wake_killable
from tests.brain.stage import turn
from tests.hands.rigs import REAL, real
from tests.support.waiting import PATIENCE_S

WRITE = ("write", {"file_path": "a.py", "content": "x = 1  # TODO\n"})
READ = ("read", {"file_path": "a.py"})
EDIT = {"file_path": "a.py", "old_string": "1", "new_string": "2"}
HAND_IN = ("hand_in", {"status": "done", "notes": "it is done"})
KINDS = ["fake", *REAL]


@asynccontextmanager
async def stage(kind: str, base: Path, turns: list[dict[str, Any]], **more: Any) -> AsyncIterator[HookStage]:
    """A worker with hands of that kind."""
    if kind == "fake":
        yield HookStage(turns, base=base, **more)
        return
    async with real(base, REAL[kind]) as rig:
        yield HookStage(turns, base=base, provider=rig.provider, folder=str(rig.workspace), **more)


async def ran_in(made: HookStage) -> list[HookRan]:
    """What ran, without the harness's own words to one that stops and hands nothing in."""
    return [fact for fact in await made.facts(HookRan) if fact.event != NOT_HANDED_IN]


def shown(made: HookStage, request: int) -> str:
    """All that a request showed the model."""
    return repr(made.model.requests[request].messages)


@pytest.mark.parametrize("kind", KINDS)
async def test_scripts_people_have_stop_a_call_and_send_an_edit_back(kind: str, tmp_path: Path) -> None:
    turns = [turn("", ("bash", {"command": "rm -rf /"}), WRITE), turn("", WRITE), turn("", ("bash", {"command": "ls"}))]
    async with stage(kind, tmp_path, [*turns, turn("done")]) as made:
        await made.run()
        first, skipped, wrote, listed = await made.facts(ToolResult)
        assert (first.outcome, skipped.outcome, wrote.outcome, listed.outcome) == ("denied", "skipped", "ok", "ok")
        ran = [(fact.event, fact.exit_code, fact.blocked, fact.call_id) for fact in await ran_in(made)]
        assert ran == [
            ("PreToolUse", 2, True, first.call_id),
            ("PostToolUse", 2, True, wrote.call_id),
            ("PreToolUse", 0, False, listed.call_id),
        ]
        assert "refused by the guard: rm -rf /" in shown(made, 1)
        assert "leave no TODO in" in shown(made, 2)
        assert shown(made, 2).count("1:x = 1  # TODO") == 1, "what grep said comes with it"
        assert "a.py" in listed.content
        assert ".claude" not in listed.content


@pytest.mark.parametrize(
    ("kind", "trick"),
    [
        ("fake", "echo 'import sys' > guard.py"),
        ("bubblewrap", "echo 'import sys' > guard.py; chmod 0 guard.py"),
        ("bubblewrap", "rm guard.py; ln -s /dev/null guard.py"),
        ("bubblewrap", "cd ..; mv hooks old; ln -s old hooks; echo > old/guard.py"),
        ("bubblewrap", "cd ../..; rm -r .claude; mkdir -p .claude/hooks/guard.py; chmod 0 .claude/hooks"),
    ],
)
async def test_a_worker_cannot_disarm_a_script(kind: str, trick: str, tmp_path: Path) -> None:
    disarm = turn("", ("bash", {"command": f"cd .claude/hooks; {trick}; echo did it"}))
    settings = turn("", ("bash", {"command": "echo '{}' > .claude/settings.json; echo did it"}))
    turns = [disarm, settings, turn("", ("bash", {"command": "rm -rf build"})), turn("done")]
    async with stage(kind, tmp_path, turns) as made:
        await made.run()
        disarmed, emptied, removed = await made.facts(ToolResult)
        assert "did it" in disarmed.content
        assert "did it" in emptied.content
        assert removed.outcome == "denied"
        assert "refused by the guard" in (await ran_in(made))[-1].content


async def test_scripts_come_back_as_they_were(tmp_path: Path) -> None:
    """Also their modes: what the harness puts back is no change of the worker's."""
    spoil = "chmod -x .claude/hooks/lint.sh; chmod +x .claude/hooks/guard.py; echo did it"
    turns = [turn("", WRITE), turn("", ("bash", {"command": spoil})), turn("", ("edit", EDIT)), turn("done")]
    async with stage("bubblewrap", tmp_path, turns) as made:
        await made.run()
        assert [fact.blocked for fact in await ran_in(made) if fact.event == "PostToolUse"] == [True, True]
        modes = [Path(made.folder, path).stat().st_mode & 0o777 for path in sorted(made.scripts or SCRIPTS)]
        assert modes == [0o644, 0o755]


@pytest.mark.parametrize("kind", REAL)
async def test_scripts_that_are_protected_stay_and_the_others_come_back(kind: str, tmp_path: Path) -> None:
    """A sandbox shows protected files read-only: they need not be put back, and cannot be."""
    spoil = "echo > .claude/hooks/guard.py; echo > .claude/hooks/lint.sh; echo did it"
    turns = [turn("", ("bash", {"command": spoil})), turn("", WRITE), turn("", ("bash", {"command": "rm -rf x"}))]
    async with stage(kind, tmp_path, [*turns, turn("done")], protected=(".claude/hooks/guard.py",)) as made:
        work = Path(made.folder)
        for path, text in SCRIPTS.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_text(text)
            (work / path).chmod(0o755 if path.endswith(".sh") else 0o644)
        give(work)
        await made.run()
        assert [fact.outcome for fact in await made.facts(ToolResult)] == ["ok", "ok", "denied"]
        assert [fact.blocked for fact in await ran_in(made)] == [False, True, True]
        assert {path: (work / path).read_text() for path in SCRIPTS} == SCRIPTS


def give(work: Path) -> None:
    """Make a folder theirs whose hands work in it."""
    user = choose_user(Workspace(str(work), disposable=True))
    for path in (work, *work.rglob("*")):
        os.chown(path, user.uid, user.gid)


def single(event: str, command: str, matcher: str = "") -> dict[str, Any]:
    """Settings with one hook."""
    return {"hooks": {event: [{"matcher": matcher, "hooks": [{"type": "command", "command": command}]}]}}


def says(**value: Any) -> str:
    """A command that answers in JSON."""
    return f"echo '{json.dumps(value)}'"


async def test_no_hook_widens_a_rule(tmp_path: Path) -> None:
    allow = says(hookSpecificOutput={"hookEventName": "PreToolUse", "permissionDecision": "allow"})
    rules = (Rule("bash", "deny"),)
    made = HookStage(
        [turn("", ("bash", {"command": "ls"})), turn("done")],
        base=tmp_path,
        settings=single("PreToolUse", allow),
        rules=rules,
    )
    await made.run()
    assert [fact.outcome for fact in await made.facts(ToolResult)] == ["denied"]
    assert await made.facts(ToolDispatched) == []
    assert await ran_in(made) == []


async def test_words_for_the_model_are_shown_once_and_nothing_is_sent_back(tmp_path: Path) -> None:
    settings = single("SessionStart", "cat > start.json; echo 'we use tabs here'")
    settings["hooks"]["SessionStart"][0]["matcher"] = "startup"
    calls = [turn("", ("bash", {"command": "echo 1"})), turn("", ("bash", {"command": "cat start.json"}))]
    made = HookStage([*calls, turn("done")], base=tmp_path, settings=settings, scripts={})
    await made.run()
    (ran,) = await ran_in(made)
    assert (ran.event, ran.told, ran.blocked) == ("SessionStart", True, False)
    assert shown(made, 2).count("]\\nwe use tabs here") == 1
    told = json.loads((await made.facts(ToolResult))[1].content)
    assert (told["hook_event_name"], told["source"], told["cwd"][-10:]) == ("SessionStart", "startup", "/workspace")
    assert told["session_id"] == made.session_id


async def test_what_is_wrong_with_settings_is_on_record_and_the_work_goes_on(tmp_path: Path) -> None:
    settings = single("Notification", "beep")
    made = HookStage([turn("", ("bash", {"command": "echo 1"})), turn("done")], base=tmp_path, settings=settings)
    await made.run()
    (ran,) = await ran_in(made)
    assert "Notification do not run here" in ran.content
    assert not ran.blocked
    assert [fact.outcome for fact in await made.facts(ToolResult)] == ["ok"]


async def test_a_hook_that_stops_the_work_has_a_person_asked(tmp_path: Path) -> None:
    stop = says(**{"continue": False, "stopReason": "the release is frozen"})
    turns = [turn("", ("bash", {"command": "echo 1"})), turn("done")]
    made = HookStage(turns, base=tmp_path, settings=single("PostToolUse", stop), scripts={})
    outcome = await made.run()
    assert outcome.ended is not None
    assert (outcome.ended.status, outcome.ended.reason) == ("parked", "person")
    (item,) = await made.facts(ApprovalRequested)
    assert "the release is frozen" in item.why
    assert len(made.model.requests) == 1


@pytest.mark.parametrize("hooks", [True, False])
async def test_checks_of_the_mission_run_after_edits_and_hooks_can_be_off(hooks: bool, tmp_path: Path) -> None:
    check = "! grep -rn TODO --include=*.py ."
    turns = [turn("", WRITE), turn("", ("bash", {"command": "rm -rf x"})), turn("done")]
    made = HookStage(turns, base=tmp_path, edit_checks=(check,), hooks=hooks)
    await made.run()
    ran = [fact.command for fact in await ran_in(made) if fact.event == "PostToolUse"]
    assert check in ran
    assert "./a.py:1:x = 1  # TODO" in shown(made, 1)
    assert (await made.facts(ToolResult))[1].outcome == ("denied" if hooks else "ok")


async def test_a_session_that_is_no_worker_has_no_hooks(tmp_path: Path) -> None:
    made = HookStage([turn("", ("bash", {"command": "rm -rf x"})), turn("done")], base=tmp_path, hooks=False)
    await made.run()
    assert [fact.outcome for fact in await made.facts(ToolResult)] == ["ok"]
    assert await ran_in(made) == []


# --- handing in ------------------------------------------------------------------------------------

STOP = """#!/usr/bin/env python3
import json
import sys

data = json.load(sys.stdin)
with open("seen", "a") as out:
    out.write(f"{data['hook_event_name']} {data['stop_hook_active']}\\n")
print("the tests do not pass", file=sys.stderr)
sys.exit(2)
"""


async def stopped(made: HookStage, number: int) -> Ran:
    """What hooks say when the worker hands in by that call; recorded as a brain would."""
    call = Call(f"call_{number}", 1, "hand_in")
    async with made.shift() as shift:
        try:
            ran = await hooks_act.at_stop(shift, call)
        except HeadMoved:
            shift.decided_at = shift.state.seq
            ran = await hooks_act.at_stop(shift, call)
        if ran.facts:
            await shift.decision(*ran.facts)
        return ran


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stop_hook_sends_back_and_never_loops(kind: str, tmp_path: Path) -> None:
    settings = single("Stop", "python3 .claude/hooks/stop.py")
    settings["hooks"]["SubagentStop"] = settings["hooks"]["Stop"]
    settings["hooks"]["SessionEnd"] = [{"hooks": [{"type": "command", "command": "echo over >> seen"}]}]
    scripts = {".claude/hooks/stop.py": STOP}
    async with stage(kind, tmp_path, [turn()], settings=settings, scripts=scripts, checks=("test -e seen",)) as made:
        await made.open()
        ends = [await stopped(made, number) for number in range(4)]
        assert [bool(each.refusal) for each in ends] == [True, True, True, False]
        assert "stop.py" in ends[0].refusal
        facts = await ran_in(made)
        assert [fact.blocked for fact in facts if "stop.py" in fact.command] == [True, True, True, False]
        assert [fact.exit_code for fact in facts if fact.command == "test -e seen"] == [0, 0, 0, 0]
        assert "the tests do not pass" in facts[0].content
        async with made.shift() as shift:
            hands = await hands_act.current(shift)
            files = await seen(made, hands.identity.workspace)
            await hands_act.give_back(shift)
        assert files == ["Stop False", "Stop True", "Stop True", "Stop True"], (
            "each command once, and SubagentStop's too"
        )


@pytest.mark.parametrize("kind", REAL)
async def test_a_worker_hands_in_only_what_the_checks_let_through(kind: str, tmp_path: Path) -> None:
    fixed = ("write", {"file_path": "a.py", "content": "x = 1\n"})
    turns = [turn("", WRITE), turn("", HAND_IN), turn("", READ), turn("", fixed), turn("", HAND_IN)]
    check = "! grep -n TODO a.py"
    async with stage(kind, tmp_path, turns, settings={}, scripts={}, checks=(check,)) as made:
        outcome = await made.run()
        assert outcome.ended is not None
        assert outcome.ended.status == "done"
        refused, handed_in = [fact for fact in await made.facts(ToolResult) if "anded in" in fact.content]
        assert (refused.outcome, handed_in.outcome) == ("error", "ok")
        assert f"`{check}` refused it" in refused.content
        assert "1:x = 1  # TODO" in shown(made, 2)
        assert [fact.blocked for fact in await ran_in(made)] == [True, False]
        assert len(await made.facts(WorkSubmitted)) == 1
        (commit, *_) = [fact.commit for fact in await made.facts(RepoCommitted) if not fact.wip]
        files = await made.doors.repository(str(made.repo)).files(commit)
        assert files["a.py"] == b"x = 1\n"


async def seen(made: HookStage, workspace: str) -> list[str]:
    """What the script was told, call by call."""
    if made.provider is None:
        return made.hands.files(workspace)["/workspace/seen"].decode().splitlines()
    return (Path(workspace) / "seen").read_text().splitlines()


async def test_a_word_of_somebody_begins_the_count_anew(tmp_path: Path) -> None:
    made = HookStage([turn()], base=tmp_path, settings={}, scripts={}, checks=("exit 1",))
    await made.open()
    assert [bool((await stopped(made, number)).refusal) for number in range(4)] == [True, True, True, False]
    await made.post("send", "the check is right, mend it")
    assert (await stopped(made, 5)).refusal


async def test_hands_that_go_each_time_hold_nobody_up(tmp_path: Path) -> None:
    made = HookStage([turn()], base=tmp_path, settings={}, scripts={}, checks=("true",))
    await made.open()
    call = Call("call_1", 1, "hand_in")
    async with made.shift() as shift:
        losses = 0
        ran: Ran | None = None
        while ran is None:
            try:
                ran = await hooks_act.at_stop(shift, call)
            except HeadMoved:
                made.hands.lose(shift.state.hands.hands_id if shift.state.hands else "")
            except HandsLost:
                losses += 1
                assert shift.state.hands is not None
                await hands_act.lost(shift, shift.state.hands.hands_id, "it was killed")
        assert losses == LOSSES
        assert ran.refusal == ""
        assert "goes on without them" in ran.facts[0].content  # type: ignore[attr-defined]


# --- deaths ----------------------------------------------------------------------------------------

SLOW = """#!/bin/sh
echo ran >> marks
while [ ! -e go ]; do sleep 0.02; done
echo "$1 has a word" >&2
exit 2
"""


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse", "Stop"])
async def test_a_hook_outlives_its_brain_and_its_word_counts(event: str, tmp_path: Path) -> None:
    settings = single(event, f".claude/hooks/slow.sh {event}")
    session_id = await open_killable(tmp_path, settings, {".claude/hooks/slow.sh": SLOW})
    call = HAND_IN if event == "Stop" else ("bash", {"command": "echo did >> work"})
    turns = [turn("", call), turn("done")]
    work = tmp_path / "work"
    command = [sys.executable, "-m", "tests.brain.hooking", str(tmp_path), session_id, json.dumps(turns)]
    paths = os.pathsep.join([str(Path(__file__).parents[2]), os.environ["PYTHONPATH"]])
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths}) as brain:  # noqa: ASYNC220
        try:
            with anyio.fail_after(PATIENCE_S):
                while not (work / "marks").exists():
                    await anyio.sleep(0.02)
                    assert brain.poll() is None
        finally:
            brain.send_signal(signal.SIGKILL)
    (work / "go").touch()
    with anyio.fail_after(PATIENCE_S):
        _, facts = await wake_killable(tmp_path, session_id, turns)
    assert (work / "marks").read_text() == "ran\n", "it ran once"
    (ran,) = [fact for fact in facts if isinstance(fact, HookRan) and fact.event != NOT_HANDED_IN]
    assert ran.blocked
    assert f"{event} has a word" in ran.content
    (result,) = [fact for fact in facts if isinstance(fact, ToolResult)]
    assert result.outcome == {"PreToolUse": "denied", "PostToolUse": "ok", "Stop": "error"}[event]
    assert (work / "work").exists() is (event == "PostToolUse")


async def test_a_hook_that_takes_too_long_is_ended_and_counts_for_nothing(tmp_path: Path) -> None:
    settings = single("PreToolUse", "sleep 60")
    settings["hooks"]["PreToolUse"][0]["hooks"][0]["timeout"] = 0.3
    async with stage("unsandboxed", tmp_path, [turn("", WRITE), turn("done")], settings=settings) as made:
        await made.run()
        (ran,) = await ran_in(made)
        assert "did not end within 0.3 s" in ran.content
        assert not ran.blocked
        assert [fact.outcome for fact in await made.facts(ToolResult)] == ["ok"]


async def test_a_script_that_reads_nothing_may_be_told_much(tmp_path: Path) -> None:
    much = ("write", {"file_path": "a.txt", "content": "x" * 400_000})
    settings = single("PostToolUse", "echo 'not read' >&2; exit 2")
    async with stage("unsandboxed", tmp_path, [turn("", much), turn("done")], settings=settings, scripts={}) as made:
        await made.run()
        (ran,) = await ran_in(made)
        assert "not read" in ran.content
