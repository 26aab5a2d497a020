"""Attempts to get to other hosts than those that are allowed."""

from __future__ import annotations

import ssl

from tests.egress.inside.kit import (
    API,
    EVIL,
    HOST,
    OPEN,
    attempt,
    connect,
    inside,
    listen,
    no_tunnel,
    refused,
    rejected,
    request,
    secure,
    status,
)

# --- other hosts ---


@attempt("P04 a Host that is not the tunnel's")
def _host() -> object:
    return rejected(inside(request("/x", host=EVIL)), 421)


@attempt("P24 a second request with another Host")
def _pipelined() -> object:
    one = request("/one").replace(b"Connection: close\r\n", b"")
    said = inside(one + request("/two", host=EVIL))
    return said.count(b"HTTP/1.1 200") != 1 or b"HTTP/1.1 421" not in said


@attempt("P05 a tunnel elsewhere, with the right name inside")
def _elsewhere() -> object:
    return no_tunnel(f"{EVIL}:443")


@attempt("P05 another name in TLS than the tunnel's, taken apart")
def _sni() -> object:
    with secure(API, sni=EVIL) as sock:
        sock.sendall(request("/x"))
        return listen(sock)


@attempt("P05 another name in TLS than the tunnel's, opaque")
def _front() -> object:
    with secure(OPEN, sni=EVIL) as sock:
        sock.sendall(request("/front", key=False))
        return listen(sock)


@attempt("P05 the same, its first message in small pieces")
def _front_slowly() -> object:
    sock, said = connect(f"{OPEN}:443")
    assert status(said) == 200
    out, into = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cafile="/run/egress/ca.pem").wrap_bio(into, out, server_hostname=EVIL)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    hello = out.read()
    for at in range(0, len(hello), 50):
        sock.sendall(hello[at : at + 50])
    return listen(sock)


@attempt("P06 an absolute address in a tunnel")
def _absolute() -> object:
    return rejected(inside(request(f"https://{EVIL}/x")))


@attempt("P20 a redirect elsewhere")
def _redirect() -> object:
    said = inside(request(f"/redirect?to=https://{EVIL}/"))
    return status(said) != 302 or no_tunnel(f"{EVIL}:443")


for name, target in {
    "P07 a host that is not listed": f"{EVIL}:443",
    "P07 a host below a listed one": f"evil.{OPEN}:443",
    "P07 a host above a listed one": "test:443",
    "P07 a listed one at the end": f"evil-{OPEN}:443",
    "P07 a listed one at the beginning": f"{OPEN}.{EVIL}:443",
    "P08 a zero byte": f"{OPEN}\0.{EVIL}:443",
    "P08 a zero byte, the other way": f"{EVIL}\0.{OPEN}:443",
    "P08 a zero byte, encoded": f"{EVIL}%00.{OPEN}:443",
    "P09 a user": f"{OPEN}@{EVIL}:443",
    "P09 a user, the other way": f"{EVIL}@{OPEN}:443",
    "P09 a user with a password": f"{OPEN}:443@{EVIL}:443",
    "P10 another port": f"{OPEN}:8443",
    "P10 port 22": f"{OPEN}:22",
    "P10 a port with a zero before it": f"{OPEN}:0443",
    "P10 a port past the end": f"{OPEN}:65979",
    "P10 a port with a sign": f"{OPEN}:+443",
    "P10 no port": f"{OPEN}",
    "P10 two ports": f"{OPEN}:443:443",
    "P11 loopback": "127.0.0.1:443",
    "P11 loopback by name": "localhost:443",
    "P11 loopback, IPv6": "[::1]:443",
    "P11 loopback, mapped": "[::ffff:127.0.0.1]:443",
    "P11 any address": "0.0.0.0:443",
    "P12 metadata": "169.254.169.254:80",
    "P12 metadata, IPv6": "[fd00:ec2::254]:80",
    "P13 a decimal address": "2130706433:443",
    "P13 a hexadecimal address": "0x7f000001:443",
    "P13 an octal address": "0177.0.0.1:443",
    "P13 a short address": "127.1:443",
    "P14 a trailing dot": f"{OPEN}.:443",
    "P14 two dots": "open..test:443",
    "a blank": f"{OPEN} .{EVIL}:443",
    "a tab": f"{OPEN}\t:443",
    "a line end in the host": f"{OPEN}:443 HTTP/1.1\r\nX: y\r\n\r\nCONNECT {EVIL}:443",
    "a letter that looks the same": "\u043epen.test:443",
    "full-width letters": "\uff4fpen.test:443",
    "a full-width dot": "open\u3002test:443",
    "punycode": "xn--pen-2ya.test:443",
    "an IPv6 zone": "[fe80::1%25lo]:443",
    "a scheme": f"https://{OPEN}:443",
    "a path": f"{OPEN}:443/x",
    "a fragment": f"{EVIL}#{OPEN}:443",
    "a backslash": f"{EVIL}\\{OPEN}:443",
    "an encoded dot": "open%2etest:443",
    "106 a name that leads to loopback": "bad0.test:443",
    **{f"106 a name that leads to {address}": f"bad{at}.test:443" for at, address in enumerate(HOST["bad"])},
}.items():

    @attempt(name)
    def _tunnel(target: str = target) -> object:
        return no_tunnel(target)


@attempt("P15 upper case is the same host")
def _upper() -> object:
    sock, said = connect(f"{OPEN.upper()}:443")
    sock.close()
    other, refusal = connect(f"{EVIL.upper()}:443")
    other.close()
    return status(said) != 200 or status(refusal) == 200


@attempt("106 a name that leads elsewhere the second time")
def _rebound() -> object:
    first = inside(request("/first", host="rebind.test", key=False), "rebind.test")
    return status(first) != 200 or no_tunnel("rebind.test:443")


@attempt("a CONNECT whose Host is another one")
def _connect_host() -> object:
    sock, said = connect(f"{OPEN}:443", EVIL)
    sock.close()
    return status(said) == 200


@attempt("a CONNECT with a body")
def _connect_body() -> object:
    return refused(f"CONNECT {OPEN}:443 HTTP/1.1\r\nHost: {OPEN}:443\r\nContent-Length: 5\r\n\r\nhello".encode())


@attempt("a CONNECT inside a tunnel")
def _connect_twice() -> object:
    return rejected(inside(f"CONNECT {EVIL}:443 HTTP/1.1\r\nHost: {EVIL}:443\r\n\r\n".encode()))


@attempt("TLS before the tunnel's answer")
def _early() -> object:
    return refused(f"CONNECT {API}:443 HTTP/1.1\r\nHost: {API}:443\r\n\r\n\x16\x03\x01".encode("latin-1"))
