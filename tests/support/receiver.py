"""A web server on loopback that records requests and sends planned replies."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Got(NamedTuple):
    """One request. Header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Reply(NamedTuple):
    """What to answer. With `silent`, the body never comes."""

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""
    silent: bool = False


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever hung up is not our error."""


class Receiver:
    """Answers `planned` replies first, then what `answer` says: 200, unless a kind of server knows better."""

    def __init__(self) -> None:
        self.requests: list[Got] = []
        self.planned: deque[Reply] = deque()
        self.stalled = False
        self._released = threading.Event()
        self._lock = threading.Lock()
        self._server: _Server | None = _Server(("127.0.0.1", 0), self._handler())
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def answer(self, got: Got) -> Reply:
        """What to say to a request that nothing was planned for."""
        return Reply()

    def close(self) -> None:
        """Stop listening; let go of whoever waits."""
        self._released.set()
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            self._thread.join()
            server.server_close()

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _take(self, got: Got) -> Reply | None:
        with self._lock:
            self.requests.append(got)
            if self.stalled:
                return None
            return self.planned.popleft() if self.planned else self.answer(got)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                reply = receiver._take(Got(self.command, self.path, headers, body))
                if reply is None:
                    receiver._released.wait()
                    return
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(reply.body) + reply.silent))
                self.end_headers()
                self.wfile.write(reply.body)
                if reply.silent:
                    receiver._released.wait()

            do_GET = do_POST = _any

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        return Handler
