"""Pack and unpack a folder as a tar inside the sandbox: streamed, with nothing held in memory.

A tar may be hostile. Nothing is written through a link, links may not lead out of the folder, no device or pipe is
made, and set-user-id and set-group-id bits are dropped.
"""

from __future__ import annotations

import base64
import io
import json
import os
import posixpath
import stat
from typing import IO, Any, cast

from holdfast.hands.box.agent.text import Refusal
from holdfast.hands.box.wire import Message, encode

CHUNK = 1 << 20
"""Bytes transferred at a time."""

ENTRIES_MAX = 1_000_000
"""Maximum number of entries in one tar."""

BYTES_MAX = 32 << 30
"""Maximum total bytes of the files in one tar."""


class Bounds:
    """Size of a tar so far."""

    def __init__(self) -> None:
        self.entries = 0
        self.bytes = 0

    def count(self, member: Any) -> None:
        """Count one more entry. Raises `Refusal` over a limit."""
        self.entries += 1
        self.bytes += max(0, member.size)
        if self.entries > ENTRIES_MAX:
            raise Refusal(f"more than {ENTRIES_MAX} entries; take a smaller folder")
        if self.bytes > BYTES_MAX:
            raise Refusal(f"more than {BYTES_MAX >> 30} GiB of files; take a smaller folder")


def place_of(name: str) -> tuple[str, ...]:
    """Return the parts of a path in a tar. Raises `Refusal` for one that could leave the folder."""
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise Refusal(f"{name!r} leads out of the folder; this tar is refused")
    return parts


def checked(member: Any) -> tuple[str, ...]:
    """Return an entry's path. Raises `Refusal` for an entry that no valid tar of a folder has."""
    parts = place_of(member.name)
    if member.issym():
        target = posixpath.normpath(posixpath.join(*parts[:-1], member.linkname or "."))
        if member.linkname.startswith("/") or target.split("/")[0] == ".." or "\0" in member.linkname:
            raise Refusal(f"{member.name!r} is a link to {member.linkname!r}, outside of the folder")
    elif member.islnk():
        place_of(member.linkname)
    elif not (member.isreg() or member.isdir()):
        raise Refusal(f"{member.name!r} is neither a file, a folder nor a link")
    if not parts and not member.isdir():
        raise Refusal("an entry without a name is no folder")
    return parts


