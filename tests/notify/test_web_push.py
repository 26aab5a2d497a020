"""Web Push on the wire: a push service that checks RFC 8291 and 8292, and browsers that come and go."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec

from holdfast.clock import SystemClock
from holdfast.errors import CannotRunSafely, NotifyError, UsageError
from holdfast.notify.web_push import Device, Devices, WebPush, encrypted, public_key
from holdfast.testing.notify import example
from tests.notify.rigs import QUICK
from tests.support.push_service import CURVE, Browser, PushService, data, text
from tests.support.receiver import Reply


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
