"""Canaries, flips, and changed data files in the tests that checks select, by the runner of the checks."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from holdfast.facts.mission import Check
from holdfast.globs import matches
from holdfast.kinds.mission.check.ability import golang, javascript, programs, python
from holdfast.kinds.mission.check.ability.runners import (
    Runner,
    inside,
    of_line,
    pytest_settings,
    pytest_words,
    recognized,
)

CANARIES = 3
"""Most files of one check that get a canary."""

FLIPS = 40
"""Most tests of one check whose expectations are replaced."""

FILES = 400
"""Most test files that are read for one check."""


class Probe(NamedTuple):
    """Run that must fail. `checks` are its commands, `files` the differences from the tree (None: removed).

    `ids` are the tests that must be reported as failed, by the index of the check; for `data`, test files of which one
    test must. The probe proves nothing about a check without ids, unless it is hollow or empty. With the files `same`
    instead, the check must pass.
    """

    kind: Literal["canary", "flip", "data", "hollow", "empty"]
    checks: tuple[Check, ...]
    files: dict[str, bytes | None]
    ids: dict[int, tuple[str, ...]]
    same: Mapping[str, bytes | None] = MappingProxyType({})


class Place(NamedTuple):
    """Checks that share a command, and the tree in which probes are placed."""

    checks: tuple[Check, ...]
    files: Mapping[str, bytes]
    protected: Sequence[str]
    word: str


_IMPATIENT = {
    "pytest": " --maxfail=0 --continue-on-collection-errors",
    "jest": " --bail=0",
    "vitest": " --bail=0",
    "mocha": " --no-bail",
}
_CUT = {"unittest": ("-f", "--failfast"), "go": ("-failfast", "-failfast=true")}


def patient(check: Check, files: Mapping[str, bytes], more: str = "", word: str = "") -> Check:
    """Make a check continue after a failure, with more arguments and filters that also select `word`."""
    runner = of_line(check.command, files)
    if runner is None:
        return check
    line = runner.line[: runner.end] + runner.glue + _IMPATIENT.get(runner.kind, "") + more + runner.line[runner.end :]
    if not runner.script:
        for at in range(len(runner.arguments) - 1, -1, -1):
            each = runner.arguments[at]
            if each.text in _CUT.get(runner.kind, ()):
                line = line[: each.start] + line[each.end :]
            elif word:
                before = runner.arguments[at - 1].text if at else ""
                line = (
                    line[: each.start]
                    + _let_through(runner, before, each.text, line[each.start : each.end], word)
                    + line[each.end :]
                )
    return msgspec.structs.replace(check, command=line)


_FILTERS = {
    "pytest": ("-k",),
    "unittest": (),
    "node": ("--test-name-pattern",),
    "jest": ("-t", "--testNamePattern"),
    "vitest": ("-t", "--testNamePattern"),
    "mocha": ("-g", "--grep"),
    "go": ("-run", "--run"),
}


def _let_through(runner: Runner, before: str, text: str, written: str, word: str) -> str:
    names = _FILTERS[runner.kind]
    option, equals, value = text.partition("=")
    if before in names:
        return shlex.quote(f"({text}) or {word}" if runner.kind == "pytest" else f"{text}|{word}")
    if equals and option in names:
        return shlex.quote(f"{option}={value}|{word}")
    if runner.kind == "pytest" and re.match(r"-k.", text):
        return shlex.quote(f"-k({text[2:]}) or {word}")
    return written


_EXPECTED = re.compile(r"_*(golden|expected|approved|snapshot|reference)s?_*")
"""Names of folders with expected values."""

_PASSED_OVER = re.compile(r"(\..*|build|dist|node_modules|venv|_darcs|CVS|\{arch\}|.*\.egg|vendor)")


def _selected(check: Check, files: Mapping[str, bytes]) -> dict[str, list[str]]:
    """Return the Python test files that a check selects, each with the tests named in it ("" for all)."""
    runner = recognized((check,), files)
    assert runner is not None
    patterns, folders = _patterns(runner, files)
    ignored = _ignored(runner)
    chosen = runner.selections(files) or [(inside(runner.cwd, each) or "", "") for each in folders]
    found: dict[str, list[str]] = {}
    for place, test in chosen:
        if place in files:
            found.setdefault(place, []).append(test)
            continue
        for path in sorted(files):
            inner = posixpath.relpath(path, place or ".").split("/")
            fits = any(fnmatch.fnmatch(inner[-1], each) or fnmatch.fnmatch(path, each) for each in patterns)
            passed_over = inner[0] == ".." or any(_PASSED_OVER.fullmatch(part) for part in inner[:-1])
            if fits and not passed_over and not any(path == each or path.startswith(f"{each}/") for each in ignored):
                found.setdefault(path, []).append("")
    return dict(list(found.items())[:FILES])


def _patterns(runner: Runner, files: Mapping[str, bytes]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the file name patterns and the folders of test collection."""
    words = [word.text for word in runner.arguments]
    if runner.kind == "unittest":
        pattern = [after for word, after in pairwise(words) if word in ("-p", "--pattern")]
        return pattern or ["test*.py"], [""]
    folders = [each for each in pytest_words(files, "testpaths", "") if inside(runner.cwd, each) is not None]
    return pytest_words(files, "python_files", "test_*.py *_test.py"), folders or [""]


