"""Rules of the ratchet: files that verify the work may grow but not shrink. Violations by path.

The rules know which files verify the work and never inspect product code: only running the checks shows that the
product meets them.
"""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from holdfast.facts.mission import Contract
from holdfast.facts.task import Violation
from holdfast.globs import matches
from holdfast.kinds.mission.check import judging
from holdfast.kinds.mission.check.judging import SETTINGS, Judges
from holdfast.kinds.mission.ratchet.additions import REMOVED, fixtures_asked_for, only_more
from holdfast.kinds.mission.ratchet.planted import ALWAYS, TOOLS, is_test_file, planted, shadowing

LINKS = ("120000", "160000")
"""Git modes of a symbolic link and of a submodule."""

CONTRACTS = ("feature_list.json", "prd.json", "mission.toml")


class Trees:
    """Two trees: the regular files of both, the new modes of changed files, and the files that verify them.

    `asked` is the scope of the task: new files that it names by path are asked for.
    """

    def __init__(
        self,
        before: Mapping[str, bytes],
        after: Mapping[str, bytes],
        modes: Mapping[str, str],
        protected: tuple[str, ...],
        contract: Contract,
        asked: Iterable[str] = (),
    ) -> None:
        self.before = before
        self.after = after
        self.modes = modes
        self.protected = protected
        self.contract = contract
        self._asked = frozenset(asked)

    @cached_property
    def judges(self) -> Judges:
        """Files, scripts, and tools that checks run at the base."""
        return judging.judges(self.contract, self.before)

    @cached_property
    def own(self) -> frozenset[str]:
        """Paths that items name: the subject of the work."""
        return judging.named(self.contract)

    @cached_property
    def planted(self) -> frozenset[str]:
        """New unrequested files that could decide the result of checks."""
        new = set(self.after) - set(self.before)
        contents = {path: self.after[path] for path in new}
        return frozenset(planted(contents, self.before, self.judges, self.own | self._asked))

    @cached_property
    def fixtures(self) -> frozenset[str]:
        """Names of fixtures that tests of the base use."""
        return frozenset(
            name for path in self.before if is_test_file(path) for name in fixtures_asked_for(self.before[path])
        )

    def is_protected(self, path: str) -> bool:
        """Return True if the contract protects a path or its name shows that it verifies the work."""
        if self.is_contract(path):
            return True
        if path in self.own:
            return False
        settings = (*ALWAYS, *CI, *self.judges.settings, *self.contract.hidden)
        return matches(path, (*self.protected, *settings)) or path in self.judges.files

    def is_contract(self, path: str) -> bool:
        """Return True if the path is a contract file."""
        return path == self.contract.source or path in CONTRACTS


def violations(trees: Trees, path: str) -> list[Violation]:
    """Return rules that a changed path breaks; none for product files and for tests with added cases only."""
    old, new, mode = trees.before.get(path), trees.after.get(path), trees.modes.get(path)
    if path in trees.planted:
        named = " and shadows an existing module" if path in shadowing(set(trees.after)) else ""
        return [Violation("planted", path, f"a new file that could decide what checks say{named}")]
    if path.rsplit("/", 1)[-1] in SHARED and path not in trees.own and mode not in LINKS:
        return shared(path, old, new, trees.judges)
    if not trees.is_protected(path):
        below = mode in LINKS and any(each.startswith(f"{path}/") and trees.is_protected(each) for each in trees.before)
        return [Violation("linked", path, "a link replaces a folder with protected files")] if below else []
    if mode in LINKS:
        return [Violation("linked", path, "a link replaces a file that verifies the work")]
    if trees.is_contract(path):
        return [Violation("contract_edited", path, "only `holdfast mission amend` changes the contract")]
    if matches(path, CI):
        words = "removed" if new is None else "added" if old is None else "changed"
        return [Violation("ci_edited", path, f"{words}; it runs with the rights of CI")]
    if old is None:
        return []
    if old == new:
        return [Violation("mode_changed", path, f"mode changed to {mode}")]
    return _changed(trees, path, old, new)


