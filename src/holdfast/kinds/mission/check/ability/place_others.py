"""Probes in files of JavaScript and Go tests."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

from holdfast.facts.contract import Check
from holdfast.kinds.mission.check.ability import golang, javascript
from holdfast.kinds.mission.check.ability.place import CANARIES, FILES, FLIPS, Place, Probe
from holdfast.kinds.mission.check.ability.runners import inside, recognized
from holdfast.kinds.mission.check.ability.typed import patient


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


def placed(place: Place) -> Iterator[Probe]:
    """The probes of checks whose runner is one of JavaScript or Go."""
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
