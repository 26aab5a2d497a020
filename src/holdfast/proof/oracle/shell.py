"""Commands by which the oracle does something beside its task, and puts it back."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping

FAULT = ": fault; "
"""How a command begins that a fault runs beside the task."""

UNDO = ": undo; "
"""And one that takes such a thing back."""

_PATHS = " # paths: "


def script_of(parts: Mapping[str, str]) -> str:
    """A command that does all of these, and names the paths that it changes."""
    return (" && ".join(parts.values()) or "true") + _PATHS + shlex.join(parts)


def paths_of(command: str) -> list[str]:
    """The paths that such a command changes."""
    return shlex.split(command.rpartition(_PATHS)[2]) if _PATHS in command else []


def put_command(path: str, content: bytes | None, mode: str) -> str:
    """The command that gives a path this content; None takes it away."""
    name = shlex.quote(path)
    if content is None:
        return f"rm -rf {name}"
    folder = shlex.quote(path.rpartition("/")[0] or ".")
    if mode == "120000":
        return f"rm -rf {name} && mkdir -p {folder} && ln -s {shlex.quote(content.decode())} {name}"
    text = base64.b64encode(content).decode()
    allowed = "755" if mode == "100755" else "644"
    return f"mkdir -p {folder} && rm -rf {name} && echo {text} | base64 -d > {name} && chmod {allowed} {name}"
