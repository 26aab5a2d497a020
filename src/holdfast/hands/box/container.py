"""Relay between a supervisor and a container: standard library only, run as its own program outside the container.

The engine starts with one of our sockets bound into the container. The first process to connect to it is the agent; the
socket is removed then. Messages between supervisor and agent are relayed unchanged. When either side ends, the
container ends. The arguments are JSON behind the descriptor that the first argument names:

    {"door": "…", "files": {path: base64}, "folders": […], "links": {path: target}, "command": […], "after": […],
     "uid": n, "gid": n}
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from typing import Any

END_S = 5.0
"""Seconds that an engine may take to exit after its container has."""

_CHUNK = 1 << 18


def prepare(told: dict[str, Any]) -> None:
    """Create the files, folders and links that the engine uses."""
    for path in told["folders"]:
        os.makedirs(path, mode=0o755, exist_ok=True)
    for path, target in told["links"].items():
        os.symlink(target, path)
    for path, text in told["files"].items():
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), "wb") as file:
            file.write(base64.b64decode(text))


def opened(told: dict[str, Any]) -> socket.socket:
    """Open the socket that the agent connects to, accessible to the hands' user alone."""
    os.chdir(os.path.dirname(told["door"]))  # the path may be too long for a socket
    door = socket.socket(socket.AF_UNIX)
    door.bind(os.path.basename(told["door"]))
    os.chmod(told["door"], 0o600)
    if os.getuid() == 0:
        os.chown(told["door"], told["uid"], told["gid"])
    door.listen(1)
    return door


def let_in(door: socket.socket, engine: subprocess.Popen[bytes]) -> socket.socket | None:
    """Return the agent's connection; None if the engine or the supervisor ends first."""
    handle = os.pidfd_open(engine.pid)
    try:
        poll = select.poll()
        poll.register(door, select.POLLIN)
        poll.register(handle, select.POLLIN)
        poll.register(0, select.POLLRDHUP | select.POLLHUP)
        ready = {fd for fd, _ in poll.poll()}
    finally:
        os.close(handle)
    return door.accept()[0] if door.fileno() in ready else None


def pass_on(one: int, two: int) -> None:
    """Copy both ways until either side ends."""
    poll = select.poll()
    for fd in (one, two):
        poll.register(fd, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            try:
                data = os.read(fd, _CHUNK)
                left = memoryview(data)
                while left:
                    left = left[os.write(two if fd == one else one, left) :]
            except OSError:
                return
            if not data:
                return


def main() -> None:
    """Run until the container is over."""
    with open(int(sys.argv[1]), "rb") as file:
        told = json.load(file)
    os.set_blocking(0, True)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    prepare(told)
    door = opened(told)
    engine = subprocess.Popen(told["command"], stdin=subprocess.DEVNULL, stdout=2, stderr=2)
    inside = let_in(door, engine)
    door.close()
    os.unlink(told["door"])
    if inside is not None:
        pass_on(0, inside.detach())
    try:
        engine.wait(END_S)
    except subprocess.TimeoutExpired:
        engine.kill()
    if told["after"]:
        with contextlib.suppress(subprocess.TimeoutExpired, OSError):
            subprocess.run(told["after"], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)


if __name__ == "__main__":
    main()
