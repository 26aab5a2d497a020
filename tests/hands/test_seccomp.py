"""The system call filter, run here as the kernel runs it, for both architectures."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.seccomp import MACHINES, assemble

ALLOW, KILL = 0x7FFF0000, 0x80000000


def refused(number: int) -> int:
    return 0x00050000 | number


def verdict(machine: str, number: int, *arguments: int, audit: int | None = None) -> int:
    """What the kernel would do with that call: a classic BPF machine in a few lines."""
    filled = (*arguments, *(0,) * (6 - len(arguments)))
    data = struct.pack("<IIQ6Q", number, MACHINES[machine].audit if audit is None else audit, 0, *filled)
    program = [struct.unpack_from("<HBBI", assemble(machine), at) for at in range(0, len(assemble(machine)), 8)]
    at = accumulator = 0
    while True:
        kind, then, otherwise, value = program[at]
        at += 1
        match kind:
            case 0x20:
                accumulator = struct.unpack_from("<I", data, value)[0]
            case 0x15:
                at += then if accumulator == value else otherwise
            case 0x35:
                at += then if accumulator >= value else otherwise
            case 0x45:
                at += then if accumulator & value else otherwise
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"instruction {kind:#x}")


CALLS = {
    "x86_64": {"read": 0, "openat": 257, "execve": 59, "socket": 41, "clone": 56, "clone3": 435, "ioctl": 16,
               "personality": 135, "mount": 165, "ptrace": 101, "io_uring_setup": 425, "bpf": 321, "unshare": 272,
               "process_vm_writev": 311, "open_by_handle_at": 304, "keyctl": 250, "prlimit64": 302},
    "aarch64": {"read": 63, "openat": 56, "execve": 221, "socket": 198, "clone": 220, "clone3": 435, "ioctl": 29,
                "personality": 92, "mount": 40, "ptrace": 117, "io_uring_setup": 425, "bpf": 280, "unshare": 97,
                "process_vm_writev": 271, "open_by_handle_at": 265, "keyctl": 219, "prlimit64": 261},
}  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_answered(machine: str) -> None:
    number = CALLS[machine]

    def ask(name: str, *arguments: int) -> int:
        return verdict(machine, number[name], *arguments)

    for name in ("read", "openat", "execve"):
        assert ask(name) == ALLOW, name
    for name in ("mount", "ptrace", "bpf", "unshare", "process_vm_writev", "open_by_handle_at", "keyctl"):
        assert ask(name) == refused(errno.EPERM), name
    for name in ("clone3", "io_uring_setup"):
        assert ask(name) == refused(errno.ENOSYS), name
    for family in (1, 2, 10):
        assert ask("socket", family, 1, 0) == ALLOW
    for family in (0, 3, 9, 15, 17, 26, 38, 40, 44):
        assert ask("socket", family, 1, 0) == refused(errno.EAFNOSUPPORT), family
    assert ask("socket", 16, 3, 0) == ALLOW
    assert ask("socket", 16, 3, 12) == refused(errno.EAFNOSUPPORT)
    assert ask("clone", 17) == ALLOW
    assert ask("clone", 0x3D0F00) == ALLOW
    for bit in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert ask("clone", bit | 17) == refused(errno.EPERM), hex(bit)
    assert ask("ioctl", 0, 0x5401) == ALLOW
    assert ask("ioctl", 0, 0x5412) == refused(errno.EPERM)
    assert ask("ioctl", 0, 0x541C) == refused(errno.EPERM)
    assert ask("personality", 0xFFFFFFFF) == ALLOW
    assert ask("personality", 0x0040000) == refused(errno.EPERM)
    assert ask("prlimit64", 0, 7) == ALLOW
    for pid in (1, 2, 4_000_000, 0xFFFFFFFF):
        assert ask("prlimit64", pid, 7) == refused(errno.EPERM), pid
    assert verdict(machine, number["read"], audit=0x40000003) == KILL


def test_the_other_numbering_of_x86_64_is_absent() -> None:
    assert verdict("x86_64", 0x40000000 | 165) == refused(errno.ENOSYS)


@pytest.mark.parametrize("machine", MACHINES)
@given(high=st.integers(1, 2**32 - 1))
def test_high_bits_of_an_argument_hide_nothing(machine: str, high: int) -> None:
    number = CALLS[machine]
    assert verdict(machine, number["ioctl"], 0, high << 32 | 0x5412) == refused(errno.EPERM)
    assert verdict(machine, number["socket"], high << 32 | 40, 1) == refused(errno.EAFNOSUPPORT)
    assert verdict(machine, number["clone"], high << 32 | 0x10000000) == refused(errno.EPERM)


@pytest.mark.parametrize("machine", MACHINES)
def test_every_denied_call_is_denied(machine: str) -> None:
    for number in MACHINES[machine].denied:
        assert verdict(machine, number) == refused(errno.EPERM), number
