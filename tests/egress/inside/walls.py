"""Attempts on the walls themselves: the door, the bridge, the network behind them."""

from __future__ import annotations

import glob
import os
import signal
import socket
import time

from tests.egress.inside.kit import (
    HOST,
    PORT,
    attempt,
    inside,
    raw,
    request,
    status,
)

# --- the walls themselves ---


@attempt("P26 the proxy's memory and environment")
def _processes() -> object:
    found = b""
    for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
        try:
            found += open(path, "rb").read()
        except OSError:
            continue
    return HOST["canary"].encode() in found or b"import main; main()" in found


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
