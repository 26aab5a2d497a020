"""A project's hooks around the calls of a plain run, in the sandbox: only once accepted, and only as accepted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.app.asking import facts
from tests.app.terminal import Type, bash, created, script, turn
from tests.brain.hooking import GUARD
from tests.support.trusted import trust

pytestmark = pytest.mark.usefixtures("holdfast_home")

STOP = """#!/bin/sh
if [ ! -e done.txt ]; then echo "write done.txt first" >&2; exit 2; fi
"""

HARMFUL = bash("rm -rf keep.txt")
OVERWRITES = bash("echo exit 0 > .claude/hooks/guard.py; echo '{}' > .claude/settings.json")
RUN = ("--workspace", ".", "--session-id", "k", *(["--take-over"] if os.geteuid() == 0 else []))


def project(**hooks: str) -> None:
    """Make this folder a project with these hooks, by their event."""
    entries = {event: [{"hooks": [{"type": "command", "command": command}]}] for event, command in hooks.items()}
    scripts = Path(".claude/hooks")
    scripts.mkdir(parents=True)
    (scripts / "guard.py").write_text(GUARD)
    (scripts / "stop.sh").write_text(STOP)
    (scripts / "stop.sh").chmod(0o755)
    Path(".claude/settings.json").write_text(json.dumps({"hooks": entries}))
    Path("keep.txt").write_text("kept\n")


def ran(type: Type) -> list[tuple[str, bool]]:
    """Each hook that ran: its event, and whether it refused something."""
    return [(fact["event"], fact.get("blocked", False)) for fact in facts(type, "hook.ran")]


def test_accepted_hooks_guard_calls_whatever_the_agent_makes_of_them(type: Type) -> None:
    project(PreToolUse="python3 .claude/hooks/guard.py", SessionStart="echo be careful")
    trust()
    model = script(Path("m.json"), OVERWRITES, HARMFUL, turn(text="Done."))
    said = type("run", "x", "--model", model, *RUN).went()
    assert "not run" not in said.err
    assert ran(type) == [("SessionStart", False), ("PreToolUse", False), ("PreToolUse", True)]
    assert Path("keep.txt").read_text() == "kept\n"
    results = facts(type, "agent.tool_result")
    assert [fact["outcome"] for fact in results] == ["error", "denied"], "its sandbox shows .claude read-only"


def test_hooks_do_not_run_unasked(type: Type) -> None:
    project(PreToolUse="touch hooked")
    model = script(Path("m.json"), HARMFUL, turn(text="Done."))
    said = type("run", "x", "--model", model, *RUN).went()
    assert "do not run: you have not accepted them" in said.err
    assert "holdfast trust" in said.err
    assert "run" not in created(type, "k") or not created(type, "k")["run"]
    assert not Path("hooked").exists()
    assert not Path("keep.txt").exists()


def test_a_stop_hook_sends_the_agent_back_before_the_checks(type: Type) -> None:
    project(Stop=".claude/hooks/stop.sh", SessionEnd="true")
    trust()
    model = script(Path("m.json"), turn(text="Done."), bash("touch done.txt"), turn(text="Now it is."))
    said = type("run", "x", "--model", model, *RUN, "--until", "test -e done.txt").went()
    assert said.out == "Now it is.\n"
    assert ran(type) == [("Stop", True), ("Stop", False), ("SessionEnd", False), ("Until", False)]


def test_a_stop_hook_that_always_objects_is_overruled(type: Type) -> None:
    project(Stop="cat > input.json; exit 2")
    trust()
    model = script(Path("m.json"), *[turn(text="Done.")] * 4)
    type("run", "x", "--model", model, *RUN).went()
    assert ran(type) == [("Stop", True)] * 3 + [("Stop", False)]
    assert json.loads(Path("input.json").read_text())["stop_hook_active"] is True


def test_hooks_that_no_event_can_hold_are_refused(type: Type) -> None:
    project(Stop="true")
    Path(".claude/hooks/binary").write_bytes(b"\xff\xfe")
    trust()
    model = script(Path("m.json"), turn(text="Done."))
    type("run", "x", "--model", model, *RUN).refused(2, "not UTF-8", "nothing was started")
    Path(".claude/hooks/binary").write_bytes(b"x" * (256 << 10))
    trust()
    type("run", "x", "--model", model, *RUN).refused(2, "bytes", "nothing was started")
