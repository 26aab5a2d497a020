"""Test runners in command lines: the runner, its folder, its arguments, and its settings.

A line is understood if it is a list of plain commands with exactly one runner. For anything else (a pipe, an
alternative, a subshell, a script) only the exit status is known.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from holdfast.facts.mission import Check
from holdfast.kinds.mission.contract.contents import command_line

Kind = Literal["pytest", "unittest", "node", "jest", "vitest", "mocha", "go"]

DEPTH_MAX = 4
"""Depth of scripts in `package.json` that call each other."""

_TOKEN = re.compile(
    r"""[ \t]+|(?P<op>&&|\|\||;|\||&(?!>)|\n)|(?P<redirect>(?:\d|&)?(?:>>|>&|<&|>|<)[ \t]*[^\s;|&<>()`]+)|"""
    r"""(?P<word>(?:[^\s'"\\|&;()<>`$]|\\.|'[^']*'|"(?:[^"\\$`]|\\.|\$(?!\())*"|\$\w+|\$\{\w+\})+)""",
    re.DOTALL,
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_PYTHON = re.compile(r"python[\d.]*(?:\.exe)?")
_VALUES = frozenset(
    "-X -W -p --python --with --extra --group --package --env-file -n -k -s --signal -u --rcfile --conditions -C "
    "--source --omit --include --data-file --import --require -r --loader --prefix --cwd --dir".split()
)
"""Options of wrappers and interpreters that are followed by a value."""
_WRAPPERS = {
    "uv": "run", "poetry": "run", "pipenv": "run", "pdm": "run", "rye": "run", "hatch": "run",
    "npx": "", "pnpx": "", "bunx": "", "c8": "", "nyc": "", "cross-env": "", "env": "", "exec": "", "command": "",
    "time": "", "nice": "", "timeout": "", "xvfb-run": "", "stdbuf": "",
}  # fmt: skip
_BINARIES: dict[str, Kind] = {
    "pytest": "pytest", "py.test": "pytest", "jest": "jest", "jest.js": "jest", "vitest": "vitest",
    "vitest.mjs": "vitest", "mocha": "mocha", "mocha.js": "mocha", "_mocha": "mocha",
}  # fmt: skip


class Word(NamedTuple):
    """Word of a line as the program sees it, with its span."""

    text: str
    start: int
    end: int


class Runner(NamedTuple):
    """Runner in a line with its `arguments`. More arguments can be inserted at `end`, after `glue`.

    `start` and `program` delimit the command that starts it. `script` is true for one in a script of `package.json`,
    `last` for the last command of the line.
    """

    kind: Kind
    line: str
    arguments: tuple[Word, ...]
    cwd: str
    start: int
    program: int
    end: int
    glue: str = ""
    script: bool = False
    last: bool = True

    def with_more(self, more: str) -> str:
        """Return the line with further arguments for the runner."""
        return f"{self.line[: self.end]}{self.glue} {more}{self.line[self.end :]}"

    def named(self) -> list[str]:
        """Positional arguments."""
        words = [word.text for word in self.arguments]
        pairs = zip(["", *words], words, strict=False)
        return [word for before, word in pairs if not word.startswith("-") and before not in _TAKES[self.kind]]

    def selections(self, files: Mapping[str, bytes]) -> list[tuple[str, str]]:
        """Files and folders among the arguments, each with its selector, such as `::test`."""
        found = []
        for word in self.named():
            path, _, rest = word.partition("::")
            if self.kind == "unittest" and not path.endswith(".py") and "/" not in path:
                path, rest = self._module(word, files)
            place = inside(self.cwd, path.removesuffix("/..."))
            if path and place is not None and is_there(place, files):
                found.append((place, rest))
        return found

    def _module(self, dotted: str, files: Mapping[str, bytes]) -> tuple[str, str]:
        """Return the file or folder of a dotted name, and the class and test after it."""
        parts = dotted.split(".")
        for end in range(len(parts), 0, -1):
            path = posixpath.join(*parts[:end])
            for each in (f"{path}.py", path):
                place = inside(self.cwd, each)
                if place and is_there(place, files):
                    return each, "::".join(parts[end:])
        return dotted, ""


_TAKES: dict[Kind, frozenset[str]] = {
    "pytest": frozenset(
        "-c --config-file --rootdir --confcutdir --basetemp --ignore --ignore-glob --deselect --junit-xml --junitxml "
        "--cov --cov-config --cov-report -o --override-ini -k -m -p -n -W --tb --durations --maxfail".split()
    ),
    "unittest": frozenset("-k -s --start-directory -p --pattern -t --top-level-directory".split()),
    "node": frozenset("--import --require -r --loader --test-name-pattern --test-reporter".split()),
    "jest": frozenset(
        "-t --testNamePattern -c --config --rootDir --outputFile --setupFiles --coverageDirectory".split()
    ),
    "vitest": frozenset("-t --testNamePattern -c --config -r --root --dir --outputFile --reporter".split()),
    "mocha": frozenset("-g --grep -f --fgrep -r --require --config --file --reporter -R -O -u --ui --ignore".split()),
    "go": frozenset("-run -skip -bench -count -timeout -coverprofile -o -tags -p -parallel".split()),
}
"""Options of each runner that are followed by a value."""


