"""Web Push target: a notice on each browser that its user subscribed on the page of `holdfast serve`.

A push service of the browser's maker carries the message, encrypted for that browser alone (RFC 8291) and signed with
a key of this home (RFC 8292). It says that something waits and where, not what: the page shows the action, and an
answer is given there.

    <home>/devices/<id>.json   one subscribed browser
    <home>/devices/vapid.key   the home's private key; without it, all browsers must subscribe again
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import getpass
import hashlib
import os
import socket
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from holdfast.clock import Clock
from holdfast.errors import CannotRunSafely, NotifyError, UsageError
from holdfast.ids import Entropy, system_entropy
from holdfast.notify.base import Notice
from holdfast.notify.http import Patience, Request, ask, checked_url, persist, settle
from holdfast.notify.notices import one_line

DEVICES_MAX = 32
"""Most subscribed browsers of a home."""

TTL_S = 24 * 3600
"""How long a push service keeps a message for a browser that is off, in seconds."""

TOKEN_S = 12 * 3600
"""Life of a signature; RFC 8292 allows 24 hours."""

_CURVE = ec.SECP256R1()


class Device(msgspec.Struct, frozen=True):
    """A subscribed browser. `p256dh` and `auth` are its key and secret in base64url, as `PushSubscription` has them."""

    endpoint: str
    p256dh: str
    auth: str
    user: str
    label: str = ""
    since_us: int = 0

    @property
    def device_id(self) -> str:
        """Name of its file, derived from the endpoint: a browser that subscribes again replaces itself."""
        return f"dev_{hashlib.sha256(self.endpoint.encode()).hexdigest()[:16]}"


class Devices:
    """The subscribed browsers of a home."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "devices"

    def all(self, user: str = "") -> list[Device]:
        """Return the browsers of a user, or of all; a damaged file counts as none."""
        found = []
        for path in sorted(self._folder.glob("dev_*.json")):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                found.append(msgspec.json.decode(path.read_bytes(), type=Device))
        return [each for each in found if not user or each.user == user]

    def add(self, device: Device) -> None:
        """Keep a browser. Raises `UsageError` for an unusable address or key, or when there are too many."""
        checked_url("push", device.endpoint)
        _point(device.p256dh)
        if len(_bytes(device.auth)) != 16:
            raise UsageError("this browser's push secret has to have 16 bytes; nothing was changed: subscribe again")
        if len(self.all()) >= DEVICES_MAX and device.device_id not in {each.device_id for each in self.all()}:
            raise UsageError(f"{DEVICES_MAX} browsers are subscribed already; nothing was changed: remove one first")
        self._write(f"{device.device_id}.json", msgspec.json.encode(device))

    def remove(self, device_id: str) -> None:
        """Forget a browser. Safe to repeat."""
        for each in self.all():
            if each.device_id == device_id:
                (self._folder / f"{device_id}.json").unlink(missing_ok=True)

    def key(self, entropy: Entropy = system_entropy) -> ec.EllipticCurvePrivateKey:
        """Return the home's signing key, created at its first use. Raises `CannotRunSafely`."""
        path = self._folder / "vapid.key"
        try:
            if not path.exists():
                made = int.from_bytes(entropy(40), "big") % (_CURVE.group_order - 1) + 1
                self._write(path.name, made.to_bytes(32, "big"), replace=False)
            return ec.derive_private_key(int.from_bytes(path.read_bytes(), "big"), _CURVE)
        except (OSError, ValueError) as error:
            raise CannotRunSafely(
                f"the push key {path} cannot be used ({error}); no push was sent. Remove it to make a new one: "
                "browsers then subscribe again"
            ) from error

    def _write(self, name: str, data: bytes, *, replace: bool = True) -> None:
        """Write a file whole. Without `replace`, the first of two writers wins."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._folder / f".{name}.{os.getpid()}"
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            part.replace(self._folder / name)
            return
        with contextlib.suppress(FileExistsError):
            os.link(part, self._folder / name)
        part.unlink()


class WebPush:
    """Sends to all subscribed browsers of `user`, or of all users. `contact` is an address for the push services."""

    def __init__(
        self,
        name: str,
        home: Path,
        clock: Clock,
        *,
        user: str = "",
        contact: str = "",
        patience: Patience | None = None,
    ) -> None:
        self.name = name
        self._devices = Devices(home)
        self._clock = clock
        self._user = user
        self._contact = contact or f"mailto:{getpass.getuser()}@{socket.gethostname()}"
        self._patience = patience or Patience()

    async def send(self, notice: Notice) -> None:
        """Send to each browser; one that received it is enough. Raises `NotifyError`.

        A browser that has unsubscribed is forgotten.
        """
        devices = self._devices.all(self._user)
        if not devices:
            raise NotifyError(
                f"no browser is subscribed for the notification target {self.name!r}; open the page of "
                "`holdfast serve` on your phone, and choose Notify this device",
                retryable=False,
            )
        failed: list[NotifyError] = []
        for device in devices:
            try:
                await self._send_to(device, notice)
            except NotifyError as error:
                failed.append(error)
        if len(failed) == len(devices):
            raise next((error for error in failed if error.retryable), failed[0])

    async def _send_to(self, device: Device, notice: Notice) -> None:
        body = encrypted(_message(notice), device)
        key = self._devices.key()

        async def attempt() -> None:
            headers = {
                "authorization": authorization(key, device.endpoint, self._contact, self._clock.now_us()),
                "content-encoding": "aes128gcm",
                "content-type": "application/octet-stream",
                "ttl": str(TTL_S),
                "urgency": "normal" if notice.kind in ("finished", "test") else "high",
                # A later try replaces an earlier one that the browser did not fetch yet.
                "topic": _text(hashlib.sha256(notice.notice_id.encode()).digest()[:24]),
            }
            request = Request("POST", device.endpoint, headers, body)
            answer = await ask(self.name, request, self._patience, self._clock)
            if answer.status in (404, 410):
                self._devices.remove(device.device_id)
            settle(self.name, answer)

        await persist(self._patience, attempt)


def _message(notice: Notice) -> bytes:
    """Return what the browser shows: that something waits, and the path of its page. The action is on the page."""
    what = {
        "approval": "An approval waits",
        "reminder": "Still waiting for an answer",
        "escalation": "No answer yet",
        "finished": "Finished",
        "failed": "Failed",
        "test": "A test",
    }[notice.kind]
    path = f"/inbox/{notice.item_id}" if notice.item_id else f"/sessions/{notice.session_id}"
    name = one_line(notice.session_name or notice.session_id, 200)
    return msgspec.json.encode({"title": what, "body": name, "tag": notice.notice_id, "path": path})


def authorization(key: ec.EllipticCurvePrivateKey, endpoint: str, contact: str, now_us: int) -> str:
    """Return the `Authorization` header of RFC 8292 for a push service."""
    url = checked_url("push", endpoint)
    claims = {
        "aud": f"{url.scheme}://{url.netloc.decode('ascii')}",
        "exp": now_us // 1_000_000 + TOKEN_S,
        "sub": contact,
    }
    signed = f"{_text(msgspec.json.encode({'typ': 'JWT', 'alg': 'ES256'}))}.{_text(msgspec.json.encode(claims))}"
    r, s = utils.decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    return f"vapid t={signed}.{_text(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}, k={public_key(key)}"


def public_key(key: ec.EllipticCurvePrivateKey) -> str:
    """Return the public half of the home's key, as a browser takes it for `applicationServerKey`."""
    return _text(_raw(key))


