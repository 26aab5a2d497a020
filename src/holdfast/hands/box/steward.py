"""The steward: the process beside a supervisor that keeps the privileges which the supervisor gives up.

It parses nothing. It starts the watcher, again when that dies, and once the supervisor has ended, however that came,
it takes away what no living supervisor needs: control groups, the socket, places in the workspace. It holds the lock of
the incarnation until then, so that whoever finds that free finds all of it gone.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from typing import Any, NoReturn

from holdfast.hands.box import places, watcher
from holdfast.hands.box.group import Group
from holdfast.privileges import lock_down

LIVES = 3
"""How often the watcher is started before these hands are given up: what is not watched is not limited."""

CLAIMED = b"c"
"""What the supervisor says when somebody knows of these hands: their folder has to testify from then on."""

_MOST = 65_536


class Steward:
    """The process itself. `life` ends with the supervisor; `link` leads from it to the watcher."""

    def __init__(self, launch: dict[str, Any], group: Group, supervisor: int, life: int, link: socket.socket) -> None:
        self._launch = launch
        self._holding = launch["holding"]
        self._group = group
        self._supervisor = supervisor
        self._life = life
        self._link = link
        self._claimed = False
        self._handle = -1
        self._lives = 0
        if any(self._holding[name] is not None for name in ("memory_bytes", "processes", "disk_bytes")):
            self._lives = LIVES

    def serve(self) -> None:
        """Until the supervisor has ended; then nothing of it is left."""
        poll = select.poll()
        poll.register(self._life, select.POLLIN)
        again = False
        while True:
            if self._handle < 0 and self._lives > 0:
                self._watch(again)
                poll.register(self._handle, select.POLLIN)
            for fd, _ in poll.poll():
                if fd == self._life:
                    if not os.read(fd, 64):
                        self._clean()
                        return
                    self._claimed = True
                else:
                    poll.unregister(fd)
                    again = self._lost()

    def _watch(self, again: bool) -> None:
        self._lives -= 1
        steward = os.getpid()
        pid = os.fork()
        if pid == 0:
            watcher.become(self._link.detach(), steward, self._supervisor, self._launch, self._group, again=again)
        self._handle = os.pidfd_open(pid)

    def _lost(self) -> bool:
        """The watcher has ended. After the last one the supervisor is told by the end of the link."""
        os.close(self._handle)
        os.waitpid(-1, 0)
        self._handle = -1
        if self._lives <= 0:
            self._link.close()
        return True

    def _clean(self) -> None:
        self._link.close()
        if self._handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            os.waitpid(-1, 0)
        self._group.remove()
        with contextlib.suppress(OSError):
            os.unlink(self._launch["socket"])
        for place in self._launch["opening"]["places"]:
            places.drop(place)
        if not self._claimed:
            _remove_unclaimed(self._launch["folder"])


def become(launch: dict[str, Any], group: Group, lock: int, log: int, ends: tuple[int, socket.socket]) -> NoReturn:
    """In a child of the supervisor: keep its lock, leave all else that was inherited, and serve."""
    try:
        life, link, supervisor = ends[0], ends[1], os.getppid()
        null = os.open("/dev/null", os.O_RDWR)
        for fd, to in ((null, 0), (null, 1), (log, 2)):
            os.dup2(fd, to, inheritable=False)
        kept = sorted({0, 1, 2, lock, life, link.fileno()})
        for below, above in zip(kept, [*kept[1:], _MOST], strict=True):
            os.closerange(below + 1, above)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        lock_down(watcher.filter_of(launch))
        Steward(launch, group, supervisor, life, link).serve()
    except Exception as error:
        os.write(2, f"the steward of the hands: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(0)


def _remove_unclaimed(folder: str) -> None:
    """Whoever asked for these hands died before it could name them anywhere: nobody will ask for them."""
    for path, folders, names in os.walk(folder, topdown=False):
        for name in [*names, *folders]:
            inner = os.path.join(path, name)
            with contextlib.suppress(OSError):
                (os.rmdir if name in folders and not os.path.islink(inner) else os.unlink)(inner)
    with contextlib.suppress(OSError):
        os.rmdir(folder)
