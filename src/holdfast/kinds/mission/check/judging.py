"""Files other than tests that decide the result of a check: programs, build files, scripts, runner settings. Pure.

`judges` follows the commands of the checks at the base. A file that an item names in its `paths` is product code, even
if a check runs it; lint reports that (`exposed`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from holdfast.facts.mission import Check, Contract
from holdfast.globs import matches
from holdfast.kinds.mission.contract.commands import Run, deciding, placed
from holdfast.kinds.mission.contract.contents import command_line

DEPTH = 4
"""Depth to which scripts that run scripts are followed."""

SET_UP = "init.sh"
"""The script that sets up the environment in which checks run."""

SETTINGS: dict[str, tuple[str, ...]] = {
    "pytest": ("**/pytest.ini", "**/.pytest.ini", "**/pytest.toml", "**/.pytest.toml", "**/.coveragerc"),
    "tox": ("tox.ini",),
    "nox": ("noxfile.py",),
    "mypy": ("**/mypy.ini", "**/.mypy.ini"),
    "ruff": ("**/ruff.toml", "**/.ruff.toml"),
    "flake8": ("**/.flake8",),
    "pylint": ("**/.pylintrc", "**/pylintrc"),
    "pyright": ("**/pyrightconfig.json",),
    "eslint": ("**/.eslintrc*", "**/eslint.config.*", "**/.eslintignore"),
    "prettier": ("**/.prettierrc*", "**/.prettierignore", "**/prettier.config.*"),
    "biome": ("**/biome.json*",),
    "tsc": ("**/tsconfig*.json",),
    "stylelint": ("**/.stylelintrc*",),
    "golangci-lint": ("**/.golangci.*",),
    "clippy-driver": ("**/clippy.toml", "**/.clippy.toml"),
    "yamllint": ("**/.yamllint*",),
    "markdownlint": ("**/.markdownlint*",),
}
"""Settings files by the program that reads them."""

_INTERPRETERS = re.compile(
    r"(?:python[\d.]*|pypy[\d.]*|node|deno|bun|tsx|ts-node|ruby|perl|php|Rscript|lua|(?:ba|z|da|k)?sh)"
)
_SHELLS = re.compile(r"(?:ba|z|da|k)?sh")
_MAKES = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "gmake": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "invoke": ("tasks.py",),
    "inv": ("tasks.py",),
    "rake": ("Rakefile",),
    "ctest": ("CTestTestfile.cmake",),
}
_PACKAGED = frozenset({"npm", "yarn", "pnpm", "bun"})
_FILE_OPTIONS = re.compile(
    r"(?:-c|-f|-r|--config(?:-file|uration)?|--rcfile|--require|--import|--makefile|--file|--ini|-p|--project)"
)


_RUNNERS = frozenset({
    *SETTINGS, "jest", "vitest", "mocha", "ava", "karma", "playwright", "cypress", "node", "phpunit", "rspec", "nyc",
    "c8", "coverage", "bandit", "black", "isort", "unittest", "nose2",
})  # fmt: skip


class Judges:
    """Everything that decides the checks: `files` at the base, names of `scripts` in package.json, `tools` that checks
    run, and `taken`, paths where a new file would disable a target of a build tool.
    """

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.scripts: set[str] = set()
        self.tools: set[str] = set()
        self.taken: set[str] = set()

    @property
    def settings(self) -> tuple[str, ...]:
        """Return globs of the settings of tools that checks run."""
        return tuple(glob for tool in sorted(self.tools) for glob in SETTINGS.get(tool, ()))


def judges(contract: Contract, files: Mapping[str, bytes]) -> Judges:
    """Collect what decides the checks at the base. Of `files`, only scripts and build files need content."""
    found = Judges()
    _all(contract, files, found)
    found.files -= named(contract)
    return found


def programs(check: Check, files: Mapping[str, bytes]) -> frozenset[str]:
    """Return the files that decide one check, without settings."""
    found = Judges()
    _line(command_line(check), "", files, found, 0, metric=check.metric is not None)
    return frozenset(path for path in found.files if path in files)


def _all(contract: Contract, files: Mapping[str, bytes], found: Judges) -> None:
    for criterion in contract.criteria().values():
        if criterion.check is not None:
            _line(command_line(criterion.check), "", files, found, 0, metric=criterion.check.metric is not None)
    _script(SET_UP, "", files, found, 0, shell=True)
    found.taken.add(SET_UP)
    found.scripts |= {"preinstall", "install", "postinstall", "prepare"}


def named(contract: Contract) -> frozenset[str]:
    """Return paths that items name without a wildcard: product code, even in a test folder."""
    globs = (glob.removeprefix("./") for item in contract.items for glob in item.paths)
    return frozenset(glob for glob in globs if not set(glob) & set("*?["))


def looked_into(contract: Contract, known: Mapping[str, bytes]) -> frozenset[str]:
    """Return paths whose content is needed to follow the checks. Call again with them until no path is new."""
    found = Judges()
    every = _Any(known)
    _all(contract, every, found)
    return frozenset(every.asked | found.files)


class _Any(dict[str, bytes]):
    """Mapping of files that records the paths looked up."""

    def __init__(self, known: Mapping[str, bytes]) -> None:
        super().__init__(known)
        self.asked: set[str] = set()

    def __contains__(self, path: object) -> bool:
        self.asked.add(str(path))
        return super().__contains__(path)

    def get(self, path: str, default: bytes | None = None) -> bytes | None:  # type: ignore[override]
        self.asked.add(path)
        return super().get(path, default)


def _line(
    line: str, folder: str, files: Mapping[str, bytes], found: Judges, depth: int, *, metric: bool = False
) -> None:
    if depth > DEPTH:
        return
    for run in deciding(line, output_counts=metric):
        _run(run._replace(folder=placed(folder, run.folder)), files, found, depth)


def _run(run: Run, files: Mapping[str, bytes], found: Judges, depth: int) -> None:
    found.tools.add(run.name)
    found.tools |= {each for each in run.arguments if each in SETTINGS}
    if run.name in _MAKES:
        _make(run, files, found, depth)
    elif run.name in _PACKAGED:
        _package(run, files, found, depth)
    elif run.name in ("diff", "cmp"):
        there = [path for path in _operands(run) if path in files]
        if len(there) == 1:
            found.files.update(there)
    elif _INTERPRETERS.fullmatch(run.name):
        _interpreted(run, files, found, depth)
    elif "/" in run.program:
        _script(placed(run.folder, run.program), run.folder, files, found, depth, shell=True)
    found.files |= {path for path in _optional(run) if path in files}


def _operands(run: Run) -> Iterator[str]:
    return (placed(run.folder, each) for each in run.arguments if not each.startswith("-"))


_TEXTS = (".md", ".rst", ".txt")


def _optional(run: Run) -> Iterator[str]:
    """Yield files in the options of a runner: settings, preloaded modules, and texts with examples."""
    if not {run.name, *run.arguments[:2]} & {*_RUNNERS, "doctest"}:
        return
    yield from (path for path in _operands(run) if path.endswith(_TEXTS))
    for at, word in enumerate(run.arguments):
        option, equals, value = word.partition("=")
        if not _FILE_OPTIONS.fullmatch(option):
            continue
        value = value if equals else next(iter(run.arguments[at + 1 :]), "")
        if value:
            yield placed(run.folder, value)


def _interpreted(run: Run, files: Mapping[str, bytes], found: Judges, depth: int) -> None:
    for at, word in enumerate(run.arguments):
        if word in ("-n", "--check", "-fsyntax-only"):
            return  # only parsed, not run
        shell = _SHELLS.fullmatch(run.name) is not None
        if re.fullmatch(r"-[a-z]*c", word) if shell else word in ("-c", "-e", "--eval", "-"):
            if shell:
                _line(next(iter(run.arguments[at + 1 :]), ""), run.folder, files, found, depth + 1)
            return
        if word == "-m":
            module = next(iter(run.arguments[at + 1 :]), "")
            found.tools.add(module.partition(".")[0])
            path = placed(run.folder, module.replace(".", "/") + ".py")
            found.files |= {path} if path in files else set()
            return
        if not word.startswith("-") and word != "run":
            _script(placed(run.folder, word), run.folder, files, found, depth, shell=shell)
            return


def _script(path: str, folder: str, files: Mapping[str, bytes], found: Judges, depth: int, *, shell: bool) -> None:
    if path not in files:
        return
    new = path not in found.files
    found.files.add(path)
    content = files.get(path) or b""
    if (
        new
        and (shell or path.endswith((".sh", ".bash")))
        and not content.startswith((b"\x7fELF", b"#!/usr/bin/env python"))
    ):
        _line(content.decode("utf-8", "replace"), folder, files, found, depth + 1)


# --- build files -----------------------------------------------------------------------------------


def _make(run: Run, files: Mapping[str, bytes], found: Judges, depth: int) -> None:
    folder, path, targets = run.folder, "", []
    words = iter(run.arguments)
    for word in words:
        if word in ("-C", "--directory"):
            folder = placed(folder, next(words, ""))
        elif word in ("-f", "--file", "--makefile"):
            path = placed(folder, next(words, ""))
        elif word.startswith("-C") and len(word) > 2:
            folder = placed(folder, word[2:])
        elif not word.startswith("-") and "=" not in word:
            targets.append(word)
    there = [each for name in _MAKES[run.name] if (each := placed(folder, name)) in files]
    path = path or next(iter(there), "")
    if path not in files:
        return
    text = (files.get(path) or b"").decode("utf-8", "replace")
    rules = _rules(text)
    wanted = targets or list(rules)[:1]
    if rules and run.name in ("make", "gmake", "just") and not all(each in rules for each in wanted):
        return  # the target does not exist yet, so the build file is part of the work
    found.files.add(path)
    found.files |= {
        each for word in re.findall(r"^-?include\s+(\S+)", text, re.M) if (each := placed(folder, word)) in files
    }
    if run.name not in ("make", "gmake", "just"):
        return
    found.taken |= (
        {placed(folder, name) for name in _MAKES[run.name][:2]} - {path} if not targets or path in there else set()
    )
    _targets(wanted, rules, folder, files, found, depth)


def _targets(
    wanted: Iterable[str], rules: Mapping[str, tuple[list[str], list[str]]], folder: str, files: Mapping[str, bytes],
    found: Judges, depth: int,
) -> None:  # fmt: skip
    seen: set[str] = set()
    left = list(wanted)
    while left:
        name = left.pop()
        if name in seen or name not in rules:
            continue
        seen.add(name)
        before, recipe = rules[name]
        left += before
        if "." not in name:
            found.taken.add(placed(folder, name))
        for line in recipe:
            plain = re.sub(r"\$\(PYTHON\w*\)", "python", re.sub(r"^[@+-]+", "", line).replace("$(MAKE)", "make"))
            _line(plain, folder, files, found, depth + 1)


def _rules(text: str) -> dict[str, tuple[list[str], list[str]]]:
    """Return the targets of a build file, each with its prerequisites and recipe."""
    rules: dict[str, tuple[list[str], list[str]]] = {}
    here: list[str] = []
    for line in text.replace("\\\n", " ").splitlines():
        if line[:1] in ("\t", " "):
            for name in here:
                rules[name][1].append(line.strip())
            continue
        match = re.match(r"([\w./ -]+?)\s*:(?![=:])\s*([^;#=]*)(?:;(.*))?$", line)
        if match is None:
            here = here if not line.strip() else []
            continue
        here = match[1].split()
        for name in here:
            known = rules.setdefault(name, ([], []))
            known[0].extend(match[2].split())
            known[1].extend([match[3].strip()] if match[3] else [])
    return {name: rule for name, rule in rules.items() if not name.startswith(".")}


def _package(run: Run, files: Mapping[str, bytes], found: Judges, depth: int) -> None:
    """Record a script of package.json, with its pre and post scripts."""
    words = [word for word in run.arguments if not word.startswith("-")]
    name = words[1] if words[:1] in (["run"], ["run-script"]) and len(words) > 1 else words[0] if words else ""
    name = {"t": "test", "tst": "test"}.get(name, name)
    path = placed(run.folder, "package.json")
    if not name or path not in files:
        return
    try:
        scripts = json.loads(files.get(path) or b"{}").get("scripts", {})
    except (ValueError, AttributeError):
        return
    for each in (f"pre{name}", name, f"post{name}"):
        known = scripts.get(each) if isinstance(scripts, dict) else None
        if name in scripts:
            new = each not in found.scripts
            found.scripts.add(each)
            if new and isinstance(known, str):
                _line(known, run.folder, files, found, depth + 1)


# --- findings for lint ------------------------------------------------------------------------------


def exposed(contract: Contract, files: Collection[str]) -> list[tuple[str, str, str]]:
    """Return files that decide a check but are named as an item's product: item, criterion, path."""
    out = []
    known = dict.fromkeys(files, b"")
    for item in contract.items:
        for criterion in item.criteria:
            if criterion.check is None:
                continue
            found = Judges()
            _line(command_line(criterion.check), "", known, found, 0, metric=criterion.check.metric is not None)
            paths = {*found.files, *(path for path in files if matches(path, (*contract.protected, *found.settings)))}
            own = named(contract)
            typed = " ".join((criterion.check.command, *criterion.check.tests))
            for path in sorted(paths & own):
                if path in found.files or path in typed or matches(path, found.settings):
                    out.append((item.id, criterion.id, path))
    return out
