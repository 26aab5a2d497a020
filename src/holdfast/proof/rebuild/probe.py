"""Which tests of a suite need which bodies of a library: what to run for that, and what the answers mean.

Two kinds of runs, each in hands, with each test in a process of its own (`probe_plugin.py`):

1. all is there: which bodies does each test enter, and which does the import; what is not entered cannot matter.
2. one body is missing: of the tests that enter it, which fail now. Those are the tests of that body. A body that is
   entered by the import fails the test files that import it.

Together: a test passes when all that it needs is there, and fails for want of what it tells.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.errors import CannotRunSafely, UsageError
from holdfast.proof.rebuild.library import TESTDEPS_INSIDE, Library, suite_command
from holdfast.proof.rebuild.stripped import Whole

FOLDER = ".probe"
"""Where question and answer stand in the workspace."""

ASK = f"{FOLDER}/ask.json"
OUT = f"{FOLDER}/out.json"
PLUGIN = f"{FOLDER}/probe_plugin.py"

TEST_TIMEOUT_S = 10.0
"""A test that takes longer hangs: what is half there may wait for ever."""

RUN_TIMEOUT_S = 900.0

TESTS_IN_A_RUN = 400
"""More tests than these are run in several goes: their names have to fit a command line."""

Outcome = Literal["passed", "failed", "skipped", "hung"]


class Ask(msgspec.Struct, frozen=True):
    """One question: which functions count (by file and line), how long a test may take."""

    functions: dict[str, dict[int, int]]
    test_timeout_s: float = TEST_TIMEOUT_S


class Answer(msgspec.Struct, frozen=True):
    """pytest's exit status, bodies that imports entered; for each test its outcome and the bodies that it entered."""

    status: int
    imported: tuple[int, ...]
    tests: dict[str, tuple[Outcome, tuple[int, ...]]]


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of what is kept: the answer for all bodies (`missing` -1), or the tests that one body's lack fails."""

    missing: int
    entered: dict[str, tuple[int, ...]] = {}
    imported: tuple[int, ...] = ()
    failed: tuple[str, ...] = ()


class Needs(msgspec.Struct, frozen=True):
    """What is known of a suite. `entered` are tests that pass with all bodies, and the bodies that each needs;
    `told` are, for each body, the tests that fail without it.
    """

    entered: dict[str, frozenset[int]]
    told: dict[int, frozenset[str]]


Run = Callable[[Mapping[str, bytes], str, float], Awaitable[bytes]]
"""Runs a command in hands on the library with these files changed; gives what stands in `OUT` then, b"" for nothing."""

Progress = Callable[[int, int], None]
"""Told how many runs are done, and of how many."""


def plugin() -> bytes:
    """The plug-in's text."""
    return Path(__file__).with_name("probe_plugin.py").read_bytes()


def identity(library: Library, whole: Whole, interpreter: str) -> str:
    """What the answers depend on, as hex: library, what was taken out, interpreter, requirements, plug-in."""
    parts = [library.sha256, interpreter, *library.requirements, *(each.stripped_sha256 for each in whole.modules)]
    digest = hashlib.sha256(plugin())
    digest.update("\n".join(parts).encode())
    return digest.hexdigest()[:32]


def command(library: Library, tests: Sequence[str], *, dependencies: str = TESTDEPS_INSIDE) -> str:
    """The shell command that runs these tests, or all, with the plug-in."""
    return suite_command(library, tests, dependencies=f"{FOLDER}:{dependencies}").replace(
        "-m pytest", "-m pytest -p probe_plugin --continue-on-collection-errors", 1
    )


async def entered(library: Library, whole: Whole, run: Run) -> Line:
    """The bodies that each test enters, for all that pass, and those that imports enter. Raises when none pass."""
    ask = msgspec.json.encode(Ask({file: dict(lines) for file, lines in whole.entries.items()}))
    data = await run({ASK: ask}, command(library, ()), RUN_TIMEOUT_S)
    answer = decode(data)
    found = {test: seen for test, (outcome, seen) in answer.tests.items() if outcome == "passed"}
    if not found:
        raise UsageError(
            f"no test of {library.pin} passes in the hands, even with nothing missing; a right example is --library "
            "tinydb==4.9.0"
        )
    return Line(-1, found, answer.imported)


async def failing(library: Library, whole: Whole, number: int, tests: Sequence[str], run: Run) -> tuple[str, ...]:
    """Which of these tests fail when that one body is missing. One that hangs fails; a run without an answer too."""
    block = whole.bodies[number]
    everything = [n for n, other in enumerate(whole.bodies) if other.file == block.file and n != number]
    ask = msgspec.json.encode(Ask({}))
    failed: list[str] = []
    for start in range(0, len(tests), TESTS_IN_A_RUN):
        part = tests[start : start + TESTS_IN_A_RUN]
        files = {ASK: ask, block.file: whole.file_with(block.file, everything)}
        data = await run(files, command(library, part), RUN_TIMEOUT_S)
        known = decode(data).tests if data else {}
        failed += [test for test in part if known.get(test, ("failed", ()))[0] in ("failed", "hung")]
    return tuple(failed)


def decode(data: bytes) -> Answer:
    """The plug-in's answer. Raises `CannotRunSafely` when there is none that can be read."""
    try:
        return msgspec.json.decode(data, type=Answer)
    except msgspec.MsgspecError as error:
        raise CannotRunSafely(
            f"the suite's run in the hands left no answer that can be read ({error}); nothing was kept of it: try again"
        ) from error


def entering(all_there: Line, number: int) -> list[str]:
    """The tests that enter a body, or may by their imports, in the suite's order."""
    return [test for test, seen in all_there.entered.items() if number in seen or number in all_there.imported]


def read_lines(path: Path) -> Iterator[Line]:
    """What was kept of earlier runs; a line that was cut off by a crash is left out."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    for line in data.splitlines():
        try:
            yield msgspec.json.decode(line, type=Line)
        except msgspec.MsgspecError:
            continue


def keep(path: Path, line: Line) -> None:
    """Add a line to what is kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        # A line of its own even after one that a crash cut off.
        file.write(b"\n" + msgspec.json.encode(line) + b"\n")


def needs(lines: Sequence[Line]) -> Needs:
    """Put answers together. Whatever a test fails without, it needs, even when it was not seen to enter it."""
    seen = next(line.entered for line in lines if line.missing < 0)
    all_of = {test: set(numbers) for test, numbers in seen.items()}
    told: dict[int, frozenset[str]] = {}
    for line in lines:
        if line.missing < 0:
            continue
        told[line.missing] = frozenset(line.failed)
        for test in line.failed:
            if test in all_of:
                all_of[test].add(line.missing)
    return Needs({test: frozenset(numbers) for test, numbers in all_of.items()}, told)


def quoted(tests: Sequence[str]) -> str:
    """Tests as words of a shell command."""
    return shlex.join(tests)
