"""A browser's side of Web Push, and a push service that checks RFC 8030, 8291, and 8292."""

from __future__ import annotations

import base64
import json
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from holdfast.clock import SystemClock
from holdfast.notify.web_push import TTL_S, Device
from tests.support.receiver import Got, Receiver, Reply

CURVE = ec.SECP256R1()


def text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def data(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Browser:
    """The side of RFC 8291 that reads, written from the RFC and not from the code under test."""

    def __init__(self, url: str) -> None:
        self._key, self._auth = ec.generate_private_key(CURVE), b"0123456789abcdef"
        self._raw = self._key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.device = Device(url, text(self._raw), text(self._auth), "ann", "a phone")

    def subscription(self) -> dict[str, str]:
        """Its `PushSubscription` as a page posts it."""
        return {"endpoint": self.device.endpoint, "p256dh": self.device.p256dh, "auth": self.device.auth}

    def read(self, body: bytes) -> dict[str, Any]:
        salt, size, length = body[:16], int.from_bytes(body[16:20], "big"), body[20]
        sender, sealed = body[21 : 21 + length], body[21 + length :]
        assert (length, len(sealed) <= size, len(body) <= 4096) == (65, True, True)
        shared = self._key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(CURVE, sender))
        info = b"WebPush: info\0" + self._raw + sender
        keyed = HKDF(hashes.SHA256(), 32, self._auth, info).derive(shared)
        again = HKDF.extract(hashes.SHA256(), salt, keyed)
        key = HKDFExpand(hashes.SHA256(), 16, b"Content-Encoding: aes128gcm\0").derive(again)
        nonce = HKDFExpand(hashes.SHA256(), 12, b"Content-Encoding: nonce\0").derive(again)
        plain = AESGCM(key).decrypt(nonce, sealed, None)
        assert plain.rstrip(b"\0")[-1] == 2, "the last record ends with the delimiter 2"
        found: dict[str, Any] = json.loads(plain.rstrip(b"\0")[:-1])
        return found


class PushService(Receiver):
    """Refuses what RFC 8030 and 8292 do not allow; keeps the rest in `requests`."""

    def answer(self, got: Got) -> Reply:
        scheme, _, rest = got.headers.get("authorization", "").partition(" ")
        given = dict(part.strip().split("=", 1) for part in rest.split(","))
        try:
            assert scheme == "vapid"
            signed, _, mark = given["t"].rpartition(".")
            head, claims = (json.loads(data(part)) for part in signed.split("."))
            r, s = (int.from_bytes(data(mark)[at : at + 32], "big") for at in (0, 32))
            key = ec.EllipticCurvePublicKey.from_encoded_point(CURVE, data(given["k"]))
            key.verify(encode_dss_signature(r, s), signed.encode(), ec.ECDSA(hashes.SHA256()))
            assert (head["alg"], claims["aud"], len(data(mark))) == ("ES256", self.url, 64)
            assert 0 < claims["exp"] - SystemClock().now_us() // 1_000_000 <= 24 * 3600
            assert claims["sub"].startswith(("mailto:", "https:"))
        except (AssertionError, InvalidSignature, KeyError, ValueError):
            return Reply(403)
        asked = {name: got.headers.get(name) for name in ("content-encoding", "ttl", "urgency")}
        fits = asked == {"content-encoding": "aes128gcm", "ttl": str(TTL_S), "urgency": "high"}
        return Reply(201 if fits and len(got.headers["topic"]) <= 32 else 400)
