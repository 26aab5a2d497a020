"""The git of the snapshot store: our own repository, our own configuration, no files that an agent wrote (S24).

Git never sees a work tree here. It receives packs that we made and requests for objects by name, so no attribute,
filter, hook, monitor, submodule or configuration of a workspace can affect it. The repository is written by hand, in
the oldest format that supports SHA-256.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from holdfast.errors import CannotRunSafely, SnapshotFailed, StorageFull
from holdfast.repo.objects import CHUNK, Row, decode_tree, object_hash


class Stopped(Exception):
    """The caller was cancelled, so the work ends early."""


OLDEST = (2, 34)
"""The first long-lived version with a sound `repack --geometric` and SHA-256 packs."""

_PATH = "/usr/local/bin:/usr/bin:/bin"
_ASK = 60  # names in one request: less than a page, so that neither side ever waits for a full pipe
_PACK_TIMEOUT_S = 3600.0

DIFF_MAX = 64 << 20
"""Longest patch in bytes."""

_CONFIG = """[core]
\trepositoryformatversion = 1
\tbare = true
\tlogallrefupdates = false
[extensions]
\tobjectformat = sha256
"""
_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.attributesFile": "/dev/null",
    "core.excludesFile": "/dev/null",
    "core.fsmonitor": "false",
    "core.fsync": "all",
    "core.protectNTFS": "true",
    "core.protectHFS": "true",
    "core.bigFileThreshold": "4m",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "pack.threads": "1",
    "pack.windowMemory": "64m",
    "protocol.allow": "never",
    "repack.writeBitmaps": "false",
}


def is_here() -> bool:
    """True if git is installed."""
    return shutil.which("git", path=_PATH) is not None


def find_program(named: Path | None, oldest: tuple[int, int], does: str) -> str:
    """Return the git to use: the `named` one, or the machine's. Raises `CannotRunSafely` if missing or too old."""
    program = str(named) if named else shutil.which("git", path=_PATH)
    said = b""
    if program:
        try:
            is_now = os.stat(program)
            said = _version(program, is_now.st_ino, is_now.st_mtime_ns)
        except OSError:
            program = None
    version = re.match(rb"git version (\d+)\.(\d+)", said)
    wanted = ".".join(map(str, oldest))
    if not program or not version:
        raise CannotRunSafely(
            f"git {wanted} or newer {does}, and there is none on this machine; nothing was changed: install it "
            "(`apt install git`)"
        )
    if (int(version[1]), int(version[2])) < oldest:
        raise CannotRunSafely(
            f"git {wanted} or newer {does}, and {program} is {version[0].decode().removeprefix('git version ')}; "
            "nothing was changed: install a newer one"
        )
    return program


@functools.lru_cache(maxsize=8)
def _version(program: str, inode: int, changed_ns: int) -> bytes:
    """Return the output of `git version`. The inode and the time identify the file's content for the cache."""
    return subprocess.run([program, "version"], capture_output=True, check=False, env={}, cwd="/").stdout


