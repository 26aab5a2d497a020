"""Connections from the proxy to upstream hosts.

Each name is resolved once, its addresses are checked, and only the addresses that passed are dialed.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Protocol

import anyio

from holdfast.egress.http import Refusal
from holdfast.egress.rules import Place, shown
from holdfast.egress.streams import Ended, Silent, Stream
from holdfast.facts.session import Destination

RESOLVE_S = 10.0
CONNECT_S = 10.0
ADDRESSES_MAX = 4
"""Largest number of addresses tried for one name."""


class Network(Protocol):
    """A resolver of names, and connections to addresses."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Resolve a name to addresses, best first. Raises `OSError`."""
        ...

    async def connect(self, address: str, port: int) -> socket.socket:
        """Connect to exactly this address. Raises `OSError`."""
        ...


class SystemNetwork:
    """The resolver and network of this machine."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Resolve with the system's resolver."""
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        return list(dict.fromkeys(str(entry[4][0]) for entry in found))

    async def connect(self, address: str, port: int) -> socket.socket:
        """Connect without blocking."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                sock.connect((address, port))
            except BlockingIOError:
                await anyio.wait_writable(sock)
                problem = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if problem:
                    raise OSError(problem, "connect") from None
        except BaseException:
            sock.close()
            raise
        return sock


class Outward:
    """Opens connections to allowed places. `through` is the upstream proxy of the network, if there is one."""

    def __init__(self, network: Network, tls: ssl.SSLContext, through: Place | None = None) -> None:
        self._network = network
        self._tls = tls
        self._through = through

    async def open(self, place: Place, destinations: Sequence[Destination]) -> Stream:
        """Connect to a place. Raises `Refusal` if its address is not allowed or does not answer."""
        private = any(destination.private for destination in destinations)
        if self._through is not None:
            return await self._by_proxy(place, self._through, private)
        addresses = await self._resolve(place)
        problems = [problem_with(address, private=private) for address in addresses]
        allowed = [address for address, problem in zip(addresses, problems, strict=True) if not problem]
        if not allowed:
            problem = problems[0] if problems else "it has no address"
            raise Refusal(403, f"the address of {place.host} is not allowed: {problem}")
        return await self._dial(place, allowed[:ADDRESSES_MAX])

    async def secure(self, stream: Stream, host: str) -> None:
        """Start TLS and check the certificate of the host. Raises `Refusal`."""
        try:
            await stream.start_tls(self._tls, server=False, name=host)
        except Ended as error:
            raise Refusal(502, f"no safe connection to {host}: {error}") from None

    async def _resolve(self, place: Place) -> list[str]:
        try:
            return [str(ipaddress.ip_address(place.host))]
        except ValueError:
            pass
        try:
            with anyio.fail_after(RESOLVE_S):
                return [address.partition("%")[0] for address in await self._network.resolve(place.host, place.port)]
        except (OSError, TimeoutError, UnicodeError):
            raise Refusal(502, f"the name {place.host} cannot be resolved") from None

    async def _dial(self, place: Place, addresses: Sequence[str]) -> Stream:
        for address in addresses:
            try:
                with anyio.fail_after(CONNECT_S):
                    return Stream(await self._network.connect(address, place.port))
            except (OSError, TimeoutError):
                continue
        raise Refusal(502, f"no answer from {place.host}, port {place.port}")

    async def _by_proxy(self, place: Place, through: Place, private: bool) -> Stream:
        """Open a tunnel through the upstream proxy of the network, which resolves names itself."""
        try:
            ipaddress.ip_address(place.host)
        except ValueError:
            pass
        else:
            problem = problem_with(place.host, private=private)
            if problem:
                raise Refusal(403, f"the address {place.host} is not allowed: {problem}")
        stream = await self._dial(through, await self._resolve(through))
        name = shown(place)
        asked = f"CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n\r\n".encode()
        try:
            await stream.send(asked)
            said = b""
            while not said.endswith(b"\r\n\r\n") and len(said) < 8192:
                data = await stream.recv(1, wait_s=CONNECT_S)
                if not data:
                    raise Ended("it ended")
                said += data
        except (Ended, Silent):
            stream.close()
            raise Refusal(502, "the upstream proxy of the network does not answer") from None
        if not said.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200")):
            stream.close()
            raise Refusal(502, f"the upstream proxy of the network refused a tunnel to {place.host}")
        return stream


Address = IPv4Address | IPv6Address

_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in ("169.254.169.254", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254")
)
"""Metadata services, from which cloud machines get credentials. Some look private, one looks public."""

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
"""Networks that some Python versions wrongly treat as public."""

_LOW_32 = 0xFFFFFFFF
_ISATAP = (0x00005EFE, 0x02005EFE)


def is_own(address: Address) -> bool:
    """Return True for an address of this machine: only these can be bound."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
        return True


def problem_with(text: str, *, private: bool) -> str:
    """Return the reason why the address is not allowed; empty if it is. `private` allows private networks."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return "it is not an address"
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
    """Return True for a globally routed address; for an address that embeds another one, that one counts."""
    if any(address in network for network in _NOT_PUBLIC if network.version == address.version):
        return False
    return address.is_global or bool(_inside(address))


def _inside(address: Address) -> tuple[IPv4Address, ...]:
    """Return the IPv4 addresses that an IPv6 address may be translated to."""
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
    if address in _LOCAL_NAT64 and longer not in _ZERO:  # the form with octet 8 in the middle
        found.append(longer)
    return tuple(found)
