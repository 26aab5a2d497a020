"""Limits as the supervisor sees them: calls that exceeded one, and the steward beside it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from typing import Any, NoReturn

from holdfast.hands.box.supervisor import mounts, watcher
from holdfast.hands.box.supervisor.cgroups import Group
from holdfast.hands.box.wire import Channel, Message, WireError
from holdfast.privileges import lock_down

LOG = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC

_KILLED = 128 + signal.SIGKILL
_SIGNALS = {signal.SIGXCPU: "cpu", signal.SIGXFSZ: "disk"}


class _Seen:
    """One running call. `before` are the kernel's counters when it began."""

    def __init__(self, before: dict[str, int]) -> None:
        self.before = before
        self.inner = 0
        self.limit = ""
        self.near = ""
        self.alone = True


class Watch:
    """The limits of one sandbox, as its supervisor sees them. `fd` is readable when there is something to `hear`.

    It is the supervisor's end of the steward, which holds `lock` until the cleanup is done.
    """

    def __init__(self, launch: dict[str, Any], group: Group, lock: int) -> None:
        self._group = group
        self._calls: dict[str, _Seen] = {}
        mine, theirs = socket.socketpair()
        life, self._life = os.pipe2(os.O_CLOEXEC)
        log = os.open(os.path.join(launch["folder"], "supervisor.log"), LOG, 0o600)
        self.steward = os.fork()
        if self.steward == 0:
            become(launch, group, lock, log, (life, theirs))
        for fd in (life, theirs.detach(), log):
            os.close(fd)
        self._link: Channel | None = Channel(mine.detach())

    @property
    def fd(self) -> int:
        """The descriptor to poll; -1 if there is nothing to listen to."""
        return self._link.fd if self._link is not None else -1

    def claimed(self) -> None:
        """Record that a client has claimed these hands."""
        with contextlib.suppress(OSError):
            os.write(self._life, CLAIMED)

    def began(self, call: str, inner: int) -> None:
        """Record that a call runs in the process with that pid inside the sandbox."""
        if call in self._calls:
            self._calls[call].inner = inner
            self._send({"began": call, "pid": inner})
            return
        for other in self._calls.values():
            other.alone = False
        seen = self._calls[call] = _Seen(self._group.counters())
        seen.alone = len(self._calls) == 1
        seen.inner = inner
        self._send({"began": call, "pid": inner})

    def _send(self, message: Message) -> None:
        if self._link is not None:
            self._link.send(message)

    def hear(self) -> tuple[list[str], str]:
        """Return the calls that must end now, and the reason to give up these hands, if any."""
        if self._link is None:
            return [], ""
        self._link.flush()
        try:
            messages = self._link.receive()
        except WireError:
            messages, self._link.closed = [], True
        over = [call for message in messages if (call := self._heard(message))]
        if not self._link.closed:
            return over, ""
        self._link.close()
        self._link = None
        return over, "the watch over its limits ended again and again"

    def _heard(self, message: Message) -> str:
        if "again" in message:
            for running, known in self._calls.items():
                self._send({"began": running, "pid": known.inner})
            return ""
        call = str(message["call"])
        seen = self._calls.get(call)
        if seen is None:
            return ""
        if "near" in message:
            seen.near = message["near"]
            return ""
        seen.limit = seen.limit or message["over"]
        return call

    def ended(self, call: str, result: Message) -> Message:
        """Return the result of a call, with the limit that ended it or one of its processes."""
        seen = self._calls.pop(call, None)
        if seen is None:
            return result
        self._send({"ended": call})
        if seen.limit:
            return {**result, "ok": False, "cancelled": False, "limit": seen.limit}
        limit = self._by_itself(seen, result)
        return {**result, "limit": limit} if limit else result

    def _by_itself(self, seen: _Seen, result: Message) -> str:
        """Return the limit that the kernel enforced on a call which then ended before the watcher looked."""
        if result.get("timed_out") or result.get("cancelled"):
            return seen.near
        code, number = result.get("exit_code"), result.get("signal")
        now = self._group.counters()
        if now["memory"] > seen.before["memory"]:
            if seen.alone or number == signal.SIGKILL or code == _KILLED:
                return "memory"
        if not result["ok"] and (seen.near or (seen.alone and now["processes"] > seen.before["processes"])):
            return "processes"
        for which, limit in _SIGNALS.items():
            if number == which or code == 128 + which:
                return limit
        return ""

    def gone(self, call: str) -> Message | None:
        """Return the result of a call that ran when the sandbox ended for memory: then the outcome is known."""
        seen = self._calls.get(call)
        if seen is None:
            return None
        if not seen.limit and self._group.counters()["memory"] > seen.before["memory"]:
            seen.limit = "memory"
        if not seen.limit:
            return None
        told = "[everything in the sandbox was ended with it]"
        return self.ended(call, {"ok": False, "output": told, "bytes_total": len(told)})

    def close(self) -> None:
        """Record the end of the sandbox. Returns when the steward has removed what is left."""
        if self._link is not None:
            self._link.close()
            self._link = None
        os.close(self._life)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.steward, 0)


LIVES = 3
"""Starts of the watcher before these hands are given up: without a watcher nothing is limited."""

CLAIMED = b"c"
"""Message of the supervisor after a client claimed these hands: from then on their journal must stay readable."""

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
        """Run until the supervisor has ended; then remove everything it left."""
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
        """Handle the end of the watcher. After the last one the supervisor sees the end of the link."""
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
            mounts.remove_mount_point(place)
        if not self._claimed:
            _remove_unclaimed(self._launch["folder"])


def become(launch: dict[str, Any], group: Group, lock: int, log: int, ends: tuple[int, socket.socket]) -> NoReturn:
    """In a child of the supervisor: keep its lock, close all other inherited descriptors, and serve."""
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
    """Remove hands whose maker died before it could record them: no client will ask for them."""
    for path, folders, names in os.walk(folder, topdown=False):
        for name in [*names, *folders]:
            inner = os.path.join(path, name)
            with contextlib.suppress(OSError):
                (os.rmdir if name in folders and not os.path.islink(inner) else os.unlink)(inner)
    with contextlib.suppress(OSError):
        os.rmdir(folder)
