"""Checks of a judge's verdict and of an initializer's contract. Pure."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from holdfast.errors import ContractInvalid
from holdfast.facts.mission import Contract, MissionPolicy
from holdfast.facts.shift import ChildFinished
from holdfast.facts.task import Judged, TaskJudged
from holdfast.globs import literal, matches
from holdfast.kinds.mission.check import metrics
from holdfast.kinds.mission.contract.formats.files import read_contract
from holdfast.kinds.mission.contract.protected import MISSION
from holdfast.kinds.mission.fold.state import MissionState, TaskState, Verdict
from holdfast.kinds.mission.lint import static_findings

Decision = Literal["pass", "fail", "restart", "escalate"]

ROOT = "/workspace/"
"""Folder with the tree in a judge's sandbox."""

_EVENT = re.compile(r"\s*(?:event\s*[:#]?\s*|#)(\d+)\b", re.IGNORECASE)
_FILE = re.compile(r"\s*`?([^\s`:][^`:]*):(\d+)(?:-(\d+))?(.*)", re.DOTALL)
_RUN = re.compile(r"\s*`?\$ ([^\n`]+?)`?(?:\s*(?:\n|=>|->|→)(.*))?\s*", re.DOTALL)

RANGE_MAX = 40
"""Most lines in one piece of evidence."""


class Said(msgspec.Struct, frozen=True):
    """Submission of a judge."""

    decision: Decision
    criteria: tuple[Judged, ...] = ()
    reason: str = ""


class Known(msgspec.Struct, frozen=True):
    """Records that a verdict is checked against.

    `verdicts` are those of checks on the judged tree, `events` positions in the mission's log that may be evidence.
    `to_run` are criteria that only a command by the judge can prove. `files` are files of the tree and `runs` the
    commands that the judge ran with their output; each is None if unavailable.
    """

    criteria: tuple[str, ...]
    verdicts: Mapping[str, Verdict]
    events: Collection[int]
    files: Mapping[str, bytes] | None = None
    runs: Sequence[tuple[str, str]] | None = None
    to_run: Collection[str] = ()


def known_to(mission: MissionState, tree: str, criteria: Sequence[str]) -> Known:
    """Return the mission's records on a tree. A better metric value counts as a pass even if the target is not met."""
    verdicts = {
        name: msgspec.structs.replace(found, outcome="pass") if metrics.improves(mission, tree, name) else found
        for name in mission.contract.criteria()
        if (found := mission.verdict(tree, name))
    }
    events = {found.seq for found in verdicts.values()}
    to_run = {name for name, each in mission.contract.criteria().items() if each.needs_run}
    return Known(tuple(criteria), verdicts, events, to_run=to_run)


def read(submitted: Mapping[str, Any]) -> Said | str:
    """Decode a judge's submission; return the reason if it is malformed."""
    try:
        return msgspec.convert(dict(submitted), Said)
    except msgspec.ValidationError as error:
        return f"this is not a verdict: {error}"


def problems(said: Said, known: Known) -> tuple[str, ...]:
    """Return the reasons that a verdict does not count, for the judge; empty if it counts."""
    if said.decision in ("restart", "escalate"):
        asked = () if said.reason.strip() else (f"`{said.decision}` needs a `reason`.",)
        return (*asked, *(word for each in said.criteria for word in _one(each, known)))
    return (*_complete(said, known), *(word for each in said.criteria for word in _one(each, known)), *_agrees(said))


def _complete(said: Said, known: Known) -> Iterator[str]:
    names = [each.criterion for each in said.criteria]
    for name in known.criteria:
        if name not in names:
            yield f"The criterion {name} has no verdict."
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"The criterion {name} has {names.count(name)} verdicts."


