"""Give up privileges for good: user, groups, capabilities, new privileges, system calls.

Standard library only: the supervisor of a sandbox loads this file outside any installation of Holdfast.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
from collections.abc import Iterable, Sequence

CAP_DAC_READ_SEARCH, CAP_KILL, CAP_SYS_PTRACE, CAP_SYS_ADMIN = 2, 5, 19, 21

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_KEEPCAPS = 1, 4, 8
_PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 22, 24, 38, 47
_SECCOMP_FILTER, _CLEAR_ALL, _CAPABILITY_VERSION = 2, 4, 0x20080522
_CAPS_MAX = 64

_LIBC = ctypes.CDLL(None, use_errno=True)


def status(pid: int | str = "self") -> dict[str, str]:
    """Read the fields of `/proc/PID/status`. Raises `OSError` if the process is gone."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def has(capability: int) -> bool:
    """True if this process has the capability."""
    return bool(int(status()["CapEff"], 16) >> capability & 1)


def folder_mode() -> int:
    """Mode of the folders of a home above paths that the user of a sandbox must reach.

    If root can mount, it shows each sandbox only its own files (`hands.box.supervisor.mounts`). If not, as in a
    container without CAP_SYS_ADMIN, these folders can be passed: without their random names, entries cannot be reached.
    """
    return 0o711 if os.geteuid() == 0 and not has(CAP_SYS_ADMIN) else 0o700


def give_up(
    *, uid: int, gid: int, groups: Sequence[int] = (), keep: Iterable[int] = (), filter_calls: bytes = b""
) -> None:
    """Switch to a user with no capability but `keep`, no new privileges, and a filter of system calls.

    Other processes cannot read this one afterwards. Ids and capabilities of an ordinary user stay as they are. Call it
    before a second thread starts. Raises `OSError` if any step fails.
    """
    if os.geteuid() == 0:
        mask = sum(1 << number for number in set(keep))
        _prctl(_PR_SET_KEEPCAPS, 1)
        for number in range(_CAPS_MAX):
            if _LIBC.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0) != 0:
                break  # the kernel has no higher capability
        os.setgroups(list(groups))
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        _LIBC.prctl(_PR_CAP_AMBIENT, ctypes.c_ulong(_CLEAR_ALL), 0, 0, 0)
        header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
        low, high = mask & 0xFFFFFFFF, mask >> 32
        if _LIBC.capset(header, struct.pack("=6I", low, low, 0, high, high, 0)) != 0:
            raise _refused("capset")
        found = status()
        if int(found["CapPrm"], 16) != mask or found["Uid"].split() != [str(uid)] * 4:
            raise PermissionError("this process could not give up its privileges")
    lock_down(filter_calls)


def lock_down(filter_calls: bytes) -> None:
    """Give up what an ordinary user can: new privileges, being read by other processes, and filtered system calls."""
    _prctl(_PR_SET_DUMPABLE, 0)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if filter_calls:
        code = ctypes.create_string_buffer(filter_calls, len(filter_calls))
        program = struct.pack("=HxxxxxxQ", len(filter_calls) // 8, ctypes.addressof(code))
        if _LIBC.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_FILTER), ctypes.c_char_p(program), 0, 0) != 0:
            raise _refused("the filter of system calls")


def disable_core_dumps() -> None:
    """Keep a crash of this process, or of a child, from writing its memory to a core file."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def die_with(parent: int, number: int) -> None:
    """Receive a signal when `parent` ends. Call it after `give_up`: a change of user cancels it."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(0)


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise _refused(f"prctl {option}")


def _refused(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")