def _changed(trees: Trees, path: str, old: bytes, new: bytes | None) -> list[Violation]:
    """Return rules broken by the change or removal of an existing file."""
    if path in trees.judges.files and not is_test_file(path):
        if new is not None and only_longer(path, old, new):
            return []
        words = "removed" if new is None else "changed, and checks run it"
        return [Violation("check_script", path, words)]
    if matches(path, (*ALWAYS, *trees.judges.settings)) and not path.endswith("conftest.py"):
        return [Violation("test_config", path, "removed" if new is None else "changed")]
    code = path.endswith(CODE)
    if new is None:
        return [Violation("test_deleted" if code else "fixture_edited", path, "removed")]
    if not code:
        return [Violation("fixture_edited", path, "changed")]
    problem = only_more(path, old, new, trees.fixtures if path.endswith("conftest.py") else ())
    if not problem:
        return []
    return [Violation("test_deleted" if problem.endswith(REMOVED) else "test_edited", path, problem)]


CODE = (
    ".py", ".js", ".jsx", ".ts", ".tsx", ".mjs", ".cjs", ".go", ".rb", ".rs", ".java", ".kt", ".sh", ".c", ".h", ".cc",
    ".cpp", ".hpp", ".cs", ".php", ".swift", ".scala", ".ex", ".exs",
)  # fmt: skip


SHARED = ("pyproject.toml", "setup.cfg", "tox.ini", "package.json", "Cargo.toml", "pom.xml")
"""Files with a section of test settings."""

CI = (
    ".github/workflows/**", ".github/actions/**", ".gitlab-ci.yml", ".gitlab/ci/**", ".circleci/**", ".travis.yml",
    "azure-pipelines.yml", "Jenkinsfile", ".buildkite/**", "bitbucket-pipelines.yml", "appveyor.yml", ".ci/**",
    ".pre-commit-config.yaml", ".drone.yml",
)  # fmt: skip

_TABLES = ("pytest", "coverage", "tox", "nox", "hatch", "poe", "pdm.scripts", "taskipy", "hypothesis", "behave")

_LINTERS = ("ruff", "mypy", "flake8", "pylint", "pyright", "black", "isort", "bandit")


def shared(path: str, old: bytes | None, new: bytes | None, judges: Judges) -> list[Violation]:
    """Return rules broken by a change of a shared file. Only its test settings are compared."""
    name = path.rsplit("/", 1)[-1]
    before, after = _sections(name, old, judges), _sections(name, new, judges)
    if after is None:
        return [Violation("test_config", path, "it has test settings and can no longer be parsed")]
    pairs = {key: ((before or {}).get(key), after.get(key)) for key in sorted({*(before or {}), *after})}
    return [
        Violation("test_config", path, f"{key} changed from {_short(was)} to {_short(now)}")
        for key, (was, now) in pairs.items()
        if was != now and not _stricter(key, was, now)
    ]


_POM = re.compile(
    rb"<(?:maven\.test|skip\w*Tests?|testFailureIgnore)[^>]*>[^<]*|<artifactId>maven-(?:surefire|failsafe).*?</plugin>"
)

_STRICT = re.compile(r"strict|disallow|no_|warn_|check_|select|enable|fail_under|markers$")


def _stricter(key: str, was: object, now: object) -> bool:
    """Return True if a setting is only stricter: a new strict switch, more rules. New markers are fine too."""
    name = key.rpartition(".")[2]
    if not _STRICT.match(name) or "overrides" in key:
        return False
    if isinstance(now, bool):
        return now is True and was in (None, False)
    if isinstance(now, int | float) and name == "fail_under":
        return was is None or (isinstance(was, int | float) and now >= was)
    return now is not None and set(_lines(was)) <= set(_lines(now))


def _lines(value: object) -> list[str]:
    if isinstance(value, list):
        return [str(each) for each in value]
    return [line.strip() for line in str(value or "").splitlines() if line.strip()]


def _short(value: object) -> str:
    return "not set" if value is None else repr(value)[:80]


