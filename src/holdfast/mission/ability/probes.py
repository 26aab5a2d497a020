"""Trees on which a check has to fail, whatever its product is like.

A *canary* is a failing test with a random name beside tests that the check selects. A *flip* turns what tests expect
into what nothing honest equals. A *hollow* tree has a product of which every function raises, an *empty* one has none.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from holdfast.facts.contract import Check
from holdfast.mission.ability import golang, javascript, python
from holdfast.mission.ability.configuration import pytest_settings, pytest_words
from holdfast.mission.ability.report import Outcome
from holdfast.mission.ability.runners import Runner, inside, recognized
from holdfast.mission.ability.trees import is_settings, mutant
from holdfast.mission.ability.typed import patient
from holdfast.mission.globs import matches

CANARIES = 3
"""Files that get a canary, when a check selects more than one."""

FLIPS = 40
"""Tests of each check that are turned."""

FILES = 400
"""Files of tests that are looked at for one check."""

_PASSED_OVER = re.compile(r"(\..*|build|dist|node_modules|venv|_darcs|CVS|\{arch\}|.*\.egg|vendor)")


class Probe(NamedTuple):
    """A run that has to fail. `checks` is what is typed for it, `files` what differs from the tree (None: not there).

    `ids` has the tests that must be reported as failed, by the index of the check. A check that is not in it cannot be
    shown by this probe, unless it is a hollow or an empty one.
    """

    kind: Literal["canary", "flip", "hollow", "empty"]
    checks: tuple[Check, ...]
    files: dict[str, bytes | None]
    ids: dict[int, tuple[str, ...]]


def probes(
    checks: Sequence[Check],
    files: Mapping[str, bytes],
    *,
    paths: Sequence[Sequence[str]],
    protected: Sequence[str],
    nonce: str,
) -> tuple[Probe, ...]:
    """The runs that show whether checks which share a command can fail.

    `paths` are the globs of what each of them is about; with none, it is about the whole product.
    """
    word = re.sub(r"\W", "", nonce)
    found: list[Probe] = []
    runner = recognized(checks, files)
    if runner is not None and (placing := _PLACING.get(runner.kind)):
        found += placing(_Place(tuple(checks), files, word))
    entries = {index: check for index, check in enumerate(checks) if check.canary}
    for index, check in entries.items() if not found else ():
        entry = msgspec.structs.replace(check, command=f"export CANARY={word}; {check.canary}", tests=(), metric=None)
        found.append(Probe("canary", tuple(entry for _ in checks), {}, {index: ()}))
    typed = tuple(patient(check, files) for check in checks)
    globs = [glob for each in paths for glob in each] if all(paths) else []
    product = [
        path
        for path in files
        if not matches(path, protected) and (not globs or matches(path, globs)) and not _is_test(path, runner)
    ]
    settings = frozenset(path for path in product if is_settings(path))
    for kind in ("hollow", "empty"):
        spared = settings if kind == "empty" and runner is not None else frozenset()
        changed = {path: mutant(path, files[path], kind) for path in product if path not in spared}
        changed = {path: data for path, data in changed.items() if data != files[path]}
        if changed:
            found.append(Probe(kind, typed, changed, {}))
    return tuple(found)


def _is_test(path: str, runner: Runner | None) -> bool:
    """Whether a file that nobody protects is a test of the runner all the same."""
    name = posixpath.basename(path)
    return runner is not None and (
        name == "conftest.py" or re.search(r"(^test_|_test\.|\.(test|spec)\.)", name) is not None
    )


def shown(probe: Probe, index: int, exit_code: int | None, outcomes: Mapping[str, Outcome] | None) -> bool:
    """Whether a run of a probe shows that check number `index` can fail. `outcomes` are those of all its checks."""
    if not exit_code or (exit_code in (126, 127) and probe.kind != "empty"):
        return False
    if probe.kind in ("hollow", "empty"):
        check = probe.checks[index]
        if not outcomes:
            return True
        return any(became == "failed" and _concerns(check, name) for name, became in outcomes.items())
    ids = probe.ids.get(index)
    if ids is None:
        return False
    became = [_became(each, outcomes or {}, by_file=probe.kind == "flip") for each in ids]
    return not ids or ("failed" in became and "passed" not in became)


def _became(wanted: str, outcomes: Mapping[str, Outcome], *, by_file: bool) -> str:
    """What a test is reported as, with all its cases. `by_file`: one in a file that cannot be collected failed."""
    found = {
        outcome for name, outcome in outcomes.items() if name == wanted or name.startswith((f"{wanted}[", f"{wanted}/"))
    }
    file = wanted.partition("::")[0]
    if not found and by_file:
        found = {outcome for name, outcome in outcomes.items() if name in (file, posixpath.dirname(file) or ".")}
    return "passed" if "passed" in found else "failed" if "failed" in found else ""


def _concerns(check: Check, name: str) -> bool:
    """Whether a test may be one of those that a check names, told by its words alone."""
    file = name.partition("::")[0]
    words = [posixpath.normpath(word.partition("::")[0].removesuffix("/...")) for word in check.tests]
    return not words or any(
        file == word
        or f"/{file}/".find(f"/{word.removesuffix('.py')}") >= 0
        or word in (".", file)
        or _dotted(word, file)
        for word in words
    )


def _dotted(word: str, file: str) -> bool:
    return "/" not in word and f"{word.replace('.', '/')}/".startswith(file.removesuffix(".py") + "/")


# --- Python ----------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """Where probes are placed: checks that share a command, and their tree."""

    checks: tuple[Check, ...]
    files: Mapping[str, bytes]
    word: str


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


def _python(place: _Place) -> Iterator[Probe]:
    yield from _python_canary(place)
    yield from _python_flip(place)


def _python_canary(place: _Place) -> Iterator[Probe]:
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


def _widened(place: _Place, names: Mapping[int, Sequence[str]]) -> tuple[Check, ...]:
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


def _python_flip(place: _Place) -> Iterator[Probe]:
    if re.search(r"\s-O|PYTHONOPTIMIZE", place.checks[0].command):
        return
    chosen = [_selected(check, place.files) for check in place.checks]
    changed: dict[str, bytes | None] = {}
    turned: dict[str, list[str]] = {}
    for path in dict.fromkeys(path for each in chosen for path in each):
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


# --- JavaScript and Go -----------------------------------------------------------------------------


def _other_files(check: Check, files: Mapping[str, bytes]) -> list[str]:
    """The files of JavaScript or Go tests that a check selects."""
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


def _other(place: _Place) -> Iterator[Probe]:
    runner = recognized(place.checks, place.files)
    assert runner is not None
    go = runner.kind == "go"
    language = golang if go else javascript
    files, word = place.files, place.word
    chosen = [_other_files(check, files) for check in place.checks]
    title = f"TestCanary_{word}" if go else f"canary {word}"
    beside = {path for each in chosen for path in each[: 1 if go else CANARIES]}
    changed: dict[str, bytes | None] = {path: language.with_canary(path, files, title) for path in sorted(beside)}
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


_PLACING = {
    "pytest": _python, "unittest": _python, "node": _other, "jest": _other, "vitest": _other, "mocha": _other,
    "go": _other,
}  # fmt: skip
