"""Rules of AGENTS.md that code can check: a small grammar of plain sentences. Pure.

A rule is one line, a bullet or a plain sentence. The grammar ignores case and a final period; names in backticks may
contain spaces, a bare one ends at a space:

    Never run `git push*`.                 also: do not, don't, must not, no; run, use, call, execute
    Never edit `tests/**`.                 also: touch, modify, change, write (to), delete, create
    Only edit files under `src/`.          also: in, inside, within, matching; several names: `a/`, `b/` and `c/`
    Always run `make test` after editing `src/**`.      without a name: after every edit
    Always run `make lint` before committing.           also: before `git commit`, before running `deploy`
    Always run `make test` before finishing.            also: at the end, when done
    Run `make test` after each change.                  "always" may be left out

Any other line is left to the model and is never an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Literal, assert_never

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.model import AgentToolUse, ModelRequestStart
from holdfast.facts.shift import ShiftEnded
from holdfast.facts.tool import ToolOutcomeUnknown, ToolResult
from holdfast.patterns import lazy

RULES_MAX = 200
_LINE_MAX = 400

Kind = Literal["never_run", "never_edit", "only_edit", "run_after", "run_before", "run_at_end"]


class Checkable(msgspec.Struct, frozen=True):
    """A rule that code can check. `line` is the rule as written.

    `commands` and `paths` are patterns; for `run_before`, `before` are the commands that it must precede. No `paths` in
    `run_after` means any file.
    """

    kind: Kind
    line: str
    commands: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    before: tuple[str, ...] = ()


_RUN = r"(?:run|runn?ing|use|using|call|calling|execute|executing|invoke|invoking)"
_EDIT = (
    r"(?:edit|editing|touch|touching|modify|modifying|change|changing|changes to|write to|write|writing|delete|deleting"
    r"|remove|removing|create|creating|alter|altering)"
)
_FILES = r"(?:any |the |all |every )?(?:thing |files? |folders? |code |anything |something )?"
_PLACE = r"(?:(?:under|in|inside|within|below|matching|of|at|from) )?(?:the )?(?:folder |directory )?"
_NOT = r"(?:never|do not|don't|must not|may not|you must not|no)"
_NAMES = r"(?P<names>.+)"
_ALWAYS = r"(?:please )?(?:you must )?(?:always )?(?:re)?-?"
_FORMS: dict[Kind, re.Pattern[str]] = {
    "never_run": lazy(rf"{_NOT} (?:ever )?{_RUN} {_NAMES}"),
    "never_edit": lazy(rf"{_NOT} (?:ever )?{_EDIT} {_FILES}{_PLACE}{_NAMES}"),
    "only_edit": lazy(rf"(?:you may )?only (?:ever )?{_EDIT} {_FILES}{_PLACE}{_NAMES}"),
    "run_after": lazy(
        rf"{_ALWAYS}run {_NAMES} after (?:(?:each|every|any|an|a|all) )?"
        rf"(?:{_EDIT}|edits?|changes?)(?: to)?(?: {_FILES}{_PLACE}(?P<more>.+))?"
    ),
    "run_at_end": lazy(
        rf"{_ALWAYS}run {_NAMES} (?:before (?:you )?(?:finish(?:ing)?|end(?:ing)?|stop(?:ping)?|(?:are|being) done|"
        r"(?:saying|say|declaring|calling it) .{0,12}done|completing(?: .{0,20})?)|at the end|when (?:you are )?done)"
        r"(?: (?:the |your |a )?(?:work|task|session|turn))?"
    ),
    "run_before": lazy(
        rf"{_ALWAYS}run {_NAMES} before (?:(?:each|every|any|a|you) )?(?P<commit>commit(?:s|ting)?|push(?:es|ing)?)?"
        rf"(?:{_RUN} )?(?P<more>`.+)?"
    ),
}
_BULLET = lazy(r"^\s*(?:[-*+•](?=\s)|\d+[.)])?\s*(?:\[[ xX]\]\s*)?")
_BOLD = lazy(r"\*\*([A-Za-z][A-Za-z' ]*)\*\*")
_QUOTED = lazy(r"`([^`]+)`")
_BARE = lazy(r"[A-Za-z0-9_.*?\[\]/-]+")
_FILLER = frozenset("the any all every a an and or to in of files file folder folders directory".split())


def parse(rules_text: str) -> tuple[Checkable, ...]:
    """Return the rules in `rules_text` that code can check, in order, at most `RULES_MAX`. Never raises."""
    out: list[Checkable] = []
    fenced = False
    for line in rules_text.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            continue
        if fenced or len(line) > _LINE_MAX:
            continue
        rule = _rule(line)
        if rule is not None:
            out.append(rule)
            if len(out) == RULES_MAX:
                break
    return tuple(out)


def _rule(line: str) -> Checkable | None:
    said = _BULLET.sub("", line, count=1).strip().replace("’", "'")
    said = " ".join(_BOLD.sub(r"\1", said).rstrip(".!;: ").split())
    pieces = said.split("`")  # names in backticks keep their case
    low = "`".join(piece if index % 2 else piece.lower() for index, piece in enumerate(pieces))
    for kind, form in _FORMS.items():
        found = form.fullmatch(low)
        rule = _read(kind, found, line.strip()) if found is not None else None
        if rule is not None:
            return rule
    return None


def _read(kind: Kind, found: re.Match[str], line: str) -> Checkable | None:
    match kind:
        case "never_run" | "run_at_end":
            commands = _quoted(found["names"])
            return Checkable(kind, line, commands=commands) if commands else None
        case "never_edit" | "only_edit":
            paths = _names(found["names"])
            return Checkable(kind, line, paths=paths) if paths else None
        case "run_after":
            commands, more = _quoted(found["names"]), found["more"]
            paths = _names(more) if more else ()
            return Checkable(kind, line, commands, paths) if commands and (paths or not more) else None
        case "run_before":
            commands, before = _quoted(found["names"]), _quoted(found["more"] or "")
            if found["commit"]:
                before = ("git push",) if found["commit"].startswith("push") else ("git commit",)
            return Checkable(kind, line, commands, before=before) if commands and before else None
        case _:
            assert_never(kind)


def _quoted(text: str) -> tuple[str, ...]:
    """Return the names in backticks; none if words other than "and" and "or" are between or around them."""
    names = tuple(name.strip() for name in _QUOTED.findall(text) if name.strip())
    rest = _QUOTED.sub(" ", text).replace(",", " ").split()
    return names if names and all(word in ("and", "or", "the", "command", "commands") for word in rest) else ()


def _names(text: str) -> tuple[str, ...]:
    """Return the names in backticks, or the bare names that look like a path."""
    quoted = tuple(name.strip() for name in _QUOTED.findall(text) if name.strip())
    rest = [word.strip(",") for word in _QUOTED.sub(" ", text).split()]
    if quoted:
        return quoted if all(word in _FILLER or not word for word in rest) else ()
    words = [word for word in rest if word and word not in _FILLER]
    paths = tuple(word for word in words if _BARE.fullmatch(word) and ("/" in word or "*" in word or "." in word[1:]))
    return paths if paths and len(paths) == len(words) else ()


GRACE_TURNS = 8
"""Number of turns that may pass after an edit before "run X after editing Y" is broken; the end of the work breaks it
at once."""

_COMMAND_MAX = 4_000
_SPLIT = lazy(r"\|\||&&|[;|&\n()]|\bthen\b|\bdo\b")
_ASSIGNMENT = lazy(r"[A-Za-z_][A-Za-z0-9_]*=\S*")
_BEFORE_WORDS = frozenset("sudo env time nice nohup command exec xargs".split())
_ALTERING = frozenset("rm mv tee touch truncate rmdir mkdir chmod ln".split())
_REDIRECTED = lazy(r"(?<![<0-9&])>{1,2}\s*([^\s;|&<>()]+)")


class Deed(msgspec.Struct, frozen=True):
    """An executed call, the beginning of a turn, or an end of the work.

    `main` is the command or the path. `outcome` is as in the log, `unknown` if it cannot be known. `turn` and `end`
    mark time without a call.
    """

    seq: int
    kind: Literal["run", "edit", "turn", "end"]
    main: str = ""
    outcome: str = ""


class Breach(msgspec.Struct, frozen=True):
    """A broken rule: the line, the violation, and its positions."""

    line: str
    detail: str
    evidence: tuple[int, ...]


def deeds_of(facts: Iterable[tuple[int, Fact]]) -> tuple[Deed, ...]:
    """Return the deeds in a stretch of the log, in order. A call counts at its request, if it ran or may have run."""
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
                out += _deed(seq, fact, ends[fact.call_id])
    return tuple(out)


def _deed(seq: int, use: AgentToolUse, outcome: str) -> list[Deed]:
    command, path = use.input.get("command"), use.input.get("file_path")
    if use.name == "bash" and isinstance(command, str):
        return [Deed(seq, "run", command, outcome)]
    if use.name in ("write", "edit") and isinstance(path, str) and outcome != "error":
        return [Deed(seq, "edit", path, outcome)]
    return []


def check(rules: Sequence[Checkable], deeds: Sequence[Deed], *, roots: Sequence[str] = ("/workspace",)) -> list[Breach]:
    """Return the breaches of `rules` in `deeds`, at most one per rule.

    `roots` are the folders that stand for the workspace in absolute paths. For `run_after` an edit is a breach when the
    command was not run within `GRACE_TURNS` turns, or not before the work ended; edits at the end of the stretch with
    fewer turns after them are not judged yet, so pass them again the next time.
    """
    return [breach for rule in rules if (breach := _CHECKS[rule.kind](rule, deeds, roots)) is not None]


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
    """Return a breach if a file was edited since the command last ran; edits before the stretch are unknown."""
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


_CHECKS: dict[Kind, Callable[[Checkable, Sequence[Deed], Sequence[str]], Breach | None]] = {
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


def runs(command: str, patterns: Iterable[str]) -> bool:
    """Return True if a part of the command line is one of the patterns, or begins with it."""
    patterns = tuple(patterns)
    return any(_runs_any(part, patterns) for part in _parts(command))


def _parts(command: str) -> list[list[str]]:
    """Return the simple commands in a command line as words, without leading assignments and wrappers such as sudo."""
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
    """Return True if the path matches a pattern: a glob, a folder and all below it, or a bare file name."""
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
    return (
        not pattern
        or fnmatchcase(path, pattern)
        or path.startswith(pattern + "/")
        or (pattern.endswith("/**") and path == pattern[:-3])
        or (pattern.startswith("**/") and fnmatchcase(path, pattern[3:]))
        or ("/" not in pattern and fnmatchcase(path.rpartition("/")[2], pattern))
    )


def _altered(deed: Deed) -> list[str]:
    """Return the paths that a deed certainly changed."""
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
