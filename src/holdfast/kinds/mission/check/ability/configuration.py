"""Files that configure a test runner, and their digest."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import tomllib
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.facts.contract import Check
from holdfast.kinds.mission.check.ability.runners import recognized
from holdfast.kinds.mission.contract.contents import command_line

_NAMES = re.compile(
    r"(\.?pytest\.(ini|toml)|tox\.ini|setup\.cfg|conftest\.py|\.coveragerc|noxfile\.py|\.mocharc\..*|"
    r"(jest|vitest|vite|babel)\.config\..*|vitest\.workspace\..*|\.babelrc.*|tsconfig.*\.json|go\.(mod|work)|"
    r"(GNUm|m|M)akefile|pyproject\.toml|package\.json)"
)
_TABLES = ("pytest", "coverage", "tox", "hatch", "poe", "pdm", "uv")
_KEYS = ("scripts", "jest", "mocha", "vitest", "type", "babel", "workspaces")


def digest(check: Check, files: Mapping[str, bytes]) -> str:
    """The digest of what a check is run by: its command, its runner, and the settings of that."""
    runner = recognized((check,), files)
    parts: list[tuple[str, str]] = [(command_line(check), runner.kind if runner else ""), ("", check.canary or "")]
    for path in sorted(files):
        name = posixpath.basename(path)
        if _NAMES.fullmatch(name):
            parts.append((path, hashlib.sha256(_settings(name, files[path])).hexdigest()))
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def _settings(name: str, data: bytes) -> bytes:
    """The part of a file that configures runners: a new version or dependency is none."""
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
    """The text of all files that may configure pytest."""
    return "\n".join(files[path].decode("utf-8", "replace") for path in files if posixpath.basename(path) in PYTEST)


def pytest_words(files: Mapping[str, bytes], key: str, default: str) -> tuple[str, ...]:
    """The words of a setting of pytest, wherever it stands; a value may be over several lines."""
    found = re.search(
        rf"^\s*{key}\s*=((?:[^\n\[#]*)|\s*\[[^\]]*\])((?:\n[ \t]+[^\n=]+)*)", pytest_settings(files), re.MULTILINE
    )
    text = "".join(found.groups()) if found else default
    return tuple(word for word in re.split(r"[\s,\[\]\"']+", text) if word) or tuple(default.split())
