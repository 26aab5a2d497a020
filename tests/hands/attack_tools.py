"""What attempts inside the hands are written with. Runs there: standard library only.

`host.json` in the workspace names canaries of the host.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import socket
from collections.abc import Callable
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
HOST: dict[str, Any] = json.load(open("/workspace/host.json"))
NUMBERS = {
    "x86_64": {"ptrace": 101, "mount": 165, "umount2": 166, "chroot": 161, "unshare": 272, "setns": 308, "bpf": 321,
               "open_by_handle_at": 304, "io_uring_setup": 425, "userfaultfd": 323, "perf_event_open": 298,
               "keyctl": 250, "clone": 56, "clone3": 435, "fsopen": 430, "process_vm_readv": 310, "kexec_load": 246,
               "init_module": 175, "add_key": 248, "getpid": 39},
    "aarch64": {"ptrace": 117, "mount": 40, "umount2": 39, "chroot": 51, "unshare": 97, "setns": 268, "bpf": 280,
                "open_by_handle_at": 265, "io_uring_setup": 425, "userfaultfd": 282, "perf_event_open": 241,
                "keyctl": 219, "clone": 220, "clone3": 435, "fsopen": 430, "process_vm_readv": 270, "kexec_load": 104,
                "init_module": 105, "add_key": 217, "getpid": 172},
}[os.uname().machine]  # fmt: skip

FOUND: dict[str, str] = {}
Attempt = Callable[[], object]


def does(step: Callable[..., object], *arguments: object) -> bool:
    """True when that raised nothing."""
    step(*arguments)
    return True


def attempt(name: str) -> Callable[[Attempt], Attempt]:
    """Register: an attempt that raises OSError or returns a falsy value was blocked."""

    def run(step: Attempt) -> Attempt:
        try:
            seen = step()
            FOUND[name] = f"LEAK {seen}" if seen else "blocked"
        except OSError as error:
            FOUND[name] = f"blocked {errno.errorcode.get(error.errno or 0, error)}"
        except ValueError as error:
            FOUND[name] = f"blocked {error}"
        except Exception as error:
            FOUND[name] = f"broken {type(error).__name__}: {error}"
        return step

    return run


def call(name: str, *arguments: object) -> int:
    """A system call by name; raises OSError."""
    ctypes.set_errno(0)
    given = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    done: int = LIBC.syscall(ctypes.c_long(NUMBERS[name]), *given)
    if done < 0:
        raise OSError(ctypes.get_errno(), name)
    return done


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(1 << 20)


def each(paths: list[str], step: Callable[[str], object]) -> list[str]:
    """Those paths where the step worked."""
    out = []
    for path in paths:
        try:
            if step(path):
                out.append(path)
        except OSError:
            pass
    return out


def opened_for_writing(path: str) -> bool:
    os.close(os.open(path, os.O_WRONLY))
    return True


def makes_file(folder: str) -> bool:
    path = os.path.join(folder, "planted")
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
    os.unlink(path)
    return True


def other_pids() -> list[int]:
    """Processes other than ourselves and the first."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in (1, os.getpid())]


def connects(family: int, kind: int, address: Any) -> bool:
    with socket.socket(family, kind) as sock:
        sock.settimeout(1)
        sock.connect(address)
        return True
