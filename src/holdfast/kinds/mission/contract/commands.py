"""Which programs decide about the exit status of a command line. Pure: a shell line is taken apart, never run.

In `python app.py | grep -q hello` the exit status is grep's, so `app.py` is what is checked; in `python verify.py` it
is what checks. The same holds for command substitutions and for output that a later command reads from a file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_SEPARATORS = frozenset({"&&", "||", ";", "&", "\n", ";;", "(", ")", "{", "}"})

_KEYWORDS = frozenset(
    {"!", "if", "then", "else", "elif", "fi", "do", "done", "while", "until", "time", "exec", "command"}
)

_WRAPPERS = frozenset({"env", "nice", "nohup", "sudo", "timeout", "xvfb-run", "npx", "bunx", "pnpx", "stdbuf", "eval"})

_RUNS = frozenset({"uv", "poetry", "pipenv", "pdm", "hatch", "rye", "coverage", "bundle"})
"""Programs that run another one: `uv run pytest`."""

_PASSES_ON = frozenset({"tee", "cat", "head", "tail", "less", "more", "ts"})
"""Programs at the end of a pipe that say nothing about what they are given."""

_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")


class Run(NamedTuple):
    """One program with its arguments, and the folder that it runs in, relative to where the line starts."""

    program: str
    arguments: tuple[str, ...]
    folder: str = ""

    @property
    def name(self) -> str:
        """The program without its folder."""
        return self.program.rsplit("/", 1)[-1]


def deciding(line: str, *, output_counts: bool = False) -> Iterator[Run]:
    """The programs of a line whose exit status counts; with `output_counts` also those whose output is read."""
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
    """The words of a line as a shell takes them apart, a line break included."""
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
    """Words without what stands in `$(…)`, `<(…)`, and between backticks: that is read, and decides nothing."""
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
    """Pipelines, each a list of the words of its commands."""
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
    """A command without what stands before its program, and without where its output goes."""
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
    """Whether the output goes to a file that the line names again."""
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
    """A word as a path from the root, as it is meant in a folder."""
    return _joined(folder, word.removeprefix("/workspace/"))
