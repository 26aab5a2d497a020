"""Probes: trees on which a check must fail, whatever the product is.

A *canary* is a failing test with a random name beside tests that the check selects. A *flip* replaces expected values,
*data* changes the files of expected values. In a *hollow* tree every function of the product raises; an *empty* tree
has no product. A canary or a flip is believed only if the rest is *restated*: copies of the tests that
mean the same must pass as before.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from holdfast.facts.mission import Check
from holdfast.globs import matches
from holdfast.kinds.mission.check.ability import placement, programs
from holdfast.kinds.mission.check.ability.placement import Place, Probe, patient
from holdfast.kinds.mission.check.ability.report import Outcome
from holdfast.kinds.mission.check.ability.runners import recognized

Kind = Literal["hollow", "broken", "empty"]

KINDS: tuple[Kind, ...] = ("hollow", "broken", "empty")

_CODE = frozenset(
    ".js .jsx .ts .tsx .mjs .cjs .go .rs .java .kt .rb .sh .bash .c .cc .cpp .h .hpp .cs .php .swift .ex .exs .lua .pl "
    ".r .scala .clj .hs .ml .dart .vue .svelte .sql".split()
)
_SETTINGS = frozenset(".toml .cfg .ini .json .yml .yaml .lock .mod .sum .xml .gradle .txt".split())
_NAMED = frozenset({"Makefile", "makefile", "GNUmakefile", "Dockerfile", "Rakefile", "Gemfile", "py.typed"})

GARBAGE = b")( this is no program\n"


def mutant(path: str, data: bytes, kind: Kind) -> bytes | None:
    """Return the content of an unprotected file in a mutant; None if it is removed there."""
    if kind == "empty":
        return None
    name = posixpath.basename(path)
    suffix = posixpath.splitext(name)[1]
    if suffix in (".py", ".pyi"):
        return hollow(data) if kind == "hollow" else GARBAGE
    if suffix in _CODE or (not suffix and data.startswith(b"#!")):
        return GARBAGE
    if is_settings(path):
        return data if kind == "hollow" or name in _NAMED else GARBAGE
    return None if kind == "hollow" else data


def is_settings(path: str) -> bool:
    """Return True if a file configures programs rather than being one."""
    name = posixpath.basename(path)
    return posixpath.splitext(name)[1] in _SETTINGS or name in _NAMED or name.startswith(".")


def hollow(data: bytes) -> bytes:
    """Replace every function body in Python source with a raise; unparsable source stays unchanged."""
    try:
        tree = ast.parse(data)
        return ast.unparse(ast.fix_missing_locations(_Hollow().visit(tree))).encode()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return data


class _Hollow(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.body = [_raise()]
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        node.body = [_raise()]
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        node.body = ast.parse("(_ for _ in ()).throw(NotImplementedError)", mode="eval").body
        return node


def _raise() -> ast.stmt:
    return ast.parse("raise NotImplementedError").body[0]


def probes(
    checks: Sequence[Check],
    files: Mapping[str, bytes],
    *,
    paths: Sequence[Sequence[str]],
    protected: Sequence[str],
    nonce: str,
) -> tuple[Probe, ...]:
    """Build the runs that show whether checks that share a command can fail.

    `paths` are the globs of the files of each check; none means the whole product.
    """
    word = re.sub(r"\W", "", nonce)
    found: list[Probe] = []
    runner = recognized(checks, files)
    if runner is not None:
        of_runner = placement.python_probes if runner.kind in ("pytest", "unittest") else placement.other_probes
        found += of_runner(Place(tuple(checks), files, protected, word))
    entries = {index: check for index, check in enumerate(checks) if check.canary}
    for index, check in entries.items() if not found else ():
        entry = msgspec.structs.replace(check, command=f"export CANARY={word}; {check.canary}", tests=(), metric=None)
        found.append(Probe("canary", tuple(entry for _ in checks), {}, {index: ()}))
    own = [glob for each in paths for glob in each]
    wrong, same = programs.altered(checks[0], files, protected, own, word) if runner is None else ({}, {})
    if wrong:
        found.append(Probe("flip", tuple(checks), wrong, dict.fromkeys(range(len(checks)), ()), same))
    typed = tuple(patient(check, files) for check in checks)
    globs = own if all(paths) else []
    product = [path for path in files if not matches(path, protected) and (not globs or matches(path, globs))]
    if runner is not None:  # unprotected tests and configuration of the runner are no product
        product = [
            path
            for path in product
            if (name := posixpath.basename(path)) != "conftest.py" and not programs.TEST_NAME.search(name)
        ]
    settings = frozenset(path for path in product if is_settings(path))
    for kind in ("hollow", "empty"):
        spared = settings if kind == "empty" and runner is not None else frozenset()
        changed = {path: mutant(path, files[path], kind) for path in product if path not in spared}
        changed = {path: data for path, data in changed.items() if data != files[path]}
        if changed:
            found.append(Probe(kind, typed, changed, {}))
    return tuple(found)


def ends(probe: Probe, files: Mapping[str, bytes]) -> tuple[dict[str, bytes | None], dict[str, bytes | None]] | None:
    """Build replacements for the programs that `probe` alters: some that always fail, and some that always succeed.

    A check that fails with the first and passes with the second runs them. None if they cannot be replaced.
    """
    metric = probe.checks[0].metric
    good = "" if metric is None else f"{metric.target:g}"
    texts = all(programs.kind_of(path, files[path]) in programs.TEXTS for path in probe.files)
    if probe.kind != "flip" or (any(probe.ids.values()) and not texts):
        return None
    failing = {path: programs.ending(path, files[path], 97) for path in probe.files}
    passing = {path: programs.ending(path, files[path], 0, good) for path in probe.files}
    if None in failing.values() or None in passing.values():
        return None
    return {**failing}, {**passing}


def shown(probe: Probe, index: int, exit_code: int | None, outcomes: Mapping[str, Outcome] | None) -> bool:
    """Return True if a run of a probe shows that check `index` can fail. `outcomes` are those of all checks."""
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
    if probe.kind == "data":
        return any(became == "failed" and name.partition("::")[0] in ids for name, became in (outcomes or {}).items())
    became = [_became(each, outcomes or {}, by_file=probe.kind == "flip") for each in ids]
    return not ids or ("failed" in became and "passed" not in became)


def _became(wanted: str, outcomes: Mapping[str, Outcome], *, by_file: bool) -> str:
    """Return the outcome of a test over all its cases. With `by_file`, a test in an uncollectable file failed."""
    found = {
        outcome for name, outcome in outcomes.items() if name == wanted or name.startswith((f"{wanted}[", f"{wanted}/"))
    }
    file = wanted.partition("::")[0]
    if not found and by_file:
        found = {outcome for name, outcome in outcomes.items() if name in (file, posixpath.dirname(file) or ".")}
    return "passed" if "passed" in found else "failed" if "failed" in found else ""


def _concerns(check: Check, name: str) -> bool:
    """Return True if a check may select a test, judged by its command line alone."""
    file = name.partition("::")[0]
    words = [posixpath.normpath(word.partition("::")[0].removesuffix("/...")) for word in check.tests]
    return not words or any(
        file == word
        or f"/{file}/".find(f"/{word.removesuffix('.py')}") >= 0
        or word in (".", file)
        or ("/" not in word and f"{word.replace('.', '/')}/".startswith(file.removesuffix(".py") + "/"))
        for word in words
    )
