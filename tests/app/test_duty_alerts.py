"""The duty of docs/alerts.md: a log is watched, an agent counts, an alert is raised, acknowledged, and cleared."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.app.terminal import Type
from tests.serve.served import Served, serving
from tests.support.receiver import Got, Receiver, Reply
from tests.support.waiting import until

pytestmark = pytest.mark.real

DOCS = Path(__file__).parents[2] / "docs" / "alerts.md"


class Counter(Receiver):
    """A model server: it counts the lines with ERROR in the event of its goal, and reports the number."""

    def answer(self, got: Got) -> Reply:
        messages = json.loads(got.body)["messages"]
        text = str(next(each["content"] for each in messages if each["role"] == "user"))
        if messages[-1]["role"] == "tool":
            return self._stream({"content": "Counted."}, "stop")
        event = text.rpartition("<event>")[2]
        arguments = json.dumps({"name": "errors", "value": event.count("ERROR"), "unit": "lines"})
        call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "report", "arguments": arguments}}
        return self._stream({"tool_calls": [call]}, "tool_calls")

    def _stream(self, delta: dict[str, Any], reason: str) -> Reply:
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "counter"}
        first = {**chunk, "choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]}
        last = {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}
        body = "".join(f"data: {json.dumps(each)}\n\n" for each in (first, last)) + "data: [DONE]\n\n"
        return Reply(200, {"content-type": "text/event-stream"}, body.encode())


def events(type: Type, kind: str) -> list[dict[str, Any]]:
    """The events of the duty of this type."""
    found = [json.loads(line) for line in type("export", "log-errors").went().out.splitlines()]
    return [each for each in found if each.get("type") == kind]


def test_the_duty_of_the_docs(type: Type, holdfast_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = tmp_path / "log"
    logs.mkdir()
    text = re.search(r"```toml\n# duty.toml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert text is not None
    file = tmp_path / "duty.toml"
    file.write_text(text[1].replace("/var/log/app", str(logs)))
    assert tomllib.loads(file.read_text())["alert"][0]["route"] == ["inbox", "ops"]
    config = tmp_path / "config" / "holdfast" / "holdfast.toml"
    config.parent.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("OPS_SECRET", "whsec_" + "c2VjcmV0" * 4)
    with Receiver() as ops, Counter() as model:
        config.write_text(f'[notify.ops]\nkind = "webhook"\nurl = "{ops.url}"\nsecret = "env:OPS_SECRET"\n')
        type("duty", "add", file, "--yes", "--base-url", f"{model.url}/v1").went()
        with serving(holdfast_home):
            (logs / "app.log").write_text("INFO start\nERROR one\n")
            until(lambda: len(events(type, "firing.ended")) == 1)
            assert [each["value"] for each in events(type, "value.reported")] == [1]
            assert events(type, "alert.raised") == []
            (logs / "app.log").write_text("ERROR one\nERROR two\nERROR three\n")
            until(lambda: ops.requests)
        assert ops.requests[0].headers["webhook-id"]
        sent = json.loads(ops.requests[0].body)["data"]
        assert "critical: too-many" in sent["title"]
        assert "errors = 3" in sent["body"]
        assert "too-many" in type("inbox").went().out
        with serving(holdfast_home) as server:
            page(server)
            type("duty", "ack", "log-errors").went()
            (logs / "app.log").write_text("ERROR one\nERROR two\nERROR three\nERROR four\n")
            until(lambda: [each["value"] for each in events(type, "value.reported")] == [1, 3, 4])
            until(lambda: len(events(type, "firing.ended")) == 3)
            assert len(events(type, "alert.raised")) == 1
            (logs / "app.log").write_text("INFO quiet\n")
            until(lambda: events(type, "alert.cleared"))
    ids = {got.headers["webhook-id"] for got in ops.requests}  # one that was not recorded is sent again under its id
    assert len(ids) == 1, "an acknowledged alert is silent"
    assert "too-many" not in type("inbox").went().out
    type("verify").went()


def page(server: Served) -> None:
    """The page of the inbox shows the alert."""
    with server.browser() as browser:
        assert "too-many" in browser.get("/").text
