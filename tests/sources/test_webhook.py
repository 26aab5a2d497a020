"""Deliveries that are accepted, and forged, stale, and malformed ones."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from holdfast.sources.base import Offered
from holdfast.sources.settings import WebhookSettings
from holdfast.sources.webhook import WebhookRefused, accept

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
NOW_S = 1_760_000_000
SIGNED = WebhookSettings(secret="hook")
SHARED = WebhookSettings(secret="hook", signature="shared", id_header="X-GitHub-Delivery")


def sign(body: bytes, webhook_id: str = "msg_1", at_s: int = NOW_S, key: bytes = KEY, **more: str) -> dict[str, str]:
    """The headers of a delivery, signed by the library of the standard."""
    signature = standardwebhooks.Webhook(key).sign(webhook_id, datetime.fromtimestamp(at_s, UTC), body.decode())
    named = {"webhook-id": webhook_id, "webhook-timestamp": str(at_s), "webhook-signature": signature}
    return {"content-type": "application/json", **named, **more}


def take(headers: dict[str, str], body: bytes, settings: WebhookSettings = SIGNED, secret: str = SECRET) -> Offered:
    """The event of a delivery."""
    return accept(headers, body, settings, secret, NOW_S * 1_000_000)


def refused(headers: dict[str, str], body: bytes, problem: str, settings: WebhookSettings = SIGNED) -> None:
    """Assert that a delivery is refused, and that the refusal does not reveal the secret."""
    with pytest.raises(WebhookRefused) as caught:
        take(headers, body, settings)
    assert caught.value.problem == problem
    assert SECRET not in str(caught.value)


def test_a_signed_delivery_is_accepted_and_its_id_makes_the_key() -> None:
    first = take(sign(b'{"a": 1}'), b'{"a": 1}')
    assert first.data == {"a": 1}
    assert take(sign(b'{"a": 1}', at_s=NOW_S + 60), b'{"a": 1}').key == first.key, "a retry"
    assert take(sign(b'{"a": 1}', "msg_2"), b'{"a": 1}').key != first.key
    two = sign(b"{}")["webhook-signature"] + " v1,AAAA v1a,BBBB"
    assert take(sign(b"{}") | {"webhook-signature": two}, b"{}").data == {}


@given(st.sampled_from(["body", "webhook-id", "webhook-timestamp", "webhook-signature", "key"]), st.binary(max_size=40))
def test_a_changed_delivery_is_forged(part: str, noise: bytes) -> None:
    body = b'{"a": 1}'
    headers = sign(body, key=noise * 40 if part == "key" and noise else KEY)
    if part == "body":
        body += noise + b" "
    elif part in headers:
        headers[part] = noise.decode("latin-1").replace(headers[part], "") + "7"
    elif not noise:
        headers["webhook-signature"] = ""
    refused(headers, body, "forged")


def test_a_stale_delivery_is_refused_on_both_sides() -> None:
    for at_s in (NOW_S - 301, NOW_S + 301):
        refused(sign(b"{}", at_s=at_s), b"{}", "stale")
    assert take(sign(b"{}", at_s=NOW_S - 299), b"{}").data == {}


def test_a_shared_secret() -> None:
    headers = {"x-webhook-secret": SECRET, "x-github-delivery": "d1"}
    assert take(headers, b'{"a": 1}', SHARED).data == {"a": 1}
    refused(headers | {"x-webhook-secret": SECRET[:-1]}, b"{}", "forged", SHARED)
    refused({"x-github-delivery": "d1"}, b"{}", "forged", SHARED)
    refused({"x-webhook-secret": SECRET}, b"{}", "malformed", SHARED)
    refused(headers | {"webhook-timestamp": str(NOW_S - 900)}, b"{}", "stale", SHARED)
    with pytest.raises(WebhookRefused):
        accept({"x-webhook-secret": "", "webhook-id": "1"}, b"{}", SHARED, "", NOW_S * 1_000_000)


CLOUD: dict[str, Any] = {
    "specversion": "1.0",
    "id": "e1",
    "source": "/a b",
    "type": "t",
    "time": "2025-10-09T08:53:20Z",
}


def cloud(**changed: Any) -> bytes:
    """A CloudEvent in structured mode."""
    return json.dumps({**CLOUD, "data": {"n": 1}, **changed}).encode()


def test_cloud_events_in_both_modes_are_known_by_source_and_id() -> None:
    shared = {"x-webhook-secret": SECRET}
    kind = {"content-type": "application/cloudevents+json; charset=utf-8"}
    structured = take(shared | kind, cloud(), SHARED)
    ce = {f"ce-{name}": value.replace(" ", "%20") for name, value in CLOUD.items()}
    binary = take(shared | ce | {"content-type": "application/json"}, b'{"n": 1}', SHARED)
    assert structured.key == binary.key
    assert structured.data == binary.data == {**CLOUD, "data": {"n": 1}}
    assert structured.at_us == NOW_S * 1_000_000
    assert take(shared | kind, cloud(id="e2"), SHARED).key != structured.key
    assert take(shared | kind, cloud(source="/b"), SHARED).key != structured.key
    for body in (cloud(id=""), cloud(specversion="0.3"), cloud(source=7), b"[]", b"{", cloud(data_base64="*")):
        refused(shared | kind, body, "malformed", SHARED)
    refused(shared | {"content-type": "application/cloudevents-batch+json"}, b"[]", "malformed", SHARED)


def test_headers_that_are_not_signed_do_not_make_another_event() -> None:
    ce = {f"ce-{name}": value for name, value in CLOUD.items()}
    first = take(sign(b"{}") | ce, b"{}")
    assert take(sign(b"{}") | ce | {"ce-id": "e2"}, b"{}").key == first.key


@given(
    st.binary(max_size=200), st.dictionaries(st.sampled_from(["content-type", "ce-specversion", "ce-id"]), st.text())
)
def test_no_body_is_an_unexpected_error(body: bytes, headers: dict[str, str]) -> None:
    found: Offered | str
    try:
        found = take({"x-webhook-secret": SECRET, "webhook-id": "1", **headers}, body, SHARED)
    except WebhookRefused as error:
        found = error.problem
    assert isinstance(found, Offered) or found == "malformed"


def test_a_large_body_is_refused() -> None:
    refused(sign(b"x"), b"x" * 70_000, "too_large")
