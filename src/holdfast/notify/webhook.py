"""Webhook target: Standard Webhooks, signed, with one id for all tries.

    webhook-id         id of the notice: the same for all tries, so that the receiver can detect repeats
    webhook-timestamp  time of this try, in seconds
    webhook-signature  v1,<HMAC-SHA256 over id.timestamp.body>

The body is `{"type": "notice.approval", "timestamp": …, "data": {…}}`, the same for all tries. It is data for a
program, so nothing in it is escaped for display.
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime

import msgspec
import standardwebhooks

from holdfast.clock import Clock, rfc3339
from holdfast.errors import UsageError
from holdfast.notify.base import Notice
from holdfast.notify.http import Patience, Request, ask, checked_url, persist, settle
from holdfast.notify.notices import whole_command

BODY_BYTES = 16_384
"""Longest body of a notice, in bytes; the standard recommends small messages."""


class Webhook:
    """A webhook receiver. `secret` is `whsec_` and 24 to 64 bytes in base64. Raises `UsageError` for an invalid one."""

    def __init__(self, name: str, url: str, secret: str, clock: Clock, patience: Patience | None = None) -> None:
        self.name = name
        self._url = str(checked_url(name, url))
        self._signer = standardwebhooks.Webhook(_secret_bytes(name, secret))
        self._clock = clock
        self._patience = patience or Patience()

    def __repr__(self) -> str:
        return f"Webhook({self.name!r})"

    async def send(self, notice: Notice) -> None:
        """Deliver a notice, with retries. Raises `NotifyError`."""
        body = _body(notice)

        async def attempt() -> None:
            settle(self.name, await ask(self.name, self._request(notice.notice_id, body), self._patience, self._clock))

        await persist(self._patience, attempt)

    def _request(self, webhook_id: str, body: bytes) -> Request:
        at = datetime.fromtimestamp(self._clock.now_us() // 1_000_000, UTC)
        headers = {
            "content-type": "application/json",
            "webhook-id": webhook_id,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": self._signer.sign(webhook_id, at, body.decode()),
        }
        return Request("POST", self._url, headers, body)


def _secret_bytes(name: str, secret: str) -> bytes:
    try:
        found = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if not secret.startswith("whsec_") or not 24 <= len(found) <= 64:
        raise UsageError(
            f"the secret of [notify.{name}] is not a webhook secret: it must be whsec_ and 24 to 64 random bytes "
            'in base64; make one: echo "whsec_$(head -c 32 /dev/urandom | base64)"'
        )
    return found


def _body(notice: Notice) -> bytes:
    data = msgspec.to_builtins(notice)
    cut = len(notice.body.encode()) > BODY_BYTES
    if cut:
        head = notice.body.encode()[:BODY_BYTES].decode(errors="ignore")
        data["body"] = f"{head}\n[cut here; the whole: {whole_command(notice)}]"
    data["body_is_whole"] = not cut
    return msgspec.json.encode({"type": f"notice.{notice.kind}", "timestamp": rfc3339(notice.at_us), "data": data})
