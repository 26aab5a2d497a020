"""Analysis of check commands: deciding programs, named tests, missing files in a run's output. Pure: runs nothing.

In `python app.py | grep -q hello` the exit status is grep's, so `app.py` is the program under test; in `python
verify.py` the program is the check. The same holds for command substitutions and for output that a later command reads
from a file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from holdfast.facts.mission import Check
from holdfast.globs import matches
from holdfast.kinds.mission.contract.contents import command_line

_SEPARATORS = frozenset({"&&", "||", ";", "&", "\n", ";;", "(", ")", "{", "}"})

_KEYWORDS = frozenset(
    {"!", "if", "then", "else", "elif", "fi", "do", "done", "while", "until", "time", "exec", "command"}
)

_WRAPPERS = frozenset({"env", "nice", "nohup", "sudo", "timeout", "xvfb-run", "npx", "bunx", "pnpx", "stdbuf", "eval"})

_RUNS = frozenset({"uv", "poetry", "pipenv", "pdm", "hatch", "rye", "coverage", "bundle"})
"""Programs that run another one: `uv run pytest`."""

_PASSES_ON = frozenset({"tee", "cat", "head", "tail", "less", "more", "ts"})
"""Programs at the end of a pipe whose exit status does not depend on their input."""

_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")


class Run(NamedTuple):
    """Program with its arguments and its folder, relative to the line's starting folder."""

    program: str
    arguments: tuple[str, ...]
    folder: str = ""

    @property
    def name(self) -> str:
        """File name of the program."""
        return self.program.rsplit("/", 1)[-1]


def deciding(line: str, *, output_counts: bool = False) -> Iterator[Run]:
    """Yield the programs that determine the exit status; with `output_counts` also those whose output is read."""
    folder = ""
    for pipe in _pipes(_words(line)):
        stages = [_stage(words) for words in pipe]
        counts = len(stages) - 1
        while counts > 0 and (not stages[counts] or stages[counts][0].rsplit("/", 1)[-1] in _PASSES_ON):
            counts -= 1
        for number, words in enumerate(stages):
            if not words:
                continue
            if words[0] == "cd" and len(words) > 1:
                folder = _joined(folder, words[1])
            elif output_counts or (number >= counts and not _read_later(pipe[number], line)):
                yield Run(words[0], tuple(words[1:]), folder)


