"""What a hostile command tries at the layers that it stands on and at its way outside.

Runs inside the hands after `attacks_own`, and prints the same: one JSON object, name → verdict.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import resource
import signal
import socket
import time
from collections.abc import Callable

from tests.hands.attack_tools import (
    FOUND,
    HOST,
    attempt,
    call,
    connects,
    does,
    each,
    opened_for_writing,
    other_pids,
    read,
)

# --- layers ---


def overlaid() -> str:
    """The folder that is writable here and read-only for the host."""
    return "/workspace/node_modules" if HOST["full"] else ""


def tricks_of_overlays() -> list[str]:
    """Attributes by which an overlay is told where to look: those of its own are not ours to set."""
    folder = f"{overlaid() or '/workspace'}/tricked"
    os.makedirs(folder, exist_ok=True)
    done = []
    for name, value in (("redirect", b"/../../../.."), ("opaque", b"y"), ("metacopy", b""), ("origin", b"x")):
        for space in ("trusted", "user") if overlaid() else ("trusted",):
            try:
                os.setxattr(folder, f"{space}.overlay.{name}", value)
                done.append(f"{space}.{name}")
            except OSError:
                pass
    return [name for name in done if os.path.exists(f"{folder}/{os.path.basename(HOST['secret_file'])}")]


def through_the_upper() -> list[str]:
    """Writes, second names and moves of what lies below: the host looks afterwards whether it is as it was."""
    if not overlaid():
        return []
    added = f"{overlaid()}/added"
    os.chmod(added, 0o777)
    with open(added, "r+") as file:
        file.write("changed")
    with open(added, "r+b") as shared, mmap.mmap(shared.fileno(), 0) as page:
        page[:4] = b"evil"
    os.link(added, f"{overlaid()}/again")
    done = each(["/workspace/second", "/tmp/second"], lambda path: does(os.link, added, path))
    os.rename(f"{overlaid()}/inner", f"{overlaid()}/moved") if os.path.isdir(f"{overlaid()}/inner") else None
    os.unlink(added)
    return done


attempt("own: attributes of overlays")(tricks_of_overlays)
attempt("own: what lies under a layer")(through_the_upper)
attempt("own: layers of the system")(
    lambda: each(["/usr/layer", "/opt/environment", "/opt/environment/added"], lambda path: os.access(path, os.W_OK))
)

# --- the way outside ---

DOOR = "/run/egress"


def door_tricks() -> list[str]:
    """The socket of the proxy replaced, taken away, bound over, or given another's rights."""
    path = os.path.join(DOOR, "socket")
    steps: dict[str, Callable[[], object]] = {
        "unlink": lambda: os.unlink(path),
        "rename": lambda: os.rename(path, f"{path}.old"),
        "create": lambda: os.mknod(f"{DOOR}/other"),
        "link": lambda: os.symlink("/tmp/socket", f"{DOOR}/other"),
        "bind": lambda: socket.socket(socket.AF_UNIX).bind(f"{DOOR}/mine"),
        "chmod": lambda: os.chmod(path, 0o777),
        "chown": lambda: os.chown(path, os.getuid(), os.getgid()),
        "mount": lambda: call("mount", b"/tmp", DOOR.encode(), 0, 4096, 0),
        "over the folder": lambda: os.rename("/workspace/x", DOOR),
    }
    out = []
    for name, step in steps.items():
        try:
            step()
            out.append(name)
        except OSError:
            pass
    return out


def doors_of_others() -> list[str]:
    """Sockets in the folder beside the session's own."""
    return [name for name in os.listdir(DOOR) if name != "socket"] if HOST["full"] else []


def take_the_port() -> str:
    """The bridge is killed again and again, and its port asked for in between."""
    if not HOST["full"]:
        return ""
    for turn in range(40):
        for pid in bridges():
            os.kill(pid, signal.SIGKILL)
        with socket.socket() as sock:
            for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
                sock.setsockopt(socket.SOL_SOCKET, option, 1)
            try:
                sock.bind(("127.0.0.1" if turn % 2 else "0.0.0.0", HOST["bridge"]))
                sock.listen()
                return f"taken in turn {turn}"
            except OSError:
                pass
    return ""


def bridges() -> list[int]:
    """Processes of the agent's program other than our own runner."""
    out = []
    for pid in other_pids():
        try:
            line = read(f"/proc/{pid}/stat")
        except OSError:
            continue
        if line[line.rindex(b")") + 2 :].split()[1] == b"1" and pid != runner():
            out.append(pid)
    return out


def runner() -> int:
    """The child of the agent that we descend from."""
    pid = os.getpid()
    while True:
        line = read(f"/proc/{pid}/stat")
        parent = int(line[line.rindex(b")") + 2 :].split()[1])
        if parent in (0, 1):
            return pid
        pid = parent


def flood() -> str:
    """A thousand connections and much nonsense at once; afterwards one more gets its answer."""
    if not HOST["full"]:
        return ""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    noise = random.Random(1).randbytes(1 << 16)
    for _ in range(min(900, soft - 60)):
        sock = socket.socket()
        sock.settimeout(5)
        try:
            sock.connect(("127.0.0.1", HOST["bridge"]))
            sock.setblocking(False)
            sock.send(noise)
            held.append(sock)
        except OSError:
            sock.close()
    for sock in held:
        sock.close()
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if answered():
            return ""
        time.sleep(0.05)
    return f"no answer any more, after {len(held)} connections, limit {hard}"


def answered() -> bool:
    """Whether the way outside says what the host's end says to everybody."""
    try:
        with socket.create_connection(("127.0.0.1", HOST["bridge"]), 5) as sock:
            return sock.recv(5) == b"hello"
    except OSError:
        return False


attempt("72 tamper with the way outside")(door_tricks)
attempt("72 sockets of other sessions")(doors_of_others)
attempt("72 the proxy's socket by its path outside")(lambda: connects(socket.AF_UNIX, socket.SOCK_STREAM, HOST["door"]))
attempt("own: the bridge's port, taken first")(take_the_port)
attempt("own: a thousand connections and nonsense")(flood)
attempt("63 the bridge's memory")(lambda: each([f"/proc/{pid}/mem" for pid in bridges()], opened_for_writing))

print(json.dumps(FOUND))
