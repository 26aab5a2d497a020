"""A proxy before PostgreSQL that cuts connections at a commit, or holds back what is sent, in threads of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Literal

from tests.support.databases import free_port

_COMMITS = (b"commit", b"with moved as")
"""Statements that commit: the end of a transaction, and an append in one statement."""

Cut = Literal["before", "after"]
Way = Literal["there", "back"]


class CommitProxy:
    """Forwards everything, until `cuts` is not empty: the next commit then takes one and breaks its connection.

    `before`: the server never gets the commit. `after`: the server answers it, and the answer is lost. While the event
    of a way is not set, nothing passes in that direction, as in a parted network.
    """

    def __init__(self, upstream: int) -> None:
        self.port = free_port()
        self.cuts: list[Cut] = []
        self.made = 0
        self.ways: dict[Way, threading.Event] = {"there": threading.Event(), "back": threading.Event()}
        self.join()
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", self.port))

    def close(self) -> None:
        self._listener.close()

    def part(self, *ways: Way) -> None:
        for way in ways:
            self.ways[way].clear()

    def join(self) -> None:
        for way in self.ways.values():
            way.set()

    def accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._upstream)) as server:
            losing = threading.Event()
            back = threading.Thread(target=self._back, args=(server, client, losing), daemon=True)
            back.start()
            with contextlib.suppress(OSError):
                while data := client.recv(1 << 20):
                    cut = self.cuts.pop(0) if self.cuts and any(word in data for word in _COMMITS) else None
                    self.made += cut is not None
                    if cut == "before":
                        break
                    if cut == "after":
                        losing.set()
                    self.ways["there"].wait()
                    server.sendall(data)
            _shut(server, client)
            back.join()

    def _back(self, server: socket.socket, client: socket.socket, losing: threading.Event) -> None:
        lost = b""
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 20):
                self.ways["back"].wait()
                if not losing.is_set():
                    client.sendall(data)
                    continue
                lost += data
                if b"Z\0\0\0\5I" in lost:  # ready, and in no transaction
                    break
        _shut(server, client)


def _shut(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def commit_proxy(upstream: int) -> Iterator[CommitProxy]:
    """A proxy before the server at that port."""
    proxy = CommitProxy(upstream)
    thread = threading.Thread(target=proxy.accept, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
