"""Detect the set-up that a workspace needs from its files, and name it by a digest over all its inputs.

| found | done |
|---|---|
| `init.sh` | only this script runs |
| `package-lock.json`, `npm-shrinkwrap.json` | `npm ci` |
| `pnpm-lock.yaml`, `yarn.lock` | `pnpm` or `yarn install --frozen-lockfile`, if the tool is installed |
| `uv.lock` | `uv sync --frozen` if uv is installed, else as `pyproject.toml` |
| `poetry.lock` | `poetry install` if poetry is installed, else as `pyproject.toml` |
| `requirements*.txt` | a virtual environment in `.venv`, `pip install -r` each |
| `pyproject.toml`, `setup.py` | `.venv`, the project in place with its extras `dev` and `test` |
| `Cargo.lock` | `cargo fetch --locked`, if cargo is installed |
| `go.mod` | `go mod download`, if go is installed |
| `CMakeLists.txt` | nothing: dependencies are named in `packages` |

The digest covers the repository too (the folder that its `.git` leads to, or the workspace itself): a layer made by the
commands of one repository is never shown to another one.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import platform
import shutil
import stat
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.environment.base import SHARED, WORKSPACE, Wanted
from holdfast.environment.recipes import LFS, SUBMODULES, recipe, unpack
from holdfast.errors import UsageError
from holdfast.facts.session import Environment

INTERESTING = (
    *("init.sh", "package.json", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "yarn.lock", ".npmrc"),
    *("uv.lock", "poetry.lock", "poetry.toml", "pyproject.toml", "setup.py", "setup.cfg", "requirements*.txt"),
    *("constraints*.txt", "Cargo.toml", "Cargo.lock", "rust-toolchain*", "go.mod", "go.sum", "CMakeLists.txt"),
    *(".gitmodules", ".gitattributes", ".python-version", ".nvmrc", ".node-version"),
)
"""Relevant files at the top of a workspace, as globs."""

_EXTRAS = ("dev", "test", "tests", "testing")
_VENV = "rm -rf .venv && python3 -m venv .venv"
_PIP = ".venv/bin/python -m pip install --no-cache-dir --no-input"


class Found(NamedTuple):
    """Detected commands, the files that imply them, variables for later commands, and notes on what was left out."""

    commands: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    env: dict[str, str] = {}
    notes: tuple[str, ...] = ()


def interesting(names: Collection[str]) -> list[str]:
    """Select the relevant names at the top of a workspace, in order."""
    return sorted(name for name in names if any(fnmatch.fnmatchcase(name, glob) for glob in INTERESTING))


def detect(files: Mapping[str, bytes], tools: Collection[str]) -> Found:
    """Detect the set-up from the contents of the relevant files; `tools` are the installed programs."""
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
    return Found(
        notes=(f"{file} needs {tool}, which is not installed: name a folder with it in `toolchains`, or use `setup`",)
    )


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
    """Return the argument of `pip install -e`; empty for a pyproject that only configures tools."""
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


FORMAT = 1
"""Version of the layer format, part of every digest."""

BYTES_MAX = 16 << 20
"""Largest lock file that is read, in bytes."""

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_TOOLS = "npm pnpm yarn uv poetry python3 cargo go cmake node".split()


def look(workspace: str, policy: Environment, uid: int, origin: str = "") -> Wanted:
    """Determine the environment; `origin` is the repository of a checkout. Raises `UsageError`."""
    real = os.path.realpath(workspace)
    recipes = [recipe(name) for name in policy.recipes]
    toolchains = tuple(_toolchain(path) for path in policy.toolchains)
    contents = _contents(real)
    path = ":".join([*_programs(toolchains), PATH])
    tools = [tool for tool in _TOOLS if shutil.which(tool, path=path)]
    found = detect(contents, tools) if policy.auto else Found()
    packages = tuple(dict.fromkeys([*policy.packages, *(name for each in recipes for name in each.packages)]))
    unpack(packages)
    commands = (
        *((SUBMODULES,) if policy.submodules and ".gitmodules" in contents else ()),
        *((LFS,) if policy.lfs else ()),
        *(command for each in recipes for command in each.commands),
        *found.commands,
        *policy.setup,
    )
    env = _env(found, [each.env for each in recipes], path)
    counted = set(found.files) if policy.auto else set()
    counted |= set(contents) if policy.setup or policy.submodules else set()
    base = _named({"format": FORMAT, "packages": packages, "system": _beneath()}) if packages else ""
    files = {name: hashlib.sha256(contents[name]).hexdigest() for name in sorted(counted)}
    made_from = {
        "format": FORMAT,
        "repository": _repository(os.path.realpath(origin) if origin else real),
        "uid": uid,
        "commands": commands,
        "base": base,
        "files": files,
        "env": env,
        "lfs": policy.lfs,
        "system": _system(tools, path, toolchains),
    }
    return Wanted(
        digest=_named(made_from),
        base=base,
        commands=commands,
        packages=packages,
        toolchains=toolchains,
        files=files,
        env=env,
        services=(*(each for one in recipes for each in one.services), *policy.services),
        lfs=policy.lfs,
        notes=found.notes,
    )


def _contents(folder: str) -> dict[str, bytes]:
    """Read the relevant files at the top of a workspace. Links are not followed."""
    out = {}
    for name in interesting(os.listdir(folder)):
        try:
            fd = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        with open(fd, "rb") as file:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                continue
            if found.st_size > BYTES_MAX:
                raise UsageError(f"{name} in the workspace has {found.st_size} bytes; the limit is {BYTES_MAX}")
            out[name] = file.read(BYTES_MAX)
    return out


def _toolchain(path: str) -> str:
    full = os.path.realpath(os.path.expanduser(path))
    if not os.path.isabs(os.path.expanduser(path)) or not os.path.isdir(full):
        raise UsageError(f"the tool-chain {path} is not a folder of this host; `toolchains` takes absolute paths")
    if full == "/" or full.startswith(("/proc", "/dev", "/sys", "/run", "/tmp", "/etc", "/usr/", WORKSPACE)):
        raise UsageError(
            f"the tool-chain {path} is in a folder that the sandbox replaces; choose one such as /opt/node"
        )
    return full


def _programs(toolchains: Iterable[str]) -> list[str]:
    """Return the folders with programs of toolchains."""
    return [f"{path}/bin" if os.path.isdir(f"{path}/bin") else path for path in toolchains]


def _env(found: Found, more: list[dict[str, str]], path: str) -> dict[str, str]:
    """Return the variables of every command of the work: detected ones, those of recipes, and PATH."""
    env = {name: value for part in [found.env, *more] for name, value in part.items()}
    first = [env.pop("PATH")] if "PATH" in env else []
    postgres = [f"/usr/lib/postgresql/{number}/bin" for number in range(20, 12, -1)]
    env["PATH"] = ":".join([*first, f"{SHARED}/bin", path, *postgres])
    return env


def _repository(real: str) -> str:
    """Return the folder that identifies a repository; its worktrees share it.

    The pointer of a worktree to its repository is trusted only if the repository points back.
    """
    own = os.path.join(real, ".git")
    pointed = os.path.join(real, _text(own).removeprefix("gitdir:").strip())
    if _text(own).startswith("gitdir:") and os.path.realpath(_text(os.path.join(pointed, "gitdir")).strip()) == own:
        return os.path.realpath(os.path.join(pointed, "..", ".."))
    return real


def _text(path: str) -> str:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(4096).decode()
    except (OSError, UnicodeDecodeError):
        return ""


def _named(made_from: dict[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(made_from, order="deterministic")).hexdigest()[:40]


def _beneath() -> dict[str, str]:
    """Describe the system beside which packages are unpacked, for their digest."""
    return {
        "machine": platform.machine(),
        "release": _digest("/etc/os-release"),
        "packages": _digest("/var/lib/dpkg/status"),
    }


def _system(tools: list[str], path: str, toolchains: tuple[str, ...]) -> dict[str, Any]:
    """Describe the system on which a layer is made, for its digest."""
    out: dict[str, Any] = {"machine": platform.machine(), "release": _digest("/etc/os-release")}
    for tool in tools:
        program = os.path.realpath(shutil.which(tool, path=path) or "")
        out[tool] = (program, *_stamp(program))
    for folder in toolchains:
        out[folder] = _stamp(folder)
    return out


def _stamp(path: str) -> tuple[int, int]:
    try:
        found = Path(path).stat()
    except OSError:
        return (0, 0)
    return (found.st_size, found.st_mtime_ns)


def _digest(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""
