"""The supervisor's side of the limits: which call went over one, and what its result then says."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from typing import Any

from holdfast.hands.box import steward
from holdfast.hands.box.group import Group
from holdfast.hands.box.wire import Channel, Message, WireError

LOG = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC

_KILLED = 128 + signal.SIGKILL
_SIGNALS = {signal.SIGXCPU: "cpu", signal.SIGXFSZ: "disk"}


class _Seen:
    """What is known of one running call. `before` are the kernel's counters when it began."""

    def __init__(self, before: dict[str, int]) -> None:
        self.before = before
        self.inner = 0
        self.limit = ""
        self.near = ""
        self.alone = True


class Watch:
    """The limits of one sandbox, as its supervisor sees them. `fd` is readable when there is something to `hear`.

    It is the supervisor's end of the steward, which holds `lock` until all is cleared away.
    """

    def __init__(self, launch: dict[str, Any], group: Group, lock: int) -> None:
        self._group = group
        self._calls: dict[str, _Seen] = {}
        mine, theirs = socket.socketpair()
        life, self._life = os.pipe2(os.O_CLOEXEC)
        log = os.open(os.path.join(launch["folder"], "supervisor.log"), LOG, 0o600)
        self.steward = os.fork()
        if self.steward == 0:
            steward.become(launch, group, lock, log, (life, theirs))
        for fd in (life, theirs.detach(), log):
            os.close(fd)
        self._link: Channel | None = Channel(mine.detach())

    @property
    def fd(self) -> int:
        """-1 when there is nothing to listen to."""
        return self._link.fd if self._link is not None else -1

    def claimed(self) -> None:
        """Somebody knows of these hands."""
        with contextlib.suppress(OSError):
            os.write(self._life, steward.CLAIMED)

    def began(self, call: str, inner: int) -> None:
        """A call runs in that process, by its number inside."""
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
        """The calls that have to be ended now, and why these hands must be given up, if they must."""
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
        """The result of a call, with the limit that ended it or a process of it."""
        seen = self._calls.pop(call, None)
        if seen is None:
            return result
        self._send({"ended": call})
        if seen.limit:
            return {**result, "ok": False, "cancelled": False, "limit": seen.limit}
        limit = self._by_itself(seen, result)
        return {**result, "limit": limit} if limit else result

    def _by_itself(self, seen: _Seen, result: Message) -> str:
        """The limit that the kernel held a call to, which then ended before it was looked at."""
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
        """The result of a call that ran when the sandbox ended, when that was for memory: then it is known."""
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
        """The sandbox has ended. Returns when the steward has taken away what is left."""
        if self._link is not None:
            self._link.close()
            self._link = None
        os.close(self._life)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.steward, 0)
