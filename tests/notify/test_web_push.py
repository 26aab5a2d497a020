"""Web Push on the wire: a push service that checks RFC 8291 and 8292, and browsers that come and go."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from holdfast.clock import SystemClock
from holdfast.errors import CannotRunSafely, NotifyError, UsageError
from holdfast.notify.web_push import TTL_S, Device, Devices, WebPush, encrypted, public_key
from holdfast.testing.notify import example
from tests.notify.rigs import QUICK
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


def test_the_example_of_the_rfc() -> None:
    """RFC 8291, appendix A: with its keys and salt, exactly its bytes."""
    device = Device(
        "https://push.example.net/push/x",
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        "BTBZMqHH6r4Tts7J_aSIgg",
        "ann",
    )
    own = ec.derive_private_key(int.from_bytes(data("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"), "big"), CURVE)
    made = encrypted(b"When I grow up, I want to be a watermelon", device, own=own, salt=data("DGv6ra1nlYgDCS1FRnbzlw"))
    assert text(made) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl"
        "7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


async def test_a_push_says_that_something_waits_and_not_what(tmp_path: Path) -> None:
    with PushService() as service:
        browser, other = Browser(f"{service.url}/push/1"), Browser(f"{service.url}/push/2")
        Devices(tmp_path).add(browser.device)
        await WebPush("phone", tmp_path, SystemClock(), patience=QUICK).send(example())
        [got] = service.requests
    assert browser.read(got.body) == {
        "title": "An approval waits",
        "body": "mender",
        "tag": "ntc_itm_1",
        "path": "/inbox/itm_1",
    }
    assert b"git push" not in got.body + repr(got.headers).encode()
    with pytest.raises(InvalidTag):
        other.read(got.body)


async def test_browsers_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    """One browser that received the notice is enough; those of other users receive none."""
    devices = Devices(tmp_path)
    with PushService() as service:
        phone, gone, strange = (Browser(f"{service.url}/push/{name}") for name in ("phone", "gone", "strange"))
        for each in (
            phone.device,
            gone.device,
            Device(strange.device.endpoint, strange.device.p256dh, text(b"0" * 16), "bob"),
        ):
            devices.add(each)
        order = [each.endpoint.rpartition("/")[2] for each in devices.all("ann")]
        service.planned.extend(Reply(410) if name == "gone" else Reply(201) for name in order)
        target = WebPush("phone", tmp_path, SystemClock(), user="ann", patience=QUICK)
        await target.send(example())
        assert {got.path for got in service.requests} == {"/push/phone", "/push/gone"}
        assert [each.device_id for each in devices.all("ann")] == [phone.device.device_id]
        service.planned.append(Reply(410))
        with pytest.raises(NotifyError, match="gone for good") as caught:
            await target.send(example())
        assert not caught.value.retryable
    with pytest.raises(NotifyError, match="no browser is subscribed"):
        await target.send(example())
    assert [each.user for each in devices.all()] == ["bob"]


async def test_a_busy_push_service_is_asked_again_under_one_topic(tmp_path: Path) -> None:
    with PushService() as service:
        Devices(tmp_path).add(Browser(f"{service.url}/push/1").device)
        service.planned.extend([Reply(503), Reply(429, {"retry-after": "0"})])
        await WebPush("phone", tmp_path, SystemClock(), patience=QUICK).send(example())
        assert len({got.headers["topic"] for got in service.requests}) == 1
        assert len(service.requests) == 3


def test_what_no_browser_sends_is_refused(tmp_path: Path) -> None:
    devices, good = Devices(tmp_path), Browser("https://push.example.net/1").device
    wrong = [
        Device("http://push.example.net/1", good.p256dh, good.auth, "ann"),
        Device("https://ann:pw@push.example.net/1", good.p256dh, good.auth, "ann"),
        Device("file:///etc/passwd", good.p256dh, good.auth, "ann"),
        Device(good.endpoint, text(b"\x04" + b"1" * 64), good.auth, "ann"),
        Device(good.endpoint, "%", good.auth, "ann"),
        Device(good.endpoint, good.p256dh, text(b"short"), "ann"),
    ]
    for each in wrong:
        with pytest.raises(UsageError):
            devices.add(each)
    assert devices.all() == []
    devices.add(good)
    devices.add(good)
    (tmp_path / "devices" / "dev_broken.json").write_text("{")
    assert devices.all() == [good]
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "devices").iterdir() if path.stem != "dev_broken"} == {
        0
    }
    devices.remove("../../etc/passwd")
    devices.remove(good.device_id)
    assert devices.all() == []


def test_the_key_of_a_home_stays(tmp_path: Path) -> None:
    first, second = Devices(tmp_path), Devices(tmp_path)
    assert public_key(first.key()) == public_key(second.key())
    assert (tmp_path / "devices" / "vapid.key").stat().st_mode & 0o077 == 0
    (tmp_path / "devices" / "vapid.key").write_bytes(b"")
    with pytest.raises(CannotRunSafely, match="Remove it"):
        first.key()