def _words(line: str) -> list[str]:
    """Split a command line like a shell; a line break is a word."""
    out: list[str] = []
    for part in line.replace("\\\n", " ").splitlines():
        try:
            lexer = shlex.shlex(part, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            out += [*_substituted(list(lexer)), "\n"]
        except ValueError:
            out += [*part.split(), "\n"]
    return out


def _substituted(words: Sequence[str]) -> Iterator[str]:
    """Drop `$(…)`, `<(…)` and backticks: their output is read, and their exit status does not count."""
    depth, ticks = 0, False
    before = ""
    for word in words:
        if ticks or "`" in word:
            ticks = ticks != (word.count("`") % 2 == 1)
        elif depth:
            depth += word.count("(") - word.count(")")
        elif word.startswith("(") and before.endswith(("$", "=", "<")):
            depth = word.count("(")
        elif word == "<(":
            depth = 1
        else:
            yield word
        before = word


def _pipes(words: Sequence[str]) -> Iterator[list[list[str]]]:
    """Group words into pipelines; each is a list of commands."""
    pipe: list[list[str]] = [[]]
    for word in words:
        if word in _SEPARATORS:
            if any(pipe):
                yield pipe
            pipe = [[]]
        elif word in ("|", "|&"):
            pipe.append([])
        else:
            pipe[-1].append(word)
    if any(pipe):
        yield pipe


def _stage(words: Sequence[str]) -> list[str]:
    """Return a command without assignments, wrappers, and redirections."""
    left = list(words)
    while left:
        name = left[0].rsplit("/", 1)[-1]
        if left[0] in _KEYWORDS or _ASSIGNED.match(left[0]):
            left = left[1:]
        elif name in _WRAPPERS:
            left = left[1:]
            while left and (
                left[0].startswith("-") or _ASSIGNED.match(left[0]) or re.fullmatch(r"[\d.]+[smh]?", left[0])
            ):
                left = left[1:]
        elif name in _RUNS and left[1:2] in (["run"], ["exec"]):
            left = left[2:]
            while left and left[0].startswith("-") and left[0] != "-m":
                left = left[1:]
        else:
            break
    if left[:1] == ["-m"]:
        left = ["python", *left]
    return [word for word in left if not re.fullmatch(r"\d*[<>]+&?\d*", word)]


def _read_later(words: Sequence[str], line: str) -> bool:
    """Return True if the output goes to a file that the line names again."""
    for at, word in enumerate(words[:-1]):
        target = words[at + 1]
        if re.fullmatch(r"[1&]?>+", word) and target != "/dev/null" and line.count(target) > 1:
            return True
    return False


def _joined(folder: str, word: str) -> str:
    parts: list[str] = [] if word.startswith("/") else folder.split("/") if folder else []
    for part in word.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def placed(folder: str, word: str) -> str:
    """Resolve a word of a command that runs in `folder` to a path from the root."""
    return _joined(folder, word.removeprefix("/workspace/"))


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
    """Explain why a check cannot fail, judged by its command; empty if the command shows no reason."""
    typed = command_line(check).strip()
    if names_only(check):
        return "it collects tests but runs none"
    if check.metric is not None:
        return ""
    if _ALONE.search(typed):
        return "it does nothing that could fail"
    if _TAIL.search(typed):
        return "its last part always succeeds"
    if _PIPED.search(typed) and "pipefail" not in typed:
        return "its exit status is that of the last program in the pipe, which always succeeds"
    if _BEHIND.search(typed):
        return "it starts its work in the background and does not wait for it"
    return ""


def names_only(check: Check) -> bool:
    """Return True if a check only collects tests, so that it passes whatever they assert."""
    typed = command_line(check)
    return _NAMES_ONLY.search(typed) is not None or _NOTHING_RUN.search(typed) is not None


def runs_tests(check: Check) -> bool:
    """Return True if a check calls a test runner, which must fail when nothing works."""
    return _RUNNERS.search(command_line(check)) is not None


def is_inverted(check: Check) -> bool:
    """Return True if a check passes when something is absent, so that removing code proves nothing about it."""
    return _INVERTED.search(check.command) is not None


def words_of(check: Check) -> list[str]:
    """Split the command of a check like a shell, or at spaces if it cannot be parsed."""
    typed = command_line(check)
    try:
        lexer = shlex.shlex(typed, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        return list(lexer)
    except ValueError:
        return typed.split()


def named_files(check: Check) -> Iterator[str]:
    """Yield the files that a check names: words with a suffix, without anything after `::`."""
    for word in words_of(check):
        path = word.partition("::")[0].removeprefix("./")
        if re.fullmatch(r"[\w.@+-]+(?:/[\w.@+-]+)*", path) and re.search(r"\w\.\w{1,5}$", path) and "://" not in word:
            yield path


def missing_tests(check: Check, files: Collection[str], protected: Collection[str], own: Collection[str]) -> list[str]:
    """Return missing test files that a check names, except files that the item is about (`own`), which it creates."""
    if re.search(r"\bcd\s|(?:^|\s)(?:-C|--rootdir|--prefix|--cwd)[\s=]", check.command):
        return []  # its paths are relative to another folder
    return [
        path
        for path in named_files(check)
        if path not in files and matches(path, protected) and not _to_be_made(path, own)
    ]


LINE_LENGTH = 400
"""A longer line of output cannot be a message of a shell."""

_NOT_FOUND = re.compile(r"(\S+): (?:command not found|not found|No such file or directory)")
_PYTEST_ABSENT = re.compile(r"ERROR: (?:file or directory not found: |not found: )([^\n]+)")
_SCRIPT_ABSENT = re.compile(r"(?:can't open file '([^']+)'|cannot open ([^\s:]+): No such file)")
_TARGET_ABSENT = re.compile(r"No rule to make target [`'\"]([^'\"]+)['\"]")
_NPM_ABSENT = re.compile(r"Missing script: \"?([^\"\n]+)\"?")
_MODULE_ABSENT = re.compile(r"No module named '?(pytest|tox|nox|ruff|mypy|flake8|black|coverage|unittest2|nose2?)'?\b")


def absent(check: Check, exit_code: int | None, output: str, own: Collection[str]) -> str:
    """Describe a file or program that a check run did not find; empty if none is missing.

    Programs and scripts that the item is about (`own`) do not count, since the item creates them.
    """
    if re.search(r"\bunittest\b", check.command):
        return _unittest(check, output)
    if exit_code == 0:
        return ""
    if exit_code == 127:
        short = (line for line in output.splitlines() if len(line) < LINE_LENGTH)
        told = next(filter(None, map(_NOT_FOUND.search, short)), None)
        name = told[1].strip("'\"`:") if told else words_of(check)[0]
        return "" if _to_be_made(name, own) else f"`{name}` was not found"
    if exit_code in (4, 5) and re.search(r"\b(?:pytest|py\.test)\b", check.command):
        unknown = _PYTEST_ABSENT.search(output)
        if exit_code == 5:
            return "pytest finds no test in it"
        return f"pytest does not find `{unknown[1].strip().removeprefix('/workspace/')}`" if unknown else ""
    for pattern, what, place in (
        (_MODULE_ABSENT, "the module {} is not installed", ""),
        (_SCRIPT_ABSENT, "the script {} does not exist", ""),
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
    """Describe a test that unittest does not find. A name that only the product lacks does not count."""
    if re.search(r"^Ran 0 tests", output, re.MULTILINE):
        return "unittest finds no test in it"
    for found in _UNIT_ABSENT.finditer(output):
        name = found[1] or f"{found[2].rpartition('.')[2]}.{found[3]}"
        if re.search(rf"(?<![\w]){re.escape(name)}(?!\w)", command_line(check)):
            return f"unittest does not find `{name}`"
    return ""


def _to_be_made(name: str, own: Collection[str]) -> bool:
    return bool(own) and matches(name.removeprefix("./"), own)
