"""A veil over Holdfast's home, for a user who may see some folders of it and none of the others.

Root draws it right before it becomes that user: in a mount namespace of this process alone, an empty folder takes the
place of the home, and the folders to be reached stand in it at their own paths. On the host the home stays closed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import Any

_CLONE_NEWNS = 0x00020000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT = 1, 2, 4, 32
_MS_BIND, _MS_REC, _MS_SLAVE = 4096, 16384, 1 << 19


def draw(plan: Mapping[str, Any]) -> None:
    """Veil `plan["home"]` but for the files and folders of `plan["shown"]`, all real paths. Raises `OSError`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        raise _trouble("mount namespace")
    _mount(libc, "none", "/", "", _MS_REC | _MS_SLAVE)
    shown = [(path, os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)) for path in plan["shown"]]
    before = os.umask(0o066)
    try:
        _mount(libc, "tmpfs", plan["home"], "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0711,size=1m")
        for path, fd in shown:
            if os.path.isdir(f"/proc/self/fd/{fd}"):
                os.makedirs(path)
            else:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
            _mount(libc, f"/proc/self/fd/{fd}", path, "", _MS_BIND | _MS_REC)
            os.close(fd)
        _mount(libc, "none", plan["home"], "", _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    finally:
        os.umask(before)


def _mount(libc: ctypes.CDLL, source: str, at: str, kind: str, flags: int, options: str = "") -> None:
    given = (os.fsencode(source), os.fsencode(at), kind.encode() or None)
    if libc.mount(*given, ctypes.c_ulong(flags), options.encode() or None) != 0:
        raise _trouble(f"mount on {at}")


def _trouble(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"the home could not be veiled: {what}: {os.strerror(number)}")