def recognized(checks: Sequence[Check], files: Mapping[str, bytes]) -> Runner | None:
    """Return the runner of checks that share one command; None if the command has none or is not understood."""
    tests = dict.fromkeys(test for check in checks for test in check.tests)
    runner = of_line(command_line(msgspec.structs.replace(checks[0], tests=tuple(tests))), files)
    return runner if runner is None or runner.last or not tests else None


def of_line(line: str, files: Mapping[str, bytes], cwd: str = "", depth: int = 0) -> Runner | None:
    """Return the only runner in a line; None if there are none or several."""
    commands = _commands(line)
    if commands is None:
        return None
    found: list[Runner] = []
    for index, words in enumerate(commands):
        texts = [word.text for word in words]
        if texts and texts[0] == "cd":
            place = inside(cwd, texts[1]) if len(texts) == 2 else None
            if place is None:
                return None
            cwd = place
            continue
        runner = _runner(line, words, cwd, files, depth)
        if runner is not None:
            found.append(runner._replace(last=index == len(commands) - 1))
    return found[0] if len(found) == 1 else None


def _commands(line: str) -> list[list[Word]] | None:
    """Return the words of each plain command of a line."""
    found: list[list[Word]] = [[]]
    at = 0
    line = line.rstrip()
    while at < len(line):
        token = _TOKEN.match(line, at)
        if token is None or token["op"] in ("|", "||", "&") or (token["word"] or "").startswith("#"):
            return None
        if token["op"]:
            found.append([])
        elif token["word"]:
            text = token["word"]
            with_variable = "$" in text and "'" not in text
            words = [text] if with_variable else shlex.split(text, posix=True)
            found[-1].append(Word(words[0] if words else "", token.start(), token.end()))
        at = token.end()
    return [words for words in found if words]


def _runner(line: str, words: list[Word], cwd: str, files: Mapping[str, bytes], depth: int) -> Runner | None:
    rest = list(words)
    while rest:
        name = posixpath.basename(rest[0].text)
        if "/" in rest[0].text and inside(cwd, rest[0].text) in files:
            return None  # a script of the tree, regardless of its name
        if _ASSIGNMENT.match(rest[0].text):
            rest = rest[1:]
        elif name in ("npm", "yarn", "pnpm"):
            return _script(line, words, rest, cwd, files, depth)
        elif name in _WRAPPERS:
            rest = _unwrapped(rest[1:], _WRAPPERS[name], name)
        else:
            break
    if not rest:
        return None
    name, start = posixpath.basename(rest[0].text), rest[0].start
    kind: Kind | None = _BINARIES.get(name)
    if _PYTHON.fullmatch(name) or name in ("coverage", "pypy3"):
        kind, rest = _of_python(rest)
    elif name == "node":
        kind, rest = _of_node(rest, cwd, files)
    elif name == "go":
        texts, at = [word.text for word in rest], 1
        if texts[1:2] == ["-C"] and len(texts) > 3:
            cwd, at = inside(cwd, texts[2]) or "", 3
        kind, rest = ("go" if texts[at : at + 1] == ["test"] else None), rest[at:]
    if kind is None:
        return None
    return Runner(kind, line, tuple(rest[1:]), cwd, start, rest[0].end, words[-1].end)


def _unwrapped(words: list[Word], verb: str, name: str) -> list[Word]:
    """Return the command that a wrapper runs."""
    words = _past_options(words)
    if verb and words and words[0].text == verb:
        words = _past_options(words[1:])
    elif verb:
        return []
    if name == "timeout":
        words = words[1:]
    return words


def _past_options(words: list[Word]) -> list[Word]:
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        at += 2 if words[at].text in _VALUES else 1
    return words[at:]


def _of_python(words: list[Word]) -> tuple[Kind | None, list[Word]]:
    """Recognize `python -m pytest` and `coverage run -m pytest`; return the words from the module on."""
    at = 1
    while at < len(words):
        text = words[at].text
        if text == "-m" and at + 1 < len(words):
            module = words[at + 1].text
            if module == "coverage":
                at += 2
                continue
            kinds: dict[str, Kind] = {"pytest": "pytest", "unittest": "unittest"}
            return kinds.get(module), words[at + 1 :]
        if not text.startswith("-") and text != "run":
            break
        at += 2 if text in _VALUES else 1
    return None, words


def _of_node(words: list[Word], cwd: str, files: Mapping[str, bytes]) -> tuple[Kind | None, list[Word]]:
    """Recognize `node --test` and a runner named by its file."""
    for at, word in enumerate(words[1:], start=1):
        if word.text == "--test":
            return "node", [words[0]._replace(end=word.end), *words[1:at], *words[at + 1 :]]
        if not word.text.startswith("-") and words[at - 1].text not in _VALUES:
            known = inside(cwd, word.text) not in files
            return (_BINARIES.get(posixpath.basename(word.text)) if known else None), words[at:]
    return None, words


