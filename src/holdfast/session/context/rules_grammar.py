"""Rules of AGENTS.md that code can check: a small grammar of plain sentences. Pure.

A rule is one line, a bullet or a plain sentence. What is recognised, in any letter case, with or without a
full stop; names in backticks may hold spaces, a bare one ends at a space:

    Never run `git push*`.                 also: do not, don't, must not, no; run, use, call, execute
    Never edit `tests/**`.                 also: touch, modify, change, write (to), delete, create
    Only edit files under `src/`.          also: in, inside, within, matching; several names: `a/`, `b/` and `c/`
    Always run `make test` after editing `src/**`.      without a name: after every edit
    Always run `make lint` before committing.           also: before `git commit`, before running `deploy`
    Always run `make test` before finishing.            also: at the end, when done
    Run `make test` after each change.                  "always" may be left out

Everything else is left to the model and is never an error. What was done is held against these rules by
`holdfast.session.context.rules_check`.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

RULES_MAX = 200
_LINE_MAX = 400

Kind = Literal["never_run", "never_edit", "only_edit", "run_after", "run_before", "run_at_end"]


class Checkable(msgspec.Struct, frozen=True):
    """A rule that code can check. `line` is it as written.

    `commands` and `paths` are patterns; for `run_before`, `before` are the commands that it must precede.
    No `paths` in `run_after` means any file.
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
_NEVER_RUN = re.compile(rf"{_NOT} (?:ever )?{_RUN} {_NAMES}")
_NEVER_EDIT = re.compile(rf"{_NOT} (?:ever )?{_EDIT} {_FILES}{_PLACE}{_NAMES}")
_ONLY_EDIT = re.compile(rf"(?:you may )?only (?:ever )?{_EDIT} {_FILES}{_PLACE}{_NAMES}")
_ALWAYS = r"(?:please )?(?:you must )?(?:always )?(?:re)?-?"
_RUN_AFTER = re.compile(
    rf"{_ALWAYS}run {_NAMES} after (?:(?:each|every|any|an|a|all) )?"
    rf"(?:{_EDIT}|edits?|changes?)(?: to)?(?: {_FILES}{_PLACE}(?P<more>.+))?"
)
_RUN_AT_END = re.compile(
    rf"{_ALWAYS}run {_NAMES} (?:before (?:you )?(?:finish(?:ing)?|end(?:ing)?|stop(?:ping)?|(?:are|being) done|"
    r"(?:saying|say|declaring|calling it) .{0,12}done|completing(?: .{0,20})?)|at the end|when (?:you are )?done)"
    r"(?: (?:the |your |a )?(?:work|task|session|turn))?"
)
_RUN_BEFORE = re.compile(
    rf"{_ALWAYS}run {_NAMES} before (?:(?:each|every|any|a|you) )?(?P<commit>commit(?:s|ting)?|push(?:es|ing)?)?"
    rf"(?:{_RUN} )?(?P<more>`.+)?"
)
_BULLET = re.compile(r"^\s*(?:[-*+•](?=\s)|\d+[.)])?\s*(?:\[[ xX]\]\s*)?")
_BOLD = re.compile(r"\*\*([A-Za-z][A-Za-z' ]*)\*\*")
_QUOTED = re.compile(r"`([^`]+)`")
_BARE = re.compile(r"[A-Za-z0-9_.*?\[\]/-]+")
_FILLER = frozenset("the any all every a an and or to in of files file folder folders directory".split())


def parse(rules_text: str) -> tuple[Checkable, ...]:
    """The rules in `rules_text` that code can check, in order, at most `RULES_MAX`. Never raises."""
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
    said = _BOLD.sub(r"\1", said)
    said = " ".join(said.rstrip(".!;: ").split())
    low = _lowered(said)
    for read in (_never_run, _never_edit, _only_edit, _run_after, _run_at_end, _run_before):
        rule = read(low, line.strip())
        if rule is not None:
            return rule
    return None


def _lowered(said: str) -> str:
    """In small letters, but for what stands in backticks."""
    pieces = said.split("`")
    return "`".join(piece if index % 2 else piece.lower() for index, piece in enumerate(pieces))


def _never_run(said: str, line: str) -> Checkable | None:
    found = _NEVER_RUN.fullmatch(said)
    names = _quoted(found["names"]) if found else ()
    return Checkable("never_run", line, commands=names) if names else None


def _never_edit(said: str, line: str) -> Checkable | None:
    found = _NEVER_EDIT.fullmatch(said)
    names = _names(found["names"]) if found else ()
    return Checkable("never_edit", line, paths=names) if names else None


def _only_edit(said: str, line: str) -> Checkable | None:
    found = _ONLY_EDIT.fullmatch(said)
    names = _names(found["names"]) if found else ()
    return Checkable("only_edit", line, paths=names) if names else None


def _run_after(said: str, line: str) -> Checkable | None:
    found = _RUN_AFTER.fullmatch(said)
    if found is None:
        return None
    commands = _quoted(found["names"])
    more = found["more"]
    paths = _names(more) if more else ()
    if not commands or (more and not paths):
        return None
    return Checkable("run_after", line, commands=commands, paths=paths)


def _run_at_end(said: str, line: str) -> Checkable | None:
    found = _RUN_AT_END.fullmatch(said)
    commands = _quoted(found["names"]) if found else ()
    return Checkable("run_at_end", line, commands=commands) if commands else None


def _run_before(said: str, line: str) -> Checkable | None:
    found = _RUN_BEFORE.fullmatch(said)
    if found is None:
        return None
    before = _quoted(found["more"] or "")
    if found["commit"]:
        before = ("git push",) if found["commit"].startswith("push") else ("git commit",)
    commands = _quoted(found["names"])
    return Checkable("run_before", line, commands=commands, before=before) if commands and before else None


def _quoted(text: str) -> tuple[str, ...]:
    """The names in backticks; nothing when other words than "and", "or" stand between or around them."""
    names = tuple(name.strip() for name in _QUOTED.findall(text) if name.strip())
    rest = _QUOTED.sub(" ", text).replace(",", " ").split()
    return names if names and all(word in ("and", "or", "the", "command", "commands") for word in rest) else ()


def _names(text: str) -> tuple[str, ...]:
    """The names in backticks, or the bare ones that look like a path."""
    quoted = tuple(name.strip() for name in _QUOTED.findall(text) if name.strip())
    rest = [word.strip(",") for word in _QUOTED.sub(" ", text).split()]
    if quoted:
        return quoted if all(word in _FILLER or not word for word in rest) else ()
    words = [word for word in rest if word and word not in _FILLER]
    paths = tuple(word for word in words if _BARE.fullmatch(word) and ("/" in word or "*" in word or "." in word[1:]))
    return paths if paths and len(paths) == len(words) else ()
