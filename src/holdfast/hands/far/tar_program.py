"""Convert a folder to a tar and back: runs as its own program, as the user that owns the folder.

Standard library only. A tar comes from the other machine, which processes untrusted text, so the program trusts none of
it: only files, folders and links, only below the folder, each path walked without following a link. Entries named
`.git` are neither sent back nor changed, since git on the host would run programs that they name. A folder is changed
only after the whole tar has been read.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tarfile
from collections.abc import Iterator
from typing import IO, BinaryIO

ENTRIES_MAX = 5_000_000
"""Maximum number of entries in one tar; more are refused."""

_CHUNK = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_INCOMING = ".holdfast-incoming-"


class TarRefused(Exception):
    """A tar holds an entry that does not belong in a workspace."""


def pack(folder: str, out: BinaryIO, *, git: bool) -> int:
    """Write a tar of `folder`; returns the number of files and links in it. `git` includes `.git`."""
    count = 0
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for path, names, files, here in os.fwalk(folder):
            names[:] = sorted(name for name in names if (git or name != ".git") and not name.startswith(_INCOMING))
            base = os.path.relpath(path, folder)
            for name in sorted([*names, *files]):
                if git or name != ".git":
                    count += _add(tar, os.path.normpath(os.path.join(base, name)), name, here)
    return count


def _add(tar: tarfile.TarFile, path: str, name: str, here: int) -> bool:
    found = os.stat(name, dir_fd=here, follow_symlinks=False)
    info = tarfile.TarInfo(path)
    info.mode, info.mtime = found.st_mode & 0o777, found.st_mtime_ns / 1e9
    info.pax_headers = {"mtime": f"{found.st_mtime_ns // 10**9}.{found.st_mtime_ns % 10**9:09d}"}
    if stat.S_ISDIR(found.st_mode):
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
        return False
    if stat.S_ISLNK(found.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=here)
        tar.addfile(info)
        return True
    if not stat.S_ISREG(found.st_mode):
        return False
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=here)
    with open(fd, "rb") as file:
        info.size = os.fstat(fd).st_size
        tar.addfile(info, _Exactly(file, info.size))
    return True


class _Exactly:
    """A file with exactly the announced number of bytes, even if it changes while it is read."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._left = size

    def read(self, size: int = -1, /) -> bytes:
        size = self._left if size < 0 else min(size, self._left)
        data = self._file.read(size)
        data += bytes(size - len(data))
        self._left -= size
        return data


def fill(folder: str, source: BinaryIO, *, most: int) -> int:
    """Extract a whole tar into an empty folder, including `.git`; returns the number of files and links."""
    if os.listdir(folder):
        raise TarRefused(f"{folder} is not empty")
    return _receive(folder, source, most, git=True)


def unpack(folder: str, source: BinaryIO, *, most: int) -> int:
    """Make the existing `folder` match the tar; returns the number of files and links in it.

    Raises `TarRefused` for an entry that does not belong and for more than `most` bytes; the folder is then unchanged.
    """
    incoming = os.path.join(folder, f"{_INCOMING}{os.getpid()}")
    for name in os.listdir(folder):
        if name.startswith(_INCOMING):
            shutil.rmtree(os.path.join(folder, name))
    os.mkdir(incoming, 0o700)
    try:
        count = _receive(incoming, source, most, git=False)
        with _opened(incoming, None) as here, _opened(folder, None) as there:
            _merge(here, there, skip=os.path.basename(incoming))
    finally:
        shutil.rmtree(incoming, ignore_errors=True)
    return count


def _receive(incoming: str, source: BinaryIO, most: int, *, git: bool) -> int:
    count = size = 0
    modes: list[tuple[str, int]] = []
    with _opened(incoming, None) as root, tarfile.open(fileobj=source, mode="r|") as tar:
        for member in tar:
            count += not member.isdir()
            size += member.size
            if size > most or count > ENTRIES_MAX or len(modes) > ENTRIES_MAX:
                raise TarRefused(f"it holds more than {most} bytes or {ENTRIES_MAX} files")
            parts = _parts(member.name)
            if not parts or (not git and ".git" in parts):
                continue
            if member.isdir():
                modes.append(("/".join(parts), member.mode & 0o777))
            with _parent(root, parts) as here:
                _place(tar, member, parts[-1], here)
    for path, mode in reversed(modes):
        os.chmod(os.path.join(incoming, path), mode | 0o700)
    return count


def _parts(name: str) -> list[str]:
    if name.startswith("/") or "\0" in name:
        raise TarRefused(f"it holds the path {name!r}")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise TarRefused(f"it holds the path {name!r}, which leaves the folder")
    return parts


