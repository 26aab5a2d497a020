"""What can be seen of a check from its command: that it cannot fail, which tests it names, what kind it is."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator

from holdfast.facts.contract import Check
from holdfast.globs import matches
from holdfast.kinds.mission.contract.contents import command_line

_HARMLESS = r"(?:true|:|/bin/true|exit(?:\s+0)?|echo\b[^|;&]*|printf\b[^|;&]*)"
_TAIL = re.compile(rf"(?:\|\||;|\n)\s*{_HARMLESS}\s*$")
_ALONE = re.compile(rf"^\s*{_HARMLESS}\s*$")
_PIPED = re.compile(r"(?<!\|)\|\s*(?:tee|cat|head|tail|less|more|sort|nl|ts)\b[^|;&]*$")
_BEHIND = re.compile(r"(?<!&)&\s*$")
_NAMES_ONLY = re.compile(
    r"\b(?:pytest|py\.test)\b.*\s(?:--collect-only|--co|--help|-h|--version|--fixtures|--markers)(?:\s|$)"
)
_NOTHING_RUN = re.compile(r"\s(?:--listTests|--list-tests|--dry-run|--passWithNoTests\s*$|-n\s+--just-print)\b")

_RUNNERS = re.compile(
    r"\b(?:pytest|py\.test|unittest|nose2|tox|nox|jest|vitest|mocha|ava|karma|playwright|cypress|rspec|phpunit|ctest|bats)\b"
    r"|\b(?:npm|pnpm|yarn|bun|deno)\s+(?:run\s+)?test\b|\bnode\s+--test\b|\b(?:go|cargo|mvn|gradle|dotnet|swift|mix)\s+test\b"
)
_INVERTED = re.compile(r"^\s*!|\btest\s+-z\b|\[\s+-z\b|\bgrep\s+(?:-\w*L|--files-without-match)|\btest\s+!|\[\s+!")


def cannot_fail(check: Check) -> str:
    """Why a check passes whatever the work is, as far as its command tells; empty when that says nothing."""
    typed = command_line(check).strip()
    if _NAMES_ONLY.search(typed) or _NOTHING_RUN.search(typed):
        return "it collects tests and runs none"
    if check.metric is not None:
        return ""
    if _ALONE.search(typed):
        return "it does nothing that could fail"
    if _TAIL.search(typed):
        return "its last part succeeds whatever came before"
    if _PIPED.search(typed) and "pipefail" not in typed:
        return "it ends with the status of the last program of its pipe, and that always succeeds"
    if _BEHIND.search(typed):
        return "it leaves its work in the background and does not wait for it"
    return ""


def names_only(check: Check) -> bool:
    """Whether it only collects tests: it says that they are there, whatever they say."""
    typed = command_line(check)
    return _NAMES_ONLY.search(typed) is not None or _NOTHING_RUN.search(typed) is not None


def runs_tests(check: Check) -> bool:
    """Whether it is a test runner, which has to fail when nothing works."""
    return _RUNNERS.search(command_line(check)) is not None


def is_inverted(check: Check) -> bool:
    """Whether it passes when something is not there. Taking away code says nothing about such a check."""
    return _INVERTED.search(check.command) is not None


def words_of(check: Check) -> list[str]:
    """The words of a check, as a shell would take them apart; by spaces where it would not."""
    typed = command_line(check)
    try:
        lexer = shlex.shlex(typed, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        return list(lexer)
    except ValueError:
        return typed.split()


def named_files(check: Check) -> Iterator[str]:
    """Paths of files that a check names: words with a folder or an ending, without what stands behind `::`."""
    for word in words_of(check):
        path = word.partition("::")[0].removeprefix("./")
        if re.fullmatch(r"[\w.@+-]+(?:/[\w.@+-]+)*", path) and re.search(r"\w\.\w{1,5}$", path) and "://" not in word:
            yield path


def missing_tests(check: Check, files: Collection[str], protected: Collection[str], own: Collection[str]) -> list[str]:
    """Files of tests that a check names and that are not there. Those that the item is about are to be made."""
    return [
        path
        for path in named_files(check)
        if path not in files and matches(path, protected) and not (own and matches(path, own)) and not _moved(check)
    ]


def _moved(check: Check) -> bool:
    """Whether it goes to another folder, so that its paths are not those of the repository."""
    return re.search(r"\bcd\s|(?:^|\s)(?:-C|--rootdir|--prefix|--cwd)[\s=]", check.command) is not None


LINE_LENGTH = 400
"""A longer line of output is no message of a shell."""

_NOT_FOUND = re.compile(r"(\S+): (?:command not found|not found|No such file or directory)")
_PYTEST_ABSENT = re.compile(r"ERROR: (?:file or directory not found: |not found: )([^\n]+)")
_SCRIPT_ABSENT = re.compile(r"(?:can't open file '([^']+)'|cannot open ([^\s:]+): No such file)")
_TARGET_ABSENT = re.compile(r"No rule to make target [`'\"]([^'\"]+)['\"]")
_NPM_ABSENT = re.compile(r"Missing script: \"?([^\"\n]+)\"?")
_MODULE_ABSENT = re.compile(r"No module named '?(pytest|tox|nox|ruff|mypy|flake8|black|coverage|unittest2|nose2?)'?\b")


def absent(check: Check, exit_code: int | None, output: str, own: Collection[str]) -> str:
    """What a check needs and what is not there, as a run of it told; empty when nothing is missing.

    A program or script that the item itself is about (`own`) is to be made.
    """
    if re.search(r"\bunittest\b", check.command):
        return _unittest(check, output)
    if exit_code == 0:
        return ""
    if exit_code == 127:
        short = (line for line in output.splitlines() if len(line) < LINE_LENGTH)
        told = next(filter(None, map(_NOT_FOUND.search, short)), None)
        name = told[1].strip("'\"`:") if told else words_of(check)[0]
        return "" if _to_be_made(name, own) else f"`{name}` is not there"
    if exit_code in (4, 5) and re.search(r"\b(?:pytest|py\.test)\b", check.command):
        return _pytest(exit_code, output)
    for pattern, what, place in (
        (_MODULE_ABSENT, "the module {} is not there", ""),
        (_SCRIPT_ABSENT, "the script {} is not there", ""),
        (_TARGET_ABSENT, "make has no target {}", "Makefile"),
        (_NPM_ABSENT, "package.json has no script {}", "package.json"),
    ):
        found = pattern.search(output)
        name = next(filter(None, found.groups()), "").strip().removeprefix("/workspace/") if found else ""
        if name and not _to_be_made(place or name, own):
            return what.format(f"`{name}`")
    return ""


_UNIT_ABSENT = re.compile(r"(?:No module named '([\w.]+)'|(?:module|type object) '([\w.]+)' has no attribute '(\w+)')")


def _unittest(check: Check, output: str) -> str:
    """A test that unittest was told to run and does not find; a name that the code lacks is none."""
    if re.search(r"^Ran 0 tests", output, re.MULTILINE):
        return "unittest finds no test in it"
    for found in _UNIT_ABSENT.finditer(output):
        name = found[1] or f"{found[2].rpartition('.')[2]}.{found[3]}"
        if re.search(rf"(?<![\w]){re.escape(name)}(?!\w)", command_line(check)):
            return f"unittest does not find `{name}`"
    return ""


def _pytest(exit_code: int, output: str) -> str:
    if exit_code == 5:
        return "pytest finds no test in it"
    found = _PYTEST_ABSENT.search(output)
    return f"pytest does not find `{found[1].strip().removeprefix('/workspace/')}`" if found else ""


def _to_be_made(name: str, own: Collection[str]) -> bool:
    return bool(own) and matches(name.removeprefix("./"), own)
