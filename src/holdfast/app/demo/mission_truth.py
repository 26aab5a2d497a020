"""What is true of a mission's main line, whatever its log says: clean clones, fresh hands, every commit."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from holdfast.app.compose import Runtime
from holdfast.app.demo.mission_material import MissionMaterial
from holdfast.app.demo.mission_probe import hands_on
from holdfast.brain.replay import replay
from holdfast.facts.codec import Event
from holdfast.facts.task import TaskJudged
from holdfast.repo.repository import Repository
from holdfast.sim.library import SuiteCounts, parse_counts, read_plain, suite_command
from holdfast.sim.library_probe import ASK, FOLDER, OUT, PLUGIN, RUN_TIMEOUT_S, Ask, command, decode, plugin

MAIN = "refs/heads/holdfast/demo/main"


@dataclass(frozen=True)
class Truth:
    """What was found. `suite_green` is the library's own suite on a clean clone; `met` the criteria whose tests pass
    there, rubric lines included. `red_commits` are first-parent commits that the log does not know, or on which
    something fails that had passed on the main line before. `rubric_*` are judges' words on rubric lines, held against
    the true bodies.
    """

    head: str
    suite_green: bool
    suite: SuiteCounts
    met: tuple[str, ...]
    commits: int
    red_commits: tuple[str, ...]
    rubric_passed: int
    rubric_false: int
    output: str


async def find_truth(runtime: Runtime, material: MissionMaterial, events: Sequence[Event], name: str) -> Truth:
    """Look at the main line of the mission `name` as it stands; each clone is gone afterwards."""
    repository = runtime.repository(str(material.repo))
    found = await repository.resolve(MAIN)
    head = found.commit if found else material.base
    green, output = await _suite(runtime, material, repository, head, name)
    passing = await _tests(runtime, material, repository, head, name)
    met = tuple(each.id for each in material.answers.criteria if passing.issuperset(each.tests))
    commits, red = await _replay(runtime, name)
    said, wrong = await _rubric(material, repository, events)
    counts = parse_counts(output)
    return Truth(head, green, counts, met, commits, red, said, wrong, output)


async def _clone(runtime: Runtime, repository: Repository, commit: str, name: str) -> Path:
    folder = runtime.home.workspaces / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o755)
    await repository.checkout(commit, folder)
    return folder


async def _suite(
    runtime: Runtime, material: MissionMaterial, repository: Repository, head: str, name: str
) -> tuple[bool, str]:
    folder = await _clone(runtime, repository, head, f"{name}-suite")
    async with hands_on(runtime, folder, material.dependencies, f"{name}-suite") as runner:
        result = await runner.run(suite_command(material.library), RUN_TIMEOUT_S)
    return result.ok, result.output


async def _tests(
    runtime: Runtime, material: MissionMaterial, repository: Repository, head: str, name: str
) -> frozenset[str]:
    """The tests that pass there, each in a process of its own."""
    folder = await _clone(runtime, repository, head, f"{name}-tests")
    (folder / FOLDER).mkdir(mode=0o755)
    (folder / PLUGIN).write_bytes(plugin())
    (folder / ASK).write_bytes(msgspec.json.encode(Ask({})))
    async with hands_on(runtime, folder, material.dependencies, f"{name}-tests") as runner:
        await runner.run(command(material.library, ()), RUN_TIMEOUT_S)
        data = read_plain(folder, OUT) if (folder / OUT).is_file() else b""
    known = decode(data).tests if data else {}
    return frozenset(test for test, (outcome, _) in known.items() if outcome == "passed")


async def _replay(runtime: Runtime, session_id: str) -> tuple[int, tuple[str, ...]]:
    """Check each first-parent commit again, by all that had passed on the main line by then (S26)."""
    commits, red = 0, []
    async for found in replay(await runtime.doors_for(session_id), session_id):
        commits += 1
        if found.failed or not found.known:
            red.append(found.commit)
    return commits, tuple(red)


async def _rubric(material: MissionMaterial, repository: Repository, events: Sequence[Event]) -> tuple[int, int]:
    """How often a judge passed a rubric line, and how often a body of its item was not the true one then."""
    rubric = {each.id: each for each in material.answers.criteria if each.rubric}
    said = wrong = 0
    for event in events:
        fact = event.fact
        if not isinstance(fact, TaskJudged) or fact.refused:
            continue
        passed = [rubric[each.criterion] for each in fact.criteria if each.passes and each.criterion in rubric]
        for criterion in passed:
            item = material.answers.item(criterion.item)
            assert item is not None
            files = await repository.files(fact.tree, item.files)
            blocks = [material.whole.bodies[number] for number in item.bodies]
            said += 1
            wrong += any(block.true not in files.get(block.file, b"").decode("utf-8", "replace") for block in blocks)
    return said, wrong
