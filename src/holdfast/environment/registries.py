"""Package registries of this machine, as its own tools report them.

The tools run on the host in an empty folder with a clean environment, so settings of a workspace have no effect. A
registry may have an address in a private network, as mirrors do. Credentials are removed from addresses: a registry
that needs them needs a secret, and the sandbox has none.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from holdfast.environment.base import Tools
from holdfast.facts.session import Destination

ASK_S = 20.0
"""Time limit of a tool, in seconds."""

_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_PYTHON = "/usr/bin/python3"
_DEFAULT_INDEX = "from pip._internal.models.index import PyPI; print(PyPI.simple_url, PyPI.file_storage_domain)"
_APT = ("sources.list", "sources.list.d", "preferences", "preferences.d", "keyrings", "trusted.gpg", "trusted.gpg.d")
_APT_KEYS = re.compile(
    r'(APT::Architectures?(::)?|APT::Default-Release|Acquire::Check-[A-Za-z-]+|Acquire::Languages(::)?) ".*";'
)


def _home() -> Path:
    """Return the user's home folder from the password database, not from the environment."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path("/")


def _ask(*command: str) -> str:
    """Run a tool and return its output; empty if it is missing, fails, or takes too long."""
    program = shutil.which(command[0], path=_PATH)
    if program is None:
        return ""
    with tempfile.TemporaryDirectory() as empty:
        home = str(_home())
        env = {"PATH": _PATH, "HOME": home if os.path.isdir(home) and home != "/" else empty, "LC_ALL": "C"}
        try:
            done = subprocess.run(
                [program, *command[1:]], env=env, cwd=empty, stdin=subprocess.DEVNULL, capture_output=True,
                timeout=ASK_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def destination(address: str) -> Destination | None:
    """Return the destination of an HTTP address; None for any other."""
    try:
        parts = urlsplit(address.strip())
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    plain = parts.scheme == "http"
    return Destination(parts.hostname, (port or (80 if plain else 443),), plain=plain, private=True)


def without_credentials(address: str) -> str:
    """Remove user and password from an address."""
    parts = urlsplit(address.strip())
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _pip() -> tuple[list[str], dict[str, str]]:
    """Return the index, extra indexes, and the file host of the default index."""
    settings: dict[str, str] = {}
    for line in _ask(_PYTHON, "-m", "pip", "config", "list").splitlines():
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2]] = " ".join(shlex.split(value))
    default, _, files = _ask(_PYTHON, "-I", "-c", _DEFAULT_INDEX).strip().partition(" ")
    index = settings.get("index-url", default)
    extra = [each for each in settings.get("extra-index-url", "").split() if destination(each)]
    env = {}
    if destination(index):
        env["PIP_INDEX_URL"] = env["UV_DEFAULT_INDEX"] = without_credentials(index)
    if extra:
        env["PIP_EXTRA_INDEX_URL"] = " ".join(map(without_credentials, extra))
    addresses = [index, *extra]
    if files and index == default:
        addresses.append(f"{urlsplit(default).scheme}://{files}")
    return addresses, env


def _npm() -> tuple[list[str], dict[str, str]]:
    """Return the registry and those of scopes."""
    try:
        settings = json.loads(_ask("npm", "config", "ls", "--json") or "{}")
    except ValueError:
        settings = {}
    addresses, env = [], {}
    for name, value in sorted(settings.items()):
        if isinstance(value, str) and (name == "registry" or name.endswith(":registry")) and destination(value):
            addresses.append(value)
            env[f"npm_config_{name}"] = without_credentials(value)
    return addresses, env


def _apt() -> list[str]:
    return _ask("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages").split()


def _go() -> tuple[list[str], dict[str, str]]:
    said = _ask("go", "env", "GOPROXY", "GOSUMDB").split()
    addresses = [each for each in re.split("[,|]", said[0]) if destination(each)] if said else []
    if len(said) > 1 and said[1] != "off":
        addresses.append(f"https://{said[1].split('+')[0]}")
    return addresses, {"GOPROXY": ",".join(map(without_credentials, addresses[:1]))} if addresses else {}


def _cargo() -> list[str]:
    """Return the indexes that cargo has used, from the names of its folders, and their download hosts."""
    out = []
    for folder in sorted((_home() / ".cargo" / "registry" / "index").glob("*-*")):
        out.append(f"https://{folder.name.rpartition('-')[0]}")
        try:
            out.append(str(json.loads((folder / "config.json").read_text())["dl"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return out


def _joined(addresses: Iterable[str]) -> tuple[Destination, ...]:
    """Merge into one destination for each host, with all its ports."""
    found: dict[str, list[Destination]] = {}
    for address in addresses:
        place = destination(address)
        if place is not None:
            found.setdefault(place.host, []).append(place)
    return tuple(
        Destination(
            host,
            tuple(sorted({port for each in places for port in each.ports})),
            plain=any(each.plain for each in places),
            private=True,
        )
        for host, places in sorted(found.items())
    )


def _apt_settings() -> str:
    """Return apt's settings on sources and their age; none that runs a program."""
    return "\n".join(line for line in _ask("apt-config", "dump").splitlines() if _APT_KEYS.fullmatch(line)) + "\n"


def _shown(folder: Path, names: Sequence[str]) -> dict[str, str]:
    return {str(folder / name): str(folder / name) for name in names if (folder / name).exists()}


@cache
def discover() -> Tools:
    """Query all tools, once per process. Blocks for about a second."""
    pip, pip_env = _pip()
    npm, npm_env = _npm()
    go, go_env = _go()
    apt = _apt()
    return Tools(
        destinations=_joined([*pip, *npm, *go, *apt, *_cargo()]),
        env={**pip_env, **npm_env, **go_env},
        apt=_apt_settings() if apt else "",
        read_only={**_shown(Path("/etc/apt"), _APT), **_shown(Path("/var/lib/dpkg"), ("status",))} if apt else {},
    )