def encrypted(
    plain: bytes, device: Device, *, own: ec.EllipticCurvePrivateKey | None = None, salt: bytes = b""
) -> bytes:
    """Encrypt a message for a browser: one record of RFC 8188, with the keys of RFC 8291.

    `own` and `salt` are new for each message, except in a test against the RFC's example.
    """
    own, salt = own or ec.generate_private_key(_CURVE), salt or system_entropy(16)
    theirs = _point(device.p256dh)
    their_raw = theirs.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    secret = own.exchange(ec.ECDH(), theirs)
    keyed = _derived(secret, _bytes(device.auth), b"WebPush: info\0" + their_raw + _raw(own), 32)
    key = _derived(keyed, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derived(keyed, salt, b"Content-Encoding: nonce\0", 12)
    head = salt + (4096).to_bytes(4, "big") + bytes([65]) + _raw(own)
    return head + AESGCM(key).encrypt(nonce, plain + b"\x02", None)


def _derived(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, salt, info).derive(secret)


def _raw(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def _point(text: str) -> ec.EllipticCurvePublicKey:
    """Read a browser's key. Raises `UsageError`."""
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, _bytes(text))
    except ValueError:
        raise UsageError(
            "this browser's push key is not a point of P-256; nothing was changed: subscribe again"
        ) from None


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""
