"""Heads of requests and first messages of TLS: read in one way, cut anywhere, never by an exception."""

from __future__ import annotations

import ssl

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.egress.http import Refusal, read_head
from holdfast.egress.server import read_hello

PIECE = st.sampled_from(
    ["GET", "POST", " ", "/", "/x", "HTTP/1.1", "HTTP/1.0", "\r\n", "\n", "\r", "Host", ":", " a.test", "\t", "\0", "é",
     "Content-Length", " 5", "Transfer-Encoding", " chunked", ",", "X", "\x0b", "Connection", " close"]
)  # fmt: skip
GOOD = "GET /x HTTP/1.1\r\nHost: a.test\r\nX-Y: a b\r\n"


@given(
    st.one_of(
        st.lists(PIECE, max_size=25).map("".join), st.lists(PIECE, max_size=6).map(lambda parts: GOOD + "".join(parts))
    )
)
def test_an_accepted_head_is_what_others_read_too(text: str) -> None:
    raw = text.encode("latin-1") + b"\r\n\r\n"
    raw = raw[: raw.index(b"\r\n\r\n") + 4]
    try:
        head = read_head(raw)
    except Refusal:
        return
    other = h11.Connection(h11.SERVER)
    other.receive_data(raw)
    event = other.next_event()
    assert isinstance(event, h11.Request)
    assert (event.method.decode(), event.target) == (head.method, head.target)
    assert tuple(event.headers) == head.headers
    assert not (head.all(b"content-length") and head.all(b"transfer-encoding"))


def test_an_ordinary_head() -> None:
    head = read_head(b"POST /x?y HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\nX-Empty:\r\n\r\n")
    assert (head.method, head.target, head.all(b"x-empty")) == ("POST", b"/x?y", [b""])


def hello(name: str | None) -> bytes:
    """The first message of a real client."""
    out, into = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    client = context.wrap_bio(into, out, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


@pytest.mark.parametrize("name", ["open.test", "evil.test", None])
def test_a_first_message_says_its_name(name: str | None) -> None:
    data = hello(name)
    found = read_hello(data)
    assert (found.complete, found.name, found.tls, found.sound) == (True, name or "", True, True)
    assert all(not read_hello(data[:size]).complete for size in range(1, len(data)))


def test_a_first_message_in_many_records() -> None:
    data = hello("evil.test")
    message = data[5:]
    parts = [message[at : at + 7] for at in range(0, len(message), 7)]
    cut = b"".join(data[:3] + len(part).to_bytes(2) + part for part in parts)
    assert read_hello(cut).name == "evil.test"


@given(st.binary(max_size=300), st.integers(0, 400))
def test_no_bytes_break_it(noise: bytes, at: int) -> None:
    data = hello("open.test")
    for one in (noise, b"\x16\x03\x01" + noise, data[:at] + noise + data[at + len(noise) :]):
        found = read_hello(one)
        assert found.sound or not found.name


def test_what_is_no_tls_is_said_to_be_none() -> None:
    assert read_hello(b"GET / HTTP/1.1\r\n").tls is False
    assert read_hello(b"\x16\x03\x01\x00\x00").sound is False
