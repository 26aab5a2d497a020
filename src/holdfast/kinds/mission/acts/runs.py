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
from holdfast.facts.proof import Ability, TestOutcome
from holdfast.hands.base import ExecRequest, ExecResult, Hands
from holdfast.kinds.mission.acts.checkouts import Ground, Place, Places, give_back
from holdfast.kinds.mission.check import ability, checking, flakes, metrics, proofs
from holdfast.kinds.mission.check.ability import Probe
from holdfast.kinds.mission.check.checking import Group, Read
from holdfast.kinds.mission.fold.state import of_mission
from holdfast.session.context.render import action_digest

LOST_MAX = 3
"""A run whose hands are lost is run anew so often."""

OUTPUT_CAP = 30_000

REPORT_MAX = 16 << 20
"""Bytes of a report that are read; a larger one counts as none."""

SOURCES = (
    "**/*.py", "**/*.js", "**/*.cjs", "**/*.mjs", "**/*.jsx", "**/*.ts", "**/*.tsx", "**/*.go", "**/*.toml",
    "**/*.cfg", "**/*.ini", "**/*.json", "**/*.mod", "**/Makefile",
)  # fmt: skip
"""What is read of a tree that is too large to be read whole."""


class Typed(NamedTuple):
    """A command of a run. `label` tells it from others of its verification, `report` is a path in the checkout."""

    label: str
    command: str
    timeout_s: float
    report: str = ""


class Ran(NamedTuple):
    """The end of a run and what its runner reported, None for no report that can be read."""

    result: ExecResult
    report: bytes | None


class Run(NamedTuple):
    """One run of checks, of which criteria, and what it says.

    `tests` are outcomes by criterion and test id, where the runner reports them. `notes` say of which criteria a run
    that ended with 0 is red all the same.
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
"""What to run in a place that was laid out as that tree; None when there is nothing to run any more."""


class Runner:
    """Runs the checks of one verification. `begin` announces a run."""

    def __init__(self, shift: Shift, places: Places, begin: Callable[[Hands], Awaitable[None]]) -> None:
        self.shift = shift
        self.places = places
        self._begin = begin
        self._files: dict[str, Mapping[str, bytes]] = {}

    async def run(
        self, ground: Ground, wanted: Wanted, changed: Mapping[str, bytes | None] | None = None, *, unseen: bool = False
    ) -> Ran | None:
        """One run on a clean checkout, with the files `changed` in place of those of the tree."""
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
                result = await self._exec(hands, typed)
            finally:
                await give_back(self.shift, hands)
            return Ran(result, await report_of(place.workspace.path, typed.report))

    async def _exec(self, hands: Hands, typed: Typed) -> ExecResult:
        request = ExecRequest("bash", {"command": typed.command}, typed.timeout_s, output_cap=OUTPUT_CAP)
        call_id = call_id_of(self.places.verification_id, typed.label)
        await hands.start(self.shift.epoch, call_id, request)
        return await hands.wait(self.shift.epoch, call_id)

    async def files(self, tree: str) -> Mapping[str, bytes]:
        """The files of a tree; its sources alone when it is too large."""
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
    """The id of a run's call, the same for whoever goes on after a crash."""
    return f"{verification_id}.{hashlib.sha256(label.encode()).hexdigest()[:12]}"


async def report_of(root: str, path: str) -> bytes | None:
    """The report at a path below `root`, None for nothing, a link, or more than is read."""
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


Again = Callable[[Group], Awaitable[Run | None]]


async def confirm(again: Again, group: Group, passes: Mapping[str, int], wanted: int) -> dict[str, str]:
    """Run these checks until each has passed `wanted` times. Returned are those that did not, with the word for it."""
    counts = dict(passes)
    while left := [name for name in group.names if counts[name] < wanted]:
        part = group.part(left)
        run = await again(part)
        if run is None:
            return {}
        if not run.passed:
            return await _told_apart(again, part, counts, wanted, run)
        counts |= {name: counts[name] + 1 for name in left}
    return {}