def pack(folder: str, out: IO[bytes]) -> int:
    """Write a folder to `out`; returns the number of entries. Raises `Refusal`, `OSError`."""
    import tarfile

    if not os.path.isdir(folder):
        raise Refusal(f"{folder} is no folder")
    bounds = Bounds()
    known: dict[tuple[int, int], str] = {}
    with tarfile.open(mode="w|", fileobj=out, format=tarfile.PAX_FORMAT, encoding="utf-8") as archive:
        left = [""]
        while left:
            at = left.pop()
            with os.scandir(os.path.join(folder, at)) as found:
                entries = sorted(found, key=lambda entry: entry.name)
            for entry in entries:
                name = posixpath.join(at, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    left.append(name)
                _add(archive, os.path.join(folder, name), name, known, bounds)
    return bounds.entries


def _add(archive: Any, path: str, name: str, known: dict[tuple[int, int], str], bounds: Bounds) -> None:
    import tarfile

    status = os.lstat(path)
    member = tarfile.TarInfo(name)
    member.mode = stat.S_IMODE(status.st_mode) & 0o777
    member.mtime = int(status.st_mtime)
    if stat.S_ISLNK(status.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)
    elif stat.S_ISDIR(status.st_mode):
        member.type = tarfile.DIRTYPE
    elif not stat.S_ISREG(status.st_mode):
        return
    elif (first := known.setdefault((status.st_dev, status.st_ino), name)) != name:
        member.type, member.linkname = tarfile.LNKTYPE, first
    else:
        _add_file(archive, path, member, bounds)
        return
    bounds.count(member)
    archive.addfile(member)


def _add_file(archive: Any, path: str, member: Any, bounds: Bounds) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        member.size = os.fstat(fd).st_size
        bounds.count(member)
        try:
            archive.addfile(member, file)
        except OSError as error:
            if error.errno is None:
                raise Refusal(f"{path} changed while it was read; pack again when nothing writes there") from None
            raise


def unpack(folder: str, source: IO[bytes]) -> int:
    """Extract `source` into a folder, which is created; returns the number of entries."""
    import tarfile

    os.makedirs(folder, exist_ok=True)
    try:
        return _unpack(folder, tarfile.open(mode="r|", fileobj=source, encoding="utf-8"))
    except tarfile.TarError as error:
        raise Refusal(f"this is no tar that can be read: {error}") from None


def _unpack(folder: str, archive: Any) -> int:
    bounds = Bounds()
    links: list[tuple[str, ...]] = []
    with _Folder(folder) as into, archive:
        for member in archive:
            parts = checked(member)
            bounds.count(member)
            into.put(archive, member, parts)
            if member.issym():
                links.append(parts)
            archive.members = []
        into.judge(links)
    return bounds.entries


class _Folder:
    """A folder that is written to by descriptors only, one path component at a time, never through a link."""

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)
        self._root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._kept: tuple[str, ...] = ()
        self._parent = os.dup(self._root)

    def __enter__(self) -> _Folder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._parent)
        os.close(self._root)

    def put(self, archive: Any, member: Any, parts: tuple[str, ...]) -> None:
        """Create one entry."""
        if member.isdir():
            self._into(parts)
            if parts:
                os.fchmod(self._parent, member.mode & 0o777 | 0o700)
            return
        parent, name = self._into(parts[:-1]), parts[-1]
        try:
            os.unlink(name, dir_fd=parent)
        except FileNotFoundError:
            pass
        if member.issym():
            os.symlink(member.linkname, name, dir_fd=parent)
            _date(name, member, dir_fd=parent, follow_symlinks=False)
        elif member.islnk():
            self._link(member, parts)
        else:
            self._file(archive, member, parent, name)

    def judge(self, links: list[tuple[str, ...]]) -> None:
        """Once all entries exist, resolve the links; remove and report those that lead out of the folder."""
        for parts in links:
            path = os.path.join(self._path, *parts)
            if not os.path.islink(path):
                continue
            real = os.path.realpath(path)
            if real != self._path and not real.startswith(self._path.rstrip("/") + "/"):
                os.unlink(parts[-1], dir_fd=self._into(parts[:-1]))
                raise Refusal(f"{'/'.join(parts)!r} is a link that leads out of the folder")

    def _link(self, member: Any, parts: tuple[str, ...]) -> None:
        first = place_of(member.linkname)
        if not first:
            raise Refusal(f"{member.name!r} is a second name of nothing")
        there = os.dup(self._into(first[:-1]))
        try:
            if not stat.S_ISREG(os.stat(first[-1], dir_fd=there, follow_symlinks=False).st_mode):
                raise Refusal(f"{member.name!r} is a second name of {member.linkname!r}, which is no file")
            os.link(first[-1], parts[-1], src_dir_fd=there, dst_dir_fd=self._into(parts[:-1]), follow_symlinks=False)
        finally:
            os.close(there)

    def _file(self, archive: Any, member: Any, parent: int, name: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        content = archive.extractfile(member)
        with open(os.open(name, flags, 0o600, dir_fd=parent), "wb") as file:
            left = member.size
            while content is not None and left > 0:
                data = content.read(min(left, CHUNK))
                if not data:
                    raise Refusal(f"{member.name!r} is cut short; this tar is not whole")
                file.write(data)
                left -= len(data)
            file.flush()
            os.fchmod(file.fileno(), member.mode & 0o777 | 0o600)
            _date(file.fileno(), member)

    def _into(self, parts: tuple[str, ...]) -> int:
        """Open the folder at those path components, created if absent. The last one is kept open."""
        if parts == self._kept:
            return self._parent
        at = os.dup(self._root)
        try:
            for part in parts:
                inner = _step(at, part)
                os.close(at)
                at = inner
        except BaseException:
            os.close(at)
            raise
        os.close(self._parent)
        self._parent, self._kept = at, parts
        return at


def _date(path: str | int, member: Any, **where: Any) -> None:
    try:
        os.utime(path, (member.mtime, member.mtime), **where)
    except (OverflowError, ValueError, OSError):
        pass  # a time that this file system does not support


def _step(at: int, part: str) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        os.mkdir(part, 0o755, dir_fd=at)
    except FileExistsError:
        pass
    try:
        return os.open(part, flags, dir_fd=at)
    except NotADirectoryError:
        raise Refusal(f"{part!r} is a link or a file where a folder has to be") from None


STEPS = ("pack", "unpack")
"""The steps of this module."""


class _Line:
    """The connection to the agent, blocking. When the agent is gone, this process exits."""

    def __init__(self, link: int) -> None:
        os.set_blocking(link, True)
        self._link = link
        self._in = open(link, "rb", closefd=False)

    def tell(self, message: Message) -> None:
        """Send a message."""
        left = memoryview(encode(message))
        while left:
            left = left[os.write(self._link, left) :]

    def hear(self) -> Message:
        """Receive the next message."""
        line = self._in.readline()
        if not line:
            os._exit(0)
        message: Message = json.loads(line)
        return message


class _Outlet(io.RawIOBase):
    """Writable stream that sends pieces, each when it is requested."""

    def __init__(self, line: _Line) -> None:
        self._line = line
        self._left = bytearray()

    def write(self, data: Any) -> int:
        """Buffer bytes, wait for a request, and send a piece."""
        self._left += data
        if len(self._left) >= CHUNK:
            self.send()
        return len(data)

    def send(self) -> None:
        """Send the buffered bytes, if any."""
        if self._left:
            self._line.hear()
            self._line.tell({"piece": {"data": base64.b64encode(self._left).decode()}})
            self._left.clear()


class _Inlet(io.RawIOBase):
    """Readable stream of the received pieces."""

    def __init__(self, line: _Line) -> None:
        self._line = line
        self._left = io.BytesIO()
        self._ended = False

    def read(self, size: int = -1) -> bytes:
        """Read up to that many bytes; none at the end."""
        data = self._left.read(size)
        if data or self._ended:
            return data
        piece = base64.b64decode(self._line.hear()["data"])
        self._ended = not piece
        if piece:
            self._line.tell({"piece": {}})
        self._left = io.BytesIO(piece)
        return self._left.read(size)

    def drain(self) -> None:
        """Discard input after the end of the tar."""
        while self.read(CHUNK):
            pass


def move(step: str, path: str, place: dict[str, Any], link: int) -> dict[str, Any]:
    """Pack or unpack a folder; `path` is the one that the caller gave."""
    line = _Line(link)
    folder = os.path.join(place["root"], path)
    try:
        if step == "pack":
            outlet = _Outlet(line)
            entries = pack(folder, cast("IO[bytes]", outlet))
            outlet.send()
            line.hear()
        else:
            inlet = _Inlet(line)
            entries = unpack(folder, cast("IO[bytes]", inlet))
            inlet.drain()
    except Refusal as refusal:
        return {"ok": False, "output": str(refusal)}
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return {"ok": False, "output": f"{where}{error.strerror or error}"}
    return {"ok": True, "output": "", "entries": entries}
