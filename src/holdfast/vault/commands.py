"""A secret that a command prints: the words are run as they are, without a shell, and not for long."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.clock import Clock

TIMEOUT_S = 20.0
"""How long a command may take; a person may have to touch a key meanwhile."""

VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
    "GNUPGHOME",
    "GPG_TTY",
    "SSH_AUTH_SOCK",
    "PASSWORD_STORE_DIR",
)
"""What programs that keep secrets need of the environment. No other variable reaches them unless it is named."""


@dataclass(frozen=True)
class Printed:
    """What a command wrote, if it went well; `problem` says in words what did not. Its output is in no message."""

    data: bytes = b""
    status: int = 0
    problem: str = ""

    def __repr__(self) -> str:
        return f"Printed(status={self.status}, problem={self.problem!r})"


def run(
    words: Sequence[str],
    variables: Mapping[str, str],
    clock: Clock,
    *,
    most: int,
    given: bytes = b"",
    timeout_s: float = TIMEOUT_S,
) -> Printed:
    """Run it and take what it prints, at most `most` bytes. `given` is what it reads. Blocks."""
    program = shutil.which(words[0], path=variables.get("PATH", os.defpath))
    if program is None:
        return Printed(problem=f"there is no program {words[0]} on the path")
    try:
        process = subprocess.Popen(
            [program, *words[1:]],
            stdin=subprocess.PIPE if given else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(variables),
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        return Printed(problem=f"{program} cannot be started: {error.strerror}")
    try:
        return _read(process, clock, most, given, clock.monotonic_s() + timeout_s, timeout_s)
    finally:
        _end(process)


def _read(
    process: subprocess.Popen[bytes], clock: Clock, most: int, given: bytes, until_s: float, timeout_s: float
) -> Printed:
    late = Printed(problem=f"it took longer than {timeout_s:.0f} s")
    if process.stdin is not None:
        try:
            process.stdin.write(given)  # less than a pipe holds
            process.stdin.close()
        except OSError:
            return Printed(problem="it did not read what it was given")
    assert process.stdout is not None
    taken = b""
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not ready.select(max(0.0, until_s - clock.monotonic_s())):
                return late
            piece = os.read(process.stdout.fileno(), 65_536)
            if not piece:
                break
            taken += piece
            if len(taken) > most:
                return Printed(problem=f"it printed more than {most} bytes")
    try:
        status = process.wait(max(0.0, until_s - clock.monotonic_s()))
    except subprocess.TimeoutExpired:
        return late
    if status:
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return Printed(status=status, problem=f"it ended with {how}")
    return Printed(data=taken)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing of it running, and nothing open."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except OSError:
                pass
    process.wait()
