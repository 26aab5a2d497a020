"""Confinement that a process applies before it becomes the agent: Landlock, a system call filter, no new privileges.

Runs as its own program, as the hands' user, with its arguments as JSON in its first argument:

    {"read": […], "write": […], "filter": "…"}     paths; the filter in base 64

A mechanism that this kernel lacks is an error and is never skipped: the provider has checked the kernel before.
"""

from __future__ import annotations

import base64
import ctypes
import os
import stat
import struct
import sys
from typing import Any

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_FILTER = 2
_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_FIRST = (1 << 13) - 1
"""Rights that the first version of Landlock handles; later versions added moving, truncating, device ioctls."""

_BIND_TCP, _CONNECT_TCP = 1, 2
_ABSTRACT_UNIX, _SIGNAL = 1, 2


def abi() -> int:
    """Return the Landlock version of this kernel, 0 if there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    return max(0, int(libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION_FLAG))))


def handled(version: int) -> tuple[int, int, int]:
    """Return the rights that this version of Landlock handles: files, TCP ports, and other scopes."""
    files = _FIRST
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        files |= right if version >= since else 0
    return files, (_BIND_TCP | _CONNECT_TCP) if version >= 4 else 0, (_ABSTRACT_UNIX | _SIGNAL) if version >= 6 else 0


class Confinement:
    """The kernel's calls, each of which raises `OSError` when it is refused."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def _call(self, number: int, *arguments: Any) -> int:
        done = int(self._libc.syscall(number, *arguments))
        if done < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return done

    def _prctl(self, option: int, value: int, more: Any = 0) -> None:
        if self._libc.prctl(option, ctypes.c_ulong(value), more, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def no_new_rights(self) -> None:
        """Stop set-user-id programs from granting privileges from now on."""
        self._prctl(_PR_SET_NO_NEW_PRIVS, 1)

    def landlock(self, read: list[str], write: list[str]) -> None:
        """Allow only those files and folders, no TCP, no signal or abstract socket to outside. Survives exec."""
        files, ports, scopes = handled(abi())
        attributes = struct.pack("=QQQ", files, ports, scopes)
        size = 24 if scopes else 16 if ports else 8
        ruleset = self._call(_CREATE, attributes, ctypes.c_size_t(size), ctypes.c_uint(0))
        for paths, rights in ((read, _READ), (write, files)):
            for path in paths:
                self._allow(ruleset, path, rights & files)
        self._call(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint(0))
        os.close(ruleset)

    def _allow(self, ruleset: int, path: str, rights: int) -> None:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                rights &= _OF_FILES
            rule = struct.pack("=Qi", rights, fd)
            self._call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint(0))
        finally:
            os.close(fd)

    def filter_calls(self, program: bytes) -> None:
        """Filter system calls with that classic BPF program from now on."""
        code = ctypes.create_string_buffer(program, len(program))
        header = struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
        self._prctl(_PR_SET_SECCOMP, _SECCOMP_FILTER, ctypes.c_char_p(header))


def confine(told: dict[str, Any]) -> None:
    """Apply all of them, in the order in which each is still allowed."""
    this = Confinement()
    this.no_new_rights()
    if "read" in told:
        this.landlock(told["read"], told["write"])
    this.filter_calls(base64.b64decode(told["filter"]))


def fail(error: BaseException) -> None:
    """Report why confinement failed and exit: nothing starts without it."""
    print(f"the walls could not be put up: {error}", file=sys.stderr, flush=True)
    os._exit(70)