def _ignored(runner: Runner) -> list[str]:
    words = [word.text for word in runner.arguments]
    pairs = zip(["", *words], words, strict=False)
    named = [
        word.partition("=")[2] or word for before, word in pairs if before == "--ignore" or word.startswith("--ignore=")
    ]
    return [place for each in named if (place := inside(runner.cwd, each)) is not None]


def _restated(place: Place, paths: Iterable[str]) -> dict[str, bytes | None]:
    """Return copies of test files that mean the same. Tests that passed must pass in them too, beside a canary."""
    copies = ((path, programs.restated(path, place.files[path], place.word)) for path in paths)
    return {path: data for path, data in copies if data is not None}


def python_probes(place: Place) -> Iterator[Probe]:
    """Build probes of checks that run pytest or unittest."""
    yield from _canary(place)
    yield from _flip(place)
    yield from _data(place)


def _canary(place: Place) -> Iterator[Probe]:
    files, word = place.files, place.word
    line = place.checks[0].command
    unittest = (runner := recognized(place.checks, files)) is not None and runner.kind == "unittest"
    prefixes = pytest_words(files, "python_functions", "test")
    marks = (
        not unittest
        and re.search(r"(^|[\s\"'])-m[\s=\"'](?!pytest|unittest|coverage)", f"{line}\n{pytest_settings(files)}")
        is not None
    )
    beside: dict[str, list[str]] = {}
    needed: dict[str, list[str]] = {}
    widened: dict[int, list[str]] = {}
    ids: dict[int, tuple[str, ...]] = {}
    for index, check in enumerate(place.checks):
        mine: list[str] = []
        for path, chosen in _selected(check, files).items():
            tree = python.parsed(files[path])
            known = python.cases(tree, prefixes, unittest) if tree is not None else []
            known = [case for case in known if python.is_under(case.name, chosen)]
            if not known:
                continue
            for case in known[: 30 if marks else 1]:
                if case.name not in beside.setdefault(path, []):
                    beside[path].append(case.name)
                mine.append(f"{path}::{case.name}_{word}")
            if all(chosen):
                widened.setdefault(index, []).append(mine[-1])
                needed.setdefault(path, []).extend(chosen)
            if len(mine) >= CANARIES and not marks:
                break
        if mine:
            ids[index] = tuple(mine)
    if ids:
        same = _restated(place, dict.fromkeys(path for check in place.checks for path in _selected(check, files)))
        changed: dict[str, bytes | None] = {**_tolerant(files), **same}
        for path, names in beside.items():
            tree = python.parsed(same.get(path) or files[path])
            assert tree is not None
            cases = [case for case in python.cases(tree, prefixes, unittest) if case.name in names]
            changed[path] = python.with_canaries(tree, cases, word, needed.get(path, ()), marks=marks)
        yield Probe("canary", _widened(place, widened), changed, ids)


