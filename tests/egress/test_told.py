"""What a bound host tells of a secret does not arrive, from the first byte on; what it tells besides does."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import queue
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from holdfast.egress import compressed as module
from holdfast.egress.compressed import Body, Hidden
from holdfast.egress.scrub import Forms
from holdfast.facts.session import EgressPolicy, SecretUse
from holdfast.vault.base import Secret
from holdfast.vault.sources import Source
from tests.egress.told_driver import (
    HOSTS,
    SES,
    TELLS,
    VALUE,
    Client,
    Scene,
    attempts,
    dechunked,
    packed,
    request,
    scene,
)
from tests.support.as_user import run_as_user


def judge(found: dict[str, bool]) -> None:
    """Nothing leaked, of many attempts."""
    assert [name for name, bad in found.items() if bad] == []
    assert len(found) == 6 + 3 * len(TELLS)


async def test_nothing_of_a_secret_arrives(tmp_path: Path) -> None:
    judge(await attempts(tmp_path))


def test_nothing_of_a_secret_arrives_as_an_ordinary_user(tmp_path: Path) -> None:
    judge(run_as_user(tmp_path, "tests.egress.told_driver"))


async def test_all_else_arrives_as_it_was(tmp_path: Path) -> None:
    noise = random.Random(5).randbytes(700_000)
    bodies = [
        noise,
        gzip.compress(noise),
        gzip.compress(b"a" * 300_000) + gzip.compress(noise[:9_000]),
        zlib.compress(noise),
        bz2.compress(noise),
        lzma.compress(noise),
        gzip.compress(noise)[:-40] + b"not its end",
        b"\x1f\x8b and no gzip",
        bytes(300_000),
        b"\x03\x00" * 100_000,
        VALUE[:-1].encode() + b"?",
        b"".join(tell(b"another-value-altogether") for tell in TELLS.values()),
    ]
    async with scene(tmp_path) as given:
        client = await given.open()
        for body in bodies:
            said = await anyio.to_thread.run_sync(packed, client, HOSTS[0], body)
            assert said.partition(b"\r\n\r\n")[2] == body


async def refusals(given: Scene, client: Client, host: str) -> tuple[bytes, list[str]]:
    """The answer to a request without a secret, and the reasons that were noted."""
    said = await anyio.to_thread.run_sync(client.told, host, b"well")
    notes = await given.egress().notes(SES, 0)
    return said, [seen.reason for seen in notes.seen if seen.verdict == "refused"]


def _link(base: Path) -> None:
    (base / "secret").rename(base / "moved")
    (base / "secret").symlink_to(base / "moved")


UNRESOLVED: dict[str, Callable[[Path], object]] = {
    "no file": lambda base: (base / "secret").unlink(),
    "a file that others read": lambda base: (base / "secret").chmod(0o644),
    "an empty file": lambda base: (base / "secret").write_text(""),
    "two lines": lambda base: (base / "secret").write_text("one-line-of-it\nanother-line"),
    "a short value": lambda base: (base / "secret").write_text("short"),
    "a link": _link,
}


@pytest.mark.parametrize("trouble", UNRESOLVED)
async def test_a_host_is_refused_until_its_secret_is_found(tmp_path: Path, trouble: str) -> None:
    async with scene(tmp_path) as given:
        UNRESOLVED[trouble](tmp_path)
        client = await given.open()
        reasons: list[str] = []
        for host in HOSTS:
            said, reasons = await refusals(given, client, host)
            assert said.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
            assert b"the secret token is not available" in said
            assert VALUE.encode() not in said
        assert given.world.seen == []
        assert len(reasons) == len(HOSTS)
        assert all("cannot be searched" in reason and "'token'" in reason for reason in reasons)
        (tmp_path / "secret").unlink(missing_ok=True)
        given.put(VALUE)
        said, _ = await refusals(given, client, HOSTS[1])
        assert said.endswith(b"<well>")
        (tmp_path / "secret").unlink()  # what was found once is searched for, also when it is gone
        assert client.told(HOSTS[0], b"well").endswith(b"<well>")
        assert VALUE.encode() not in client.told(HOSTS[0], VALUE.encode())


async def test_a_command_that_fails_is_asked_again_after_a_rest(tmp_path: Path) -> None:
    counted, script = tmp_path / "counted", tmp_path / "show"
    script.write_text(f"#!/bin/sh\necho x >> {counted}\ncat {tmp_path}/given\n")
    script.chmod(0o700)
    async with scene(tmp_path) as given:
        given.sources = [Source("token", "command", (str(script),))]
        client = await given.open()
        for _ in range(4):
            assert (await refusals(given, client, HOSTS[0]))[0].startswith(b"HTTP/1.1 503")
        asked = len(counted.read_text().splitlines())
        assert asked >= 1
        (tmp_path / "given").write_text(VALUE)
        with anyio.fail_after(60):
            while b" 503 " in (await refusals(given, client, HOSTS[0]))[0]:  # noqa: ASYNC110 - until its rest is over
                await anyio.sleep(0.01)
        assert VALUE.encode() not in client.told(HOSTS[0], VALUE.encode())


async def test_an_expired_secret_is_searched_for_and_not_used(tmp_path: Path) -> None:
    async with scene(tmp_path) as given:
        given.sources = [Source("token", "file", (str(given.file),), 1)]
        client = await given.open()
        assert client.told(HOSTS[0], b"well").endswith(b"<well>")
        assert VALUE.encode() not in client.told(HOSTS[0], VALUE.encode())
        assert client.use(HOSTS[0]).startswith(b"HTTP/1.1 502")
        assert all(VALUE not in str(seen) for seen in given.world.seen)


async def test_every_secret_of_a_host_is_searched_for(tmp_path: Path) -> None:
    """One that may be used and one that is held, which was never sent."""
    other = tmp_path / "other"
    other.write_text("another-secret-of-it")
    other.chmod(0o600)
    async with scene(tmp_path) as given:
        given.sources.append(Source("other", "file", (str(other),)))
        uses = (given.use, SecretUse("other", (HOSTS[0],), variable="OTHER", header="x-key"))
        policy = EgressPolicy(allow=given.policy.allow, secrets=uses)
        client = Client(given.world, await given.egress().open(SES, policy, uid=os.getuid(), held=("other",)))
        said = client.told(HOSTS[0], b"token=" + VALUE.encode() + b" other=another-secret-of-it")
        assert said.endswith(b"<token=" + b"*" * len(VALUE) + b" other=" + b"*" * 20 + b">")
        assert client.get(HOSTS[0], "/x", f"X-Key: {client.gateway.env['OTHER']}").startswith(b"HTTP/1.1 403")


async def test_events_arrive_at_once_and_short_ends_after_a_moment(tmp_path: Path) -> None:
    """Each event is given when the one before has arrived; most end in what a form could begin with."""
    first = VALUE[:3].encode()
    events = [b"data: 1\n\n", b"data: t\n\n", b"data: dG9\n\n", b"data: " + first, b"!\n\n", b"736", b"f", b"\n"]
    async with scene(tmp_path) as given:
        client = await given.open()
        given_events: queue.Queue[bytes | None] = queue.Queue()
        client.world.streams["/events"] = given_events

        def read() -> None:
            said, sent = b"", b""
            with client.connect(HOSTS[0]) as sock:
                sock.settimeout(60.0)
                sock.sendall(request(HOSTS[0], "/events"))
                for event in events:
                    given_events.put(event)
                    sent += event
                    while not said.endswith(b"\r\n") or dechunked(said) != sent:
                        data = sock.recv(65536)
                        assert data
                        said += data
                given_events.put(None)

        await anyio.to_thread.run_sync(read)


async def test_a_host_that_pauses_within_a_secret_tells_four_characters_at_most(tmp_path: Path) -> None:
    async with scene(tmp_path) as given:
        client = await given.open()
        pieces: queue.Queue[bytes | None] = queue.Queue()
        client.world.streams["/events"] = pieces

        def read() -> bytes:
            said = b""
            with client.connect(HOSTS[0]) as sock, contextlib.suppress(OSError):
                sock.settimeout(60.0)
                sock.sendall(request(HOSTS[0], "/events", "Connection: close"))
                pieces.put(VALUE[:4].encode())
                while VALUE[:4].encode() not in dechunked(said if said.endswith(b"\r\n") else b""):
                    said += sock.recv(65536)
                pieces.put(VALUE[4:].encode() + b"!")
                pieces.put(None)
                while data := sock.recv(65536):
                    said += data
            return dechunked(said)

        assert await anyio.to_thread.run_sync(read) == VALUE[:4].encode() + b"*" * (len(VALUE) - 4) + b"!"


def test_a_body_that_expands_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    forms = Forms([Secret(VALUE)])
    monkeypatch.setattr(module, "ROOM", 1 << 20)
    bomb = bz2.compress(bytes(8 << 20))
    body = Body(forms)
    with pytest.raises(Hidden, match="more than can be searched"):
        body.feed(bomb, forms)
    body = Body(forms)
    with pytest.raises(Hidden, match="more than can be searched"):
        body.feed(gzip.compress(b"") * 4_000, forms)


def _passed(body: Body, forms: Forms, pieces: list[bytes]) -> tuple[bytes, str]:
    """What is passed on, and why the rest is not."""
    passed = b""
    try:
        for piece in pieces:
            passed += body.feed(piece, forms)
        passed += body.end()
    except Hidden as error:
        return passed, str(error)
    return passed, ""


@pytest.mark.parametrize("name", ["gzip", "two gzip files", "zlib", "deflate", "bzip2", "xz"])
def test_a_compressed_secret_is_found_however_its_body_is_cut(name: str) -> None:
    forms, data = Forms([Secret(VALUE)]), TELLS[name](b"before " * 40 + VALUE.encode() + b" after" * 40)
    for size in (1, 2, 7, 64, len(data)):
        passed, why = _passed(Body(forms), forms, [data[at : at + size] for at in range(0, len(data), size)])
        assert "compressed" in why
        got = b""
        with contextlib.suppress(OSError, EOFError, zlib.error, lzma.LZMAError):
            reader = {"bzip2": bz2.BZ2Decompressor, "xz": lzma.LZMADecompressor}.get(name)
            wbits = -15 if name == "deflate" else 47
            got = reader().decompress(passed) if reader else zlib.decompressobj(wbits).decompress(passed)
        assert VALUE.encode()[:8] not in got