def _one(each: Judged, known: Known) -> Iterator[str]:
    name = each.criterion
    if name not in known.criteria:
        yield f"{name} is not one of your criteria."
        return
    found = known.verdicts.get(name)
    if each.passes and found is not None and found.outcome != "pass":
        yield (
            f"{name} cannot pass: its check was run on this very tree and the outcome was {found.outcome} "
            f"(event {found.seq})."
        )
    if not each.passes and not each.issue.strip():
        yield f"{name} fails without an issue: say the one thing that has to change."
    if each.passes and each.issue.strip():
        yield f"{name} passes and has an issue: say that it fails, or leave `issue` empty."
    if not each.evidence:
        yield f"{name} has no evidence: {FORMS}"
    elif each.passes and found is None and all(_EVENT.match(text) for text in each.evidence):
        yield f"{name} has no check of its own, so no event shows that it passes: {FORMS}"
    elif each.passes and name in known.to_run and not any(_RUN.fullmatch(text) for text in each.evidence):
        yield f"{name} is about what the work does: run it, and give the command with its output."
    for text in each.evidence:
        wrong = _evidence(text, known, quoted=each.passes)
        if wrong:
            yield f"{name}: {wrong}"


FORMS = (
    "quote a line of the tree (`path/file.py:12: its text`), give a command that you ran with its output "
    "(`$ command => output`), or name an event of the results (`event 34`)."
)


def _evidence(text: str, known: Known, *, quoted: bool) -> str:
    """Return the problem with one piece of evidence; empty if it is valid. `quoted` demands the text of a line."""
    event = _EVENT.match(text)
    if event is not None:
        found = int(event[1]) in known.events
        return "" if found else f"event {event[1]} is not a result of a check on this tree."
    run = _RUN.fullmatch(text)
    if run is not None:
        return _run(run, known)
    place = _FILE.match(text)
    if place is None:
        return f"{text[:80]!r} cannot be looked up: {FORMS}"
    return _place(place, known, quoted=quoted)


def _run(run: re.Match[str], known: Known) -> str:
    """Return the problem with a command as evidence: the judge must have run it, with that output."""
    if known.runs is None:
        return ""
    command, claimed = _plain(run[1]), _plain(run[2] or "")
    outputs = [_plain(output) for ran, output in known.runs if command in _plain(ran)]
    if not outputs:
        return f"you did not run `{command[:80]}`: run it, and give its output."
    if not claimed and all(outputs):
        return f"give the output of `{command[:80]}`: `$ command => output`."
    if not any(claimed in output for output in outputs):
        return f"`{command[:80]}` did not print {claimed[:80]!r}."
    return ""


def _place(place: re.Match[str], known: Known, *, quoted: bool) -> str:
    """Return the problem with a line of the tree as evidence."""
    path, first = _path(place), int(place[2])
    last = int(place[3] or first)
    if known.files is None:
        return ""
    if path not in known.files:
        return f"there is no file {path} in the tree."
    lines = known.files[path].decode("utf-8", "replace").splitlines()
    if not 1 <= first <= last <= max(1, len(lines)) or last - first >= RANGE_MAX:
        return f"{path} has {len(lines)} lines, so there is no line {place[2]}{f'-{place[3]}' if place[3] else ''}."
    if not quoted:
        return ""
    there = _plain("\n".join(lines[first - 1 : last]))
    quotation = _plain(place[4].strip().removeprefix("`").removeprefix(":").strip().strip("`"))
    if not quotation:
        return f"quote the text at {path}:{first}: `{path}:{first}: its text`."
    if quotation not in there:
        return f"{path}:{first} does not say {quotation[:80]!r}."
    return ""


def _plain(text: str) -> str:
    """Collapse white space."""
    return " ".join(text.split())


def _agrees(said: Said) -> Iterator[str]:
    failing = [each.criterion for each in said.criteria if not each.passes]
    if said.decision == "pass" and failing:
        yield f"The decision is pass, and {', '.join(failing)} fails."
    if said.decision == "fail" and not failing:
        yield "The decision is fail, and no criterion fails."


def read_verdict(mission: MissionState, report: ChildFinished, task: TaskState | None) -> TaskJudged:
    """Return the event to record after a judge ended; `refused` is the reason that its verdict does not count.

    The judge's own session has looked up the files that it names. The mission's records are checked here again, since
    newer ones may exist.
    """
    role = mission.roles.get(report.child_id)
    tree = role.tree if role is not None else ""
    task_id = task.task.id if task is not None else ""
    if report.status != "done":
        said: Said | str = f"its judge is {report.status}: {report.detail or report.reason or 'no reason was given'}"
    else:
        said = read(report.submitted) if report.submitted else "its judge handed in nothing"
    if isinstance(said, str) or role is None:
        why = said if isinstance(said, str) else "it was not opened by this mission"
        return TaskJudged(child_id=report.child_id, tree=tree, decision="fail", task_id=task_id, refused=why)
    wrong = problems(said, known_to(mission, tree, role.criteria))
    return TaskJudged(
        child_id=report.child_id,
        tree=tree,
        decision=said.decision,
        criteria=said.criteria,
        task_id=task_id,
        reason=said.reason,
        refused=" ".join(wrong),
    )


