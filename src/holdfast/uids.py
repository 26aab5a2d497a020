"""User ids for sandboxes and proxies when root runs Holdfast.

Between 65536 and 99999 no other system allocates ids: systemd's dynamic ranges (60001-60513 homed, 60514-60577 mapped
users, 61184-65519 DynamicUser, 524288-1879048191 nspawn), `nobody` (65534), subordinate ids (from 100000 on), and
those of directory services (from 200000 on) all lie elsewhere. A container whose root has 16 bits of ids at most gets
60578 to 61183, which systemd leaves free as well.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from holdfast.errors import CannotRunSafely


class Range(NamedTuple):
    """Ids from `first` up to, but not including, `end`."""

    first: int
    end: int


SANDBOXES = Range(70_000, 90_000)
PROCESSES = Range(90_000, 98_000)
NARROW = {"sandbox": Range(60_578, 61_000), "process": Range(61_000, 61_184)}
"""Both ranges where higher ids do not exist."""

FORMER = Range(60_000, 65_000)
"""Range of earlier versions for sandboxes, which overlaps systemd's."""


def set_apart(what: str, kind: Literal["sandbox", "process"] = "sandbox") -> int:
    """Choose a user id without an account, always the same for `what`. `process` is for supervisors and proxies."""
    wide = SANDBOXES if kind == "sandbox" else PROCESSES
    chosen = wide if _mapped(wide.end - 1) else NARROW[kind]
    size = chosen.end - chosen.first
    begin = int.from_bytes(hashlib.sha256(what.encode()).digest()[:4])
    for step in range(size):
        uid = chosen.first + (begin + step) % size
        try:
            pwd.getpwuid(uid)
        except KeyError:
            return uid
    raise CannotRunSafely(
        f"every user id from {chosen.first} to {chosen.end - 1} is taken; nothing was started. Name one with --user"
    )


def run_as(uid: int, gid: int, command: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Return command and keyword arguments with which root's `subprocess` runs it as that user, in no other group.

    `setpriv` changes the ids where it is installed: with `user=`, subprocess copies the page tables of this process,
    which takes 30 ms of processor time at 330 MB, 8 times as much as the start of setpriv.
    """
    setpriv = shutil.which("setpriv", path="/usr/bin:/bin")
    if setpriv and os.path.basename(os.path.realpath(setpriv)) == "setpriv":  # that of busybox has fewer options
        return [setpriv, f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--", *command], {}
    return list(command), {"user": uid, "group": gid, "extra_groups": []}


def _mapped(uid: int) -> bool:
    """True if the id exists in this user namespace."""
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError:
        return True
    spans = [tuple(map(int, line.split())) for line in lines]
    return any(first <= uid < first + count for first, _, count in spans)