def _sections(name: str, content: bytes | None, judges: Judges) -> dict[str, Any] | None:
    """Return test settings of a file by dotted key; None if it cannot be parsed."""
    if content is None:
        return {}
    linters = tuple(sorted(judges.tools & ({*SETTINGS, "black", "isort", "bandit"} - {"pytest", "tox", "nox"})))
    try:
        if name == "pyproject.toml":
            return _toml(tomllib.loads(content.decode()), linters)
        if name == "package.json":
            known = json.loads(content)
            scripts = {key: value for key, value in known.get("scripts", {}).items() if key in judges.scripts}
            tools = {key: known.get(key) for key in ("jest", "mocha", "vitest", "ava", "nyc", "c8")}
            return dict(_leaves({"scripts": scripts, **tools}))
        if name == "Cargo.toml":
            known = tomllib.loads(content.decode())
            own = {key: known.get("lib", {}).get(key) for key in ("test", "doctest", "harness")}
            return dict(_leaves({"test": known.get("test"), "lib": own}))
        if name == "pom.xml":
            return {"tests": _POM.findall(re.sub(rb"\s", b"", content)) or None}
        parser = configparser.RawConfigParser(strict=False)
        parser.read_string(content.decode())
        return _ini(parser, linters)
    except (ValueError, AttributeError, configparser.Error, RecursionError):
        return None


def _toml(known: dict[str, Any], linters: tuple[str, ...]) -> dict[str, Any]:
    tools = known.get("tool", {})
    wanted: dict[str, Any] = {}
    for table in (*_TABLES, *linters):
        first, _, rest = table.partition(".")
        value = tools.get(first)
        value = value.get(rest) if rest and isinstance(value, dict) else value
        if table == "hatch" and isinstance(value, dict):
            value = value.get("envs")
        if value is not None:
            wanted[table] = value
    project = known.get("project", {})
    plugins = project.get("entry-points", {}).get("pytest11")
    programs = {name: value for name, value in project.get("scripts", {}).items() if name in TOOLS}
    build = {key: value for key, value in known.get("build-system", {}).items() if key != "requires"}
    return dict(_leaves({"tool": wanted, "pytest11": plugins, "scripts": programs, "build": build}))


def _ini(parser: configparser.RawConfigParser, linters: tuple[str, ...]) -> dict[str, Any]:
    heads = ("tool:pytest", "pytest", "tox", "testenv", "coverage", "nosetests", "aliases", *linters)
    out = {
        f"{section}.{key}": value
        for section in parser.sections()
        if section.startswith(heads)
        for key, value in parser.items(section)
    }
    if parser.has_option("options.entry_points", "pytest11"):
        out["pytest11"] = parser.get("options.entry_points", "pytest11")
    return out


def _leaves(value: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from _leaves(inside, f"{prefix}.{key}" if prefix else str(key))
    elif value is not None:
        yield prefix, value


def only_longer(path: str, old: bytes, new: bytes) -> bool:
    """Return True if a file that checks run was only extended: new Makefile targets, text appended to examples."""
    if path.endswith((".md", ".rst", ".txt")):
        return new.startswith(old.rstrip() + b"\n")
    return _added_targets(path, old, new)


def _added_targets(path: str, old: bytes, new: bytes) -> bool:
    """Return True if a Makefile only has new targets."""
    if not path.rsplit("/", 1)[-1].lower().endswith(("makefile", ".mk", "justfile")):
        return False
    was, now = old.decode("utf-8", "replace").splitlines(), new.decode("utf-8", "replace").splitlines()
    known = {each for line in was if (match := _TARGET.match(line)) for each in match[1].split()}
    added: list[str] = []
    rest = iter(now)
    for line in was:
        for other in rest:
            if other == line or (line.startswith(".PHONY:") and set(line.split()) <= set(other.split())):
                break
            added.append(other)
        else:
            return False
        if added and added[-1].strip() and line[:1] == "\t":
            return False  # lines before a line of an old recipe
    added += rest
    heads = [each for line in added if (match := _TARGET.match(line)) for each in match[1].split()]
    loose = [line for line in added if line.strip() and line[:1] not in ("\t", " ", "#") and not _TARGET.match(line)]
    started = not added or not next((line for line in added if line.strip()), "").startswith("\t")
    return (
        started
        and not loose
        and not known & {*heads} - {".PHONY"}
        and all(not each.startswith(".") for each in heads if each != ".PHONY")
    )


_TARGET = re.compile(r"([\w./ -]+?)\s*:(?![=:])(?!.*\?=)")
