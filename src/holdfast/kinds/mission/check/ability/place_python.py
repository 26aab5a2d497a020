"""Probes in files of Python tests: which files a check selects, and what is changed there."""

from __future__ import annotations

import fnmatch
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from holdfast.facts.contract import Check
from holdfast.globs import matches
from holdfast.kinds.mission.check.ability import programs, python
from holdfast.kinds.mission.check.ability.configuration import pytest_settings, pytest_words
from holdfast.kinds.mission.check.ability.place import CANARIES, FILES, FLIPS, Place, Probe
from holdfast.kinds.mission.check.ability.runners import Runner, inside, recognized
from holdfast.kinds.mission.check.ability.typed import patient

_EXPECTED = re.compile(r"_*(golden|expected|approved|snapshot|reference)s?_*")
"""Folders of what tests compare with."""

_PASSED_OVER = re.compile(r"(\..*|build|dist|node_modules|venv|_darcs|CVS|\{arch\}|.*\.egg|vendor)")


def _selected(check: Check, files: Mapping[str, bytes]) -> dict[str, list[str]]:
    """The files of Python tests that a check selects, each with the tests in it that are named ("" for all)."""
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
    """The names of files that are collected, and the folders where they are looked for."""
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


def placed(place: Place) -> Iterator[Probe]:
    """The probes of checks whose runner is pytest or unittest."""
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
        changed: dict[str, bytes | None] = dict(_tolerant(files))
        for path, names in beside.items():
            tree = python.parsed(files[path])
            assert tree is not None
            cases = [case for case in python.cases(tree, prefixes, unittest) if case.name in names]
            changed[path] = python.with_canaries(tree, cases, word, needed.get(path, ()), marks=marks)
        yield Probe("canary", _widened(place, widened), changed, ids)


def _widened(place: Place, names: Mapping[int, Sequence[str]]) -> tuple[Check, ...]:
    """The checks with canaries among the tests that they name."""
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
    if named:  # one line for all
        longest = max(found, key=lambda each: len(each.command))
        found = [msgspec.structs.replace(each, command=longest.command) for each in found]
    return tuple(found)


def _as_argument(check: Check, test: str, files: Mapping[str, bytes]) -> str:
    """A test as it is named on the line of its runner."""
    runner = recognized((check,), files)
    assert runner is not None
    path, _, rest = test.partition("::")
    near = posixpath.relpath(path, runner.cwd or ".")
    if runner.kind == "unittest":
        return f"{near.removesuffix('.py').replace('/', '.')}.{rest.replace('::', '.')}"
    return f"{near}::{rest}"


def _tolerant(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Every conftest.py that can be imported although what it imports is not there yet."""
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
    """What tests compare with is nothing any more, where it is in files of a folder for that, and they name both."""
    known = [path for path in place.files if _EXPECTED.fullmatch(posixpath.basename(posixpath.dirname(path)))]
    known = [path for path in known if matches(path, place.protected) and not path.endswith(".py")]
    changed: dict[str, bytes | None] = {}
    ids: dict[int, tuple[str, ...]] = {}
    for index, check in enumerate(place.checks) if known else ():
        naming: list[str] = []
        for test in _selected(check, place.files):
            text = place.files[test].decode("utf-8", "replace")
            named = [path for path in known if all(part in text for part in path.split("/")[-2:])]
            changed |= dict.fromkeys(named, b"nothing that was expected\n")
            naming += [test] if named else []
        if naming:
            ids[index] = tuple(naming)
    if ids:
        yield Probe("data", tuple(patient(check, place.files) for check in place.checks), changed, ids)