def files_named(said: Said) -> tuple[str, ...]:
    """Return paths of the tree in a verdict's evidence, as globs that match little else."""
    names = {name for each in said.criteria for name in _files(each.evidence)}
    return tuple(re.sub(r"[*?[]", "?", name) for name in sorted(names)) or ("-",)


def scope_of(contract: Contract, judged: TaskJudged, criterion: str) -> tuple[str, ...]:
    """Return globs of the files that a judge's verdict on a criterion depends on; empty for the whole product.

    These are the files of its evidence and the `paths` of the criterion's item. A command may depend on anything, so
    a verdict with one is about the whole product unless the item names paths.
    """
    evidence = [text for each in judged.criteria if each.criterion == criterion for text in each.evidence]
    items = [item for item in contract.items if any(each.id == criterion for each in item.criteria)]
    paths = tuple(path for item in items for path in item.paths)
    if not paths and any(_RUN.fullmatch(text) for text in evidence):
        return ()
    return (*paths, *(literal(name) for name in sorted(_files(evidence))))


def _files(evidence: Sequence[str]) -> set[str]:
    """Return files that pieces of evidence quote."""
    places = (_FILE.match(text) for text in evidence if not _EVENT.match(text) and not _RUN.fullmatch(text))
    return {_path(place) for place in places if place is not None}


def _path(place: re.Match[str]) -> str:
    return posixpath.normpath(place[1].strip().removeprefix(ROOT))


# --- contracts of initializers -------------------------------------------------------------------

FILE = "feature_list.json"

_ORDER = ("id", "category", "description", "steps", "priority", "acceptance", "check", "paths", "depends")


def feature_list(entries: list[dict[str, Any]]) -> bytes:
    """Render the entries as a file, with `passes` false in all of them: only the harness sets it."""
    ordered = [
        {
            **{name: each[name] for name in _ORDER if name in each},
            **{name: value for name, value in each.items() if name not in (*_ORDER, "passes")},
            "passes": False,
        }
        for each in entries
    ]
    return (json.dumps(ordered, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")


def submitted_contract(value: Mapping[str, Any]) -> tuple[Contract, bytes]:
    """Return the submitted contract and its file. Raises `ContractInvalid` with the location."""
    entries = value.get("features")
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise ContractInvalid('features is not a list of entries; a valid form is [{"id": "…", "description": "…"}]')
    data = feature_list(entries)
    return read_contract(data, FILE), data


def submitted_files(value: Mapping[str, Any]) -> dict[str, str]:
    """Return the submitted test files, by path."""
    files = value.get("files")
    return {str(path): str(text) for path, text in files.items()} if isinstance(files, dict) else {}


def _misplaced(path: str, protected: Collection[str]) -> str:
    """Explain why a file cannot be submitted with a contract; empty if it can."""
    parts = path.split("/")
    if path.startswith("/") or {"", ".", "..", ".git"} & set(parts):
        return f"files: {path!r} is not a path inside the repository, such as tests/test_greet.py"
    if path in MISSION or not matches(path, protected):
        return f"files: {path} is not a test file; hand in only those, such as tests/test_greet.py"
    return ""


def submitted_problems(value: Mapping[str, Any]) -> list[str]:
    """Return the problems of a submitted contract, for the initializer; empty if it is valid."""
    try:
        contract, _ = submitted_contract(value)
    except ContractInvalid as error:
        return [str(error)]
    wrong = [why for path in submitted_files(value) if (why := _misplaced(path, contract.protected))]
    found = static_findings(contract, MissionPolicy())
    return wrong + [f"{each.criterion or each.item}: {each.message}" for each in found if each.level == "error"]