def _widened(place: Place, names: Mapping[int, Sequence[str]]) -> tuple[Check, ...]:
    """Return the checks with the canaries added to the tests that they name."""
    in_command = recognized((msgspec.structs.replace(place.checks[0], tests=()),), place.files)
    named = in_command is not None and any(test for _, test in in_command.selections(place.files))
    found = []
    for index, check in enumerate(place.checks):
        more = [_as_argument(check, each, place.files) for each in names.get(index, ())]
        typed = patient(
            check, place.files, "".join(f" {shlex.quote(each)}" for each in more) if named else "", place.word
        )
        tests = (*(test.partition("[")[0] for test in check.tests), *(more if check.tests and not named else ()))
        found.append(msgspec.structs.replace(typed, tests=tests))
    if named:  # a single line for all
        longest = max(found, key=lambda each: len(each.command))
        found = [msgspec.structs.replace(each, command=longest.command) for each in found]
    return tuple(found)


def _as_argument(check: Check, test: str, files: Mapping[str, bytes]) -> str:
    """Format a test id as an argument of its runner."""
    runner = recognized((check,), files)
    assert runner is not None
    path, _, rest = test.partition("::")
    near = posixpath.relpath(path, runner.cwd or ".")
    if runner.kind == "unittest":
        return f"{near.removesuffix('.py').replace('/', '.')}.{rest.replace('::', '.')}"
    return f"{near}::{rest}"


