"""No test reaches the network: connections that leave this machine are refused.

The one switch: `tests/conftest.py` calls `forbid_network` for itself and puts this folder on
PYTHONPATH, so that every Python that a test starts refuses too. Loopback and unix sockets work.
pip alone is let through, since it fetches packages and can ask no model anything.
"""

from __future__ import annotations

import sys

LOOPBACK = ("127.", "::1", "localhost", "0.0.0.0", "::ffff:127.")


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("socket.connect", "socket.sendto"):
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) and address else None
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        host = arguments[0]
    else:
        return
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    # Without a host it is a unix socket, netlink, or a name that only serves listening.
    if isinstance(host, str) and host not in ("", "::") and not host.startswith(LOOPBACK):
        # Not an OSError: code that takes a refused connection in its stride must not hide this.
        raise RuntimeError(f"tests do not reach the network: {event} to {host!r} was refused")


def forbid_network() -> None:
    """Refuse, from now on and for the life of this process, whatever leaves the machine."""
    sys.addaudithook(_refuse)


def _is_pip(command: list[str]) -> bool:
    return command[1:3] == ["-m", "pip"] or any(word.endswith(("/pip", "/pip/__main__.py")) for word in command[1:2])


if __name__ == "sitecustomize" and not _is_pip(sys.orig_argv):
    forbid_network()
