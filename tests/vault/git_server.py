"""A git server on loopback, real `git http-backend`, behind the gate that a proxy puts before it."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from holdfast.egress.git_push import push_gate
from holdfast.egress.http import Head, Refusal
from holdfast.facts.session import SecretUse


class GitServer:
    """Serves the repositories of a folder. `refused` are the reasons of the gate, `pushed` the refs it let through."""

    def __init__(self, root: Path, use: SecretUse) -> None:
        self.root, self.use = root, use
        self.refused: list[str] = []
        self.pushed: list[str] = []
        self.url = ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _git(self) -> GitServer:
        assert isinstance(self.server, _Http)
        return self.server.git

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        headers = tuple((name.lower().encode(), value.encode()) for name, value in self.headers.items())
        head = Head(self.command, self.path.encode(), b"1.1", headers, b"")
        try:
            body = self._gated(head)
        except Refusal as refusal:
            self._git.refused.append(refusal.reason)
            self.send_response(refusal.status)
            self.send_header("content-length", "0")
            self.send_header("connection", "close")
            self.end_headers()
            return
        self._answer(body)

    do_POST = do_GET

    def _gated(self, head: Head) -> bytes:
        gate = push_gate(self._git.use, head)
        pieces = list(self._pieces())
        if gate is None:
            return b"".join(pieces)
        passed = b"".join(gate.feed(piece) for piece in pieces)
        gate.end()
        self._git.pushed += gate.refs
        return passed

    def _pieces(self) -> Iterator[bytes]:
        """The body in small pieces."""
        if self.headers.get("transfer-encoding", "") != "chunked":
            left = int(self.headers.get("content-length", 0))
            while left > 0:
                piece = self.rfile.read(min(left, 50))
                left -= len(piece)
                yield piece
            return
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _answer(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self._git.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": "agent",
            "REMOTE_ADDR": "127.0.0.1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": str(self._git.root),
        }
        done = subprocess.run(["git", "http-backend"], input=body, capture_output=True, env=env, check=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class _Http(ThreadingHTTPServer):
    def __init__(self, git: GitServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.git = git


@contextmanager
def git_server(root: Path, use: SecretUse) -> Iterator[GitServer]:
    """The server, until the end of the block."""
    server = GitServer(root, use)
    http = _Http(server)
    server.url = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
