"""Find the bodies of a library that each test needs: the runs that determine this, and their results.

There are two kinds of runs in hands, with each test in its own process (`probe_plugin.py`):

1. with all bodies: records the bodies that each test and each import enters. Other bodies cannot matter to a test.
2. with one body missing: of the tests that enter it, those that fail are the tests of that body. A body that an import
   enters fails the test files with that import.

So a test passes if all bodies that it needs are present, and fails without any body that it is a test of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.errors import CannotRunSafely, UsageError
from holdfast.proof.rebuild.library import TESTDEPS_INSIDE, Library, suite_command
from holdfast.proof.rebuild.stripped import Whole

FOLDER = ".probe"
"""Folder of question and answer in the workspace."""

ASK = f"{FOLDER}/ask.json"
OUT = f"{FOLDER}/out.json"
PLUGIN = f"{FOLDER}/probe_plugin.py"

TEST_TIMEOUT_S = 10.0
"""A test that takes longer is stopped: an incomplete library may wait forever."""

RUN_TIMEOUT_S = 900.0

TESTS_IN_A_RUN = 400
"""More tests are split into several runs, since their names must fit a command line."""

Outcome = Literal["passed", "failed", "skipped", "hung"]


class Ask(msgspec.Struct, frozen=True):
    """Question to the plug-in: the functions to watch (by file and line), and the time limit of a test."""

    functions: dict[str, dict[int, int]]
    test_timeout_s: float = TEST_TIMEOUT_S


class Answer(msgspec.Struct, frozen=True):
    """Answer of the plug-in: pytest's exit status, the bodies that imports entered, each test's outcome and bodies."""

    status: int
    imported: tuple[int, ...]
    tests: dict[str, tuple[Outcome, tuple[int, ...]]]


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """Line of the cache: the answer for all bodies (`missing` -1), or the tests that fail without one body."""

    missing: int
    entered: dict[str, tuple[int, ...]] = {}
    imported: tuple[int, ...] = ()
    failed: tuple[str, ...] = ()


class Needs(msgspec.Struct, frozen=True):
    """Needs of a suite. `entered`: test that passes with all bodies → the bodies that it needs; `told`: body → the
    tests that fail without it.
    """

    entered: dict[str, frozenset[int]]
    told: dict[int, frozenset[str]]


Run = Callable[[Mapping[str, bytes], str, float], Awaitable[bytes]]
"""Runs a command in hands on the library with these files changed; returns the content of `OUT`, b"" without it."""


def plugin() -> bytes:
    """Return the source of the plug-in."""
    return Path(__file__).with_name("probe_plugin.py").read_bytes()


def identity(library: Library, whole: Whole, interpreter: str) -> str:
    """Return the digest of all inputs of the answers: library, stripped bodies, interpreter, requirements, plug-in."""
    parts = [library.sha256, interpreter, *library.requirements, *(each.stripped_sha256 for each in whole.modules)]
    digest = hashlib.sha256(plugin())
    digest.update("\n".join(parts).encode())
    return digest.hexdigest()[:32]


def command(library: Library, tests: Sequence[str], *, dependencies: str = TESTDEPS_INSIDE) -> str:
    """Build the shell command that runs these tests, or all, with the plug-in."""
    return suite_command(library, tests, dependencies=f"{FOLDER}:{dependencies}").replace(
        "-m pytest", "-m pytest -p probe_plugin --continue-on-collection-errors", 1
    )


async def entered(library: Library, whole: Whole, run: Run) -> Line:
    """Return the bodies that passing tests enter, and those that imports enter. Raises `UsageError` if none passes."""
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
    """Return the tests that fail without that one body. A hanging test fails, and so do all of an unanswered run."""
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
    """Decode the plug-in's answer. Raises `CannotRunSafely` if it cannot be read."""
    try:
        return msgspec.json.decode(data, type=Answer)
    except msgspec.MsgspecError as error:
        raise CannotRunSafely(
            f"the suite's run in the hands left no answer that can be read ({error}); nothing was kept of it: try again"
        ) from error


def entering(all_there: Line, number: int) -> list[str]:
    """Return the tests that enter a body, also through imports, in the suite's order."""
    return [test for test, seen in all_there.entered.items() if number in seen or number in all_there.imported]


def read_lines(path: Path) -> Iterator[Line]:
    """Read the cache of earlier runs, without lines that a crash cut off."""
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
    """Append a line to the cache."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        # Start a new line even after one that a crash cut off.
        file.write(b"\n" + msgspec.json.encode(line) + b"\n")


def needs(lines: Sequence[Line]) -> Needs:
    """Combine the answers. A test also needs each body that it fails without, even if it was not seen to enter it."""
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
