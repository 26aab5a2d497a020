"""Which addresses hands may be led to: the world outside, and where a policy says so, a private network."""

from __future__ import annotations

import ipaddress
import socket
from ipaddress import IPv4Address, IPv6Address

Address = IPv4Address | IPv6Address

_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in ("169.254.169.254", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254")
)
"""Where clouds tell a machine its own credentials: some of these look private, one looks public."""

_ZERO = ipaddress.IPv4Network("0.0.0.0/8")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(text)
    for text in (
        *("fec0::/10", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "192.88.99.0/24"),
        *("2001:db8::/32", "3fff::/20", "5f00::/16", "100::/64"),
    )
)
"""Networks that Python's own list takes for public, in some version of it or another, and that lead nowhere outside."""

_LOW_32 = 0xFFFFFFFF
_ISATAP = (0x00005EFE, 0x02005EFE)


def is_own(address: Address) -> bool:
    """True when this machine itself answers there: only its own addresses can be bound."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
        return True


def problem_with(text: str, *, private: bool) -> str:
    """Why hands may not be led to that address; empty when they may. `private` lets private networks count too."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return "it is no address"
    for each in (address, *_inside(address)):
        problem = _problem(each, private=private)
        if problem:
            return problem
    return ""


def _problem(address: Address, *, private: bool) -> str:
    if address in _METADATA:
        return "it is a metadata service"
    if address.is_loopback or address.is_unspecified or (address.version == 4 and address in _ZERO):
        return "it is this machine"
    if address.is_link_local:
        return "it is link-local"
    if address.is_multicast:
        return "it is a multicast address"
    if address.version == 4 and address.is_reserved:
        return "it is a reserved address"
    if is_own(address):
        return "it is this machine"
    if not private and not _is_public(address):
        return "it is on a private network"
    return ""


def _is_public(address: Address) -> bool:
    """True for what is routed in the world; an address that only carries another one is judged by that."""
    if any(address in network for network in _NOT_PUBLIC if network.version == address.version):
        return False
    return address.is_global or bool(_inside(address))


def _inside(address: Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that an IPv6 address leads to on some networks."""
    if isinstance(address, IPv4Address):
        return ()
    number = int(address)
    found: list[IPv4Address] = []
    if address.ipv4_mapped is not None:
        found.append(address.ipv4_mapped)
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    if address.teredo is not None:
        found.extend(address.teredo)
    carriers = (_NAT64, _LOCAL_NAT64, _COMPATIBLE, _TRANSLATED)
    if (number >> 32) & _LOW_32 in _ISATAP or any(address in network for network in carriers):
        found.append(IPv4Address(number & _LOW_32))
    longer = IPv4Address((number >> 48 & 0xFFFF0000) | (number >> 40 & 0xFFFF))
    if address in _LOCAL_NAT64 and longer not in _ZERO:  # the form with the octet 8 in the middle
        found.append(longer)
    return tuple(found)
