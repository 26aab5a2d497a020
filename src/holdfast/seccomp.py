"""Assembler of the seccomp filter (system call filter) of the sandbox and of our own processes beside it.

It needs no library. System calls of ordinary programs are allowed. Denied are privileged ones, access to the memory of
other processes, namespaces and mounts, and all socket families but unix, IPv4, IPv6, and netlink routing. A process can
set limits only for itself, since the agent has the same user. A filter is a classic BPF program over `struct
seccomp_data`.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable
from typing import NamedTuple

_LD_ABS, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _ARGS = 0, 4, 16
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000

_CLONE_NAMESPACES = 0x7E020000
"""CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}; only clone3 and unshare could ask for a time namespace."""

_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_AF_NETLINK = 16
_NO_FAMILY = 0xFFFFFFFF
_FAMILIES = (1, 2, 10)
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)


class Machine(NamedTuple):
    """One architecture: its audit number and its system call numbers."""

    audit: int
    socket: int
    clone: int
    ioctl: int
    personality: int
    prlimit: int
    x32: bool
    absent: tuple[int, ...]
    denied: tuple[int, ...]
    families: tuple[int, ...] = ()


# Answered "no such call", so that programs fall back: clone3 (its flags cannot be looked at) and io_uring.
_ABSENT = {"x86_64": (435, 425, 426, 427), "aarch64": (435, 425, 426, 427)}

# The same number everywhere: pidfd_getfd, mount_setattr, quotactl_fd, open_tree, move_mount, fsopen, fsconfig,
# fsmount, fspick, process_madvise, open_tree_attr.
_COMMON = (438, 442, 443, 428, 429, 430, 431, 432, 433, 440, 467)

_DENIED = {
    "x86_64": {
        "ptrace": 101, "syslog": 103, "vhangup": 153, "pivot_root": 155, "sysctl": 156, "adjtimex": 159,
        "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167,
        "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173,
        "create_module": 174, "init_module": 175, "delete_module": 176, "quotactl": 179, "nfsservctl": 180,
        "lookup_dcookie": 212, "clock_settime": 227, "mbind": 237, "set_mempolicy": 238, "kexec_load": 246,
        "add_key": 248, "request_key": 249, "keyctl": 250, "migrate_pages": 256, "unshare": 272,
        "move_pages": 279, "perf_event_open": 298, "fanotify_init": 300, "name_to_handle_at": 303,
        "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310,
        "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "kexec_file_load": 320, "bpf": 321,
        "userfaultfd": 323, "uselib": 134, "ustat": 136, "sysfs": 139, "modify_ldt": 154,
    },
    "aarch64": {
        "lookup_dcookie": 18, "umount2": 39, "mount": 40, "pivot_root": 41, "nfsservctl": 42, "chroot": 51,
        "vhangup": 58, "quotactl": 60, "acct": 89, "unshare": 97, "kexec_load": 104, "init_module": 105,
        "delete_module": 106, "clock_settime": 112, "syslog": 116, "ptrace": 117, "reboot": 142,
        "sethostname": 161, "setdomainname": 162, "settimeofday": 170, "adjtimex": 171, "add_key": 217,
        "request_key": 218, "keyctl": 219, "swapon": 224, "swapoff": 225, "mbind": 235, "set_mempolicy": 237,
        "migrate_pages": 238, "move_pages": 239, "perf_event_open": 241, "fanotify_init": 262,
        "name_to_handle_at": 264, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268,
        "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "bpf": 280,
        "userfaultfd": 282, "kexec_file_load": 294,
    },
}  # fmt: skip

_STARTS = {"x86_64": (59, 322), "aarch64": (221, 281)}
"""execve and execveat."""

MACHINES = {
    "x86_64": Machine(
        *(0xC000003E, 41, 56, 16, 135, 302, True, _ABSENT["x86_64"]),
        *((*_DENIED["x86_64"].values(), *_COMMON), _FAMILIES),
    ),
    "aarch64": Machine(
        *(0xC00000B7, 198, 220, 29, 92, 261, False, _ABSENT["aarch64"]),
        *((*_DENIED["aarch64"].values(), *_COMMON), _FAMILIES),
    ),
}
"""Architectures with a filter, by their `uname` name."""


class _Program:
    """A BPF program with named jump targets."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, str, str]] = []
        self._at: dict[str, int] = {}

    def label(self, name: str) -> None:
        """Name the next instruction."""
        self._at[name] = len(self._code)

    def load(self, offset: int) -> None:
        """Load a 32-bit field of the call."""
        self._code.append((_LD_ABS, offset, "", ""))

    def test(self, kind: int, value: int, then: str = "", otherwise: str = "") -> None:
        """Jump on a comparison; an empty name means the next instruction."""
        self._code.append((kind, value, then, otherwise))

    def answer(self, action: int) -> None:
        """Return an action."""
        self._code.append((_RET, action, "", ""))

    def assembled(self) -> bytes:
        """Encode the program for the kernel."""
        out = []
        for here, (kind, value, then, otherwise) in enumerate(self._code):
            jumps = [self._at[name] - here - 1 if name else 0 for name in (then, otherwise)]
            assert all(0 <= jump <= 255 for jump in jumps), "a jump too far"
            out.append(struct.pack("<HBBI", kind, jumps[0], jumps[1], value))
        return b"".join(out)


