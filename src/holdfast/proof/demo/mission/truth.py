"""Verify a mission's main branch independently of its log: clean clones, fresh hands, every commit."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from holdfast.app.compose import Runtime
from holdfast.facts.codec import Event
from holdfast.facts.task import TaskJudged
from holdfast.kinds.mission.acts.replay import replay
from holdfast.proof.demo.mission.material import MissionMaterial
from holdfast.proof.demo.mission.probe import hands_on
from holdfast.proof.rebuild.library import SuiteCounts, parse_counts, read_plain, suite_command
from holdfast.proof.rebuild.probe import ASK, FOLDER, OUT, PLUGIN, RUN_TIMEOUT_S, Ask, command, decode, plugin
from holdfast.proof.rebuild.tree import write_tree
from holdfast.repo.repository import Repository

MAIN = "refs/heads/holdfast/demo/main"


@dataclass(frozen=True)
class Truth:
    """Result. `suite_green`: the suite has the same result on a clean clone as on the published library in the same
    hands; `worse` are tests that pass on the published one alone. `met` are the criteria whose tests pass on the clone,
    rubric lines included. `red_commits` are first-parent commits that the log does not know, or on which a check fails
    that had passed on the main branch before. `rubric_*` compare verdicts on rubric lines with the true bodies.
    """

    head: str
    suite_green: bool
    suite: SuiteCounts
    true_suite: SuiteCounts
    worse: tuple[str, ...]
    met: tuple[str, ...]
    commits: int
    red_commits: tuple[str, ...]
    rubric_passed: int
    rubric_false: int
    output: str


async def find_truth(runtime: Runtime, material: MissionMaterial, events: Sequence[Event], name: str) -> Truth:
    """Verify the main branch of the mission `name`; remove each clone afterwards."""
    repository = runtime.repository(str(material.repo))
    found = await repository.resolve(MAIN)
    head = found.commit if found else material.base
    clone = partial(repository.checkout, head)
    green, output = await _suite(runtime, material, clone, name)
    passing = await _tests(runtime, material, clone, name)
    true_green, true_output = await _suite(runtime, material, partial(_true, material), name)
    worse = tuple(sorted(await _tests(runtime, material, partial(_true, material), name) - passing))
    met = tuple(each.id for each in material.answers.criteria if passing.issuperset(each.tests))
    commits, red = await _replay(runtime, name)
    said, wrong = await _rubric(material, repository, events)
    counts, true_counts = parse_counts(output), parse_counts(true_output)
    same = (green, counts) == (true_green, true_counts) and not worse
    return Truth(head, same, counts, true_counts, worse, met, commits, red, said, wrong, output)


Lay = Callable[[Path], Awaitable[object]]
"""Fills an empty folder with the files to test."""


async def _true(material: MissionMaterial, folder: Path) -> None:
    write_tree(material.library.tree, folder)


async def _laid(runtime: Runtime, lay: Lay, name: str) -> Path:
    folder = runtime.home.workspaces / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o755)
    await lay(folder)
    return folder


async def _suite(runtime: Runtime, material: MissionMaterial, lay: Lay, name: str) -> tuple[bool, str]:
    folder = await _laid(runtime, lay, f"{name}-suite")
    async with hands_on(runtime, folder, material.dependencies, f"{name}-suite") as runner:
        result = await runner.run(suite_command(material.library), RUN_TIMEOUT_S)
    return result.ok, result.output


async def _tests(runtime: Runtime, material: MissionMaterial, lay: Lay, name: str) -> frozenset[str]:
    """Return the tests that pass in that tree, each run in its own process."""
    folder = await _laid(runtime, lay, f"{name}-tests")
    (folder / FOLDER).mkdir(mode=0o755)
    (folder / PLUGIN).write_bytes(plugin())
    (folder / ASK).write_bytes(msgspec.json.encode(Ask({})))
    async with hands_on(runtime, folder, material.dependencies, f"{name}-tests") as runner:
        await runner.run(command(material.library, ()), RUN_TIMEOUT_S)
        data = read_plain(folder, OUT) if (folder / OUT).is_file() else b""
    known = decode(data).tests if data else {}
    return frozenset(test for test, (outcome, _) in known.items() if outcome == "passed")


async def _replay(runtime: Runtime, session_id: str) -> tuple[int, tuple[str, ...]]:
    """Check each first-parent commit again with all checks that had passed on the main branch by then (S26)."""
    commits, red = 0, []
    async for found in replay(await runtime.doors_for(session_id), session_id):
        commits += 1
        if found.failed or not found.known:
            red.append(found.commit)
    return commits, tuple(red)


async def _rubric(material: MissionMaterial, repository: Repository, events: Sequence[Event]) -> tuple[int, int]:
    """Count rubric lines passed by judges, and those among them with a wrong body of the item at that time."""
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