def _place(tar: tarfile.TarFile, member: tarfile.TarInfo, name: str, here: int) -> None:
    times = (int(member.mtime), int(member.mtime))
    if member.isdir():
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=here)
    elif member.issym():
        os.symlink(member.linkname, name, dir_fd=here)
        os.utime(name, times, dir_fd=here, follow_symlinks=False)
    elif member.isreg():
        data = tar.extractfile(member)
        assert data is not None
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=here)
        with open(fd, "wb") as file:
            shutil.copyfileobj(data, file, _CHUNK)
            file.flush()
            os.fchmod(fd, member.mode & 0o777)
            exact = _exact_ns(member)
            os.utime(fd, ns=(exact, exact))
    else:
        raise TarRefused(f"{member.name!r} is neither a file nor a folder nor a symbolic link")


def _exact_ns(member: tarfile.TarInfo) -> int:
    whole, _, rest = member.pax_headers.get("mtime", str(int(member.mtime))).partition(".")
    try:
        return int(whole) * 10**9 + int((rest + "0" * 9)[:9])
    except ValueError:
        return int(member.mtime) * 10**9


@contextlib.contextmanager
def _opened(name: str, here: int | None) -> Iterator[int]:
    fd = os.open(name, _FOLDER, dir_fd=here)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _parent(root: int, parts: list[str]) -> Iterator[int]:
    """Open the folder of the last part, created if absent; no link is followed on the way."""
    here = os.dup(root)
    try:
        for part in parts[:-1]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=here)
            try:
                inner = os.open(part, _FOLDER, dir_fd=here)
            except NotADirectoryError:
                raise TarRefused(f"the path {'/'.join(parts)!r} leads through a file") from None
            except OSError as error:
                raise TarRefused(f"the path {'/'.join(parts)!r} leads through a link ({error.strerror})") from None
            os.close(here)
            here = inner
        yield here
    finally:
        os.close(here)


def _merge(here: int, there: int, *, skip: str = "") -> None:
    """Move everything from one folder into the other and remove entries absent here; `.git` is left alone."""
    new = {name for name in os.listdir(here) if name != ".git"}
    for name in os.listdir(there):
        if name not in new and name not in (".git", skip):
            _prune(name, there)
    for name in sorted(new):
        mine = os.stat(name, dir_fd=here, follow_symlinks=False)
        theirs = _look(name, there)
        if theirs is not None and stat.S_ISDIR(mine.st_mode) and stat.S_ISDIR(theirs.st_mode):
            with _opened(name, here) as below, _writable(name, there, mine.st_mode) as above:
                _merge(below, above)
            continue
        if theirs is not None and stat.S_ISREG(mine.st_mode) and _version(mine) == _version(theirs):
            continue
        if theirs is not None and not _prune(name, there):
            raise TarRefused(f"{name!r} is a folder here that holds a .git, and no folder any more where it comes from")
        os.rename(name, name, src_dir_fd=here, dst_dir_fd=there)


def _look(name: str, here: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=here, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _version(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_mode, found.st_size, found.st_mtime_ns


@contextlib.contextmanager
def _writable(name: str, here: int, mode: int) -> Iterator[int]:
    with _opened(name, here) as fd:
        os.fchmod(fd, stat.S_IMODE(mode) | 0o700)
        yield fd
        os.fchmod(fd, stat.S_IMODE(mode))


def _prune(name: str, here: int) -> bool:
    """Remove it, except any `.git` and the folders on the way there. True if nothing is left."""
    found = os.stat(name, dir_fd=here, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=here)
        return True
    with _opened(name, here) as fd:
        os.fchmod(fd, stat.S_IMODE(found.st_mode) | 0o700)
        gone = [_prune(inner, fd) for inner in os.listdir(fd) if inner != ".git"]
        left = os.listdir(fd)
    if left or not all(gone):
        return False
    os.rmdir(name, dir_fd=here)
    return True


def main() -> None:
    """`pack|pack-all FOLDER` to standard output, `unpack|fill MOST FOLDER` from standard input."""
    os.umask(0o022)
    try:
        if sys.argv[1] in ("unpack", "fill"):
            put = unpack if sys.argv[1] == "unpack" else fill
            done = put(sys.argv[3], sys.stdin.buffer, most=int(sys.argv[2]))
        else:
            done = pack(sys.argv[2], sys.stdout.buffer, git=sys.argv[1] == "pack-all")
            sys.stdout.flush()
    except (TarRefused, tarfile.TarError, OSError, EOFError) as error:
        print(f"{error}", file=sys.stderr)
        sys.exit(1)
    print(done, file=sys.stderr)


if __name__ == "__main__":
    main()
