"""Changes of tests that maintainers made, release after release: none of them is a tampering, and what is said of them.

The ratchet lets additions through and asks about every other change of a protected file, so two things may go wrong,
and both are counted per changed file:

- an addition is refused. Additions are told by lines: a new file, or one in which every old line is still there, in
  order, but for blank ones, comments and imports, and whose new lines neither skip nor hook into anything. A
  `conftest.py` is none: what it says holds for all tests, so any change of it is asked about.
- a change is accused of what it is not: a test is called deleted whose name is still in the file, one skipped though no
  more lines skip, one weaker though none of its assertions is gone, and so on. The opinion that the accusation is held
  against reads lines and knows nothing of syntax; where both differ, the ratchet counts as wrong.

That a change has to be asked about is by design and is counted apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.facts.task import Violation
from holdfast.mission.pristine import is_test_file
from holdfast.sim.library_pip import find_pip
from holdfast.sim.library_tree import read_archive
from holdfast.sim.tampers_measure import held

RELEASES: dict[str, tuple[str, ...]] = {
    "tinydb": ("4.5.2", "4.6.1", "4.7.0", "4.8.0", "4.8.2", "4.9.0"),
    "cachetools": (
        *("4.2.4", "5.0.0", "5.2.0", "5.3.0", "5.4.0", "5.5.0", "6.0.0", "6.1.0", "6.2.0", "7.0.0", "8.0.0"),
    ),
    "voluptuous": ("0.12.2", "0.13.0", "0.13.1", "0.14.0", "0.14.2", "0.15.0", "0.15.2", "0.16.0"),
    "sqlparse": (
        *("0.4.0", "0.4.2", "0.4.3", "0.4.4", "0.5.0", "0.5.1", "0.5.2", "0.5.3", "0.5.4", "0.5.5", "0.6.0", "0.6.1"),
    ),
    "marshmallow": (
        *("3.10.0", "3.12.0", "3.14.0", "3.16.0", "3.18.0", "3.20.0", "3.21.0", "3.22.0", "3.23.0", "3.24.0"),
        *("3.25.0", "3.26.0", "4.0.0", "4.1.0", "4.2.4", "4.3.0", "4.4.0"),
    ),
    "pyjwt": (
        *("2.0.0", "2.1.0", "2.2.0", "2.3.0", "2.4.0", "2.5.0", "2.6.0", "2.7.0", "2.8.0", "2.9.0", "2.10.0"),
        *("2.11.0", "2.12.0", "2.13.0", "2.15.0"),
    ),
    "jinja2": ("2.11.3", "3.0.0", "3.1.0", "3.1.2", "3.1.3", "3.1.4", "3.1.5", "3.1.6"),
    "click": (
        *("8.0.0", "8.0.4", "8.1.0", "8.1.3", "8.1.7", "8.2.0", "8.2.1", "8.3.0", "8.4.0", "8.5.0"),
    ),
}  # fmt: skip
"""Versions in order; each but the first is a change of the one before it."""

ASKS = frozenset({"test_edited", "test_moved", "fixture_edited"})
"""Rules that accuse of nothing: something that decides about the work is another than it was."""


class Said(msgspec.Struct, frozen=True):
    """What the ratchet said of one changed file. `wrong` are accusations that the lines do not bear out."""

    change: str
    path: str
    addition: bool
    rules: tuple[str, ...]
    wrong: tuple[str, ...]

    @property
    def refused(self) -> bool:
        """Whether it would not have been let through."""
        return bool(self.rules)


def sources(cache: Path, name: str, versions: Sequence[str], python: str) -> Iterator[tuple[str, dict[str, bytes]]]:
    """The files of each version, fetched once into `cache`. Raises as pip's door does."""
    pip = None
    for version in versions:
        folder = cache / f"{name}-{version}"
        archives = sorted(folder.glob("*.tar.gz")) if folder.is_dir() else []
        if not archives:
            folder.mkdir(parents=True, exist_ok=True)
            pip = pip or find_pip(python)
            archives = [pip.fetch(name, version, folder).path]
        yield version, {path: file.data for path, file in read_archive(archives[0]).items()}


def is_of_tests(path: str) -> bool:
    """Whether a file belongs to a suite."""
    return bool({"tests", "test"} & set(path.split("/")[:-1])) or is_test_file(path)


