"""Verification of a webhook delivery: who sent it, when, and which event it is. Pure.

A sender proves itself by a signature (Standard Webhooks) or by a shared secret. The event is the body, or a CloudEvent
in binary or structured mode. Its id makes repeats recognizable: `webhook-id`, the CloudEvents source and id, or a
header that the settings name.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from holdfast.errors import UsageError
from holdfast.facts import bounded_json
from holdfast.sources.base import Offered, Rejected, digest, event
from holdfast.sources.settings import WebhookSettings

BODY_BYTES = 65_536
"""Largest body of a delivery, in bytes."""

Problem = Literal["forged", "stale", "malformed", "too_large"]

STATUS: dict[Problem, int] = {"forged": 401, "stale": 401, "malformed": 400, "too_large": 413}
"""Problem → HTTP status of the refusal. A sender that retries sends the same again, so none of them is a 5xx."""

_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
"""An escaped byte in a header of a CloudEvent."""


class WebhookRefused(Exception):
    """A delivery that is not accepted. The message is for the sender and reveals no secret."""

    def __init__(self, problem: Problem, message: str) -> None:
        super().__init__(message)
        self.problem = problem


def signing_key(secret: str) -> bytes:
    """Return the key of a Standard Webhooks secret: `whsec_` and 24 to 64 bytes in base64. Raises `UsageError`."""
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith("whsec_") or not 24 <= len(key) <= 64:
        raise UsageError("the secret of a signed webhook must be whsec_ and 24 to 64 random bytes in base64")
    return key


def accept(headers: Mapping[str, str], body: bytes, settings: WebhookSettings, secret: str, now_us: int) -> Offered:
    """Return the event of an authentic delivery; header names are in lower case. Raises `WebhookRefused`."""
    if len(body) > BODY_BYTES:
        raise WebhookRefused("too_large", f"the body is larger than {BODY_BYTES} bytes")
    if settings.signature == "standard":
        _check_signature(headers, body, signing_key(secret))
        _check_time(headers, settings.tolerance_s, now_us)
    else:
        sent = headers.get(settings.secret_header.lower(), "").removeprefix("Bearer ")
        if not secret or not hmac.compare_digest(sent.encode(), secret.encode()):
            raise WebhookRefused("forged", f"the header {settings.secret_header} does not have the shared secret")
        if "webhook-timestamp" in headers:
            _check_time(headers, settings.tolerance_s, now_us)
    found = _event(headers, body, settings)
    if isinstance(found, Rejected):
        raise WebhookRefused("malformed", found.reason)
    return found


def _check_signature(headers: Mapping[str, str], body: bytes, key: bytes) -> None:
    """Check `webhook-signature`, which may have several signatures while a secret is replaced."""
    signed = f"{headers.get('webhook-id', '')}.{headers.get('webhook-timestamp', '')}.".encode() + body
    expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256))
    sent = headers.get("webhook-signature", "").split()
    found = [each.removeprefix("v1,").encode() for each in sent[:16] if each.startswith("v1,")]
    # Each is compared, so that the time does not tell which one differs where.
    if not any([hmac.compare_digest(each, expected) for each in found]):
        raise WebhookRefused("forged", "the signature does not belong to this body, id, and time")


def _check_time(headers: Mapping[str, str], tolerance_s: float, now_us: int) -> None:
    text = headers.get("webhook-timestamp", "")
    if not re.fullmatch(r"[0-9]{1,11}", text):
        raise WebhookRefused("malformed", "the header webhook-timestamp is not a time in seconds")
    if abs(now_us / 1_000_000 - int(text)) > tolerance_s:
        raise WebhookRefused("stale", f"the delivery is more than {tolerance_s:g} s old, or from the future")


def _event(headers: Mapping[str, str], body: bytes, settings: WebhookSettings) -> Offered | Rejected:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/cloudevents-batch+json":
        raise WebhookRefused("malformed", "batches of CloudEvents are not accepted; send each event on its own")
    try:
        if kind == "application/cloudevents+json":
            whole = bounded_json.decode(body)
            if not isinstance(whole, dict):
                raise WebhookRefused("malformed", "the CloudEvent is not a JSON object")
            return _cloud_event(whole)
        if "ce-specversion" in headers:
            attributes = {
                name[3:]: _PERCENT.sub(
                    lambda found: bytes([int(found[1], 16)]), value.encode("latin-1", "replace")
                ).decode(errors="replace")
                for name, value in headers.items()
                if name.startswith("ce-")
            }
            found = _cloud_event({**attributes, "data": _payload(body, kind)})
            # A signature covers no headers but its own, so another `ce-id` must not make another event of a delivery.
            signed = settings.signature == "standard"
            return msgspec.structs.replace(found, key=digest("id", headers["webhook-id"])) if signed else found
        data = _payload(body, kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WebhookRefused("malformed", f"the body cannot be read: {error}") from error
    named = headers.get(settings.id_header.lower(), "") if settings.id_header else ""
    named = named or headers.get("webhook-id", "")
    if not 0 < len(named) <= 200:
        raise WebhookRefused("malformed", "the delivery has no id: send webhook-id, a CloudEvent, or the id_header")
    return event(digest("id", named), data)


def _cloud_event(found: dict[str, Any]) -> Offered | Rejected:
    missing = [name for name in ("id", "source", "specversion", "type") if not isinstance(found.get(name), str)]
    if missing or not all(0 < len(found[name]) <= 1_000 for name in ("id", "source")):
        raise WebhookRefused("malformed", f"the CloudEvent lacks {', '.join(missing) or 'an id or source'}")
    if found["specversion"] != "1.0":
        raise WebhookRefused("malformed", f"CloudEvents {found['specversion']!r} is not known; send 1.0")
    if isinstance(encoded := found.pop("data_base64", None), str):
        try:
            found["data"] = base64.b64decode(encoded, validate=True).decode(errors="replace")
        except (binascii.Error, ValueError) as error:
            raise WebhookRefused("malformed", "data_base64 of the CloudEvent is not base64") from error
    return event(digest("ce", found["source"], found["id"]), found, _time_us(found.get("time")))


def _time_us(text: Any) -> int | None:
    """Return the time of a CloudEvent; None without a valid one, since it is only for display."""
    try:
        at = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return None if at is None or at.tzinfo is None else int(at.timestamp() * 1_000_000)


def _payload(body: bytes, kind: str) -> Any:
    """Return the body: the value of JSON, or text."""
    if not body:
        return {}
    is_json = kind in ("", "application/json") or kind.endswith("+json")
    return bounded_json.decode(body) if is_json else body.decode()
