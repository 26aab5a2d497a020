"""Laying folders over folders before the sandbox starts: overlay mounts by an ordinary user, in namespaces of its own.

Nothing is mounted over a folder of the host, also not in these namespaces: the sandbox's own program is run from
there, and a layer must not be able to replace it. Each overlay is mounted in a folder in memory, from which the
sandbox then takes it. The kernel refuses some folders as the upper one (an overlay, most network file systems).
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_NOSUID = 2
_MS_NODEV = 4
_PR_SET_DUMPABLE = 4

TROUBLE = "the layers could not be laid"
"""Begins every message of this part."""


def lay(plan: dict[str, Any], uid: int, gid: int) -> None:
    """Enter namespaces of our own and mount every overlay of `plan` (`{stage, overlays}`).

    An overlay is `{at, lower, upper, work}`: `at` names it in the folder `stage`, `lower` are folders, the first on
    top, `upper` takes what is written and needs `work` beside it; both empty for a read-only one. The caller has
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
    """Try it: the arguments are a folder with `stage`, `lower`, `upper` and `work` in it, and the ids to be."""
    base, uid, gid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    lower, upper, work = (os.path.join(base, name) for name in ("lower", "upper", "work"))
    overlays = [
        {"at": "0", "lower": [lower, "/usr"], "upper": "", "work": ""},
        {"at": "1", "lower": [lower], "upper": upper, "work": work},
    ]
    try:
        lay({"stage": os.path.join(base, "stage"), "overlays": overlays}, uid, gid)
        os.rmdir(os.path.join(base, "stage", "1", "whited"))
    except OSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
