"""The user that tool calls run as. Never uid 0 in a sandbox.

Real root keeps its rights over system settings, limits and other users' files even inside a sandbox, so a Holdfast
started as root runs tool calls as another user:

1. an ordinary caller: the caller;
2. `--user NAME`: that user;
3. a workspace that an ordinary user owns: its owner;
4. a user id reserved for this workspace (see `holdfast.uids`), if it may write there; a disposable
   workspace is given to it;
5. else refuse: a user's files do not change owner without a request (`--take-over` requests it).
"""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.errors import CannotRunSafely, UsageError
from holdfast.facts.session import Workspace
from holdfast.hands.base import HandsSpec
from holdfast.privileges import folder_mode
from holdfast.uids import FORMER, run_as, set_apart

_NEVER = frozenset(
    Path(path)
    for path in "/ /bin /boot /dev /etc /home /lib /lib64 /opt /proc /root /run /sbin /srv /sys /tmp /usr /var".split()
)


class HandsUser(NamedTuple):
    """The ids that hands run with, and the reason. `own` if the workspace must be given to them first."""

    uid: int
    gid: int
    name: str
    why: str
    own: bool = False


def choose_user(workspace: Workspace) -> HandsUser:
    """Choose by the rules above. Raises `UsageError` or `CannotRunSafely`, each with the command to type.

    Without a sandbox the user may name root itself (`--user root`).
    """
    path = Path(workspace.path)
    caller = os.getuid()
    if caller != 0:
        return _ordinary(caller, workspace.user)
    if workspace.user:
        return _named(workspace, path)
    owner = _stat(path)
    former = workspace.disposable and FORMER.first <= owner.st_uid < FORMER.end
    if owner.st_uid != 0 and not former:
        return HandsUser(owner.st_uid, _group(owner.st_uid, owner.st_gid), _login(owner.st_uid), "owns the workspace")
    uid = set_apart((workspace.origin if workspace.disposable else "") or str(path))
    user = HandsUser(uid, uid, _login(uid), "set apart for this workspace")
    if workspace.disposable:
        return user._replace(own=True)
    if writable(path, user):
        return user
    raise CannotRunSafely(
        f"{path} belongs to root, and tool calls never run as root; nothing was started or changed. Name a user who "
        f"may write there (--user NAME), or give the folder to a user id set apart for it (--workspace {path} "
        "--take-over), or run Holdfast as an ordinary user"
    )


def _ordinary(caller: int, wanted: str) -> HandsUser:
    name = _login(caller)
    if wanted and wanted not in (name, str(caller)):
        raise CannotRunSafely(
            f"--user {wanted}: only root can run tool calls as another user, and this is {name} (uid {caller}); "
            "leave --user out, or start Holdfast as root"
        )
    return HandsUser(caller, os.getgid(), name, "started Holdfast")


