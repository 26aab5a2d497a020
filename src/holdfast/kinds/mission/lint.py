"""Lint of a contract before it is sealed: findings in its text and in trial runs of its checks. Pure.

| kind | meaning |
|---|---|
| `already_passes` | a check passes before any work |
| `cannot_fail` | a check passes when nothing works |
| `does_not_exist` | a check needs a program or a test that does not exist |
| `guard_fails` | a guard, which must pass throughout, fails |
| `unchecked` | an item has no criterion for when it is done |
| `vague` | a sentence that readers interpret differently |
| `too_large` | an item that does not fit one context |
| `hangs` | a check exceeds its timeout; an error if it also does so without the product |
| `needs_network` | a check needs a host that it cannot reach here |
| `not_installed` | a check cannot collect its tests: a module is not installed |
| `exposed` | the paths of an item include a file that decides its check, so a worker may change it |
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import msgspec

from holdfast.facts.mission import Check, Contract, Criterion, Item, MissionPolicy
from holdfast.globs import matches
from holdfast.kinds.mission.check.ability.probes import KINDS, Kind
from holdfast.kinds.mission.check.checking import Obstacle, exit_status, obstacle, read, telling
from holdfast.kinds.mission.check.judging import exposed
from holdfast.kinds.mission.contract.commands import (
    absent,
    cannot_fail,
    is_inverted,
    missing_tests,
    names_only,
    runs_tests,
)
from holdfast.kinds.mission.contract.protected import unused

_MEASURED = re.compile(
    r"\b(?:fast(?![- ](?:forward|path|fail|lane|mode|refresh))|quick(?:ly)?(?![- ]?(?:start|fix|look|sort|search))"
    r"|slow(?:ly)?|performant|efficient(?:ly)?|scalabl[ey]|scales? well|low[- ]latency|high[- ]performance|lightweight"
    r"|optimi[sz]ed|(?:much |significantly |noticeably )?improved|good performance|responsive(?! (?:layout|design))"
    r"|minimal (?:overhead|latency|memory))\b",
    re.IGNORECASE,
)
"""Words of degree: exact only with a number or a comparison."""

_OPEN = re.compile(
    r"\b(?:proper(?:ly)?(?! (?:subset|superset|prefix|noun|fraction|divisor|name))|appropriate(?:ly)?|adequate(?:ly)?"
    r"|reasonabl[ey]|sensibl[ey]|suitabl[ey]|user[- ]friendl(?:y|iness)|intuitive(?:ly)?|easily|elegant(?:ly)?"
    r"|easy to (?:use|read|understand|maintain|extend|follow|navigate)|nice(?:ly|r)?(?! (?:value|level))"
    r"|beautiful(?:ly)?|seamless(?:ly)?|smoothly|robust(?:ly|ness)?|reliabl[ey]|gracefully"
    r"|high[- ]quality|good quality|best practices?"
    r"|(?:works?|behaves?|functions?|runs?|looks?|feels?|performs?) (?:well|good|great|right|fine|nice|correctly)"
    r"|works? as (?:expected|intended)|as expected|well[- ](?:structured|documented|tested|designed|written)"
    r"|clean code|maintainable|readable code|production[- ]ready|state[- ]of[- ]the[- ]art|if possible|where possible"
    r"|ideally|professional(?:ly)?[- ]looking|polished)\b",
    re.IGNORECASE,
)
"""Words that readers interpret differently."""

_ENDLESS = re.compile(
    r"\betc\b|\band so on\b|\band so forth\b|\band (?:many )?more\.?$|\bas (?:needed|necessary|required|appropriate)\b"
    r"|\bif (?:needed|necessary)\b|\bTBD\b|\bto be (?:defined|decided|determined)\b|\.\.\.$|…$",
    re.IGNORECASE,
)
"""Open-ended lists and undecided points."""

_QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|“[^”]*”|(?<!\w)'[^']*'(?!\w)")
_NUMBER = re.compile(r"\d|\b(?:than|twice|half|zero|constant|linear|logarithmic|O\()", re.IGNORECASE)


READ_MAX = 10_000
"""Characters of a criterion that are searched."""


def vague(text: str) -> str:
    """Return the first vague word of a sentence that nothing makes exact; empty if there is none."""
    for sentence in re.split(r"(?<=[.!?;])\s+|\n", text[:READ_MAX]):
        bare = _QUOTED.sub(" ", sentence)
        endless = _ENDLESS.search(bare)
        if endless:
            return endless[0]
        found = _OPEN.search(bare) or _MEASURED.search(bare)
        exact = _NUMBER.search(sentence) or re.search(r"`[^`]*\s[^`]*`", sentence)  # a comparison, or a command
        if found and not exact:
            return found[0]
    return ""


FindingKind = Literal[
    "already_passes", "cannot_fail", "does_not_exist", "guard_fails", "unchecked", "vague", "too_large", "hangs",
    "exposed", "needs_network", "not_installed",
]  # fmt: skip

BYTES_A_TOKEN = 4
"""Rule of thumb for text and code."""


class Finding(msgspec.Struct, frozen=True):
    """Problem of an item or criterion, with advice in its message."""

    kind: FindingKind
    level: Literal["error", "warning"]
    item: str
    message: str
    criterion: str = ""


class Run(msgspec.Struct, frozen=True):
    """Result of a check run. `refused` are hosts that the egress proxy refused during the run."""

    exit_code: int | None
    output: str = ""
    timed_out: bool = False
    refused: tuple[str, ...] = ()


def passes(check: Check, run: Run) -> bool:
    """Return True if a run meets its criterion by the rules of a mission."""
    return read(check, run.exit_code, run.output, timed_out=run.timed_out).outcome == "pass"


# --- findings without a run ------------------------------------------------------------------------


def static_findings(contract: Contract, policy: MissionPolicy, files: Mapping[str, int] | None = None) -> list[Finding]:
    """Return findings without a run. `files` are those of the base with their sizes, if known."""
    found: list[Finding] = []
    for item in contract.items:
        found += _unchecked(item)
        for criterion in item.criteria:
            found += _words(item, criterion)
            if criterion.check is not None:
                found += _command(contract, item, criterion, criterion.check, files)
        found += _size(item, policy, files or {})
    for item_id, criterion_id, path in exposed(contract, files or ()):
        message = (
            f"its paths name {path}, which decides its check, so a worker may change the result; "
            "leave it out of `paths`, or use another check"
        )
        found.append(Finding("exposed", "warning", item_id, message, criterion_id))
    for glob in unused(contract):
        message = f"{glob} is hidden, and no check names it, so it is never run; name it in a check"
        found.append(Finding("unchecked", "error", "", message))
    return found


def _unchecked(item: Item) -> Iterable[Finding]:
    right = 'add "check": "pytest tests/…" or "acceptance": ["…"]'
    for criterion in item.criteria:
        if criterion.check is None and not criterion.text.strip():
            yield Finding(
                "unchecked", "error", item.id, f"a criterion has neither a check nor a text; {right}", criterion.id
            )
        elif criterion.check is None and criterion.text == item.description and not item.steps:
            yield Finding("unchecked", "error", item.id, f"no criterion says when it is done; {right}", criterion.id)
    if not item.criteria:
        yield Finding("unchecked", "error", item.id, f"no criterion says when it is done; {right}")


def _words(item: Item, criterion: Criterion) -> Iterable[Finding]:
    word = vague(criterion.text) if criterion.check is None else ""
    if word:
        message = (
            f"{word!r} leaves open when this holds; give a number, an example or a command: {_short(criterion.text)}"
        )
        yield Finding("vague", "warning", item.id, message, criterion.id)


def _command(
    contract: Contract, item: Item, criterion: Criterion, check: Check, files: Mapping[str, int] | None
) -> Iterable[Finding]:
    why = cannot_fail(check)
    if why:
        yield _cannot_fail(item, criterion, why)
    if files is not None:
        missing = missing_tests(check, files, contract.protected, item.paths)
        if missing:
            yield _absent(item, criterion, f"{', '.join(missing)} is not in the repository")


def _size(item: Item, policy: MissionPolicy, files: Mapping[str, int]) -> Iterable[Finding]:
    words = [item.description, *item.steps, *(criterion.text for criterion in item.criteria)]
    about = sum(size for path, size in files.items() if matches(path, item.paths)) if item.paths else 0
    tokens = (sum(len(text.encode()) for text in words) + about) // BYTES_A_TOKEN
    if tokens > policy.task_tokens:
        # A planner splits large items; without one, each item is a task.
        level: Literal["error", "warning"] = "error" if policy.planner == "items" else "warning"
        message = (
            f"it has about {tokens} tokens (limit of a task {policy.task_tokens}); split it, or name fewer `paths`"
        )
        yield Finding("too_large", level, item.id, message)


# --- findings of runs ------------------------------------------------------------------------------


def base_findings(
    item: Item, criterion: Criterion, run: Run, *, marked: bool = False, own: Collection[str] = ()
) -> list[Finding]:
    """Return findings of a run at the base, without mutants. `marked` means that the contract file marks it as passing.

    `own` are the names of the project's modules, including those that items are to make.
    """
    check = criterion.check
    if check is None:
        return []
    missing = "" if run.timed_out else absent(check, run.exit_code, run.output, item.paths)
    if missing:
        return [_absent(item, criterion, missing)]
    way = None if passes(check, run) else obstacle(
        check.command, run.output, timed_out=run.timed_out, refused=run.refused, own=own
    )  # fmt: skip
    if way is not None:
        return [_obstructed(item, criterion, check, run, way)]
    if passes(check, run) and not criterion.guard:
        level: Literal["error", "warning"] = "warning" if marked else "error"
        message = (
            f"`{_short(check.command)}` passes before any work; mark it as a guard, or make it check what is missing"
        )
        return [Finding("already_passes", level, item.id, message, criterion.id)]
    if not passes(check, run) and criterion.guard:
        lines = [line for line in run.output.splitlines() if line.strip()]
        last = _short(lines[-1]) if lines else exit_status(run.exit_code)
        message = f"`{_short(check.command)}` is a guard and fails now: {last}"
        return [Finding("guard_fails", "error", item.id, message, criterion.id)]
    return []


def _obstructed(item: Item, criterion: Criterion, check: Check, run: Run, way: Obstacle) -> Finding:
    if way.kind == "hangs":
        message = f"`{_short(check.command)}` did not end within {check.timeout_s:g} s; {way.advice()}"
        return Finding("hangs", "warning", item.id, message, criterion.id)
    quoted = " / ".join(telling(run.output))
    verb = "cannot collect" if way.kind == "module" and runs_tests(check) else "cannot pass here"
    message = f"`{_short(check.command)}` {verb}: {way.words()} ({_short(quoted)}); {way.advice()}"
    if way.kind == "network":
        return Finding("needs_network", "error", item.id, message, criterion.id)
    # Without `paths`, the item may be the one that makes the module.
    return Finding("not_installed", "error" if item.paths else "warning", item.id, message, criterion.id)


def hangs_anyway(found: Finding) -> Finding:
    """Raise a `hangs` finding to an error: the check also hangs without the product."""
    return msgspec.structs.replace(found, level="error", message=f"{found.message} (it also hangs without the product)")


def own_modules(files: Iterable[str], contract: Contract) -> frozenset[str]:
    """Return names of present and planned modules: folders and files of the base and of all `paths`."""
    paths = (*files, *(path for item in contract.items for path in item.paths))
    parts = (part.partition(".")[0] for path in paths for part in path.split("/"))
    return frozenset(part for part in parts if part and not set("*?[") & set(part))


def mutants_for(check: Check) -> tuple[Kind, ...]:
    """Build the mutants for a check that passes at the base. If it passes on all of them, it cannot fail."""
    if is_inverted(check):
        return ()
    return ("hollow",) if runs_tests(check) else KINDS


def passed_all_mutants(item: Item, criterion: Criterion) -> Finding:
    """Return the finding about a check that passed at the base and on all its mutants."""
    return _cannot_fail(item, criterion, "it passes on a tree where nothing works")


def seen_to_fail(check: Check, run: Run) -> bool:
    """Return True if a run at the base shows that a check can fail, unless it only collects tests."""
    return not passes(check, run) and not names_only(check)


def merged(static: Collection[Finding], ran: Collection[Finding], can_fail: Collection[str]) -> list[Finding]:
    """Merge findings, one of a kind for each criterion. `can_fail` are criteria whose check was seen to fail."""
    found: dict[tuple[str, str, str], Finding] = {}
    for each in (*static, *ran):
        if each.kind != "cannot_fail" or each.criterion not in can_fail:
            found.setdefault((each.kind, each.item, each.criterion), each)
    bad = {each.criterion for each in found.values() if each.kind == "cannot_fail"}
    return [each for each in found.values() if each.kind != "already_passes" or each.criterion not in bad]


def _cannot_fail(item: Item, criterion: Criterion, why: str) -> Finding:
    command = _short(criterion.check.command if criterion.check else "")
    message = f"`{command}` cannot fail: {why}; make it exit with a status other than 0 if the work is not done"
    return Finding("cannot_fail", "error", item.id, message, criterion.id)


def _absent(item: Item, criterion: Criterion, what: str) -> Finding:
    command = _short(criterion.check.command if criterion.check else "")
    message = f"`{command}` cannot run: {what}; write it first, or name it in `paths` if the item is to make it"
    return Finding("does_not_exist", "error", item.id, message, criterion.id)


def _short(text: str, length: int = 100) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"
