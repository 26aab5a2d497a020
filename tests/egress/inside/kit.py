"""What attempts are made with: they register here, talk to the proxy here, and say what they saw.

Run inside the hands by the system's Python with the standard library only. `host.json` says whom there is to attack.
The verdict is `blocked` when the wall held, `LEAK` when not; the driver also looks into what was seen, and at what
reached the servers, for values that nobody in here must know.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import ssl
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
    return socket.create_connection(("127.0.0.1", PORT), timeout=30)


def listen(sock: socket.socket) -> bytes:
    """All that comes until the end, or for as long as something comes."""
    said = b""
    sock.settimeout(10.0)
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
