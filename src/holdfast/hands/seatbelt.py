"""The walls of hands as a Seatbelt profile, the sandbox of macOS. Pure; made and compared, never tried on a Mac.

Everything is denied that is not allowed: writing but to the workspace and a scratch folder, the network but for the one
socket of the session's proxy. Of what can be read, places where people keep secrets are taken out again. Seatbelt has
no namespace of processes and limits nothing: what it gives is soft.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import UsageError
from holdfast.facts.base import Isolation

ISOLATION: dict[str, Isolation] = {
    "files": "hard",
    "network": "hard",
    "processes": "soft",
    "syscalls": "soft",
    "users": "none",
    "memory": "soft",
    "disk": "soft",
    "cpu": "none",
}

SYSTEM = ("/usr", "/bin", "/sbin", "/System", "/Library", "/opt", "/private/etc", "/private/var/db/timezone", "/dev")
"""What programs need to start: read, never written."""

SECRETS = (
    ".ssh", ".aws", ".azure", ".config", ".docker", ".gnupg", ".kube", ".netrc", ".npmrc", ".pypirc",
    ".git-credentials", ".password-store", "Library/Keychains", "Library/Cookies", "Library/Application Support",
)  # fmt: skip
"""Below a home: never read, also where the workspace is the home or lies in one of them."""

_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/dtracehelper")


def profile(workspace: str, scratch: str, home: str, *, read_only: Sequence[str] = (), proxy_socket: str = "") -> str:
    """The text of a profile for `sandbox-exec -f`. Paths are real ones: Seatbelt compares what links lead to.

    Raises `UsageError` for a path that is not absolute or that a profile cannot name.
    """
    secrets = [f"{home}/{name}" for name in SECRETS]
    lines = [
        "(version 1)",
        "(deny default)",
        "(allow process-fork)",
        "(allow process-exec)",
        "(allow signal (target same-sandbox))",
        "(allow process-info* (target same-sandbox))",
        "(allow sysctl-read)",
        "(allow file-read-metadata)",
        _rule("allow file-read*", "subpath", [*SYSTEM, workspace, scratch, *read_only]),
        _rule("allow file-read* file-write-data file-ioctl", "literal", _DEVICES),
        _rule("allow file-write*", "subpath", [workspace, scratch]),
        _rule("deny file-write*", "subpath", [f"{workspace}/.git"]),
        _rule("deny file-read* file-write*", "subpath", [path for path in secrets if path != workspace]),
        "(deny network*)",
    ]
    if proxy_socket:
        lines.append(f"(allow network-outbound (remote unix-socket (path-literal {_quoted(proxy_socket)})))")
    return "\n".join(lines) + "\n"


def _rule(what: str, how: str, paths: Sequence[str]) -> str:
    return "\n".join([f"({what}", *(f"    ({how} {_quoted(path)})" for path in paths)]) + ")"


def _quoted(path: str) -> str:
    if not path.startswith("/") or any(ord(char) < 32 or char == "\x7f" for char in path):
        raise UsageError(f"{path!r} cannot stand in a sandbox profile; use an absolute path without control characters")
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