def _entry(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
    except KeyError:
        raise UsageError(f"--user {name}: there is no such user on this machine; `getent passwd` lists them") from None


def _named(workspace: Workspace, path: Path) -> HandsUser:
    entry = _entry(workspace.user)
    if entry.pw_uid == 0 and workspace.isolation != "none":
        raise CannotRunSafely("--user root: tool calls never run as root; name an ordinary user, or leave --user out")
    user = HandsUser(entry.pw_uid, entry.pw_gid, entry.pw_name, "was named with --user")
    if workspace.disposable:
        return user._replace(own=_stat(path).st_uid != user.uid)
    if not writable(path, user):
        raise CannotRunSafely(
            f"{entry.pw_name} may not write in {path}; nothing was started or changed: name another user, or give the "
            f"folder to this one (--user {entry.pw_name} --take-over)"
        )
    return user


def _stat(path: Path) -> os.stat_result:
    try:
        found = path.stat()
    except OSError as error:
        raise UsageError(f"the workspace {path} cannot be used: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise UsageError(f"the workspace {path} is not a folder")
    return found


def _login(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _group(uid: int, fallback: int) -> int:
    """Return the user's own group; never root's."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return fallback or uid


_LOOK = """
for folder do test -x "$folder" || { printf %s "$folder"; exit 1; }; done
test -r "$folder" && test -w "$folder" || exit 2
"""


def writable(path: Path, user: HandsUser, *, veiled: bool = False, home: Path | None = None) -> bool:
    """True if that user may work in the folder. Raises if the user cannot even reach it.

    `veiled` for a folder in our own home, which the user reaches through a mount that hides the rest of the home. The
    mount gives no access to folders above `home`.
    """
    path = path.resolve()
    above = reversed(home.resolve().parents) if home is not None else ()
    folders = [*above, Path(".")] if veiled else [*reversed(path.parents), path]
    command = ["/bin/sh", "-c", _LOOK, "sh", *map(str, folders)]
    identity = dict[str, Any]()
    if user.uid != os.getuid():
        command, identity = run_as(user.uid, user.gid, command)
    try:
        looked = subprocess.run(
            command, capture_output=True, check=False, env={}, cwd=path if veiled else "/", **identity
        )
        if looked.returncode not in (0, 1, 2):
            raise OSError(looked.stderr.decode("utf-8", "replace").strip())
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotRunSafely(
            f"this root cannot become {user.name}, and tool calls never run as root ({error}); run Holdfast as an "
            "ordinary user, or give the container a range of user ids"
        ) from None
    if looked.returncode != 1:
        return looked.returncode == 0
    blocked = looked.stdout.decode("utf-8", "surrogateescape")
    if blocked in (".", str(path)):
        return False
    raise CannotRunSafely(
        f"{user.name}, who tool calls would run as, cannot enter {blocked} and so cannot reach {path}; nothing was "
        f"started: move the workspace elsewhere, or let others pass through (`chmod o+x {blocked}`)"
    )


def take_over(path: Path, name: str = "", *, tell: Callable[[HandsUser], None] | None = None) -> HandsUser:
    """Give a folder and its contents to the hands' user: the named one, else the id reserved for it.

    For `--take-over` only, since a user's files do not change owner without a request. `tell` receives the new owner
    before the change. Returns the new owner.
    """
    if os.getuid() != 0:
        raise CannotRunSafely("--take-over: only root can give a folder to another user; leave it out")
    if name:
        entry = _entry(name)
        if entry.pw_uid == 0:
            raise CannotRunSafely("--take-over --user root: tool calls never run as root; name an ordinary user")
        user = HandsUser(entry.pw_uid, entry.pw_gid, entry.pw_name, "was named with --user")
    else:
        uid = set_apart(str(path))
        user = HandsUser(uid, uid, _login(uid), "set apart for this workspace")
    _givable(path)
    writable(path, user)  # raises if the user could not even reach it
    if tell is not None:
        tell(user)
    _give(path, user)
    return user


def _givable(workspace: Path) -> Path:
    """Return the folder itself. Raises `CannotRunSafely` for a system folder."""
    path = workspace.resolve()
    if path in _NEVER or len(path.parts) < 3:
        raise CannotRunSafely(f"{path} is a folder of the system and is not given away; use a folder of its own")
    return path


def _give(workspace: Path, user: HandsUser) -> None:
    """Change the owner of a folder and its contents.

    Links are changed themselves, never followed; a file with a second name elsewhere is left alone, since it may belong
    to another user. Raises `CannotRunSafely` for a system folder.
    """
    path = _givable(workspace)
    for _, _, names, handle in os.fwalk(path, follow_symlinks=False):
        for name in names:
            found = os.stat(name, dir_fd=handle, follow_symlinks=False)
            if found.st_nlink == 1 or stat.S_ISLNK(found.st_mode):
                os.chown(name, user.uid, user.gid, dir_fd=handle, follow_symlinks=False)
        os.fchown(handle, user.uid, user.gid)


def make_ready(workspace: Workspace, user: HandsUser, *, home: Path | None = None) -> None:
    """Give that user access to the workspace, or refuse: changes the owner of a disposable one, checks any other.

    A disposable one is in our own home; so is any other below `home`, such as one that a user names again.
    """
    path = Path(workspace.path)
    if user.own:
        _give(path, user)
    ours = workspace.disposable or (home is not None and path.resolve().is_relative_to(home.resolve()))
    if not writable(path, user, veiled=ours and folder_mode() == 0o700, home=home):
        raise CannotRunSafely(
            f"{user.name}, who tool calls would run as, may not write in the workspace {path}; nothing was started: "
            "give the user write access, or choose another folder"
        )


class Veil(msgspec.Struct, frozen=True):
    """The home, and its files and folders that stay visible; see `box.supervisor.mounts`."""

    home: str
    shown: tuple[str, ...]


def needed() -> bool:
    """Return True if the folders of a home are closed to the users of sandboxes."""
    return os.geteuid() == 0 and folder_mode() == 0o700


def veil_of(spec: HandsSpec, folder: Path, user: HandsUser) -> Veil | None:
    """Return the veil for the hands with that folder; None if none is needed."""
    if user.uid == os.geteuid() or not needed():
        return None
    home = os.path.realpath(folder.parent.parent)
    wanted = sorted({os.path.realpath(path) for path in _sources(spec, folder)})
    shown: list[str] = []
    for path in wanted:
        if path.startswith(f"{home}/") and not any(path.startswith(f"{other}/") for other in shown):
            shown.append(path)
    return Veil(home, tuple(shown))


def _sources(spec: HandsSpec, folder: Path) -> Iterator[str]:
    """Yield every path of this host that the sandbox shows."""
    yield spec.workspace.path
    yield str(folder)
    yield from spec.read_only
    for layer in spec.layers:
        yield from layer.lower
        if layer.upper:
            yield os.path.dirname(layer.upper)  # an upper folder needs a work folder beside it
    if spec.network is not None:
        yield os.path.dirname(spec.network.socket)
