"""Protocol of a project's hooks: the input of a hook, its result, and the commands that run it. Pure."""

from __future__ import annotations

import hashlib
import posixpath
import shlex
from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec

from holdfast.facts import bounded_json
from holdfast.kinds.hooks.settings import Hook, tool_name

CONTENT_CHARS = 4_000
"""Most characters of a hook's output shown to the model, from its end."""


class Said(msgspec.Struct, frozen=True):
    """End of a hook's command. `exit_code` is None if a signal ended it."""

    exit_code: int | None
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False


class Word(msgspec.Struct, frozen=True):
    """Result of a hook. `blocks` refuses the call or the submission; `told` shows `content` to the model anyway.

    `stops` asks for the session to stop, for the reason in `content`.
    """

    blocks: bool = False
    told: bool = False
    stops: bool = False
    content: str = ""


# --- input ------------------------------------------------------------------------------------------


def about(event: str, session_id: str, cwd: str, call_id: str, more: Mapping[str, object]) -> bytes:
    """Build the standard input of a hook as JSON. `more` are the fields of its event."""
    told = {
        "session_id": session_id,
        "transcript_path": "",
        "cwd": cwd,
        "permission_mode": "default",
        "hook_event_name": event,
        **({"tool_use_id": call_id} if "tool_name" in more else {}),
        **more,
    }
    return msgspec.json.encode(told)


def about_call(name: str, value: dict[str, Any], root: str) -> dict[str, Any]:
    """Build `tool_name` and `tool_input` as scripts expect them: paths from the root, times in milliseconds."""
    shown = dict(value)
    path = shown.get("file_path")
    if isinstance(path, str):
        shown["file_path"] = posixpath.normpath(posixpath.join(root, path))
    view = shown.pop("view_range", None)
    if isinstance(view, list) and len(view) == 2:
        shown["offset"] = view[0]
        if view[1] >= view[0]:
            shown["limit"] = view[1] - view[0] + 1
    if "timeout_ms" in shown:
        shown["timeout"] = shown.pop("timeout_ms")
    if name in ("job_start", "service_start"):
        shown["run_in_background"] = True
    return {"tool_name": tool_name(name), "tool_input": shown}


def about_result(name: str, output: str, file_path: Any) -> dict[str, Any]:
    """Build `tool_response` of a successful call."""
    if name == "bash":
        return {"stdout": output, "stderr": "", "interrupted": False}
    told: dict[str, Any] = {"success": True, "content": output}
    if isinstance(file_path, str):
        told["filePath"] = file_path
    return told


# --- result -----------------------------------------------------------------------------------------


class _Specific(msgspec.Struct, frozen=True):
    permissionDecision: str = ""
    permissionDecisionReason: str = ""
    additionalContext: str = ""


class _Answer(msgspec.Struct, frozen=True, rename={"go_on": "continue"}):
    go_on: bool = True
    stopReason: str = ""
    decision: str = ""
    reason: str = ""
    hookSpecificOutput: _Specific = _Specific()


def word_of(hook: Hook, said: Said) -> Word:
    """Derive the result of a hook from the end of its command.

    Exit status 2 blocks, with its standard error as the reason; any other failure is only recorded; on success its
    standard output may be a JSON answer. A check that fails in any way blocks.
    """
    if hook.check:
        if said.exit_code == 0 and not said.timed_out:
            return Word()
        both = "\n".join(part for part in (said.stdout.strip(), said.stderr.strip()) if part)
        head = f"[The project's check `{_short(hook.command)}` does not pass: {_ending(hook, said)}. Fix this.]"
        return Word(blocks=True, content=f"{head}\n{_cut(both)}".rstrip())
    if said.exit_code == 2 and not said.timed_out:
        return _blocked(hook, said.stderr or said.stdout)
    if said.exit_code != 0 or said.timed_out:
        return Word(content=_cut(f"[{_ending(hook, said)}; ignored]\n{said.stderr or said.stdout}"))
    answer = _answer(said.stdout)
    if isinstance(answer, _Answer):
        return _of_answer(hook, answer)
    if answer:
        return Word(content=_cut(f"[its answer is invalid: {answer}; ignored]"))
    text = said.stdout.strip()
    if hook.event == "SessionStart" and text:
        return Word(told=True, content=_context(hook, text))
    return Word()


def _ending(hook: Hook, said: Said) -> str:
    if said.timed_out:
        return f"it did not end within {hook.timeout_s:g} s"
    return f"it ended with status {said.exit_code}" if said.exit_code is not None else "it was ended by a signal"


