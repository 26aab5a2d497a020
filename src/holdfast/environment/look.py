"""What a workspace wants, and the digest that names it: over all that an environment is made from.

The digest holds the repository too (the folder that its `.git` leads to, or the workspace itself): a layer that one
repository's commands made is never shown to another one.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from holdfast.environment.base import SHARED, WORKSPACE, Wanted
from holdfast.environment.detect import Found, detect, interesting
from holdfast.environment.recipes import recipe
from holdfast.environment.scripts import LFS, SUBMODULES, unpack
from holdfast.errors import UsageError
from holdfast.facts.session import Environment

FORMAT = 1
"""Goes into every digest: raised when layers are made in another way."""

BYTES_MAX = 16 << 20
"""Of a lock file."""

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_TOOLS = "npm pnpm yarn uv poetry python3 cargo go cmake node".split()


def look(workspace: str, policy: Environment, uid: int, origin: str = "") -> Wanted:
    """Read what is wanted; `origin` is the repository of a checkout. Raises `UsageError` for a policy that cannot be
    met.
    """
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
    """The interesting files at the top. A link is followed only by who set it up: not at all."""
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
                raise UsageError(f"{name} in the workspace has {found.st_size} bytes; {BYTES_MAX} are the most")
            out[name] = file.read(BYTES_MAX)
    return out


def _toolchain(path: str) -> str:
    full = os.path.realpath(os.path.expanduser(path))
    if not os.path.isabs(os.path.expanduser(path)) or not os.path.isdir(full):
        raise UsageError(f"the tool-chain {path} is not a folder of this host; `toolchains` takes whole paths")
    if full == "/" or full.startswith(("/proc", "/dev", "/sys", "/run", "/tmp", "/etc", "/usr/", WORKSPACE)):
        raise UsageError(
            f"the tool-chain {path} is in a folder that is the sandbox's own; choose one such as /opt/node"
        )
    return full


def _programs(toolchains: Iterable[str]) -> list[str]:
    """The folders with programs of tool-chains."""
    return [f"{path}/bin" if os.path.isdir(f"{path}/bin") else path for path in toolchains]


def _env(found: Found, more: list[dict[str, str]], path: str) -> dict[str, str]:
    """What every command of the work is given beside its own: what was detected, recipes, and where programs are."""
    env = {name: value for part in [found.env, *more] for name, value in part.items()}
    first = [env.pop("PATH")] if "PATH" in env else []
    postgres = [f"/usr/lib/postgresql/{number}/bin" for number in range(20, 12, -1)]
    env["PATH"] = ":".join([*first, f"{SHARED}/bin", path, *postgres])
    return env


def _repository(real: str) -> str:
    """The folder that tells one repository from another: worktrees of one share theirs.

    A worktree says where its repository is, and counts only when the repository says the same of it.
    """
    own = os.path.join(real, ".git")
    pointed = os.path.join(real, _said(own).removeprefix("gitdir:").strip())
    if _said(own).startswith("gitdir:") and os.path.realpath(_said(os.path.join(pointed, "gitdir")).strip()) == own:
        return os.path.realpath(os.path.join(pointed, "..", ".."))
    return real


def _said(path: str) -> str:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(4096).decode()
    except (OSError, UnicodeDecodeError):
        return ""


def _named(made_from: dict[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(made_from, order="deterministic")).hexdigest()[:40]


def _beneath() -> dict[str, str]:
    """What packages are unpacked beside: other ones make another layer."""
    return {
        "machine": platform.machine(),
        "release": _digest("/etc/os-release"),
        "packages": _digest("/var/lib/dpkg/status"),
    }


def _system(tools: list[str], path: str, toolchains: tuple[str, ...]) -> dict[str, Any]:
    """What a layer is made on: another system beneath makes another layer."""
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
