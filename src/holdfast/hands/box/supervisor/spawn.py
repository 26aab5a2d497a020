"""Start of the sandbox: as its user, with the descriptors passed to it, and nothing else."""

from __future__ import annotations

import base64
import os
import resource
import signal
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.hands.box.supervisor import mounts

_NICE = 5
"""Niceness of a sandbox without a control group: the watcher must get processor time."""


class Sandbox(NamedTuple):
    """A started sandbox: its process, the connection to the agent, and its standard error."""

    pid: int
    control: int
    errors: int


def start(launch: dict[str, Any], doors: Sequence[str] = ()) -> Sandbox:
    """Fork and exec the launch's `argv`, in the control groups whose `doors` are named.

    `blobs` maps a name to bytes in base 64: each becomes a descriptor of an unnamed file, whose number replaces
    `{fd:NAME}` in `argv`. As root, the process takes on `uid` and `gid` for good, without supplementary groups.
    """
    mine, theirs = socket.socketpair()
    errors, errors_in = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _become(launch, doors, theirs.detach(), errors_in)
    theirs.close()
    os.close(errors_in)
    os.set_blocking(errors, False)
    return Sandbox(pid, mine.detach(), errors)


def _become(launch: dict[str, Any], doors: Sequence[str], control: int, errors: int) -> None:
    """In the child: become the sandbox, or report the error."""
    try:
        os.dup2(control, 0)
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        os.setsid()
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _join(doors, launch["holding"]["processors"])
        if launch["veil"] is not None:
            mounts.hide_home(launch["veil"])
        _drop(launch["uid"], launch["gid"])
        if launch["laying"] is not None:
            mounts.mount_overlays(launch["laying"], launch["uid"], launch["gid"])
        os.chdir("/")
        os.umask(0o022)
        argv = launch["argv"]
        for name, text in launch["blobs"].items():
            blob = str(_blob(name, base64.b64decode(text)))
            argv = [part.replace(f"{{fd:{name}}}", blob) for part in argv]
        os.execve(argv[0], argv, launch["env"])
    except BaseException as error:
        os.write(2, f"the sandbox could not be started: {error}\n".encode())
    finally:
        os._exit(127)


def _join(doors: Sequence[str], processors: Sequence[int]) -> None:
    """Join the control groups before the uid changes: the sandbox's user may not join them."""
    for door in doors:
        fd = os.open(door, os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, b"0")
        os.close(fd)
    if not doors:
        os.nice(_NICE)
    if processors:
        os.sched_setaffinity(0, processors)


def _drop(uid: int, gid: int) -> None:
    """Become that user for good. A process that stays root here would be root outside too."""
    if os.getuid() == 0:
        try:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
        except OSError as error:
            raise PermissionError(f"this root cannot become uid {uid} ({error.strerror})") from None
    if os.getresuid() != (uid, uid, uid):
        raise PermissionError(f"this process is not uid {uid}")


def _blob(name: str, content: bytes) -> int:
    fd = os.memfd_create(name, 0)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
