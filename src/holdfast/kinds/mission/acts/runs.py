"""Runs of checks in hands: one run, repeated runs, flaky checks, and probes (S25)."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import anyio.to_thread

from holdfast.brain.acts.people import new_item
from holdfast.brain.shift import Shift
from holdfast.errors import HandsLost, RepositoryUnfit
from holdfast.facts.task import Ability, TestOutcome
from holdfast.globs import matches
from holdfast.hands.base import ExecRequest, ExecResult, Hands
from holdfast.kinds.mission.acts.checkouts import Ground, Place, Places, give_back
from holdfast.kinds.mission.check import ability, checking, flakes, metrics, proofs
from holdfast.kinds.mission.check.ability import Probe
from holdfast.kinds.mission.check.checking import Group, Read
from holdfast.kinds.mission.fold.state import of_mission
from holdfast.session.context.text import action_digest

LOST_MAX = 3
"""Attempts at a run whose hands are lost."""

OUTPUT_CAP = 30_000

REPORT_MAX = 16 << 20
"""Largest test report that is read, in bytes; a larger one is ignored."""

SOURCES = (
    "**/*.py", "**/*.js", "**/*.cjs", "**/*.mjs", "**/*.jsx", "**/*.ts", "**/*.tsx", "**/*.go", "**/*.toml",
    "**/*.cfg", "**/*.ini", "**/*.json", "**/*.mod", "**/Makefile",
)  # fmt: skip
"""Globs of the files that are read from a tree that is too large to read in full."""


class Typed(NamedTuple):
    """Command of a run. `label` is unique within its verification, `report` is a path in the checkout."""

    label: str
    command: str
    timeout_s: float
    report: str = ""


class Ran(NamedTuple):
    """Result of a run, and its test runner's report, or None."""

    result: ExecResult
    report: bytes | None


class Run(NamedTuple):
    """Run of a group's checks, and its outcome.

    `tests` are outcomes by criterion and test id, where the runner reports them. `notes` explain, by criterion, why a
    run with exit status 0 is red.
    """

    group: Group
    read: Read
    result: ExecResult
    tests: Mapping[str, Mapping[str, TestOutcome]]
    notes: Mapping[str, str]

    @property
    def passed(self) -> bool:
        return self.read.outcome == "pass" and not self.notes


Wanted = Callable[[Place, str], Awaitable[Typed | None]]
"""Returns the command to run in a checkout of a tree; None if nothing is left to run."""


class Runner:
    """Runs the checks of one verification. `begin` records the start of a run."""

    def __init__(self, shift: Shift, places: Places, begin: Callable[[Hands], Awaitable[None]]) -> None:
        self.shift = shift
        self.places = places
        self._begin = begin
        self._files: dict[str, Mapping[str, bytes]] = {}

    async def run(
        self, ground: Ground, wanted: Wanted, changed: Mapping[str, bytes | None] | None = None, *, unseen: bool = False
    ) -> Ran | None:
        """Run once on a clean checkout, with the files `changed` in place of those of the tree."""
        for left in reversed(range(LOST_MAX)):
            try:
                return await self._try(ground, wanted, changed, unseen)
            except HandsLost:
                if not left:
                    raise
        raise AssertionError("a run ends or is lost")

    async def _try(
        self, ground: Ground, wanted: Wanted, changed: Mapping[str, bytes | None] | None, unseen: bool
    ) -> Ran | None:
        async with self.places.place(ground, changed, unseen=unseen) as (place, laid):
            typed = await wanted(place, laid)
            if typed is None:
                return None
            hands = await self.places.hands(place)
            try:
                await self._begin(hands)
                request = ExecRequest("bash", {"command": typed.command}, typed.timeout_s, output_cap=OUTPUT_CAP)
                call_id = call_id_of(self.places.verification_id, typed.label)
                await hands.start(self.shift.fence, call_id, request)
                result = await hands.wait(self.shift.fence, call_id)
            finally:
                await give_back(self.shift, hands)
            return Ran(result, await report_of(place.workspace.path, typed.report))

    async def present(self, group: Group, ground: Ground) -> tuple[Mapping[str, bytes], frozenset[str]]:
        """Return the files of a checkout without those that no proof may depend on, and the paths of these: new test
        files that no task names, where the base has protected ones.
        """
        mission, people = of_mission(self.shift.state), await self.places.repository.resolve(ground.people)
        assert people is not None
        files, base = await self.files(await self.places.laid(ground)), await self.files(people.tree)
        asked = [path for item in mission.contract.items for path in item.paths]
        asked += [path for task in mission.tasks.values() for path in task.task.scope]
        protected = mission.contract.protected
        new = [path for path in ability.added(group.checks, files, base, protected) if not matches(path, asked)]
        absent = frozenset(new) if any(matches(path, protected) for path in base) else frozenset[str]()
        return {path: data for path, data in files.items() if path not in absent}, absent

    async def files(self, tree: str) -> Mapping[str, bytes]:
        """Return the files of a tree, or only its sources if it is too large."""
        known = self._files.get(tree)
        if known is None:
            try:
                known = await self.places.repository.files(tree)
            except RepositoryUnfit:
                try:
                    known = await self.places.repository.files(tree, SOURCES)
                except RepositoryUnfit:
                    known = {}
            self._files[tree] = known
        return known


