"""Child processes: run a function in a forked child as another user, and read the command line of a process."""

from __future__ import annotations

import json
import os
import select
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


def as_uid(uid: int, gid: int, work: Callable[[], Any]) -> Any:
    """What `work` returns as that user, with no other groups. Raises `AssertionError` with the child's traceback."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status, said = 1, ""
        try:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            status, said = 0, json.dumps(work())
        except BaseException:
            said = traceback.format_exc()
        finally:
            os.write(writer, said.encode())
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    assert status == 0, said
    return json.loads(said)


def command_of(pid: int) -> bytes:
    """The command line of a process, words ended by NUL; empty when the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def await_end(pid: int, limit_s: float) -> None:
    """Wait until a process has ended, at most so long."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        select.select([handle], [], [], max(0.0, limit_s))
    finally:
        os.close(handle)
