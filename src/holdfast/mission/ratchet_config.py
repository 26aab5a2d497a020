"""Settings of tests that share a file with others, CI, and the scripts that checks run."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.facts.contract import Contract
from holdfast.facts.task import Violation
from holdfast.mission.globs import matches
from holdfast.mission.pristine import TOOLS

SHARED = ("pyproject.toml", "setup.cfg", "tox.ini", "package.json")
"""Files of which only a part is about tests."""

CI = (
    ".github/workflows/**", ".github/actions/**", ".gitlab-ci.yml", ".gitlab/ci/**", ".circleci/**", ".travis.yml",
    "azure-pipelines.yml", "Jenkinsfile", ".buildkite/**", "bitbucket-pipelines.yml", "appveyor.yml", ".ci/**",
    ".pre-commit-config.yaml", ".drone.yml",
)  # fmt: skip

RUNS = (
    "Makefile",
    "makefile",
    "GNUmakefile",
    "justfile",
    "Justfile",
    "Taskfile.yml",
    "noxfile.py",
    "tasks.py",
    "**/*.mk",
)
"""What runs checks, by its name alone."""

_TABLES = ("pytest", "coverage", "tox", "nox", "hatch", "poe", "pdm.scripts", "taskipy", "hypothesis", "behave")

_LINTERS = ("ruff", "mypy", "flake8", "pylint", "pyright", "black", "isort", "bandit")

_WEAK = re.compile(
    r"\|\|\s*(?:true|:|exit 0)|continue-on-error:\s*true|allow_failure:\s*true|if:\s*(?:\$\{\{)?\s*false"
    r"|set \+e|--exit-zero"
)


def shared(path: str, old: bytes | None, new: bytes | None, contract: Contract) -> list[Violation]:
    """What a change of such a file breaks: sections of tests compared, all others left alone."""
    name = path.rsplit("/", 1)[-1]
    before, after = _sections(name, old, contract), _sections(name, new, contract)
    if after is None:
        return [Violation("test_config", path, "it cannot be read any more: nobody knows what it says about tests")]
    return [*_differences(path, before or {}, after)]


def _differences(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Violation]:
    for key in sorted({*before, *after}):
        if before.get(key) == after.get(key):
            continue
        was, now = before.get(key), after.get(key)
        if key.endswith("markers") and set(_lines(was)) <= set(_lines(now)):
            continue  # a mark has to be announced before a new test can have it
        if "timeout" in key:
            yield Violation("timeout_changed", path, f"{key} is {now!r} and was {was!r}")
        elif "pytest11" in key:
            yield Violation("test_hook", path, "it announces a plug-in of pytest")
        else:
            yield Violation("test_config", path, f"{key} is {_short(now)} and was {_short(was)}")


def _lines(value: object) -> list[str]:
    if isinstance(value, list):
        return [str(each) for each in value]
    return [line.strip() for line in str(value or "").splitlines() if line.strip()]


def _short(value: object) -> str:
    return "not set" if value is None else repr(value)[:80]


def _sections(name: str, content: bytes | None, contract: Contract) -> dict[str, Any] | None:
    """What a file says about tests, by dotted key; None when it cannot be read."""
    if content is None:
        return {}
    try:
        if name == "pyproject.toml":
            return _toml(tomllib.loads(content.decode()), _checked(contract))
        if name == "package.json":
            known = json.loads(content)
            return dict(
                _leaves({key: known.get(key) for key in ("scripts", "jest", "mocha", "vitest", "ava", "nyc", "c8")})
            )
        parser = configparser.RawConfigParser(strict=False)
        parser.read_string(content.decode())
        return _ini(parser, _checked(contract))
    except (ValueError, AttributeError, configparser.Error, RecursionError):
        return None


def _checked(contract: Contract) -> tuple[str, ...]:
    """Linters that checks run: their settings are settings of checks."""
    commands = " ".join(each.check.command for each in contract.criteria().values() if each.check is not None)
    return tuple(name for name in _LINTERS if name in commands)


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


def workflow(path: str, old: bytes | None, new: bytes | None) -> Violation:
    """What a change of CI breaks: it is always asked about, and named when it is weaker."""
    if new is None:
        return Violation("ci_weakened", path, "it is gone")
    weak = len(_WEAK.findall(new.decode("utf-8", "replace"))) - len(
        _WEAK.findall((old or b"").decode("utf-8", "replace"))
    )
    if old is None:
        return Violation("ci_edited", path, "it is new: it would run with the rights of CI")
    lost = set(old.splitlines()) - set(new.splitlines())
    if weak > 0:
        return Violation("ci_weakened", path, "a command in it may fail without anybody seeing")
    return Violation("ci_weakened" if lost else "ci_edited", path, "lines of it are gone" if lost else "lines are new")


def run_by(contract: Contract, files: Mapping[str, bytes]) -> frozenset[str]:
    """Files that the checks of a contract run: scripts named in commands and in other such files, and what `make` and
    its like read. A program of the product that a check calls is none: it has to be written.
    """
    texts = [each.check.command for each in contract.criteria().values() if each.check is not None]
    found = {path for path in files if matches(path, RUNS)}
    texts += [files[path].decode("utf-8", "replace") for path in found]
    while texts:
        words = {word.removeprefix("./") for word in re.findall(r"[\w./-]+", texts.pop())}
        fresh = {word for word in words if word in files and _is_script(word)} - found
        found |= fresh
        texts += [files[path].decode("utf-8", "replace") for path in fresh]
    return frozenset(found)


def _is_script(path: str) -> bool:
    beside = {"scripts", "script", "ci", ".ci", "tools", "bin", "hack"} & set(path.split("/")[:-1])
    return path.endswith((".sh", ".bash", ".mk", ".zsh", ".ps1")) or bool(beside)
