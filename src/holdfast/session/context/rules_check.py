"""The rules that code can check, held against what was done. Pure.

A command is matched by splitting it at shell operators and comparing words from the left with the pattern's,
each word as a glob. A file counts as changed by `write` and `edit`, and by the plainest shell commands: a
redirection, `rm`, `mv`, `tee`, `touch`, `sed -i`. This sees what was done, afterwards. It contains nothing: a
command can be written in a thousand ways. Containment is the sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.model import AgentToolUse, ModelRequestStart
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.session.context.rules_grammar import Checkable

GRACE_TURNS = 8
"""So many turns may pass after an edit before "run X after editing Y" is broken; an end of the work ends it at once."""

_COMMAND_MAX = 4_000
_SPLIT = re.compile(r"\|\||&&|[;|&\n()]|\bthen\b|\bdo\b")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=\S*")
_BEFORE_WORDS = frozenset("sudo env time nice nohup command exec xargs".split())
_ALTERING = frozenset("rm mv tee touch truncate rmdir mkdir chmod ln".split())
_REDIRECTED = re.compile(r"(?<![<0-9&])>{1,2}\s*([^\s;|&<>()]+)")


class Deed(msgspec.Struct, frozen=True):
    """What was done: a call that ran, the beginning of a turn, or an end of the work.

    `main` is the command or the path. `outcome` is as in the log, `unknown` for one that nobody knows. `turn`
    and `end` deeds are marks of time without a call.
    """

    seq: int
    kind: Literal["run", "edit", "turn", "end"]
    main: str = ""
    outcome: str = ""


class Breach(msgspec.Struct, frozen=True):
    """A rule that was not kept: the line, what was done, and where."""

    line: str
    detail: str
    evidence: tuple[int, ...]


# --- what was done -------------------------------------------------------------------------------


def deeds_of(facts: Iterable[tuple[int, Fact]]) -> tuple[Deed, ...]:
    """The deeds in a stretch of the log, in order. A call counts where it was asked for, if it ran or may have run."""
    facts = list(facts)
    ends: dict[str, str] = {}
    for _, fact in facts:
        if isinstance(fact, ToolResult):
            ends[fact.call_id] = fact.outcome
        elif isinstance(fact, ToolOutcomeUnknown):
            ends[fact.call_id] = "unknown"
    out: list[Deed] = []
    for seq, fact in facts:
        match fact:
            case ModelRequestStart(purpose="turn"):
                out.append(Deed(seq, "turn"))
            case ShiftEnded(status="done"):
                out.append(Deed(seq, "end"))
            case AgentToolUse() if ends.get(fact.call_id) in ("ok", "error", "unknown"):
                deed = _deed(seq, fact, ends[fact.call_id])
                if deed is not None:
                    out.append(deed)
            case _:
                continue
    return tuple(out)


def _deed(seq: int, use: AgentToolUse, outcome: str) -> Deed | None:
    if use.name == "bash":
        command = use.input.get("command")
        return Deed(seq, "run", command, outcome) if isinstance(command, str) else None
    if use.name in ("write", "edit"):
        path = use.input.get("file_path")
        return Deed(seq, "edit", path, outcome) if isinstance(path, str) and outcome != "error" else None
    return None


# --- the check -----------------------------------------------------------------------------------


def check(rules: Sequence[Checkable], deeds: Sequence[Deed], *, roots: Sequence[str] = ("/workspace",)) -> list[Breach]:
    """What in `deeds` does not keep `rules`, at most one breach of each rule.

    `roots` are the folders that stand for the workspace in absolute paths. For `run_after` an edit is a breach when
    the command was not run within `GRACE_TURNS` turns, or not before the work ended; edits at the end of the
    stretch with fewer turns after them are not judged yet, so hand them in again the next time.
    """
    out = []
    for rule in rules:
        breach = _CHECKS[rule.kind](rule, deeds, roots)
        if breach is not None:
            out.append(breach)
    return out


def _check_never_run(rule: Checkable, deeds: Sequence[Deed], roots: Sequence[str]) -> Breach | None:
    hits = [deed for deed in deeds if deed.kind == "run" and runs(deed.main, rule.commands)]
    return _breach(rule, "ran", hits)


def _check_never_edit(rule: Checkable, deeds: Sequence[Deed], roots: Sequence[str]) -> Breach | None:
    hits = [deed for deed in deeds if any(is_under(path, rule.paths, roots) for path in _altered(deed))]
    return _breach(rule, "changed", hits)


def _check_only_edit(rule: Checkable, deeds: Sequence[Deed], roots: Sequence[str]) -> Breach | None:
    hits = [deed for deed in deeds if deed.kind == "edit" and not is_under(deed.main, rule.paths, roots)]
    return _breach(rule, "changed", hits)


def _check_run_after(rule: Checkable, deeds: Sequence[Deed], roots: Sequence[str]) -> Breach | None:
    open_edit: Deed | None = None
    turns = 0
    for deed in deeds:
        if deed.kind == "edit" and (not rule.paths or is_under(deed.main, rule.paths, roots)):
            if open_edit is None:
                open_edit, turns = deed, 0
        elif deed.kind == "run" and runs(deed.main, rule.commands):
            open_edit = None
        elif deed.kind == "turn":
            turns += 1
        late = deed.kind == "end" or turns > GRACE_TURNS
        if open_edit is not None and late:
            when = "before the work ended" if deed.kind == "end" else f"within {GRACE_TURNS} turns"
            detail = f"changed {_short(open_edit.main)}, and {_list(rule.commands)} was not run {when}"
            return Breach(rule.line, detail, (open_edit.seq, deed.seq))
    return None


def _check_run_before(rule: Checkable, deeds: Sequence[Deed], roots: Sequence[str]) -> Breach | None:
    """Broken when something was edited since the command last ran; edits before the stretch are not known."""
    dirty: Deed | None = None
    for deed in deeds:
        if deed.kind == "edit":
            dirty = deed
        elif deed.kind == "run":
            parts = _parts(deed.main)
            for part in parts:
                if _runs_any(part, rule.commands):
                    dirty = None
                elif dirty is not None and _runs_any(part, rule.before):
                    detail = f"ran {_short(deed.main)} after a change, without {_list(rule.commands)} in between"
                    return Breach(rule.line, detail, (dirty.seq, deed.seq))
    return None


def _check_run_at_end(rule: Checkable, deeds: Sequence[Deed], roots: Sequence[str]) -> Breach | None:
    dirty: Deed | None = None
    for deed in deeds:
        if deed.kind == "edit":
            dirty = deed
        elif deed.kind == "run" and runs(deed.main, rule.commands):
            dirty = None
        elif deed.kind == "end" and dirty is not None:
            detail = f"the work ended after a change of {_short(dirty.main)}, without {_list(rule.commands)} after it"
            return Breach(rule.line, detail, (dirty.seq, deed.seq))
    return None


_CHECKS = {
    "never_run": _check_never_run,
    "never_edit": _check_never_edit,
    "only_edit": _check_only_edit,
    "run_after": _check_run_after,
    "run_before": _check_run_before,
    "run_at_end": _check_run_at_end,
}


def _breach(rule: Checkable, verb: str, hits: list[Deed]) -> Breach | None:
    if not hits:
        return None
    more = f" and {len(hits) - 1} more" if len(hits) > 1 else ""
    return Breach(rule.line, f"{verb} {_short(hits[0].main)}{more}", tuple(deed.seq for deed in hits[:20]))


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return f"`{flat if len(flat) <= 120 else flat[:117] + '...'}`"


def _list(commands: tuple[str, ...]) -> str:
    return " or ".join(f"`{command}`" for command in commands)


# --- matching ------------------------------------------------------------------------------------


def runs(command: str, patterns: Iterable[str]) -> bool:
    """Whether a part of the command line is one of the patterns, or begins with it."""
    patterns = tuple(patterns)
    return any(_runs_any(part, patterns) for part in _parts(command))


def _parts(command: str) -> list[list[str]]:
    """The simple commands in a command line, as words, without assignments and the likes of sudo before them."""
    out = []
    for raw in _SPLIT.split(command[:_COMMAND_MAX]):
        words = [word.strip("'\"$`{}") for word in raw.split()]
        words = [word for word in words if word]
        while words and (words[0] in _BEFORE_WORDS or _ASSIGNMENT.fullmatch(words[0])):
            del words[0]
        if words:
            out.append(words)
    return out


def _runs_any(words: list[str], patterns: Iterable[str]) -> bool:
    return any(_begins(words, pattern.split()) for pattern in patterns)


def _begins(words: list[str], wanted: list[str]) -> bool:
    if not wanted or len(words) < len(wanted):
        return False
    first = words[0].rpartition("/")[2] if "/" not in wanted[0] else words[0]
    given = [first, *words[1:]]
    return all(fnmatchcase(one, glob) for one, glob in zip(given, wanted, strict=False))


def is_under(path: str, patterns: Iterable[str], roots: Sequence[str]) -> bool:
    """Whether the path is one of the patterns: a glob, a folder with all below it, or a file's name alone."""
    path = _relative(path, roots)
    return any(_matches(path, _relative(pattern, roots)) for pattern in patterns)


