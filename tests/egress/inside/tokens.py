"""Attempts to get at secrets: by answers that give them back, by placeholders in other places."""

from __future__ import annotations

import base64
import os

from tests.egress.inside.kit import (
    API,
    GIT,
    HOST,
    KEY,
    OPEN,
    PLAIN,
    attempt,
    inside,
    listen,
    raw,
    refused,
    rejected,
    request,
    secure,
    status,
)

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


@attempt("works: HTTP/1.0")
def _old() -> object:
    return status(raw(f"GET http://{PLAIN}/old HTTP/1.0\r\n\r\n".encode())) != 200


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
    return rejected(inside(request("/own/y", f"Authorization: Basic {basic}", key=False)))


@attempt("P17 two headers that take a secret")
def _twice() -> object:
    return rejected(inside(request("/x", f"Authorization: Bearer {KEY}")))


@attempt("P17 a header that takes a secret beside another of its name")
def _beside() -> object:
    return rejected(inside(request("/x", "Authorization: Bearer something-else")))


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
    said = inside(request("/x", f"X-Gone: {os.environ['GONE']}", key=False))
    return rejected(said, 502) or b"/gone" in said


@attempt("a held secret")
def _held() -> object:
    said = inside(request("/x", f"X-Held: {os.environ['HELD']}", key=False))
    return rejected(said) or b"approval" not in said