def assemble(machine: str, *, sockets: bool = True, programs: bool = True) -> bytes:
    """Assemble the filter of an architecture. Without `sockets` only socket pairs work, without `programs` no exec.

    Raises `KeyError` for an unknown architecture.
    """
    this = MACHINES[machine] if sockets else MACHINES[machine]._replace(families=())
    out = _Program()
    out.load(_ARCH)
    out.test(_JEQ, this.audit, "", "kill")
    out.load(_NR)
    if this.x32:
        out.test(_JGE, 0x40000000, "absent")
    _any(out, this.absent, "absent")
    _any(out, this.denied, "denied")
    _any(out, () if programs else _STARTS[machine], "denied")
    for name in ("socket", "clone", "ioctl", "prlimit"):
        out.test(_JEQ, getattr(this, name), name)
    out.test(_JEQ, this.personality, "personality", "allowed")
    out.label("socket")
    out.load(_ARGS)
    _any(out, this.families, "allowed")
    out.test(_JEQ, _AF_NETLINK if sockets else _NO_FAMILY, "", "family")
    out.load(_ARGS + 16)
    out.test(_JEQ, 0, "allowed", "family")
    out.label("clone")
    out.load(_ARGS)
    out.test(_JSET, _CLONE_NAMESPACES, "denied", "allowed")
    out.label("ioctl")
    out.load(_ARGS + 8)
    _any(out, (_TIOCSTI, _TIOCLINUX), "denied")
    out.answer(_ALLOW)
    out.label("prlimit")
    out.load(_ARGS)
    out.test(_JEQ, 0, "allowed", "denied")
    out.label("personality")
    out.load(_ARGS)
    _any(out, _PERSONALITIES, "allowed")
    for name, action in (
        ("denied", _ERRNO | errno.EPERM),
        ("absent", _ERRNO | errno.ENOSYS),
        ("family", _ERRNO | errno.EAFNOSUPPORT),
        ("allowed", _ALLOW),
        ("kill", _KILL),
    ):
        out.label(name)
        out.answer(action)
    return out.assembled()


def _any(out: _Program, values: Iterable[int], then: str) -> None:
    for value in values:
        out.test(_JEQ, value, then)


def assemble_here(*, sockets: bool = True, programs: bool = True) -> bytes | None:
    """Assemble the filter of this machine; None if there is none."""
    machine = os.uname().machine
    return assemble(machine, sockets=sockets, programs=programs) if machine in MACHINES else None