def _tolerant(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return copies of every conftest.py in which imports may fail."""
    found = {}
    for path, data in files.items():
        tree = python.parsed(data) if posixpath.basename(path) == "conftest.py" else None
        if tree is not None and (changed := python.tolerant(tree)):
            found[path] = changed
    return found


def _flip(place: Place) -> Iterator[Probe]:
    if re.search(r"\s-O|PYTHONOPTIMIZE", place.checks[0].command):
        return
    chosen = [_selected(check, place.files) for check in place.checks]
    changed: dict[str, bytes | None] = {}
    turned: dict[str, list[str]] = {}
    for path in dict.fromkeys(path for each in chosen for path in each):
        if programs.kind_of(path, place.files[path]) in programs.TEXTS:
            altered = programs.turned(path, place.files[path])
            if altered is not None:
                changed[path], turned[path] = altered, [posixpath.basename(path)]
            continue
        tree = python.parsed(place.files[path])
        names = [name for each in chosen for name in each.get(path, ())]
        if tree is not None and (found := python.flipped(tree, names, place.word, FLIPS)):
            changed[path], turned[path] = python.unparsed(tree), found
    ids = {}
    for index, each in enumerate(chosen):
        mine = [
            f"{path}::{name}"
            for path, names in each.items()
            for name in turned.get(path, ())
            if python.is_under(name, names)
        ]
        if mine:
            ids[index] = tuple(mine)
    if ids:
        yield Probe("flip", tuple(patient(check, place.files) for check in place.checks), changed, ids)


def _data(place: Place) -> Iterator[Probe]:
    """Change the files of expected values that tests name with their folder."""
    known = [path for path in place.files if _EXPECTED.fullmatch(posixpath.basename(posixpath.dirname(path)))]
    known = [path for path in known if matches(path, place.protected) and not path.endswith(".py")]
    changed: dict[str, bytes | None] = {}
    ids: dict[int, tuple[str, ...]] = {}
    for index, check in enumerate(place.checks) if known else ():
        naming: list[str] = []
        for test in _selected(check, place.files):
            text = place.files[test].decode("utf-8", "replace")
            named = [path for path in known if all(part in text for part in path.split("/")[-2:])]
            changed |= {path: _unexpected(place.files[path]) for path in named}
            naming += [test] if named else []
        if naming:
            ids[index] = tuple(naming)
    if ids:
        yield Probe("data", tuple(patient(check, place.files) for check in place.checks), changed, ids)


def _unexpected(data: bytes) -> bytes:
    """Return other values in the place of expected ones. JSON keeps its form, so that it can be read."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(data)
        if (other := _other(found)) != found:
            return json.dumps(other).encode()
    return b"nothing that was expected\n"


def _other(value: object) -> object:
    if isinstance(value, dict):
        return {key: _other(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_other(each) for each in value]
    if isinstance(value, str):
        return f"{value} not expected"
    return not value if isinstance(value, bool) or value is None else value + 1  # type: ignore[operator]


def _other_files(check: Check, files: Mapping[str, bytes]) -> list[str]:
    """Return the JavaScript or Go test files that a check selects."""
    runner = recognized((check,), files)
    assert runner is not None
    found = []
    if runner.kind == "go":
        words = [word for word in runner.named() if not word.startswith("-")] or ["."]
        for path in files:
            folder = posixpath.dirname(path)
            for word in words if path.endswith("_test.go") else ():
                place = inside(runner.cwd, word.removesuffix("...").rstrip("/") or ".")
                below = word.endswith("...") and (not place or folder.startswith(f"{place}/"))
                if place is not None and (folder == place or below):
                    found.append(path)
    else:
        skipped = 1 if runner.kind == "vitest" and runner.named()[:1] in (["run"], ["watch"]) else 0
        words = runner.named()[skipped:]
        named = {place for place, _ in runner.selections(files)}
        for path in files:
            below = not runner.cwd or path.startswith(f"{runner.cwd}/")
            test = javascript.TEST_FILE.fullmatch(path) or path in named
            if below and test and javascript.selected(words, path) and javascript.has_tests(files[path]):
                found.append(path)
    return sorted(path for path in dict.fromkeys(found) if not path.startswith("node_modules/"))[:FILES]


def other_probes(place: Place) -> Iterator[Probe]:
    """Build probes of checks that run JavaScript or Go tests."""
    runner = recognized(place.checks, place.files)
    assert runner is not None
    go = runner.kind == "go"
    language = golang if go else javascript
    files, word = place.files, place.word
    chosen = [_other_files(check, files) for check in place.checks]
    title = f"TestCanary_{word}" if go else f"canary {word}"
    beside = {path for each in chosen for path in each[: 1 if go else CANARIES]}
    changed = _restated(place, sorted({path for each in chosen for path in each}))
    told = {**files, **{path: data for path, data in changed.items() if data is not None}}
    changed |= {path: language.with_canary(path, told, title) for path in sorted(beside)}
    folders = {posixpath.dirname(path) for path in beside if not language.resolves(path, files)}
    for path in {path for each in chosen for path in each} - beside:
        if not language.resolves(path, files) or (go and posixpath.dirname(path) in folders):
            changed[path] = language.bare(files[path])
    ids = {
        index: tuple(f"{path}::{title}" for path in each if path in beside) for index, each in enumerate(chosen) if each
    }
    typed = tuple(patient(check, files, word=word) for check in place.checks)
    if ids:
        yield Probe("canary", typed, changed, ids)
    turned: dict[str, list[str]] = {}
    changed = {}
    for path in dict.fromkeys(path for each in chosen for path in each):
        data, names = golang.flipped(files[path], FLIPS) if go else javascript.flipped(files[path], word, FLIPS)
        if names:
            changed[path], turned[path] = data, names
    ids = {
        index: mine
        for index, each in enumerate(chosen)
        if (mine := tuple(f"{path}::{name}" for path in each for name in turned.get(path, ())))
    }
    if ids:
        yield Probe("flip", tuple(patient(check, files) for check in place.checks), changed, ids)
