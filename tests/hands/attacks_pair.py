"""What the hands of one session try on those of another: `plant` puts canaries, `try` looks for another's.

Runs inside the hands. `peer.json` in the workspace names what the other session planted.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import zlib

from tests.hands.attack_tools import FOUND, HOST, LIBC, attempt, connects, each, opened_for_writing, read


def names(mark: str) -> tuple[int, bytes]:
    """The key of one's shared memory and the name of one's queue."""
    return 0x48000000 | zlib.crc32(mark.encode()) & 0xFFFFFF, f"/{mark}".encode()


def plant() -> None:
    """Open and leave all that the other may look for, and stay."""
    mark = HOST["canary"]
    for path in ("/tmp/mark", "/dev/shm/mark", "/home/agent/mark", "/output/mark", "/workspace/mark"):
        with open(path, "w") as file:
            file.write(mark)
        os.chmod(path, 0o666)
    tcp = socket.create_server(("127.0.0.1", 0))
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0" + mark)
    abstract.listen()
    named = socket.socket(socket.AF_UNIX)
    named.bind("/workspace/meet")
    named.listen()
    key, name = names(mark)
    segment = LIBC.shmget(key, 4096, 0o1666)
    queue = LIBC.mq_open(name, os.O_RDWR | os.O_CREAT, 0o666, None)
    print("ready", json.dumps({"port": tcp.getsockname()[1], "segment": segment, "queue": queue}), flush=True)
    time.sleep(600)


def search() -> None:
    """Look for all that the other planted."""
    with open("/workspace/peer.json") as file:
        peer = json.load(file)
    mark = peer["mark"].encode()
    key, name = names(peer["mark"])
    marks = ("/tmp/mark", "/dev/shm/mark", "/home/agent/mark", "/output/mark", "/workspace/mark")
    attempt("70 another's scratch")(lambda: each(list(marks), lambda path: mark in read(path)))
    attempt("70 another's files by their paths outside")(lambda: each(peer["files"], read))
    attempt("70 another's folders by their paths outside")(lambda: each(peer["folders"], os.listdir))
    attempt("70 another's port")(lambda: connects(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", peer["port"])))
    attempt("70 another's abstract socket")(lambda: connects(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + peer["mark"]))
    attempt("70 another's sockets by their paths outside")(
        lambda: each(peer["sockets"], lambda path: connects(socket.AF_UNIX, socket.SOCK_STREAM, path))
    )
    attempt("70 another's memory")(lambda: LIBC.shmget(key, 0, 0) >= 0)
    attempt("70 another's queue")(lambda: LIBC.mq_open(name, os.O_RDWR) >= 0)
    attempt("70 another's processes")(
        lambda: each(
            [f"/proc/{pid}/environ" for pid in os.listdir("/proc") if pid.isdigit()], lambda path: mark in read(path)
        )
    )
    attempt("70 another's names in the lists of the kernel")(
        lambda: each(
            ["/proc/net/unix", "/proc/keys", "/proc/sysvipc/shm", "/proc/mounts"], lambda path: mark in read(path)
        )
    )
    attempt("70 another's workspace, to be written")(lambda: each(peer["files"], opened_for_writing))
    attempt("72 another's way outside")(
        lambda: connects(socket.AF_UNIX, socket.SOCK_STREAM, f"/run/egress/../../{peer['door']}")
    )
    print(json.dumps(FOUND))


if __name__ == "__main__":
    plant() if sys.argv[1] == "plant" else search()
