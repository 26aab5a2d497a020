"""Webhooks of duties over HTTP: deliveries that are accepted, repeated, forged, stale, malformed, and too many."""

from __future__ import annotations

import base64
import importlib.util
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks

from holdfast.clock import SystemClock
from tests.app.terminal import Type
from tests.serve.served import Served, failure, quick, serving
from tests.support.waiting import until

pytestmark = pytest.mark.real

KEY = bytes(range(32))

DUTY = """
name = "hooked"
goal = "Handle the event."
queue = 3
batch = 3
batch_wait = "1h"

[[trigger]]
name = "signed"
kind = "webhook"
settings = { secret = "hook" }

[[trigger]]
name = "shared"
kind = "webhook"
settings = { secret = "hook", signature = "shared" }
"""


@pytest.fixture
def hooked(type: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server with a duty whose batch is not full yet."""
    config = tmp_path / "config" / "holdfast"
    config.mkdir(parents=True)
    (config / "holdfast.toml").write_text('[secrets.hook]\nfrom = "env:HOOK"\nhosts = ["hook.invalid"]\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOOK", "whsec_" + base64.b64encode(KEY).decode())
    tmp_path.chmod(0o711)
    file = tmp_path / "duty.toml"
    file.write_text(DUTY)
    home = tmp_path / "home"
    type("duty", "add", file, "--yes", "--home", home, "--model", quick(tmp_path)).went()
    with serving(home) as server:
        yield server


def post(server: Served, body: bytes, webhook_id: str, *, late_s: int = 0, key: bytes = KEY, **more: str) -> Any:
    """Send a signed delivery."""
    at_s = SystemClock().now_us() // 1_000_000 - late_s
    signature = standardwebhooks.Webhook(key).sign(webhook_id, datetime.fromtimestamp(at_s, UTC), body.decode())
    named = {"webhook-id": webhook_id, "webhook-timestamp": str(at_s), "webhook-signature": signature}
    with server.client() as client:
        return client.post("/hooks/hooked/signed", content=body, headers={**named, **more})


def test_deliveries(hooked: Served, type: Type) -> None:
    assert post(hooked, b'{"n": 1}', "msg_1").status_code == 202
    again = post(hooked, b'{"n": 1}', "msg_1")
    assert (again.status_code, again.json()["duplicate"]) == (200, True)
    failure(post(hooked, b'{"n": 2}', "msg_2", key=b"x" * 32), 401, "forged")
    failure(post(hooked, b'{"n": 2}', "msg_2", late_s=900), 401, "stale")
    failure(post(hooked, b"{", "msg_2"), 400, "malformed")
    failure(post(hooked, b"x" * 70_000, "msg_2"), 413, "too_large")
    failure(post(hooked, b"{}", "msg_2", origin="https://evil.example"), 403, "cross_site")
    with hooked.client() as client:
        for path in ("/hooks/hooked/other", "/hooks/nobody/signed", "/hooks/ses_home/signed"):
            failure(client.post(path, content=b"{}"), 401, "forged")
        headers = {"x-webhook-secret": "whsec_" + base64.b64encode(KEY).decode(), "webhook-id": "s1"}
        assert client.post("/hooks/hooked/shared", content=b"{}", headers=headers).status_code == 202
    assert post(hooked, b'{"n": 3}', "msg_3").status_code == 202
    full = post(hooked, b'{"n": 4}', "msg_4")
    assert (full.status_code, full.headers["retry-after"]) == (503, "30")
    text = type("export", "hooked", "--home", hooked.home).went().out
    offered = [each for each in map(json.loads, text.splitlines()) if each.get("type") == "trigger.offered"]
    assert [each.get("data", {}) for each in offered] == [{"n": 1}, {}, {"n": 3}]
    assert {each["why"][:8] for each in hooked.refusals() if each["path"].startswith("/hooks/")} >= {
        "the sign",
        "the deli",
    }
    assert "whsec_" not in text + json.dumps(hooked.refusals())


def test_nothing_is_lost_or_repeated_while_the_server_is_killed(tmp_path: Path) -> None:
    """The small form of bench/duties.py."""
    spec = importlib.util.spec_from_file_location("bench_duties", Path(__file__).parents[2] / "bench" / "duties.py")
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    counts = bench.measure(tmp_path, 60, 1)
    assert counts["ok"], counts


def test_no_agent_gets_the_secret_that_proves_a_sender(hooked: Served, type: Type) -> None:
    def created(session: str) -> dict[str, Any]:
        (first,) = type("logs", session, "--json", "--type", "session.created", "--home", hooked.home).went().lines
        return first

    def fired() -> list[dict[str, Any]]:
        return type("logs", "hooked", "--json", "--type", "trigger.fired", "--home", hooked.home).went().lines

    type("duty", "run-now", "hooked", "--home", hooked.home).went()
    until(fired)
    assert [each["name"] for each in created("hooked")["egress"]["secrets"]] == ["hook"]
    assert created(fired()[0]["child_id"])["egress"]["secrets"] == []