def _relative(path: str, roots: Sequence[str]) -> str:
    for root in roots:
        if root and (path == root or path.startswith(root.rstrip("/") + "/")):
            path = path[len(root.rstrip("/")) :].lstrip("/")
            break
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return ("/" if path.startswith("/") else "") + "/".join(parts)


def _matches(path: str, pattern: str) -> bool:
    if not pattern:
        return True
    if fnmatchcase(path, pattern) or path.startswith(pattern + "/"):
        return True
    if pattern.endswith("/**") and path == pattern[:-3]:
        return True
    if pattern.startswith("**/") and fnmatchcase(path, pattern[3:]):
        return True
    return "/" not in pattern and fnmatchcase(path.rpartition("/")[2], pattern)


def _altered(deed: Deed) -> list[str]:
    """The paths that a deed plainly changed."""
    if deed.kind != "run":
        return [deed.main] if deed.kind == "edit" else []
    out = []
    for words in _parts(deed.main):
        name = words[0].rpartition("/")[2]
        plain = [word for word in words[1:] if not word.startswith(("-", ">"))]
        if name in _ALTERING or (name in ("sed", "perl") and any(word.startswith("-i") for word in words)):
            out += plain
        elif name in ("cp", "install") and plain:
            out.append(plain[-1])
    out += [path.strip("'\"") for path in _REDIRECTED.findall(deed.main[:_COMMAND_MAX])]
    return out
