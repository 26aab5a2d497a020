"""What stood ready for the work (DESIGN: environment first)."""

from __future__ import annotations

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.egress import EgressSeen


class Step(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """One command of a set-up: how it ended, and the end of what it said when it failed."""

    command: str
    exit_code: int | None = None
    duration_ms: float = 0.0
    output: str = ""


class EnvironmentRecorded(Fact, frozen=True, tag="environment.recorded"):
    """An environment was made, or found as it had been made before (`cached`).

    `digest` is over everything that it was made from: commands, lock files (path to digest), packages, tool-chains and
    the system beneath. `versions` are those of the tools that were there, `folders` what it shows where. `seen` is what
    the set-up asked for outside. `notes` are sentences about what was left out. `error` says why there is none; the
    work then goes on without it only where the session's policy asks for nothing of its own.
    """

    digest: str
    cached: bool = False
    steps: tuple[Step, ...] = ()
    files: dict[str, str] = {}
    packages: tuple[str, ...] = ()
    toolchains: tuple[str, ...] = ()
    versions: dict[str, str] = {}
    bytes: int = 0
    duration_ms: float = 0.0
    error: str = ""
    folders: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seen: tuple[EgressSeen, ...] = ()
