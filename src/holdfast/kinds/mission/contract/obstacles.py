"""Obstacles: what keeps a check from passing here, whatever the work is, and what to allow or add. Pure.

A host that the egress proxy refused is certain. Without a network there is no proxy: then a host is a hint, read from
what the check printed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Literal

import msgspec

LINES_SHOWN = 2
"""So many telling lines of an output are quoted."""

_RESOLVER = re.compile(
    r"Name or service not known|Temporary failure in name resolution|nodename nor servname|No address associated with"
    r"|getaddrinfo (?:failed|E[A-Z_]+)|\bENOTFOUND\b|\bEAI_AGAIN\b|Could not resolve host|no such host"
    r"|unable to resolve host|Failed to resolve|Network is unreachable|\bENETUNREACH\b|NewConnectionError"
    r"|the policy does not let hands talk to"
)
_HOST = r"([A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,})"
_NAMED = (
    re.compile(rf"the policy does not let hands talk to {_HOST}"),
    re.compile(rf"(?:ENOTFOUND|EAI_AGAIN|Could not resolve host:|lookup|host address|resolve|host=)\W{{0,2}}{_HOST}"),
    re.compile(rf"\bhttps?://{_HOST}"),
)
_MODULE = re.compile(
    r"(?:No module named |Cannot find module |Cannot find package |cannot find package )['\"`]?(@?[\w./-]+)"
)
_TELLING = re.compile(
    r"^E {2,}\S|^\S*(?:Error|Exception|Exit|Interrupt)\b.*|^FAILED |^not ok |^--- FAIL|^\s*✗|\berror:"
)
_DULL = re.compile(r"^[=\-_ .~^]*$|^=+ .* =+$|^\d+ (?:passed|failed)|^FAILED \((?:failures|errors)=")


class Obstacle(msgspec.Struct, frozen=True):
    """Why a check cannot pass here. `what` is the host or module, empty when unknown; `sure` when it is no hint."""

    kind: Literal["network", "module", "hangs"]
    what: str = ""
    sure: bool = False

    def words(self) -> str:
        """What is in the way."""
        match self.kind:
            case "network":
                host = self.what or "a host that its output does not name"
                return f"it needs the network: {host}{'' if self.sure or not self.what else ', by its output'}"
            case "module":
                return f"module {self.what} is not installed"
            case _:
                return "it did not end in its time"

    def advice(self) -> str:
        """What to allow or add, in general words."""
        match self.kind:
            case "network":
                return f"allow {self.what or 'the host'} with --allow-host, or make the check work offline"
            case "module":
                return f"add {self.what} to the project's environment, or name the file that provides it in `paths`"
            case _:
                return "give it more time with `timeout_s`, or make it end"


def obstacle(
    command: str, output: str, *, timed_out: bool = False, refused: Sequence[str] = (), own: Collection[str] = ()
) -> Obstacle | None:
    """What kept a run that failed from passing, None when nothing but the work did.

    `refused` are hosts that the egress proxy refused meanwhile, `own` the names of the project's modules, which are no
    obstacle: they are there, or to be made.
    """
    if refused:
        return Obstacle(
            "network", next((host for host in refused if host in output or host in command), refused[0]), True
        )
    if timed_out:
        return Obstacle("hangs")
    if _RESOLVER.search(output):
        return Obstacle("network", _host(output) or _host(command))
    missing = [found for found in _MODULE.findall(output) if not _is_own(found, own)]
    return Obstacle("module", missing[-1]) if missing else None


def telling(output: str) -> tuple[str, ...]:
    """The last lines of an output that say why it failed."""
    lines = [line.rstrip() for line in output.splitlines() if not _DULL.search(line.strip())]
    found = [line for line in lines if _TELLING.search(line)]
    kept = found[-LINES_SHOWN:] if found else lines[-1:]
    return tuple(dict.fromkeys(line.removeprefix("E ").strip() for line in kept))


def _host(text: str) -> str:
    for pattern in _NAMED:
        found = [host for host in pattern.findall(text) if not host.startswith("localhost")]
        if found:
            return str(found[-1])
    return ""


def _is_own(module: str, own: Collection[str]) -> bool:
    return module.startswith((".", "/")) or re.split(r"[./]", module)[0] in own
