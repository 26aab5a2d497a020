"""`server PORT KEY`: a model server on loopback in the format of chat completions, which says "Hello." to that key."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

PIECE = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    def do_POST(self) -> None:
        """Stream the answer, or refuse the key."""
        self.rfile.read(int(self.headers["content-length"]))
        allowed = self.headers["authorization"] == f"Bearer {sys.argv[2]}"
        choice = {"index": 0, "delta": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}
        piece = json.dumps({**PIECE, "choices": [choice]})
        text = f"data: {piece}\n\ndata: [DONE]\n\n" if allowed else '{"error": {"message": "wrong key"}}'
        self.send_response(200 if allowed else 401)
        self.send_header("content-type", "text/event-stream" if allowed else "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
