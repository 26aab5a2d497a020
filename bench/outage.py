"""An outage of a provider in the middle of several runs of one home, in real time.

    python bench/outage.py [--minutes N] [--sessions N]

Each session is a `holdfast run --wait` in a process of its own. After the first response of each, the server answers
every request with 503 for that long. Targets: all sessions finish by themselves, at most 10 minutes after the outage;
the requests during it are those of one session, about 20 in half an hour and at most 40.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

REQUESTS_MAX, LATE_S = 40, 600.0


class Server(ThreadingHTTPServer):
    """A server of chat completions. It is out from the first response of the last session on, for `out_s`."""

    daemon_threads = True

    def __init__(self, sessions: int, out_s: float) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.sessions, self.out_s = sessions, out_s
        self.first: set[str] = set()
        self.began = self.ends = float("inf")
        self.during: list[float] = []

    def turn(self, session: str) -> str:
        """What this request gets: `call`, `out`, or `text`."""
        now = time.monotonic()
        with self.lock:
            if session not in self.first:
                self.first.add(session)
                if len(self.first) == self.sessions:
                    self.began, self.ends = now, now + self.out_s
                return "call"
            if now < self.ends:
                self.during.append(now - self.began)
                return "out"
        return "text"


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Server

    def do_POST(self) -> None:
        """Stream a completion, or fail."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        turn = self.server.turn(re.findall(r"goal_\d+", json.dumps(body))[0])
        if turn == "out":
            self.send_error(503)
            return
        call = {"index": 0, "id": "c1", "function": {"name": "bash", "arguments": '{"command": "true"}'}}
        delta = {"tool_calls": [call]} if turn == "call" else {"content": "All is done."}
        end = "tool_calls" if turn == "call" else "stop"
        head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        chunks = [
            {**head, "choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]},
            {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": end}]},
            {**head, "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}},
        ]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def main() -> int:
    """Run the sessions, and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="length of the outage")
    parser.add_argument("--sessions", type=int, default=6)
    given = parser.parse_args()
    server = Server(given.sessions, given.minutes * 60)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        words = (
            "--model",
            f"openai-compatible:m@http://127.0.0.1:{server.server_port}/v1",
            "--scratch",
            "--wait",
            "12h",
        )
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "holdfast", "run", f"goal_{number}", *words, "--home", str(folder / "home")],
                stdout=subprocess.PIPE,
                stderr=(folder / f"{number}.log").open("w"),
                text=True,
                cwd=folder,
            )
            for number in range(given.sessions)
        ]
        said, late = [], []
        for process in running:
            out, _ = process.communicate()
            said.append((process.returncode, out))
            late.append(time.monotonic() - server.ends)
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"{given.sessions} sessions, an outage of {given.minutes:g} minutes")
    print(f"requests during it: {len(server.during)}, at s {', '.join(f'{at:.0f}' for at in server.during)}")
    print(f"the last session ended {max(late):.0f} s after it")
    good = all(each == (0, "All is done.\n") for each in said) and len(server.during) <= REQUESTS_MAX
    good = good and max(late) <= LATE_S
    print(
        f"targets: all finish, at most {REQUESTS_MAX} requests, {LATE_S:.0f} s: {'met' if good else f'MISSED {said}'}"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