async def _told_apart(again: Again, group: Group, counts: Mapping[str, int], wanted: int, run: Run) -> dict[str, str]:
    """The ones at fault of checks that passed together and then failed: each is run alone."""
    if not group.divisible:
        return {name: sometimes(counts[name] + 1, 1) for name in group.names}
    red: dict[str, str] = {}
    for name in group.names:
        red |= await confirm(again, group.part((name,)), {name: 0}, wanted)
    return red or {name: sometimes(counts[name] + 1, 1) for name in checking.named(group, run.result.output)}


def sometimes(runs: int, failures: int) -> str:
    """The word for a check that passed and failed on one tree."""
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
    """Ask a person about criteria that were flaky often: only they can take one out of the contract."""
    mission = of_mission(shift.state)
    for name in flakes.to_propose(shift.state):
        times = mission.flakes[name]
        text = mission.contract.criteria()[name].text
        item = new_item(
            shift,
            kind=flakes.KIND,
            title=f"is {name} to count any longer?",
            action=(
                f"The check of {name} ({text}) failed now and then on trees where it passed as well, {times} times.\n\n"
                "Approve: it is taken out of the contract. Deny: it stays, and is run again when it fails."
            ),
            call_id=flakes.item_of(name),
            action_digest=action_digest(flakes.KIND, {"criterion": name}),
            why=f"{times} verifications found it flaky",
            default=None,
        )
        await shift.fact(item)


ROUGHLY = 0.1
"""A metric has to be worse by so much of its value before a probe is known to matter to it: values vary."""

Tests = Mapping[str, TestOutcome]


class Seen:
    """What the probes of some checks showed so far, by criterion.

    `absent` are files that they are run without. `floor` is the gain of a metric: a probe shows something when it is
    below.
    """

    def __init__(self, names: Iterable[str], absent: Collection[str] = (), floor: float | None = None) -> None:
        self.absent, self.floor = absent, floor
        self.shown: dict[str, set[str]] = {name: set() for name in names}
        self.unseen: dict[str, str] = {}
        self.runs = 0
        self.duration_ms = 0.0
        self.beside: dict[str, Tests] = {}

    def confirms(self, name: str, own: Mapping[str, Tests]) -> bool:
        """Whether all tests of a check passed once more beside a failing one."""
        found = self.present(own.get(name, {}))
        return bool(found) and name in self.beside and not ability.missing(found, self.beside[name])

    def present(self, tests: Tests) -> Tests:
        """Those tests that are in files which the probes have."""
        return {each: outcome for each, outcome in tests.items() if each.partition("::")[0] not in self.absent}


def name_of(test: str) -> str:
    """The name of a test without its file, its classes, and its case."""
    return test.partition("[")[0].rpartition("::")[2]


def _is_about(probe: Probe, index: int) -> bool:
    """Whether a probe can show something of a check of its group."""
    return probe.kind in ("hollow", "empty") or index in probe.ids


def left(probe: Probe, group: Group, about: Mapping[str, frozenset[str]], seen: Seen) -> list[str]:
    """The criteria of which a probe can show what is wanted and not shown yet.

    A runner's tests fail where the product is gone, whatever the product does: that says nothing of them.
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
    """How a check can fail on probes of a kind; `base` says that it fails without them."""
    index = group.names.index(name)
    if not any(proofs.kind_of(probe.kind) == kind and _is_about(probe, index) for probe in probes):
        return "impossible"
    shown = kind in seen.shown[name]
    return "yes" if shown and (seen.floor is not None or not base) else "base" if base else "no"


def read_run(group: Group, ran: Ran | Run) -> checking.Read:
    """The end of a run, and the number that a metric's printed."""
    result = ran.result
    return checking.read(group.checks[0], result.exit_code, result.output, timed_out=result.timed_out)


def floor_of(group: Group, ran: Ran | Run, roughly: float = 0.0) -> float | None:
    """The gain of a metric's value; with `roughly`, less its tolerance or such a part of it. None without a value."""
    metric, value = group.checks[0].metric, read_run(group, ran).value
    if metric is None or value is None:
        return None
    return metrics.gain(metric, value) - (max(metric.tolerance, abs(value) * roughly) if roughly else 0.0)
