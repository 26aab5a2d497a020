"""One run of a check in hands: a clean place, its announcement, the command, the report that its runner wrote (S25).

Every run is announced by a `verification.started` that names its hands, so that the hands of a brain that was killed
are found and released. A report is a file that the check's own code could have written: it is read as data, without
following a link.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import anyio.to_thread

from holdfast.brain.shift import Shift
from holdfast.errors import HandsLost, RepositoryUnfit
from holdfast.facts.proof import TestOutcome
from holdfast.hands.base import ExecRequest, ExecResult, Hands
from holdfast.kinds.mission.acts.checks import Place, Places, give_back
from holdfast.kinds.mission.acts.laying import Ground
from holdfast.kinds.mission.check.checking import Group, Read

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
