"""Attempts by bytes that two readers understand in two ways, and by other protocols."""

from __future__ import annotations

import ssl
import struct

from tests.egress.inside.kit import (
    API,
    EVIL,
    KEY,
    OPEN,
    attempt,
    connect,
    inside,
    raw,
    refused,
    rejected,
    request,
    status,
)

# --- bytes of two meanings ---

SMUGGLED = f"GET /smuggled HTTP/1.1\r\nHost: {API}\r\n\r\n"

for name, lines in {
    "P21 a length and a coding": "Content-Length: 6\r\nTransfer-Encoding: chunked",
    "P21 a coding and a length": "Transfer-Encoding: chunked\r\nContent-Length: 60",
    "P21 two lengths": "Content-Length: 5\r\nContent-Length: 60",
    "P21 two lengths in one": "Content-Length: 5, 60",
    "P21 a length with a sign": "Content-Length: +5",
    "P21 a length in hexadecimal": "Content-Length: 0x5",
    "P21 a negative length": "Content-Length: -5",
    "P21 a coding that is none": "Transfer-Encoding: xchunked",
    "P21 two codings": "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "P21 codings in a list": "Transfer-Encoding: gzip, chunked",
    "P21 a coding with a vertical tab": "Transfer-Encoding: \x0bchunked",
    "P21 a blank before the colon": "Transfer-Encoding : chunked",
    "P21 a length after a bare line end": "X: y\nContent-Length: 5",
    "P21 a length after a bare return": "X: y\rContent-Length: 5",
    "P22 two Hosts": f"Host: {EVIL}",
    "P22 two Hosts that agree": f"Host: {API}",
    "P23 a folded header": f"X: y\r\n Host: {EVIL}",
    "P23 a folded header with a tab": "Transfer-Encoding:\r\n\tchunked",
    "P29 a websocket": "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: eA==",
    "P29 HTTP/2 over an upgrade": "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AA",
    "a header that names headers to drop": "Connection: authorization",
    "a header name of nothing": ": x",
    "a header line without a colon": "nothing",
    "a zero byte in a header": "X: a\0b",
    "an expectation that nobody knows": "Expect: 200-ok",
}.items():

    @attempt(name)
    def _framing(lines: str = lines) -> object:
        head = f"POST /framing HTTP/1.1\r\nHost: {API}\r\nAuthorization: Bearer {KEY}\r\n{lines}\r\n\r\n"
        return rejected(inside(f"{head}0\r\n\r\n{SMUGGLED}".encode("latin-1")), 400, 417)


for name, body in {
    "P21 a chunk of a wrong size": "5\r\nhelloworld\r\n0\r\n\r\n",
    "P21 a chunk of a negative size": "-1\r\nx\r\n0\r\n\r\n",
    "P21 a chunk of an endless size": "fffffffffffffffffffff\r\nx\r\n0\r\n\r\n",
    "P21 a chunk's bare line end": "5\nhello\n0\n\n",
}.items():

    @attempt(name)
    def _chunks(body: str = body) -> object:
        head = f"POST /chunks HTTP/1.1\r\nHost: {API}\r\nTransfer-Encoding: chunked\r\n\r\n"
        return status(inside(f"{head}{body}{SMUGGLED}".encode())) == 200


@attempt("P19 TRACE")
def _trace() -> object:
    return rejected(inside(request("/x", method="TRACE")), 405)


@attempt("P30 the preface of HTTP/2")
def _preface() -> object:
    return rejected(inside(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505) or rejected(raw(b"PRI * HTTP/2.0\r\n\r\n"), 505)


@attempt("P30 HTTP/2 in the handshake")
def _alpn() -> object:
    sock, said = connect(f"{API}:443")
    assert status(said) == 200
    context = ssl.create_default_context(cafile="/run/egress/ca.pem")
    context.set_alpn_protocols(["h2", "http/1.1"])
    with context.wrap_socket(sock, server_hostname=API) as tls:
        return tls.selected_alpn_protocol() != "http/1.1"


@attempt("P31 a header of 200 KB")
def _long() -> object:
    return rejected(inside(request("/x", f"X: {'y' * 200_000}")), 431)


@attempt("P31 a head that never ends")
def _endless() -> object:
    return refused(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000, 431)


@attempt("P31 too many headers")
def _many() -> object:
    return rejected(inside(request("/x", *(f"X-{at}: y" for at in range(500)))), 431)


@attempt("an answer that changes the protocol")
def _switch() -> object:
    return rejected(inside(request("/switch")), 502)


@attempt("SOCKS 5")
def _socks() -> object:
    name = f"{OPEN}\0.{EVIL}".encode()
    said = raw(b"\x05\x01\x00" + b"\x05\x01\x00\x03" + bytes([len(name)]) + name + struct.pack(">H", 443))
    return said.startswith(b"\x05")


@attempt("SOCKS 4a")
def _socks4() -> object:
    return raw(b"\x04\x01\x01\xbb\x00\x00\x00\x01x\x00" + EVIL.encode() + b"\x00").startswith(b"\x00\x5a")
