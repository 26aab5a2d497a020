"""Hooks as people have them: what is read of their settings, what scripts are told, what their ends mean."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from holdfast.facts.tool import SETTINGS as DECLARED
from holdfast.kinds.hooks import protocol as hook_protocol
from holdfast.kinds.hooks import settings as hooks
from holdfast.kinds.hooks.settings import Hook
from tests.support.waiting import PATIENCE_S

SETTINGS = {
    "permissions": {"allow": ["Bash(ls:*)"]},
    "hooks": {
        "PreToolUse": [
            {"matcher": "Bash", "hooks": [{"type": "command", "command": "guard", "timeout": 5}]},
            {"matcher": "Edit|Write", "hooks": [{"type": "command", "command": "protect"}]},
        ],
        "PostToolUse": [
            {"matcher": "Write|Edit", "hooks": [{"type": "command", "command": "lint"}]},
            {"matcher": "^Web", "hooks": [{"type": "command", "command": "note"}]},
            {"hooks": [{"type": "command", "command": "lint"}, {"type": "command", "command": "log"}]},
        ],
        "Stop": [{"hooks": [{"type": "command", "command": "tests"}]}],
    },
}


def read(value: Any, local: Any = None) -> hooks.Settings:
    """The settings of a project with these files."""
    files = {DECLARED[0]: json.dumps(value).encode()}
    if local is not None:
        files[DECLARED[1]] = json.dumps(local).encode()
    return hooks.read(files)


def commands(settings: hooks.Settings, event: str, name: str = "") -> list[str]:
    """What runs at an event."""
    return [hook.command for hook in hooks.wanted(settings.hooks, event, name)]


def test_settings_are_read_as_people_have_them() -> None:
    found = read(SETTINGS)
    assert found.problems == ()
    assert commands(found, "PreToolUse", "Bash") == ["guard"]
    assert commands(found, "PreToolUse", "Write") == ["protect"]
    assert commands(found, "PostToolUse", "Write") == ["lint", "log"], "a command runs once, whoever names it"
    assert commands(found, "PostToolUse", "WebFetch") == ["note", "lint", "log"]
    assert commands(found, "Stop") == ["tests"]
    timeouts = {hook.command: hook.timeout_s for hook in found.hooks}
    assert timeouts["guard"] == 5.0
    assert timeouts["protect"] == 60.0


def test_both_files_count_and_either_can_be_off() -> None:
    both = read(SETTINGS, {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]}})
    assert commands(both, "Stop") == ["tests", "mine"]
    assert commands(read({**SETTINGS, "disableAllHooks": True}), "Stop") == []


@pytest.mark.parametrize(
    ("matcher", "fitting", "other"),
    [
        ("", "Bash", None),
        ("*", "Bash", None),
        ("Bash", "Bash", "BashOutput"),
        ("Edit|Write", "Write", "MultiEdit"),
        ("Edit, Write", "Edit", "MultiEdit"),
        ("^Notebook.*", "NotebookEdit", "Read"),
        (".*Edit", "MultiEdit", "Write"),
        ("bash", "bash", "Bash"),
    ],
)
def test_matchers(matcher: str, fitting: str, other: str | None) -> None:
    assert hooks.matcher_problem(matcher) == ""
    assert hooks.fits(matcher, fitting)
    assert other is None or not hooks.fits(matcher, other)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "is not a JSON object"),
        ({"hooks": []}, ""),
        ({"hooks": ["Stop"]}, "is not an object of events"),
        ({"hooks": {"Stop": {}}}, "is not a list"),
        ({"hooks": {"Stop": [{"matcher": ""}]}}, "without a list of `hooks`"),
        ({"hooks": {"Stop": [{"hooks": [{"type": "prompt", "prompt": "?"}]}]}}, "of type 'prompt'"),
        ({"hooks": {"Stop": [{"hooks": [{"type": "command"}]}]}}, "without a `command`"),
        ({"hooks": {"Stop": [{"hooks": ["echo"]}]}}, "not an object"),
        ({"hooks": {"Stop": [{"hooks": [{"command": "x", "timeout": "1m"}]}]}}, "`timeout` is '1m'"),
        ({"hooks": {"PreToolUse": [{"matcher": "(", "hooks": []}]}}, "not a regular expression"),
        ({"hooks": {"PreToolUse": [{"matcher": 3, "hooks": []}]}}, "not text"),
        ({"hooks": {"Notification": [{"hooks": [{"command": "beep"}]}]}}, "Notification do not run here"),
    ],
)
def test_what_cannot_be_used_is_said(value: Any, said: str) -> None:
    found = read(value)
    assert found.hooks == ()
    assert (said in " ".join(found.problems)) if said else not found.problems


def test_a_file_that_is_no_json_is_said_and_the_other_one_counts() -> None:
    stop = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]}}
    found = hooks.read({DECLARED[0]: b"{nonsense", DECLARED[1]: json.dumps(stop).encode()})
    assert [hook.command for hook in found.hooks] == ["mine"]
    assert "is not valid JSON" in found.problems[0]


def test_there_is_a_cap() -> None:
    many = [{"hooks": [{"type": "command", "command": f"c{number}"} for number in range(60)]}]
    found = read({"hooks": {"Stop": many}})
    assert len(found.hooks) == hooks.HOOKS_MAX
    assert "only the first" in found.problems[0]


def test_scripts_are_told_what_they_know_the_names_of() -> None:
    about = hook_protocol.about_call(
        "edit", {"file_path": "src/a.py", "old_string": "1", "new_string": "2"}, "/workspace"
    )
    about["tool_response"] = hook_protocol.about_result("edit", "Edited src/a.py.", "/workspace/src/a.py")
    told = json.loads(hook_protocol.about("PostToolUse", "ses_1", "/workspace", "call_1", about))
    assert told == {
        "session_id": "ses_1",
        "transcript_path": "",
        "cwd": "/workspace",
        "permission_mode": "default",
        "hook_event_name": "PostToolUse",
        "tool_use_id": "call_1",
        "tool_name": "Edit",
        "tool_input": {"file_path": "/workspace/src/a.py", "old_string": "1", "new_string": "2"},
        "tool_response": {"success": True, "content": "Edited src/a.py.", "filePath": "/workspace/src/a.py"},
    }


def test_inputs_have_the_shapes_that_scripts_expect() -> None:
    def shown(name: str, value: dict[str, Any]) -> Any:
        return hook_protocol.about_call(name, value, "/w")

    assert shown("bash", {"command": "ls", "timeout_ms": 9}) == {
        "tool_name": "Bash",
        "tool_input": {"command": "ls", "timeout": 9},
    }
    assert shown("read", {"file_path": "a", "view_range": [3, 5]})["tool_input"] == {
        "file_path": "/w/a",
        "offset": 3,
        "limit": 3,
    }
    assert shown("read", {"file_path": "/x/a", "view_range": [3, -1]})["tool_input"] == {
        "file_path": "/x/a",
        "offset": 3,
    }
    job = shown("job_start", {"command": "make", "name": "m"})
    assert job == {"tool_name": "Bash", "tool_input": {"command": "make", "name": "m", "run_in_background": True}}
    assert hook_protocol.about_result("bash", "out", None)["stdout"] == "out"


def said(code: int | None, out: str = "", err: str = "", *, timed_out: bool = False) -> hook_protocol.Said:
    """End of a hook command."""
    return hook_protocol.Said(code, out, err, timed_out)


PRE, POST, STOP, START = (Hook(event, "c") for event in ("PreToolUse", "PostToolUse", "Stop", "SessionStart"))


def answer(**value: Any) -> hook_protocol.Said:
    """A command that went well and answered in JSON."""
    return said(0, json.dumps(value))


def specific(**value: Any) -> hook_protocol.Said:
    """An answer for its event."""
    return answer(hookSpecificOutput=value)


@pytest.mark.parametrize(
    ("hook", "end", "blocks", "words"),
    [
        (PRE, said(0), False, ""),
        (PRE, said(0, "chatter"), False, ""),
        (PRE, said(2, "out", "not this"), True, "not this"),
        (POST, said(2, "only out"), True, "only out"),
        (STOP, said(2), True, "it gave no reason"),
        (PRE, said(1, "", "oops"), False, "oops"),
        (PRE, said(127, "", "not found"), False, "status 127"),
        (PRE, said(2, "", "late", timed_out=True), False, "did not end within 60 s"),
        (PRE, said(None), False, "signal"),
        (START, said(2, "", "no"), False, "no"),
        (PRE, specific(permissionDecision="deny", permissionDecisionReason="why not"), True, "why not"),
        (PRE, specific(permissionDecision="ask", permissionDecisionReason="unsure"), True, "unsure"),
        (PRE, specific(permissionDecision="allow", permissionDecisionReason="fine"), False, ""),
        (PRE, answer(decision="block", reason="old way"), True, "old way"),
        (PRE, answer(decision="approve"), False, ""),
        (POST, answer(decision="block", reason="mend it"), True, "mend it"),
        (STOP, answer(decision="block", reason="tests fail"), True, "tests fail"),
        (POST, answer(suppressOutput=True), False, ""),
        (POST, said(0, '{"decision": 3}'), False, "is invalid"),
        (POST, said(0, "{not json"), False, "is invalid"),
    ],
)
def test_what_ends_mean(hook: Hook, end: hook_protocol.Said, blocks: bool, words: str) -> None:
    word = hook_protocol.word_of(hook, end)
    assert word.blocks is blocks
    assert (words in word.content) if words else word.content == ""
    assert not word.stops
    assert not word.told


def test_what_is_told_without_being_sent_back() -> None:
    assert hook_protocol.word_of(START, said(0, "use tabs\n")) == hook_protocol.Word(
        told=True, content="[From the project's hook `c`:]\nuse tabs"
    )
    assert hook_protocol.word_of(POST, specific(additionalContext="see a.md")).told
    assert not hook_protocol.word_of(POST, said(0, "use tabs\n")).told


def test_a_hook_can_stop_the_work() -> None:
    word = hook_protocol.word_of(POST, answer(**{"continue": False, "stopReason": "the disk is on fire"}))
    assert word.stops
    assert "the disk is on fire" in word.content


def test_a_check_blocks_however_it_fails() -> None:
    (check,) = hooks.checks(["ruff check ."], [])
    assert (check.event, check.timeout_s) == ("Stop", 600.0)
    assert not hook_protocol.word_of(check, said(0, '{"decision": "block"}')).blocks
    failed = hook_protocol.word_of(check, said(1, "a.py:1: F401", "Found 1 error"))
    assert failed.blocks
    assert "a.py:1: F401\nFound 1 error" in failed.content
    assert hook_protocol.word_of(check, said(None, timed_out=True)).blocks
    (edit,) = hooks.checks([], ["ruff check ."])
    assert hooks.wanted([edit], "PostToolUse", "Write") == [edit]
    assert hooks.wanted([edit], "PostToolUse", "Bash") == []


def test_long_words_are_cut_at_their_beginning() -> None:
    content = hook_protocol.word_of(STOP, said(2, "", "x" * 9_000 + "the end")).content
    assert len(content) < 4_200
    assert content.endswith("the end")


@pytest.mark.parametrize(
    ("command", "out", "err", "code"),
    [
        ("echo out; echo err >&2; exit 2", "out\n", "err\n", 2),
        ("cat", "told", "", 0),
        ('echo "$CLAUDE_PROJECT_DIR"', "/tmp/it's here\n", "", 0),
        ("echo 'a \"b\" $c'", 'a "b" $c\n', "", 0),
        ("exit 3", "", "", 3),
        ("(", "", None, 2),
        ("head -c 20000 /dev/zero | tr '\\0' e >&2", "", "e" * 8_000, 0),
    ],
)
def test_the_two_outputs_are_told_apart(command: str, out: str, err: str | None, code: int) -> None:
    whole = hook_protocol.command_of(Hook("Stop", command), "/tmp/it's here")
    ran = subprocess.run(
        ["bash", "-c", whole], input="told", capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ran.returncode == code
    found = hook_protocol.apart(ran.stdout)
    assert found[0] == out
    assert err is None or found[1] == err
    assert hook_protocol.apart("nothing marked") == ("nothing marked", "nothing marked")