def _script(
    line: str, words: list[Word], rest: list[Word], cwd: str, files: Mapping[str, bytes], depth: int
) -> Runner | None:
    """Resolve a script of `package.json` to the runner that it ends with."""
    manager = posixpath.basename(rest[0].text)
    after = rest[1:]
    options = [word.text for word in after[:2]]
    if options[:1] in (["--prefix"], ["--cwd"], ["--dir"], ["-C"]) and len(options) == 2:
        cwd, after = inside(cwd, options[1]) or "", after[2:]
    after = _past_options(after)
    verb = after[0].text if after else ""
    if verb in ("exec", "dlx"):
        found = _runner(line, [word for word in after[1:] if word.text != "--"], cwd, files, depth)
        return found and found._replace(end=words[-1].end)
    if verb in ("run", "run-script") and len(after) > 1:
        after = _past_options(after[1:])
    name = {"t": "test", "tst": "test"}.get(after[0].text, after[0].text) if after else ""
    text = scripts(files.get(posixpath.join(cwd, "package.json"), b"")).get(name)
    if text is None and manager != "npm" and depth == 0 and after:
        return _runner(line, after, cwd, files, depth + 1)  # `yarn jest`
    inner = of_line(text, files, cwd, depth + 1) if text is not None and depth < DEPTH_MAX else None
    if inner is None or not inner.last:
        return None
    given = [word for word in after[1:] if word.text != "--"]
    dashes = "" if manager != "npm" or any(word.text == "--" for word in after) else " --"
    arguments = (*inner.arguments, *given)
    return Runner(inner.kind, line, arguments, inner.cwd, words[0].start, words[0].end, words[-1].end,
                  dashes + inner.glue, script=True)  # fmt: skip


def scripts(package: bytes) -> dict[str, str]:
    """Return the scripts of a `package.json`."""
    try:
        found = json.loads(package).get("scripts", {})
        return {name: text for name, text in found.items() if isinstance(text, str)}
    except (ValueError, AttributeError):
        return {}


def inside(cwd: str, path: str) -> str | None:
    """Return a path relative to the root of the tree, "" for the root; None if it is outside or unknown."""
    found = posixpath.normpath(posixpath.join(cwd, path))
    if posixpath.isabs(path) or found.startswith("..") or "$" in path:
        return None
    return "" if found == "." else found


def is_there(path: str, files: Mapping[str, bytes]) -> bool:
    """Return True if a path is a file or folder of the tree."""
    return path in files or not path or any(each.startswith(f"{path}/") for each in files)


_NAMES = re.compile(
    r"(\.?pytest\.(ini|toml)|tox\.ini|setup\.cfg|conftest\.py|\.coveragerc|noxfile\.py|\.mocharc\..*|"
    r"(jest|vitest|vite|babel)\.config\..*|vitest\.workspace\..*|\.babelrc.*|tsconfig.*\.json|go\.(mod|work)|"
    r"(GNUm|m|M)akefile|pyproject\.toml|package\.json)"
)
_TABLES = ("pytest", "coverage", "tox", "hatch", "poe", "pdm", "uv")
_KEYS = ("scripts", "jest", "mocha", "vitest", "type", "babel", "workspaces")


def digest(check: Check, files: Mapping[str, bytes]) -> str:
    """Return the digest of a check's command, its runner, and the settings of the runner."""
    runner = recognized((check,), files)
    parts: list[tuple[str, str]] = [(command_line(check), runner.kind if runner else ""), ("", check.canary or "")]
    for path in sorted(files):
        name = posixpath.basename(path)
        if _NAMES.fullmatch(name):
            parts.append((path, hashlib.sha256(_settings(name, files[path])).hexdigest()))
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def _settings(name: str, data: bytes) -> bytes:
    """Return the part of a file that configures runners, without versions and dependencies."""
    try:
        whole: dict[str, Any]
        if name == "pyproject.toml":
            whole = tomllib.loads(data.decode()).get("tool", {})
            return json.dumps(
                {key: whole[key] for key in _TABLES if key in whole}, sort_keys=True, default=str
            ).encode()
        if name == "package.json":
            whole = json.loads(data)
            return json.dumps({key: whole[key] for key in _KEYS if key in whole}, sort_keys=True).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return data
    return data


PYTEST = frozenset(
    {"pyproject.toml", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg"}
)


def pytest_settings(files: Mapping[str, bytes]) -> str:
    """Return the text of all files that may configure pytest."""
    return "\n".join(files[path].decode("utf-8", "replace") for path in files if posixpath.basename(path) in PYTEST)


def pytest_words(files: Mapping[str, bytes], key: str, default: str) -> tuple[str, ...]:
    """Return the words of a pytest setting in any file; a value may span several lines."""
    found = re.search(
        rf"^\s*{key}\s*=((?:[^\n\[#]*)|\s*\[[^\]]*\])((?:\n[ \t]+[^\n=]+)*)", pytest_settings(files), re.MULTILINE
    )
    text = "".join(found.groups()) if found else default
    return tuple(word for word in re.split(r"[\s,\[\]\"']+", text) if word) or tuple(default.split())