class Git:
    """One bare repository, and the git that works on it. `program` is the path of git; default: search for it."""

    def __init__(self, folder: Path, program: Path | None = None) -> None:
        self.folder = folder
        self._named = program
        self._program = ""

    def ready(self) -> None:
        """Find git and create the repository. Raises `CannotRunSafely` if there is none, or an old one."""
        if not self._program:
            self._program = find_program(self._named, OLDEST, "keeps the snapshots of workspaces")
        if (self.folder / "config").exists():
            return
        for name in ("objects/pack", "objects/info", "refs/holdfast"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        # Never a half-written file: a git of another process may be reading. The last one completes the repository.
        for name, text in (("HEAD", "ref: refs/heads/none\n"), ("config", _CONFIG)):
            new = self.folder / f"{name}.{os.getpid()}.{threading.get_ident()}.lock"
            new.write_text(text)
            new.replace(self.folder / name)

    def _command(self, arguments: Sequence[str]) -> list[str]:
        settings = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
        return [self._program, *settings, *arguments]

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": _PATH,
            "LC_ALL": "C",
            "HOME": "/nonexistent",
            "GIT_DIR": str(self.folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_SYSTEM": "/dev/null",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
        }

    def run(self, *arguments: str, locks: tuple[int, ...], stdin: int = subprocess.DEVNULL, timeout_s: float) -> bool:
        """Run git to its end; it holds `locks` as long as it lives. False if it was ended after `timeout_s`.

        Raises `StorageFull` or `SnapshotFailed` with git's message.
        """
        try:
            done = subprocess.run(
                self._command(arguments),
                stdin=stdin,
                capture_output=True,
                env=self._environment(),
                cwd=self.folder,
                pass_fds=locks,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        if done.returncode == 0:
            return True
        said = done.stderr.decode("utf-8", "replace").strip()
        if "No space left on device" in said or "Disk quota exceeded" in said:
            raise full(self.folder)
        raise SnapshotFailed(
            f"git could not write the snapshots in {self.folder}: {said[-300:] or f'status {done.returncode}'}; what "
            "was kept before is safe: mend that and try again"
        )

    def take(self, pack: int, lock: int) -> None:
        """Add a finished pack: checked, indexed and synced when this returns."""
        if not self.run("index-pack", "--stdin", locks=(lock,), stdin=pack, timeout_s=_PACK_TIMEOUT_S):
            raise SnapshotFailed(f"git did not take a pack into {self.folder} within {_PACK_TIMEOUT_S:g} s; try again")

    def diff(self, before: str, after: str, lock: int) -> str:
        """Return the differences of two trees as a patch. Runs no program that a repository could name."""
        form = ("-r", "-p", "-M", "--no-ext-diff", "--no-textconv", "--no-color")
        with subprocess.Popen(
            self._command(("diff-tree", *form, before, after)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment(),
            cwd=self.folder,
            pass_fds=(lock,),
        ) as process:
            assert process.stdout is not None
            patch = process.stdout.read(DIFF_MAX + 1)
            if len(patch) > DIFF_MAX:
                process.kill()
        if len(patch) > DIFF_MAX:
            raise SnapshotFailed(
                f"these snapshots differ by more than {DIFF_MAX >> 20} MB; nothing was changed: restore both, and "
                "compare the folders"
            )
        if process.returncode != 0:
            raise broken(bytes.fromhex(before))
        return patch.decode("utf-8", "backslashreplace")

    def disk_usage(self, names: Sequence[str], lock: int) -> int:
        """Return the bytes on disk of all that these objects lead to, but not of what the names after a `^` lead to."""
        command = self._command(("rev-list", "--objects", "--disk-usage", "--stdin"))
        asked = "".join(f"{name}\n" for name in names).encode()
        where = {"env": self._environment(), "cwd": self.folder, "pass_fds": (lock,)}
        done = subprocess.run(command, input=asked, capture_output=True, check=False, **where)  # type: ignore[call-overload]
        return int(done.stdout) if done.returncode == 0 else 0

    @contextmanager
    def library(self, lock: int) -> Iterator[Library]:
        """Open the objects for reading, for the block. Its git processes start with the first request."""
        library = Library(self._command(("cat-file",)), self._environment(), self.folder, lock)
        try:
            yield library
        finally:
            library.close()


class Blob:
    """A blob that is being read; it must be read to its end, and is checked against its name."""

    def __init__(self, source: IO[bytes], object_id: bytes, size: int) -> None:
        self.size = size
        self._source = source
        self._id = object_id

    def chunks(self) -> Iterator[bytes]:
        """Yield its bytes. Raises `SnapshotFailed` at the end if they do not match the name."""
        digest, left = object_hash("blob", self.size), self.size
        while left:
            chunk = self._source.read(min(left, CHUNK))
            if not chunk:
                raise broken(self._id)
            left -= len(chunk)
            digest.update(chunk)
            yield chunk
        if self._source.read(1) != b"\n" or digest.digest() != self._id:
            raise broken(self._id)


class Library:
    """Objects by name, from git processes that answer requests."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path, lock: int) -> None:
        self._command = command
        self._environment = environment
        self._folder = folder
        self._lock = lock
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def _ask(self, mode: str, ids: Sequence[bytes]) -> IO[bytes]:
        process = self._processes.get(mode)
        if process is None:
            process = self._processes[mode] = subprocess.Popen(
                [*self._command, mode],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._environment,
                cwd=self._folder,
                pass_fds=(self._lock,),
            )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write("".join([f"{each.hex()}\n" for each in ids]).encode())
            process.stdin.flush()
        except BrokenPipeError:
            raise broken(ids[0]) from None
        return process.stdout

    def missing(self, ids: Sequence[bytes]) -> set[bytes]:
        """Return the objects that are not in the store."""
        out = set()
        for start in range(0, len(ids), _ASK):
            part = ids[start : start + _ASK]
            answers = self._ask("--batch-check", part)
            for each in part:
                words = answers.readline().split()
                if len(words) < 2 or words[0] != each.hex().encode():
                    raise broken(each)
                if words[1] == b"missing":
                    out.add(each)
        return out

    def trees(self, ids: Sequence[bytes]) -> Iterator[list[Row]]:
        """Yield the entries of each of these trees, in order. Raises `SnapshotFailed` for anything but a tree."""
        for each, size, answers in self._contents(ids, b"tree"):
            data = answers.read(size + 1)
            digest = object_hash("tree", size)
            digest.update(data[:-1])
            if digest.digest() != each:
                raise broken(each)
            try:
                yield decode_tree(data[:-1])
            except ValueError:
                raise broken(each) from None

    def stream(self, ids: Iterable[bytes]) -> Generator[Blob, None, None]:
        """Yield each of these blobs, in order, from a separate process that gets all requests at once.

        Read each to its end before the next. For many blobs: there is no round trip for each.
        """
        with tempfile.TemporaryFile(dir=self._folder) as asked, ExitStack() as opened:
            names = []
            for each in ids:
                names.append(each)
                asked.write(each.hex().encode() + b"\n")
            asked.seek(0)
            process = subprocess.Popen(
                [*self._command, "--batch", "--buffer"],
                stdin=asked,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._environment,
                cwd=self._folder,
                pass_fds=(self._lock,),
                bufsize=CHUNK,
                pipesize=CHUNK,
            )
            opened.callback(_ended, process)
            assert process.stdout is not None
            for each in names:
                yield Blob(process.stdout, each, _answered(process.stdout, each, b"blob"))

    def _contents(self, ids: Sequence[bytes], kind: bytes) -> Iterator[tuple[bytes, int, IO[bytes]]]:
        for start in range(0, len(ids), _ASK):
            part = ids[start : start + _ASK]
            answers = self._ask("--batch", part)
            for each in part:
                yield each, _answered(answers, each, kind), answers

    def close(self) -> None:
        """End the processes. Safe to repeat."""
        for process in self._processes.values():
            _ended(process)
        self._processes.clear()


def _answered(answers: IO[bytes], object_id: bytes, kind: bytes) -> int:
    """Return the size of the next object. Raises `SnapshotFailed` if it is another one, or missing."""
    words = answers.readline().split()
    if len(words) != 3 or words[0] != object_id.hex().encode() or words[1] != kind:
        raise broken(object_id)
    return int(words[2])


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()  # it only reads
    process.communicate()


def broken(object_id: bytes) -> SnapshotFailed:
    """Return the error for an object that is missing or does not match its name."""
    return SnapshotFailed(
        f"{object_id.hex()} is not in the snapshot store, or is damaged there; snapshots that do not need it are "
        "safe: use an earlier or a later one"
    )


def full(folder: Path) -> StorageFull:
    """Return the error for a full disk."""
    return StorageFull(
        f"the disk took no more bytes of a snapshot into {folder}; what was kept before is safe: free some space, "
        "then try again"
    )


@contextmanager
def handled(folder: Path) -> Iterator[None]:
    """Turn system errors into errors that a user can act on."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise full(folder) from None
        raise SnapshotFailed(
            f"a snapshot could not be handled in {folder}: {error.strerror or error}; what was kept before is safe: "
            "mend that and try again"
        ) from error


def sync_folder(path: Path) -> None:
    """Sync a folder's entries to disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(os.lstat(os.path.join(path, name)).st_size for path, _, names in os.walk(folder) for name in names)