def _answer(text: str) -> _Answer | str:
    """Read the JSON answer on standard output; an error text if it is invalid, empty if it is not a JSON object."""
    if not text.lstrip().startswith("{"):
        return ""
    try:
        return bounded_json.decode_as(text.strip(), _Answer)
    except msgspec.DecodeError as error:
        return str(error)


def _of_answer(hook: Hook, answer: _Answer) -> Word:
    specific = answer.hookSpecificOutput
    if not answer.go_on:
        reason = answer.stopReason or answer.reason or "it gave no reason"
        return Word(stops=True, content=_cut(f"[The project's hook `{_short(hook.command)}` stops the work: {reason}]"))
    if hook.event == "PreToolUse" and specific.permissionDecision == "ask":
        why = specific.permissionDecisionReason or "it gave no reason"
        return _blocked(hook, f"{why}\nIt asks for a person's approval, which is not available here: find another way.")
    if hook.event == "PreToolUse" and specific.permissionDecision == "deny":
        return _blocked(hook, specific.permissionDecisionReason or answer.reason)
    if answer.decision in ("block", "deny"):
        return _blocked(hook, answer.reason)
    if specific.additionalContext:
        return Word(told=True, content=_context(hook, specific.additionalContext))
    return Word()


_HEADS: dict[str, str] = {
    "PreToolUse": "blocks this call",
    "PostToolUse": "objects to this",
    "Stop": "sends the work back",
}


def _blocked(hook: Hook, words: str) -> Word:
    head = _HEADS.get("Stop" if hook.event == "SubagentStop" else hook.event)
    if head is None:  # this event cannot be blocked
        return Word(content=_cut(words.strip()))
    text = words.strip() or "(it gave no reason)"
    return Word(blocks=True, content=f"[The project's hook `{_short(hook.command)}` {head}:]\n{_cut(text)}")


def _context(hook: Hook, text: str) -> str:
    return f"[From the project's hook `{_short(hook.command)}`:]\n{_cut(text.strip())}"


def _short(command: str) -> str:
    first = command.strip().partition("\n")[0]
    return first if len(first) <= 120 else f"{first[:117]}..."


def _cut(text: str) -> str:
    return text if len(text) <= CONTENT_CHARS else f"(the beginning is left out)\n{text[-CONTENT_CHARS:]}"


Moment = Literal["before", "after", "start", "stop"]
"""Moment of a hook's run, as part of its call id."""


def call_id(about_id: str, moment: Moment, number: int) -> str:
    """Return the id of a hook's call in the hands, stable so that a later brain finds its result (S8)."""
    return f"{about_id}.{moment}{number}"


# --- the command -----------------------------------------------------------------------------------

STDERR_BYTES = 8_000


def command_of(hook: Hook, root: str) -> str:
    """Build the shell command that runs a hook in its own shell, with its two outputs separated by a mark."""
    return (
        f"export CLAUDE_PROJECT_DIR={shlex.quote(root)}\n"
        "said=$(mktemp) || exit 1\n"
        f'bash -c {shlex.quote(hook.command)} 2>"$said"\n'
        "status=$?\n"
        f"printf '\\n%s\\n' '{_MARK}'\n"
        f'tail -c {STDERR_BYTES} "$said"\n'
        'rm -f "$said"\n'
        'exit "$status"\n'
    )


def comparing(scripts: Mapping[str, bytes], programs: Collection[str]) -> str:
    """Build a shell command that prints and removes the files that differ from these."""
    folders = sorted({path[:at] for path in scripts for at in range(len(path)) if path[at] == "/"})
    lines = [
        f"for each in {shlex.join(folders)}; do",
        '  if [ -L "$each" ] || [ ! -d "$each" ]; then rm -rf "$each"; else chmod u+rwx "$each"; fi',
        "done 2>/dev/null",
        'same() { [ ! -L "$1" ] && [ -f "$1" ] && [ "$(sha256sum < "$1")" = "$2  -" ] && "$3" "$1"; }',
        'program() { [ -x "$1" ]; }; plain() { [ ! -x "$1" ]; }',
    ]
    for path, content in sorted(scripts.items()):
        name, kind = shlex.quote(path), "program" if path in programs else "plain"
        digest = hashlib.sha256(content).hexdigest()
        lines.append(f"same {name} {digest} {kind} 2>/dev/null || {{ rm -rf {name} 2>/dev/null; echo {name}; }}")
    return "\n".join(lines)


_MARK = "=====holdfast: standard error====="


def apart(output: str) -> tuple[str, str]:
    """Split the output of a `command_of` command into standard output and error; without the mark, both are all."""
    out, mark, err = output.rpartition(f"\n{_MARK}\n")
    return (out, err) if mark else (output, output)