def call_id_of(verification_id: str, label: str) -> str:
    """Return the id of a run's call, the same after a crash."""
    return f"{verification_id}.{hashlib.sha256(label.encode()).hexdigest()[:12]}"


async def report_of(root: str, path: str) -> bytes | None:
    """Read the report at a path below `root`; None if it is missing, a link, or too large."""
    return await anyio.to_thread.run_sync(_report, root, path) if path else None


def _report(root: str, path: str) -> bytes | None:
    *folders, name = path.split("/")
    opened: list[int] = []
    try:
        opened.append(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
        for folder in folders:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            opened.append(os.open(folder, flags, dir_fd=opened[-1]))
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        opened.append(os.open(name, flags, dir_fd=opened[-1]))
        found = os.fstat(opened[-1])
        if not stat.S_ISREG(found.st_mode) or found.st_size > REPORT_MAX:
            return None
        with os.fdopen(opened.pop(), "rb") as file:
            data = file.read(REPORT_MAX + 1)
        return data if len(data) <= REPORT_MAX else None
    except OSError:
        return None
    finally:
        for fd in opened:
            os.close(fd)


# --- repeated runs and flaky checks --------------------------------------------------------------

Again = Callable[[Group], Awaitable[Run | None]]


async def confirm(again: Again, group: Group, passes: Mapping[str, int], wanted: int) -> dict[str, str]:
    """Run checks until each has passed `wanted` times. Return those that failed, with a note on each."""
    counts = dict(passes)
    while left := [name for name in group.names if counts[name] < wanted]:
        part = group.part(left)
        run = await again(part)
        if run is None:
            return {}
        if not run.passed:
            return await _failing(again, part, counts, wanted, run)
        counts |= {name: counts[name] + 1 for name in left}
    return {}


async def _failing(again: Again, group: Group, counts: Mapping[str, int], wanted: int, run: Run) -> dict[str, str]:
    """Run each check of a group alone that passed together and then failed, and return those at fault."""
    if not group.divisible:
        return {name: sometimes(counts[name] + 1, 1) for name in group.names}
    red: dict[str, str] = {}
    for name in group.names:
        red |= await confirm(again, group.part((name,)), {name: 0}, wanted)
    return red or {name: sometimes(counts[name] + 1, 1) for name in checking.named(group, run.result.output)}


def sometimes(runs: int, failures: int) -> str:
    """Describe a check that passed and failed on one tree."""
    return f"{proofs.SOMETIMES}: it failed {failures} of {runs} times on the same tree"


class Tally:
    """Runs of one check on one tree."""

    def __init__(self, runs: list[Run]) -> None:
        self.runs = runs

    @property
    def passes(self) -> int:
        return sum(run.passed for run in self.runs)

    @property
    def failures(self) -> int:
        return len(self.runs) - self.passes


async def propose(shift: Shift) -> None:
    """Ask the user about often flaky criteria: only a user can remove one from the contract."""
    mission = of_mission(shift.state)
    for name in flakes.to_propose(shift.state):
        times = mission.flakes[name]
        text = mission.contract.criteria()[name].text
        item = new_item(
            shift,
            kind=flakes.KIND,
            title=f"drop the flaky criterion {name}?",
            action=(
                f"The check of {name} ({text}) both passed and failed on the same tree, {times} times.\n\n"
                "Approve: the criterion is taken out of the contract. Deny: it stays, and is run again when it fails."
            ),
            call_id=flakes.item_of(name),
            action_digest=action_digest(flakes.KIND, {"criterion": name}),
            why=f"{times} verifications found it flaky",
            default=None,
        )
        await shift.fact(item)


ROUGHLY = 0.1
"""Share of a metric's value by which a probe must worsen it to count, since values vary."""

Tests = Mapping[str, TestOutcome]


class Seen:
    """Results of probes so far, by criterion.

    `absent` are files that are removed for the probes. `floor` is the gain of a metric; a probe must fall below it.
    """

    def __init__(self, names: Iterable[str], absent: Collection[str] = (), floor: float | None = None) -> None:
        self.absent, self.floor = absent, floor
        self.shown: dict[str, set[str]] = {name: set() for name in names}
        self.unseen: dict[str, str] = {}
        self.runs = 0
        self.duration_ms = 0.0
        self.beside: dict[str, Tests] = {}
        self.alone = False  # passed without the absent files

    def confirms(self, name: str, own: Mapping[str, Tests]) -> bool:
        """Return True if all tests of a check passed again beside a failing one."""
        found = self.present(own.get(name, {}))
        return bool(found) and name in self.beside and not ability.missing(found, self.beside[name])

    def present(self, tests: Tests) -> Tests:
        """Return the tests in the probes' files."""
        return {each: outcome for each, outcome in tests.items() if each.partition("::")[0] not in self.absent}


def name_of(test: str) -> str:
    """Return the name of a test without its file, its classes, and its case."""
    return test.partition("[")[0].rpartition("::")[2]


def _is_about(probe: Probe, index: int) -> bool:
    """Return True if a probe applies to a check of its group."""
    return probe.kind in ("hollow", "empty") or index in probe.ids


def left(probe: Probe, group: Group, about: Mapping[str, frozenset[str]], seen: Seen) -> list[str]:
    """Return the criteria for which a probe can still show a missing kind of failure.

    Without the product a runner's tests always fail, so that probe is not used after a canary has failed.
    """
    kind = proofs.kind_of(probe.kind)
    return [
        name
        for index, name in enumerate(group.names)
        if _is_about(probe, index)
        and kind in about.get(name, frozenset()) - seen.shown[name]
        and not (probe.kind == "empty" and "canary" in seen.shown[name])
    ]


def ability_of(
    kind: str, name: str, group: Group, probes: Sequence[Probe], seen: Seen, *, base: bool = False
) -> Ability:
    """Return the ability of a check to fail on probes of a kind; `base` means that it fails without them."""
    index = group.names.index(name)
    if not any(proofs.kind_of(probe.kind) == kind and _is_about(probe, index) for probe in probes):
        return "impossible"
    shown = kind in seen.shown[name]
    return "yes" if shown and (seen.floor is not None or not base) else "base" if base else "no"


def read_run(group: Group, ran: Ran | Run) -> checking.Read:
    """Read the outcome of a run, and the value that a metric's check printed."""
    result = ran.result
    return checking.read(group.checks[0], result.exit_code, result.output, timed_out=result.timed_out)


def floor_of(group: Group, ran: Ran | Run, roughly: float = 0.0) -> float | None:
    """Return the gain of a metric's value, or None; with `roughly`, minus its tolerance or that share of it."""
    metric, value = group.checks[0].metric, read_run(group, ran).value
    if metric is None or value is None:
        return None
    return metrics.gain(metric, value) - (max(metric.tolerance, abs(value) * roughly) if roughly else 0.0)
