"""Names, ports and paths have one form or are refused, whatever bytes come."""

from __future__ import annotations

import ipaddress
import posixpath
import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.egress.rules import Malformed, Place, plain_path, read_absolute, read_authority, read_host

LABEL = st.from_regex(r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,20}[a-zA-Z0-9])?", fullmatch=True)
NAME = st.builds(
    lambda labels, top: ".".join([*labels, top]),
    st.lists(LABEL, max_size=4),
    st.from_regex(r"[a-zA-Z][a-zA-Z0-9]{0,10}", fullmatch=True),
)
PORT = st.integers(1, 65535)
ODD = st.characters(codec="latin-1").filter(lambda char: not re.fullmatch(r"[A-Za-z0-9._-]", char))


def accepted(data: bytes) -> Place | None:
    """What is read, None for a refusal."""
    try:
        return read_authority(data)
    except Malformed:
        return None


@given(NAME, PORT)
def test_ordinary_names_are_read(name: str, port: int) -> None:
    assert read_authority(f"{name}:{port}".encode()) == (name.lower(), port)


@given(st.one_of(st.binary(max_size=60), st.text(max_size=40).map(lambda text: f"{text}:443".encode())))
def test_whatever_is_read_has_one_form(data: bytes) -> None:
    place = accepted(data)
    if place is None:
        return
    assert 0 < place.port < 65536
    if ":" in place.host:
        assert str(ipaddress.IPv6Address(place.host)) == place.host
        shown = f"[{place.host}]"
    else:
        assert re.fullmatch(r"[a-z0-9._-]+", place.host)
        assert not place.host.startswith(".")
        assert not place.host.endswith(".")
        shown = place.host
        if re.fullmatch(r"[0-9]+|0x[0-9a-f]*", place.host.rpartition(".")[2]):
            assert str(ipaddress.IPv4Address(place.host)) == place.host
    assert accepted(f"{shown}:{place.port}".encode()) == place
    assert data.lower().decode("ascii") == f"{shown}:{place.port}" or ":" in place.host


@given(NAME, PORT, ODD, st.data())
def test_one_odd_character_is_one_too_many(name: str, port: int, odd: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(name)))
    assert accepted(f"{name[:at]}{odd}{name[at:]}:{port}".encode("latin-1")) is None


@pytest.mark.parametrize(
    "text",
    "2130706433 0x7f.1 127.1 0177.0.0.1 1.2.3.04 1.2.3.4.5 0x7f000001 a.0x1 256.1.1.1 a..b .a a. -a.b a-.b [::1 ::1] "
    "[1.2.3.4] [fe80::1%lo] a%00b a@b a/b a\\b a#b a?b".split(),
)
def test_other_spellings_are_refused(text: str) -> None:
    with pytest.raises(Malformed):
        read_host(text)


def test_a_name_longer_than_dns_permits_is_refused() -> None:
    longest = ".".join(["a" * 63] * 3 + ["b" * 61])
    assert read_host(longest) == longest
    with pytest.raises(Malformed):
        read_host(f"{longest}b")


@pytest.mark.parametrize(
    "data", [b"a", b"a:", b"a:0", b"a:00443", b"a:+443", b"a:65536", b"a:443 ", b" a:443", b":443", b"a:b:443"]
)
def test_other_ports_are_refused(data: bytes) -> None:
    assert accepted(data) is None


@pytest.mark.parametrize(
    "target",
    [
        b"https://a/",
        b"http:///x",
        b"http://u@a/",
        b"http://a b/",
        b"HTTP://a/",
        b"http://a/#x",
        b"http://a/\xff",
        b"/x",
    ],
)
def test_other_absolute_addresses_are_refused(target: bytes) -> None:
    with pytest.raises(Malformed):
        read_absolute(target)


def test_an_absolute_address_is_taken_apart() -> None:
    assert read_absolute(b"http://A.test/x?y=/..") == (("a.test", 80), b"/x?y=/..")
    assert read_absolute(b"http://a.test:81") == (("a.test", 81), b"/")


PATH = st.lists(
    st.sampled_from(["a", "..", ".", "/", "%2e", "%2E", "%2f", "%5c", "\\", "%", "%25", "2e", ";", "%00", "é"])
)


@given(PATH.map(lambda parts: "/" + "".join(parts)))
def test_a_path_that_counts_has_one_meaning(path: str) -> None:
    try:
        plain = plain_path(path)
    except Malformed:
        return
    for reading in (plain, unquote(plain), unquote(unquote(plain)), unquote(path)):
        cut = "/".join(segment.partition(";")[0] for segment in reading.split("/"))
        assert posixpath.normpath(cut).rstrip("/") == cut.rstrip("/") or cut == "/"
        assert "\\" not in reading
        assert "\0" not in reading
    assert plain_path(plain) == plain
