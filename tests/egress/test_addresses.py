"""Which addresses hands may be led to."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.egress.upstream import problem_with
from tests.egress.attempt_driver import BAD

PRIVATE = (
    "10.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "100.64.0.1",
    "fc00::1",
    "203.0.113.80",
    "2001:db8::1",
    "::ffff:10.0.0.1",
    "::ffff:8.8.8.8",
    "::ffff:0:8.8.8.8",
    "fec0::1",
    "feff:ffff::1",
    "192.88.99.1",
    "192.88.99.255",
    "3fff::1",
    "3fff:fff:ffff::1",
    "5f00::1",
    "5f00:ffff::1",
    "64:ff9b:1::808:808",
)
NEVER = (
    "::ffff:0:127.0.0.1",
    "::ffff:0:169.254.169.254",
    "64:ff9b::127.0.0.1",
    "64:ff9b:1::127.0.0.1",
    "64:ff9b:1:7f00:0:100::",
    "64:ff9b:1:a9fe:a9:fe00::",
)


@pytest.mark.parametrize("address", BAD)
def test_none_of_these(address: str) -> None:
    assert problem_with(address, private=False)


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "8.8.8.8", "192.88.98.1", "192.88.100.1", "2606:4700::1111", "64:ff9b::808:808"]
)
def test_the_world(address: str) -> None:
    assert problem_with(address, private=False) == ""


@pytest.mark.parametrize("address", PRIVATE)
def test_private_ones_only_where_the_policy_says_so(address: str) -> None:
    assert "private" in problem_with(address, private=False)
    assert problem_with(address, private=True) == ""


@pytest.mark.parametrize("address", NEVER)
def test_what_carries_one_of_these_is_never_dialed(address: str) -> None:
    assert problem_with(address, private=False)
    assert problem_with(address, private=True) in ("it is this machine", "it is a metadata service")


@pytest.mark.parametrize("address", [one for one in BAD if one not in PRIVATE])
def test_what_is_private_opens_nothing_else(address: str) -> None:
    never = problem_with(address, private=True)
    assert never or "private" in problem_with(address, private=False)
    found = ipaddress.ip_address(address)
    if found.is_loopback or found.is_link_local or found.is_multicast or found.is_unspecified:
        assert never


@given(st.ip_addresses(v=4))
def test_what_an_address_carries_counts(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    carriers = [
        ipaddress.IPv6Address((0xFFFF << 32) | number),
        ipaddress.IPv6Address((0x64FF9B << 96) | number),
        ipaddress.IPv6Address((0x2002 << 112) | (number << 80) | 1),
    ]
    for private in (False, True):
        if problem_with(str(address), private=private):
            assert all(problem_with(str(carrier), private=private) for carrier in carriers)


def test_this_machines_own_address() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.77", 0))
        own = sock.getsockname()[0]
    assert problem_with(own, private=True) == "it is this machine"


@pytest.mark.parametrize("text", ["", "a", "1.2.3", "1.2.3.4.5", "::1::"])
def test_what_is_no_address(text: str) -> None:
    assert problem_with(text, private=True)
