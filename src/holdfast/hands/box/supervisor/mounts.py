"""Mounts of a sandbox: overlays, mount points in the workspace, and the hidden Holdfast home."""

from __future__ import annotations

import ctypes
import fcntl
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from typing import Any

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_NOSUID = 2
_MS_NODEV = 4
_PR_SET_DUMPABLE = 4

TROUBLE = "the layers could not be laid"
"""Prefix of every message of this module."""


def mount_overlays(plan: dict[str, Any], uid: int, gid: int) -> None:
    """Enter our own namespaces and mount every overlay of `plan` (`{stage, overlays}`).

    An overlay is `{at, lower, upper, work}`: `at` names it in the folder `stage`, `lower` are folders, the topmost
    first, `upper` receives writes and needs `work` beside it; both are empty for a read-only one. The caller has
    already become `uid` for good. Raises `OSError`.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(1), 0, 0, 0)  # after a change of uid /proc/self is root's until then
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS) != 0:
        raise _trouble("user namespace")
    for name, content in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(content)
    stage = plan["stage"]
    _mount(libc, "tmpfs", stage, "mode=0711,size=1m")
    for overlay in plan["overlays"]:
        at = os.path.join(stage, overlay["at"])
        os.mkdir(at)
        options = ["userxattr", "lowerdir=" + ":".join(map(_escaped, overlay["lower"]))]
        if overlay["upper"]:
            options += [f"upperdir={_escaped(overlay['upper'])}", f"workdir={_escaped(overlay['work'])}"]
        _mount(libc, "overlay", at, ",".join(options))


def _escaped(path: str) -> str:
    return "".join("\\" + char if char in "\\:," else char for char in path)


def _mount(libc: ctypes.CDLL, kind: str, at: str, options: str) -> None:
    given = (kind.encode(), os.fsencode(at), kind.encode(), ctypes.c_ulong(_MS_NOSUID | _MS_NODEV))
    if libc.mount(*given, os.fsencode(options)) != 0:
        raise _trouble(f"{kind} on {at}")


def _trouble(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{TROUBLE}: {what}: {os.strerror(number)}")


def main() -> None:
    """Try it: the arguments are a folder with `stage`, `lower`, `upper` and `work` in it, and the uid and gid."""
    base, uid, gid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    lower, upper, work = (os.path.join(base, name) for name in ("lower", "upper", "work"))
    overlays = [
        {"at": "0", "lower": [lower, "/usr"], "upper": "", "work": ""},
        {"at": "1", "lower": [lower], "upper": upper, "work": work},
    ]
    try:
        mount_overlays({"stage": os.path.join(base, "stage"), "overlays": overlays}, uid, gid)
        os.rmdir(os.path.join(base, "stage", "1", "whited"))
    except OSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

MODES = {"folder": 0o555, "file": 0o444}
"""Modes of files and folders created as mount points."""


def make_mount_point(place: Sequence[str]) -> int:
    """Create a mount point unless it exists; shared with other holders until the returned descriptor closes."""
    folder, below, kind = place
    parent, name = _parent(folder, below)
    try:
        while True:
            if kind != "held":
                _make(parent, name, kind)
            fd = os.open(name, _FILE if kind == "file" else _FOLDER, dir_fd=parent)
            fcntl.flock(fd, fcntl.LOCK_SH)
            try:
                if os.path.samestat(os.fstat(fd), os.stat(name, dir_fd=parent, follow_symlinks=False)):
                    return fd
            except FileNotFoundError:
                pass
            os.close(fd)
    finally:
        os.close(parent)


def remove_mount_point(place: Sequence[str]) -> None:
    """Remove a mount point if it is empty and no other holder lives. Never fails."""
    folder, below, kind = place
    fd = -1
    try:
        parent, name = _parent(folder, below)
    except OSError:
        return
    try:
        fd = os.open(name, _FILE if kind == "file" else _FOLDER, dir_fd=parent)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if kind != "held" and is_mount_point(os.fstat(fd)):
            (os.rmdir if kind == "folder" else os.unlink)(name, dir_fd=parent)
    except OSError:
        pass
    finally:
        if fd >= 0:
            os.close(fd)
        os.close(parent)


def is_mount_point(found: os.stat_result) -> bool:
    """Return True if it may be a mount point that we made. The caller checks that a folder is empty."""
    if stat.S_ISDIR(found.st_mode):
        return stat.S_IMODE(found.st_mode) == MODES["folder"]
    return found.st_size == 0 and stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) == MODES["file"]


def _parent(folder: str, below: str) -> tuple[int, str]:
    """Open the folder of a mount point; returns it with the name in it. Raises `OSError` for a link on the path."""
    *middle, name = below.split("/")
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in middle:
        try:
            inner = os.open(part, _FOLDER, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd, name


def _make(parent: int, name: str, kind: str) -> None:
    try:
        if kind == "folder":
            os.mkdir(name, MODES[kind], dir_fd=parent)
            fd = os.open(name, _FOLDER, dir_fd=parent)  # by its name, a link in its place would be followed
        else:
            fd = os.open(
                name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, MODES[kind], dir_fd=parent
            )
        try:
            if os.fstat(fd).st_uid == os.geteuid():
                os.fchmod(fd, MODES[kind])
        finally:
            os.close(fd)
    except FileExistsError:
        pass


_MS_RDONLY, _MS_REMOUNT = 1, 32
_MS_BIND, _MS_REC, _MS_SLAVE = 4096, 16384, 1 << 19


def hide_home(plan: Mapping[str, Any]) -> None:
    """Hide `plan["home"]` except the files and folders of `plan["shown"]`, all real paths. Raises `OSError`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        raise _hide_error("mount namespace")
    _bind(libc, "none", "/", "", _MS_REC | _MS_SLAVE)
    shown = [(path, os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)) for path in plan["shown"]]
    before = os.umask(0o066)
    try:
        _bind(libc, "tmpfs", plan["home"], "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0711,size=1m")
        for path, fd in shown:
            if os.path.isdir(f"/proc/self/fd/{fd}"):
                os.makedirs(path)
            else:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
            _bind(libc, f"/proc/self/fd/{fd}", path, "", _MS_BIND | _MS_REC)
            os.close(fd)
        _bind(libc, "none", plan["home"], "", _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    finally:
        os.umask(before)


def _bind(libc: ctypes.CDLL, source: str, at: str, kind: str, flags: int, options: str = "") -> None:
    given = (os.fsencode(source), os.fsencode(at), kind.encode() or None)
    if libc.mount(*given, ctypes.c_ulong(flags), options.encode() or None) != 0:
        raise _hide_error(f"mount on {at}")


def _hide_error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"the home could not be veiled: {what}: {os.strerror(number)}")
