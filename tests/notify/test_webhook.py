"""Webhooks on the wire: what the standard asks, what goes wrong, what is never told."""

from __future__ import annotations

import json
import logging
from email.utils import formatdate

import pytest
import standardwebhooks

from holdfast.clock import SystemClock
from holdfast.errors import NotifyError, UsageError
from holdfast.notify.http import retry_after_s
from holdfast.notify.webhook import Webhook
from holdfast.testing.notify import example
from tests.notify.rigs import BRIEF, QUICK, SECRET, WebhookRig
from tests.support.receiver import Receiver, Reply


async def fails(rig: WebhookRig) -> NotifyError:
    with pytest.raises(NotifyError) as caught:
        await rig.target.send(example())
    return caught.value


async def test_two_errors_then_success_is_one_message_in_three_tries() -> None:
    with WebhookRig() as rig:
        rig.fail(2)
        await rig.target.send(example())
        requests = rig.receiver.requests
    assert [got.headers["webhook-id"] for got in requests] == ["ntc_itm_1"] * 3
    assert len({got.body for got in requests}) == 1
    for got in requests:
        standardwebhooks.Webhook(SECRET).verify(got.body, got.headers)
    data = json.loads(requests[-1].body)
    assert (data["type"], data["timestamp"]) == ("notice.approval", "2025-10-09T08:53:20.000000Z")
    assert (data["data"]["item_id"], data["data"]["action_digest"]) == ("itm_1", "d1")


async def test_a_receiver_with_another_secret_sees_a_forgery() -> None:
    with WebhookRig() as rig:
        await rig.target.send(example())
        [got] = rig.receiver.requests
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook("whsec_" + "b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXI=").verify(got.body, got.headers)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(SECRET).verify(got.body.replace(b"approval", b"reminder"), got.headers)


@pytest.mark.parametrize(
    ("status", "says"),
    [(410, "gone for good"), (400, "status 400"), (404, "status 404"), (401, "credentials"), (413, "too long")],
)
async def test_a_refusal_for_good_is_not_tried_again(status: int, says: str) -> None:
    with WebhookRig() as rig:
        rig.receiver.planned.append(Reply(status))
        error = await fails(rig)
        assert len(rig.receiver.requests) == 1
    assert not error.retryable
    assert says in str(error)
    assert "'ops'" in str(error)


async def test_a_redirect_is_not_followed() -> None:
    with WebhookRig() as rig, Receiver() as elsewhere:
        rig.receiver.planned.append(Reply(307, {"location": f"{elsewhere.url}/steal"}))
        error = await fails(rig)
        assert elsewhere.requests == []
        assert len(rig.receiver.requests) == 1
    assert "redirect (307)" in str(error)
    assert not error.retryable


async def test_patience_ends() -> None:
    with WebhookRig() as rig:
        rig.fail(10)
        error = await fails(rig)
        assert len(rig.receiver.requests) == QUICK.tries
    assert error.retryable
    assert "tried 3 times" in str(error)
    assert "boom" not in str(error), "what a receiver says is not ours to tell"


async def test_a_short_wait_that_is_asked_for_is_kept() -> None:
    with WebhookRig() as rig:
        rig.receiver.planned.append(Reply(429, {"retry-after": "0"}))
        await rig.target.send(example())
        assert len(rig.receiver.requests) == 2


async def test_a_long_wait_that_is_asked_for_is_handed_on() -> None:
    with WebhookRig() as rig:
        rig.receiver.planned.append(Reply(503, {"retry-after": "3600"}))
        error = await fails(rig)
        assert len(rig.receiver.requests) == 1
    assert error.retryable
    assert error.retry_after_s == 3600


def test_a_wait_can_be_a_date() -> None:
    clock = SystemClock()
    ahead = retry_after_s(formatdate(clock.now_us() / 1_000_000 + 120, usegmt=True), clock)
    assert ahead is not None
    assert 115 < ahead <= 120
    assert retry_after_s(formatdate(0, usegmt=True), clock) == 0
    assert [retry_after_s(value, clock) for value in ("", "soon", "-5", "nan", "9" * 40, "1e9")] == [None] * 6


async def test_the_body_of_an_answer_is_not_waited_for() -> None:
    with WebhookRig() as rig:
        rig.receiver.planned.append(Reply(200, silent=True))
        await rig.make(BRIEF).send(example())
        assert len(rig.receiver.requests) == 1


async def test_no_log_has_the_address(caplog: pytest.LogCaptureFixture) -> None:
    with WebhookRig() as rig, caplog.at_level(logging.DEBUG):
        rig.fail(1)
        await rig.target.send(example())
    told = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    assert caplog.records, "nothing was logged at all, so this shows nothing"
    assert [secret for secret in rig.secrets if secret in told] == []


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "gopher://127.0.0.1:1"])
async def test_a_proxy_that_cannot_be_used_is_told(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(NotifyError, match="through the proxy"):
        await Webhook("ops", "https://hooks.example.com/", SECRET, SystemClock(), BRIEF).send(example())


async def test_a_server_without_tls_is_told() -> None:
    with Receiver() as plain:
        target = Webhook("ops", plain.url.replace("http:", "https:"), SECRET, SystemClock(), BRIEF)
        with pytest.raises(NotifyError, match="'ops' does not support TLS or has no valid certificate"):
            await target.send(example())
        assert plain.requests == []


async def test_no_proxy_stands_before_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    with WebhookRig() as rig:
        await rig.target.send(example())
        assert len(rig.receiver.requests) == 1


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://hooks.example.com/T0PS3CRET", "allowed only to this machine"),
        ("https://ann:T0PS3CRET@example.com/", "password"),
        ("ftp://example.com/T0PS3CRET", "no web address|not a web address"),
        ("T0PS3CRET", "not a web address"),
        ("https:///T0PS3CRET", "not a web address"),
        ("http://127.0.0.1.example.com/T0PS3CRET", "allowed only to this machine"),
        ("https://exa mple/T0PS3CRET", "not a web address"),
    ],
)
def test_addresses_that_cannot_be_meant(url: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        Webhook("ops", url, SECRET, SystemClock())
    assert "T0PS3CRET" not in str(caught.value)
    assert "[notify.ops]" in str(caught.value)


@pytest.mark.parametrize("url", ["http://localhost:1/", "http://[::1]:1/", "http://127.0.0.9/", "https://example.com"])
def test_addresses_that_may_be(url: str) -> None:
    assert repr(Webhook("ops", url, SECRET, SystemClock())) == "Webhook('ops')"


@pytest.mark.parametrize(
    "secret",
    ["", "T0PS3CRET", "whsec_", "whsec_c2hvcnQ=", f"{SECRET[:12]}!{SECRET[12:]}", SECRET[6:], SECRET + SECRET[6:]],
)
def test_secrets_that_are_none(secret: str) -> None:
    with pytest.raises(UsageError, match="not a webhook secret") as caught:
        Webhook("ops", "https://example.com", secret, SystemClock())
    assert not secret or secret == "whsec_" or secret not in str(caught.value)
