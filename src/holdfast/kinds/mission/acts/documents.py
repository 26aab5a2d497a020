"""Documents of a mission, with its lessons and status, on a separate branch of the repository.

The branch has only documents, made from the log. They are not on the main branch, so they cannot conflict with merges,
and workers cannot change them. The same log makes the same tree; if the tree is unchanged, nothing is written.
"""

from __future__ import annotations

from holdfast.brain.acts.people import new_item
from holdfast.brain.shift import Shift
from holdfast.errors import ContractInvalid
from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.mission import LessonApplied, LessonProposed, Mission
from holdfast.facts.task import RepoCommitted
from holdfast.globs import literal
from holdfast.kinds.mission import documents, lessons
from holdfast.kinds.mission.contract.formats.files import write_back
from holdfast.kinds.mission.documents import Told
from holdfast.kinds.mission.fold.state import of_mission
from holdfast.repo.repository import Repository
from holdfast.session.context.text import action_digest

PAGE = 5_000
TRIES = 3
"""Attempts to write the branch while another process moves it; the next update catches up."""


def notes_ref(name: str) -> str:
    """Name of the branch with a mission's documents."""
    return f"refs/heads/holdfast/{name}/notes"


async def project(shift: Shift, action: object = None) -> None:
    """Propose and apply lessons for AGENTS.md, and update the documents. Idempotent."""
    created, mission = shift.state.created, of_mission(shift.state)
    assert created is not None
    assert created.mission is not None
    assert mission is not None
    repository = shift.doors.repository(created.mission.repo)
    events = await _events(shift)
    told = Told(created.mission.name, mission, events)
    while (lesson := lessons.due(told)) is not None:
        more = await shift.fact(*_proposed(shift, lesson))
        told = Told(created.mission.name, mission, [*told.events, *more])
    taken = lessons.taken(told)
    if mission.policy.documents and mission.main:
        await _write(shift, repository, created.mission, told, taken)
    elif taken:
        await shift.fact(*taken)


async def _contract(repository: Repository, mission: Mission, told: Told) -> dict[str, bytes]:
    """Return the contract file with current `passes` values, if the repository has the file as it was sealed."""
    source = told.mission.contract.source
    found = await repository.files(mission.base, (literal(source),)) if source else {}
    if source not in found:
        return {}
    try:
        return {source: write_back(found[source], told.mission.contract, set(told.mission.passed))}
    except ContractInvalid:
        return {}


async def _events(shift: Shift) -> list[Event]:
    events: list[Event] = []
    while page := await shift.doors.log.read(shift.state.session_id, after=events[-1].seq if events else 0, limit=PAGE):
        events += page
        if len(page) < PAGE:
            break
    return events


def _proposed(shift: Shift, lesson: LessonProposed) -> tuple[Fact, ...]:
    """Propose the line, with an inbox item if the policy asks the user."""
    if of_mission(shift.state).policy.lessons == "apply":
        return (lesson,)
    item = new_item(
        shift,
        kind="lesson",
        title="a line for AGENTS.md",
        action=lesson.line,
        call_id=f"lesson:{lesson.key}",
        action_digest=action_digest("lesson", {"line": lesson.line}),
        why="The same problem occurred more than once. Once approved, this line is in the AGENTS.md of the mission's "
        "notes, and every later worker gets it.",
        evidence=lesson.evidence,
        default="deny",
    )
    line = LessonProposed(line=lesson.line, evidence=lesson.evidence, key=lesson.key, item_id=item.item_id)
    return (line, item)


async def _write(
    shift: Shift, repository: Repository, mission: Mission, told: Told, taken: list[LessonApplied]
) -> None:
    ref = notes_ref(mission.name)
    found = await repository.files(told.mission.main, documents.RULE_FILES)
    named = documents.nearest(found, "AGENTS.md")
    rules = found[named].decode("utf-8", "replace") if named else ""
    files = documents.all_of(told, rules, [each.line for each in taken])
    files |= await _contract(repository, mission, told)
    last = told.events[-1]
    for _ in range(TRIES):
        old = await repository.resolve(ref)
        parents = [old.commit] if old is not None else []
        message = f"Documents of the mission {mission.name} at event {last.seq}"
        made = await repository.write(files, parents, message, last.at_us)
        if old is not None and made.commit == old.commit:
            break
        if await repository.point(ref, made.commit, old.commit if old is not None else None):
            break
    else:
        if taken:
            await shift.fact(*taken)
        return
    facts: list[Fact] = [LessonApplied(line=each.line, by=each.by, commit=made.commit) for each in taken]
    if not any(isinstance(each.fact, RepoCommitted) and each.fact.commit == made.commit for each in told.events):
        facts.append(
            RepoCommitted(
                ref=ref, commit=made.commit, tree=made.tree, parent=(parents or [""])[0], through_seq=last.seq
            )
        )
    if facts:
        await shift.fact(*facts)
