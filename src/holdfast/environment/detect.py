"""What the files of a workspace imply: pure, from their names and contents.

| found | done |
|---|---|
| `init.sh` | it alone is run |
| `package-lock.json`, `npm-shrinkwrap.json` | `npm ci` |
| `pnpm-lock.yaml`, `yarn.lock` | `pnpm` or `yarn install --frozen-lockfile`, where the tool is |
| `uv.lock` | `uv sync --frozen` where uv is, else as `pyproject.toml` |
| `poetry.lock` | `poetry install` where poetry is, else as `pyproject.toml` |
| `requirements*.txt` | a virtual environment in `.venv`, `pip install -r` each |
| `pyproject.toml`, `setup.py` | `.venv`, the project in place with its extras `dev` and `test` |
| `Cargo.lock` | `cargo fetch --locked`, where cargo is |
| `go.mod` | `go mod download`, where go is |
| `CMakeLists.txt` | nothing to fetch: what it needs is named in `packages` |
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Collection, Mapping
from typing import NamedTuple

from holdfast.environment.base import SHARED, WORKSPACE

INTERESTING = (
    *("init.sh", "package.json", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "yarn.lock", ".npmrc"),
    *("uv.lock", "poetry.lock", "poetry.toml", "pyproject.toml", "setup.py", "setup.cfg", "requirements*.txt"),
    *("constraints*.txt", "Cargo.toml", "Cargo.lock", "rust-toolchain*", "go.mod", "go.sum", "CMakeLists.txt"),
    *(".gitmodules", ".gitattributes", ".python-version", ".nvmrc", ".node-version"),
)
"""The files at the top of a workspace that count, as globs."""

_EXTRAS = ("dev", "test", "tests", "testing")
_VENV = "rm -rf .venv && python3 -m venv .venv"
_PIP = ".venv/bin/python -m pip install --no-cache-dir --no-input"


class Found(NamedTuple):
    """What is to be run, which files it was read from, what later commands are given, and what was left out and why."""

    commands: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    env: dict[str, str] = {}
    notes: tuple[str, ...] = ()


def interesting(names: Collection[str]) -> list[str]:
    """Those of the names at the top of a workspace that count, in order."""
    return sorted(name for name in names if any(fnmatch.fnmatchcase(name, glob) for glob in INTERESTING))


def detect(files: Mapping[str, bytes], tools: Collection[str]) -> Found:
    """Read it from the contents of the interesting files; `tools` are the programs that are there."""
    if "init.sh" in files:
        return Found(("bash ./init.sh",), tuple(sorted(files)))
    parts = [part(files, tools) for part in (_node, _python, _rust, _go)]
    env: dict[str, str] = {}
    for part in parts:
        env.update(part.env)
    return Found(
        tuple(command for part in parts for command in part.commands),
        tuple(sorted({name for part in parts for name in part.files})),
        env,
        tuple(note for part in parts for note in part.notes),
    )


def _present(files: Mapping[str, bytes], *globs: str) -> tuple[str, ...]:
    return tuple(sorted(name for name in files if any(fnmatch.fnmatchcase(name, glob) for glob in globs)))


def _absent(tool: str, file: str) -> Found:
    return Found(notes=(f"{file} is there and {tool} is not: name a folder with it in `toolchains`, or use `setup`",))


def _node(files: Mapping[str, bytes], tools: Collection[str]) -> Found:
    counted = _present(files, "package.json", "*-lock.json", "npm-shrinkwrap.json", "*.yaml", "yarn.lock", ".npmrc")
    for lock, tool, command in (
        ("package-lock.json", "npm", "npm ci --no-audit --no-fund"),
        ("npm-shrinkwrap.json", "npm", "npm ci --no-audit --no-fund"),
        ("pnpm-lock.yaml", "pnpm", "pnpm install --frozen-lockfile"),
        ("yarn.lock", "yarn", "yarn install --frozen-lockfile"),
    ):
        if lock in files:
            if tool not in tools:
                return _absent(tool, lock)
            return Found((f"rm -rf node_modules && {command}",), counted)
    if b"ependencies" in files.get("package.json", b""):
        return Found(notes=("package.json has no lock file, so nothing was installed: commit one, or use `setup`",))
    return Found()


def _python(files: Mapping[str, bytes], tools: Collection[str]) -> Found:
    counted = _present(
        files, "uv.lock", "poetry.*", "pyproject.toml", "setup.*", "requirements*.txt", "constraints*.txt"
    )
    env = {"VIRTUAL_ENV": f"{WORKSPACE}/.venv", "PATH": f"{WORKSPACE}/.venv/bin"}
    required = _present(files, "requirements*.txt")
    if "uv.lock" in files and "uv" in tools:
        return Found(("rm -rf .venv && uv sync --frozen --no-cache",), counted, env)
    if "poetry.lock" in files and "poetry" in tools:
        in_place = "POETRY_VIRTUALENVS_IN_PROJECT=true"
        return Found((f"rm -rf .venv && {in_place} poetry install --no-interaction",), counted, env)
    if not required and "pyproject.toml" not in files and "setup.py" not in files:
        return Found()
    if "python3" not in tools:
        return _absent("python3", (required or ("pyproject.toml",))[0])
    commands = [_VENV, *(f"{_PIP} -r {_quoted(name)}" for name in required)]
    project, note = _project(files)
    if project:
        commands.append(f"{_PIP} -e {_quoted(project)}")
    return Found((" && ".join(commands),), counted, env, note)


def _quoted(name: str) -> str:
    return "'" + name.replace("'", "'\\''") + "'"


def _project(files: Mapping[str, bytes]) -> tuple[str, tuple[str, ...]]:
    """What pip is told to install in place, empty for a pyproject that only configures tools."""
    try:
        settings = tomllib.loads(files.get("pyproject.toml", b"").decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        return "", (f"pyproject.toml cannot be read ({error}), so the project itself was not installed",)
    project = settings.get("project", {})
    if not ("setup.py" in files or "build-system" in settings or "project" in settings):
        return "", ()
    offered = project.get("optional-dependencies", {}) if isinstance(project, dict) else {}
    extras = ",".join(name for name in _EXTRAS if isinstance(offered, dict) and name in offered)
    return (f".[{extras}]" if extras else "."), ()


def _rust(files: Mapping[str, bytes], tools: Collection[str]) -> Found:
    if "Cargo.lock" not in files:
        return Found()
    if "cargo" not in tools:
        return _absent("cargo", "Cargo.lock")
    env = {"CARGO_HOME": f"{SHARED}/cargo"}
    counted = _present(files, "Cargo.*", "rust-toolchain*")
    return Found((f"CARGO_HOME={SHARED}/cargo cargo fetch --locked",), counted, {**env, "CARGO_NET_OFFLINE": "true"})


def _go(files: Mapping[str, bytes], tools: Collection[str]) -> Found:
    if "go.mod" not in files:
        return Found()
    if "go" not in tools:
        return _absent("go", "go.mod")
    env = {"GOMODCACHE": f"{SHARED}/go", "GOPROXY": "off"}
    return Found((f"GOMODCACHE={SHARED}/go go mod download",), _present(files, "go.*"), env)
