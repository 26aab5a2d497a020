"""The bridge: runs inside the sandbox and forwards a loopback port to the unix socket of the session's proxy.

It does not interpret the traffic. The agent keeps the listening socket and starts another bridge when a command kills
this one, so no other process can take the port. A separate connection shows the proxy that the hands live.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any

from holdfast.hands.box import processes

PRESENT = b"PRESENT * HOLDFAST/1\r\n\r\n"

_CHUNK = 1 << 18
_RETRY_S = 1.0
_BREATH_S = 0.1


class Keeper:
    """The agent's side: keeps a bridge running when the hands have a network."""

    def __init__(self, network: dict[str, Any] | None) -> None:
        self._network = network
        self._pid = 0
        self._started = 0.0
        if network is not None:
            self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind(("127.0.0.1", network["port"]))
            self._listener.listen(256)
        self.tend()

    @property
    def pids(self) -> frozenset[int]:
        """Processes that do not belong to a command."""
        return frozenset((self._pid,)) if self._pid else frozenset()

    def reaped(self, pid: int) -> None:
        """Record that a child has ended."""
        if pid == self._pid:
            self._pid = 0

    def tend(self) -> None:
        """Start a bridge if there is none."""
        if self._network is None or self._pid:
            return
        now = time.monotonic()
        pause = _BREATH_S if now - self._started < _BREATH_S else 0.0
        self._started = now
        try:
            pid = os.fork()
        except OSError:
            return
        if pid == 0:
            _become(self._listener, self._network["socket"], pause)
        self._pid = pid


def _become(listener: socket.socket, path: str, pause: float) -> None:
    """In the child: be the bridge, for as long as the agent lives."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        processes.die_with_parent(signal.SIGKILL)
        os.closerange(3, listener.fileno())
        os.closerange(listener.fileno() + 1, 1024)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        time.sleep(pause)
        Bridge(listener, path).serve()
    except BaseException as error:
        print(f"bridge: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(1)


class _End:
    """One end of a pair of connections: bytes read from it go to its peer."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.peer: _End = self
        self.left: memoryview = memoryview(b"")
        self.ended = False
        self.finished = False


class Bridge:
    """The main loop. Each client has its own connection to the proxy."""

    def __init__(self, listener: socket.socket, path: str) -> None:
        self._listener = listener
        self._path = path
        self._ends: dict[int, _End] = {}
        self._poll = select.epoll()
        self._poll.register(listener.fileno(), select.EPOLLIN)
        self._buffer = bytearray(_CHUNK)
        self._sign: socket.socket | None = None
        self._tried = 0.0

    def serve(self) -> None:
        """Serve forever."""
        while True:
            self._show_life()
            for fd, event in self._poll.poll(_RETRY_S if self._sign is None else -1):
                if fd == self._listener.fileno():
                    self._accept()
                elif self._sign is not None and fd == self._sign.fileno():
                    self._sign.close()
                    self._sign = None
                elif fd in self._ends:
                    self._work(self._ends[fd], event)

    def _reach(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(self._path)
            sock.setblocking(False)
        except OSError:
            sock.close()
            raise
        return sock

    def _show_life(self) -> None:
        """Keep one connection open that shows that the hands live."""
        now = time.monotonic()
        if self._sign is not None or now - self._tried < _RETRY_S / 2:
            return
        self._tried = now
        try:
            self._sign = self._reach()
            self._sign.send(PRESENT)
            self._poll.register(self._sign.fileno(), select.EPOLLIN)
        except OSError:
            self._sign = None

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        try:
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            near, far = _End(client), _End(self._reach())
        except OSError:
            client.close()
            return
        near.peer, far.peer = far, near
        for end in (near, far):
            self._ends[end.fd] = end
            self._poll.register(end.fd, select.EPOLLIN)

    def _work(self, end: _End, event: int) -> None:
        """Handle an end that is ready to read or write."""
        try:
            if event & select.EPOLLOUT:
                self._push(end.peer)
            if event & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR) and not end.ended and not end.left:
                self._pull(end)
            elif event & select.EPOLLERR or (event & select.EPOLLHUP and end.ended):
                raise OSError("the connection broke")
        except OSError:
            self._close(end)
            return
        if end.finished and end.peer.finished:
            self._close(end)
            return
        for each in (end, end.peer):
            wanted = (0 if each.ended or each.left else select.EPOLLIN) | (select.EPOLLOUT if each.peer.left else 0)
            self._poll.modify(each.fd, wanted)

    def _pull(self, end: _End) -> None:
        """Read from this end and send to its peer."""
        try:
            size = end.sock.recv_into(self._buffer)
        except BlockingIOError:
            return
        if size == 0:
            end.ended = True
        else:
            end.left = memoryview(self._buffer)[:size]
        self._push(end)
        if end.left:
            end.left = memoryview(bytes(end.left))

    def _push(self, end: _End) -> None:
        """Send the bytes read from this end to its peer."""
        while end.left:
            try:
                end.left = end.left[end.peer.sock.send(end.left) :]
            except BlockingIOError:
                return
        if end.ended and not end.finished:
            end.finished = True
            end.peer.sock.shutdown(socket.SHUT_WR)

    def _close(self, end: _End) -> None:
        for each in (end, end.peer):
            self._poll.unregister(each.fd)
            del self._ends[each.fd]
            each.sock.close()
