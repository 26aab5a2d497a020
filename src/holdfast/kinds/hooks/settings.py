"""Hooks of a project in Claude Code's format, and its checks: their settings and conditions. Pure.

They are read as they were when the session began, so the agent's own changes of the settings do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from holdfast.facts import bounded_json
from holdfast.facts.tool import SCRIPTS, SETTINGS

PATHS = (*SETTINGS, f"{SCRIPTS}/**")
"""Globs of the files that are read from the base."""

EMPTY_TREES = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
"""Git object name of the empty tree, by the length of a repository's object names."""

AT_STOP = ("Stop", "SubagentStop", "SessionEnd")
"""Hook events of a submission, or of an agent that stops."""

RUN_HERE = ("PreToolUse", "PostToolUse", "SessionStart", *AT_STOP)
"""Hook events that occur in a session with hooks."""

HOOK_TIMEOUT_S = 60.0
CHECK_TIMEOUT_S = 600.0
TIMEOUT_MAX_S = 3_600.0
"""Default timeout of a hook, timeout of a check, and the longest timeout of either."""

SENT_BACK_MAX = 3
"""Consecutive refusals by hooks at a stop; afterwards hooks let it pass and the harness's own checks decide."""

HOOKS_MAX = 50
PATTERN_MAX = 200

TOOL_NAMES = {
    "bash": "Bash",
    "job_start": "Bash",
    "service_start": "Bash",
    "read": "Read",
    "write": "Write",
    "edit": "Edit",
    "glob": "Glob",
    "grep": "Grep",
    "web_fetch": "WebFetch",
    "web_search": "WebSearch",
}
"""Names of Holdfast's tools for hooks. A tool that runs a command later counts as `Bash` too."""

_PLAIN = re.compile(r"[A-Za-z0-9_, |-]*")


class Hook(msgspec.Struct, frozen=True):
    """Command and its event. A `check` gets no standard input, and any failure of it counts."""

    event: str
    command: str
    matcher: str = ""
    timeout_s: float = HOOK_TIMEOUT_S
    check: bool = False


class Settings(msgspec.Struct, frozen=True):
    """Hooks of a project; `problems` describe settings that cannot be used."""

    hooks: tuple[Hook, ...] = ()
    problems: tuple[str, ...] = ()


def read(files: Mapping[str, bytes]) -> Settings:
    """Read the hooks of a project from its settings files, by path."""
    hooks: list[Hook] = []
    problems: list[str] = []
    for path in SETTINGS:
        if path in files:
            _read_file(path, files[path], hooks, problems)
    if len(hooks) > HOOKS_MAX:
        problems.append(f"there are {len(hooks)} hooks; only the first {HOOKS_MAX} run")
    return Settings(tuple(hooks[:HOOKS_MAX]), tuple(problems))


def _read_file(path: str, content: bytes, hooks: list[Hook], problems: list[str]) -> None:
    try:
        value = bounded_json.decode(content)
    except msgspec.DecodeError as error:
        problems.append(f"{path} is not valid JSON ({error}): its hooks do not run")
        return
    if not isinstance(value, dict):
        problems.append(f"{path} is not a JSON object: its hooks do not run")
        return
    table = value.get("hooks", {})
    if value.get("disableAllHooks") is True or not table:
        return
    if not isinstance(table, dict):
        problems.append(f"`hooks` in {path} is not an object of events: its hooks do not run")
        return
    for event, groups in table.items():
        if event not in RUN_HERE:
            problems.append(f"{path}: hooks for {event} do not run here")
        elif not isinstance(groups, list):
            problems.append(f"{path}: `hooks.{event}` is not a list: its hooks do not run")
        else:
            for group in groups:
                _read_group(f"{path}: `hooks.{event}`", event, group, hooks, problems)


def _read_group(where: str, event: str, group: Any, hooks: list[Hook], problems: list[str]) -> None:
    commands = group.get("hooks") if isinstance(group, dict) else None
    if not isinstance(commands, list):
        problems.append(f"{where} has an entry without a list of `hooks`, which does not run")
        return
    matcher = group.get("matcher") or ""
    problem = matcher_problem(matcher)
    if problem:
        problems.append(f"{where} has the matcher {matcher!r}, {problem}: its hooks do not run")
        return
    for each in commands:
        found = _hook(event, matcher, each)
        if isinstance(found, Hook):
            hooks.append(found)
        else:
            problems.append(f"{where} has {found}, which does not run")


def _hook(event: str, matcher: str, value: Any) -> Hook | str:
    kind = value.get("type", "command") if isinstance(value, dict) else None
    if kind != "command":
        return f"a hook of type {kind!r}" if kind is not None else "an entry that is not an object"
    command, timeout_s = value.get("command"), value.get("timeout", HOOK_TIMEOUT_S)
    if not isinstance(command, str) or not command.strip():
        return "a hook without a `command`"
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s > 0:
        return f"a hook whose `timeout` is {timeout_s!r}"
    return Hook(event, command, matcher, min(float(timeout_s), TIMEOUT_MAX_S))


def matcher_problem(matcher: Any) -> str:
    """Explain why a matcher cannot be used; empty if it can."""
    if not isinstance(matcher, str):
        return "which is not text"
    if len(matcher) > PATTERN_MAX:
        return f"which is longer than {PATTERN_MAX} characters"
    try:
        re.compile(matcher.replace("*", "") if matcher == "*" else matcher)
    except re.error as error:
        return f"which is not a regular expression ({error})"
    return ""


def checks(at_stop: Iterable[str], after_edits: Iterable[str]) -> tuple[Hook, ...]:
    """Return the mission's checks as hooks."""
    return (
        *(Hook("PostToolUse", command, "Edit|Write", CHECK_TIMEOUT_S, check=True) for command in after_edits),
        *(Hook("Stop", command, timeout_s=CHECK_TIMEOUT_S, check=True) for command in at_stop),
    )


def wanted(hooks: Iterable[Hook], event: str, name: str = "") -> list[Hook]:
    """Return the hooks for an event, each command once. `name` is the tool's name for their matchers."""
    found: dict[str, Hook] = {}
    for hook in hooks:
        if hook.event == event and fits(hook.matcher, name):
            found.setdefault(hook.command, hook)
    return list(found.values())


def fits(matcher: str, name: str) -> bool:
    """Match a name against a matcher: empty for all, names separated by `|`, or a regular expression."""
    if matcher in ("", "*") or not name:
        return True
    if _PLAIN.fullmatch(matcher):
        return name in re.split(r"[|, ]+", matcher)
    return re.search(matcher, name) is not None


def tool_name(name: str) -> str:
    """Return a tool's name for hooks."""
    return TOOL_NAMES.get(name, name)
