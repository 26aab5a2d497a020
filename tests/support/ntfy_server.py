"""A fake ntfy server for publishing (JSON or text) and polling, with ntfy's limits, errors, and access control.

Its behavior follows ntfy's documentation and source: ids of 12 characters, whole seconds, unknown ids that start
from the beginning, messages of 4096 bytes, three buttons, and JSON of twice the message's limit.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.receiver import Got, Receiver, Reply

TOPIC = re.compile(r"[-_A-Za-z0-9]{1,64}")
MESSAGE_LIMIT = 4096


class NtfyServer(Receiver):
    """`readers` and `writers` map a topic to the token that it takes; a topic without an entry is open."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.readers: dict[str, str] = {}
        self.writers: dict[str, str] = {}
        self.now_s = 1_760_000_000
        super().__init__()

    def of(self, topic: str) -> list[dict[str, Any]]:
        """The messages of a topic."""
        return [message for message in self.messages if message["topic"] == topic]

    def answer(self, got: Got) -> Reply:
        """Publish or poll."""
        parts = urlsplit(got.path)
        path = parts.path.strip("/").split("/")
        if got.method == "POST" and path == [""]:
            return self._publish_json(got)
        if got.method == "POST" and len(path) == 1:
            return self._publish(got, path[0], {}, got.body.decode())
        if got.method == "GET" and len(path) == 2 and path[1] == "json":
            return self._poll(got, path[0], parse_qs(parts.query))
        return _error(404, 40401, "page not found")

    def _publish_json(self, got: Got) -> Reply:
        if len(got.body) > 2 * MESSAGE_LIMIT:
            return _error(413, 41303, "JSON body too large")
        try:
            asked = json.loads(got.body)
        except ValueError:
            return _error(400, 40024, "invalid request: body must be message JSON")
        text = asked.pop("message", "") or "triggered"
        return self._publish(got, asked.pop("topic", ""), asked, text)

    def _publish(self, got: Got, topic: str, more: dict[str, Any], text: str) -> Reply:
        if TOPIC.fullmatch(topic) is None:
            return _error(400, 40009, "invalid request: topic invalid")
        if not _allowed(got, self.writers.get(topic, "")):
            return _error(403, 40301, "forbidden")
        if len(text.encode()) > MESSAGE_LIMIT:
            return _error(400, 40014, "invalid request: attachments not allowed")
        actions = more.pop("actions", [])
        if len(actions) > 3 or any(not action.get("label") or not action.get("url") for action in actions):
            return _error(400, 40018, "invalid request: actions invalid")
        if "\n" in more.get("title", ""):
            return _error(400, 40000, "a header with a line break")
        message = {
            "id": f"{len(self.messages):012d}",
            "time": self.now_s,
            "expires": self.now_s + 43_200,
            "event": "message",
            "topic": topic,
            **more,
            "message": text.strip(),
        }
        if actions:
            message["actions"] = [{"id": f"{number:010d}", **action} for number, action in enumerate(actions)]
        self.messages.append(message)
        return _json(message)

    def _poll(self, got: Got, topic: str, query: dict[str, list[str]]) -> Reply:
        if not _allowed(got, self.readers.get(topic, "")):
            return _error(403, 40301, "forbidden")
        since = query.get("since", ["all"])[0]
        if since != "all" and re.fullmatch(r"[A-Za-z0-9]{12}", since) is None:
            return _error(400, 40008, "invalid request: since parameter invalid")
        if query.get("poll") != ["1"]:
            raise NotImplementedError("this server cannot stream")
        known = [number for number, message in enumerate(self.messages) if message["id"] == since]
        start = known[0] + 1 if known else 0
        wanted = [message for message in self.messages[start:] if message["topic"] == topic]
        return Reply(200, {"content-type": "application/x-ndjson"}, b"".join(_json(each).body for each in wanted))


def _allowed(got: Got, token: str) -> bool:
    return not token or got.headers.get("authorization") == f"Bearer {token}"


def _json(value: object) -> Reply:
    return Reply(200, {"content-type": "application/json"}, json.dumps(value).encode() + b"\n")


def _error(status: int, code: int, words: str) -> Reply:
    return Reply(status, {}, json.dumps({"code": code, "http": status, "error": words}).encode())