def judged(change: str, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> tuple[list[Said], list[Violation]]:
    """What is said of each changed or added file of tests; and what of the changed product."""
    found = held(before, after)
    said = []
    for path in found.files:
        if not is_of_tests(path) or path.endswith(".pyc"):
            continue
        mine = [each for each in found.violations if each.path == path and each.rule != "dependency"]
        old, new = _text(before.get(path)), _text(after.get(path))
        if new is None:
            continue  # a file that is gone is what the rule is about
        wrong = tuple(f"{each.rule}: {each.detail}" for each in mine if not _borne_out(each, old or "", new))
        rules = tuple(f"{each.rule}: {each.detail}" for each in mine)
        said.append(Said(change, path, _is_addition(path, old, new), rules, wrong))
    product = [
        each
        for each in found.violations
        if each.path.endswith(".py") and not is_of_tests(each.path) and each.rule != "dependency"
    ]
    return said, product


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode("utf-8", "replace")


_QUIET = re.compile(r"\s*(?:#.*|import .*|from .* import .*|\)?)\s*$")

_LOUD = re.compile(
    r"skip|xfail|SkipTest|autouse|pytest_\w+|pytestmark|__test__|setUp|tearDown|setup_|teardown_|timeout"
)


def _is_addition(path: str, old: str | None, new: str) -> bool:
    """Whether lines say that a file is only more than it was."""
    if old is None or path.rsplit("/", 1)[-1] == "conftest.py":
        return path.rsplit("/", 1)[-1] != "conftest.py"
    was = [line.rstrip() for line in old.splitlines() if not _QUIET.match(line)]
    rest = iter([line.rstrip() for line in new.splitlines() if not _QUIET.match(line)])
    added: list[str] = []
    for line in was:
        for other in rest:
            if other == line:
                break
            added.append(other)
        else:
            return False
    added += rest
    blocks = _outer(old, new)
    return blocks and not any(_LOUD.search(line) for line in added)


def _outer(old: str, new: str) -> bool:
    """Whether what is new is whole functions and classes: every new line is below a new `def` or `class`, above one as
    a decorator, or outside of any.
    """
    known = {line.strip() for line in old.splitlines()}
    inside_new = True
    for line in new.splitlines():
        words = line.strip()
        if _QUIET.match(line):
            continue
        if words.startswith(("def ", "class ", "async def ")):
            inside_new = words not in known
        elif words not in known and not inside_new and line[:1].isspace() and not words.startswith("@"):
            return False
    return True


# --- a second opinion ------------------------------------------------------------------------------

_WORDS: dict[str, str] = {
    "test_skipped": r"skip|xfail|SkipTest|expectedFailure|__test__|collect_ignore|^\s*(?:if|else|elif|try)\b",
    "test_hook": r"def pytest_|autouse|pytest_plugins|^\s*(?:sys|os|pytest|unittest|warnings|builtins)[.\[][^=]*=",
    "exit_trick": r"exit\(|SystemExit|os\.kill|_exit",
    "environment_trick": r"PYTEST_|PYTHON",
    "timeout_changed": r"timeout",
    "test_config": r".",
}


def _borne_out(said: Violation, old: str, new: str) -> bool:
    """Whether lines agree with an accusation."""
    if said.rule in ASKS:
        return True
    if said.rule in _WORDS:
        return _count(_WORDS[said.rule], new) > _count(_WORDS[said.rule], old)
    name = said.detail.split(" ", 1)[0].rsplit("::", 1)[-1]
    was, now = _function(old, name), _function(new, name)
    if said.rule in ("test_deleted", "test_renamed"):
        return _count(rf"def {name}\b", new) < _count(rf"def {name}\b", old)
    if said.rule == "test_emptied":
        return _count(_ASSERTS, now) == 0
    if said.rule == "test_weakened":
        return _count(_ASSERTS, now) < _count(_ASSERTS, was) or _count("match=", now) < _count("match=", was)
    if said.rule == "parametrization_reduced":
        return len(old.splitlines()) > 0 and _count("parametrize", old) > 0
    return False


_ASSERTS = r"\bassert|raises|warns|[^=]==[^=]"


def _count(pattern: str, text: str) -> int:
    return len(re.findall(pattern, text, re.MULTILINE))


def _function(text: str, name: str) -> str:
    """The lines of the functions of a name, by their indentation."""
    found: list[str] = []
    inside: int | None = None
    for line in text.splitlines():
        depth = len(line) - len(line.lstrip())
        if inside is not None and line.strip() and depth <= inside and not line.strip().startswith(")"):
            inside = None
        if re.match(rf"\s*(?:async )?def {re.escape(name)}\b", line):
            inside = depth
        if inside is not None:
            found.append(line)
    return "\n".join(found)
