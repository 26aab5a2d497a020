"""Who lives on this machine: one lock file per worker process, held by the kernel (S5).

An open-file-description lock ends with the last descriptor of its opening: at close, at exit, at
SIGKILL; not at SIGSTOP. No flag and no timer. The descriptor closes on exec, so no supervisor and no
tool inherits it; a process that forks without exec must not outlive its worker.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from holdfast.errors import LogUnavailable
from holdfast.locks import is_at, is_locked, try_lock

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of a file system that has no file locks."""


def no_locks(folder: Path, error: OSError) -> LogUnavailable:
    """The error for a folder on such a file system."""
    return LogUnavailable(
        f"file locks do not work in {folder} ({error.strerror}), and Holdfast needs them to keep two processes apart; "
        "nothing was written. Some network file systems have none: put the home on a local disk with --home"
    )


class Worker:
    """This process as one that can hold sessions. Live until `close`, or until the process is gone."""

    def __init__(self, worker_id: str, path: Path, fd: int) -> None:
        self.worker_id = worker_id
        self._path = path
        self._fd = fd

    @classmethod
    def start(cls, folder: Path, worker_id: str, says: str = "") -> Worker:
        """Take the lock file of `worker_id` under `folder`, with the text `says` in it, and sweep those of the dead.

        Raises `LogUnavailable` when the folder cannot be written or the id is taken.
        """
        if not _NAME.fullmatch(worker_id):
            raise ValueError(f"{worker_id!r} is not the id of a worker")
        path = folder / f"{worker_id}.lock"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sweep(folder)
            return cls(worker_id, path, _take(folder, worker_id, says))
        except OSError as error:
            if error.errno in NO_LOCKS:
                raise no_locks(folder, error) from error
            raise LogUnavailable(
                f"the lock file {path} cannot be made ({error.strerror}); make {folder} writable, or choose another "
                "home with --home"
            ) from error

    def close(self) -> None:
        """Stop living: every lease of this worker ends. Safe to repeat."""
        if self._fd < 0:
            return
        if is_at(self._fd, self._path):
            self._path.unlink(missing_ok=True)
        os.close(self._fd)
        self._fd = -1

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_live(folder: Path, worker_id: str) -> bool:
    """Whether a process holds that worker's lock now. A stopped process does, a killed one does not."""
    if not _NAME.fullmatch(worker_id):
        return False
    path = folder / f"{worker_id}.lock"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise LogUnavailable(
            f"the lock file {path} cannot be read ({error.strerror}), so nobody can say whether its worker lives; "
            "run as the user who owns it"
        ) from error
    try:
        return is_locked(fd)
    except OSError as error:
        raise no_locks(folder, error) from error
    finally:
        os.close(fd)


def _take(folder: Path, worker_id: str, says: str) -> int:
    """The descriptor of a locked lock file. It gets its name when it is locked, so no sweeper sees it free."""
    path, new = folder / f"{worker_id}.lock", folder / f"{worker_id}.new"
    while True:
        fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if try_lock(fd) and is_at(fd, new):  # else a sweeper was faster: once more
                if is_live(folder, worker_id):
                    new.unlink(missing_ok=True)
                    raise LogUnavailable(f"another process lives as {worker_id}; start this one under another id")
                os.write(fd, says.encode())
                new.replace(path)
                taken, fd = fd, -1
                return taken
        finally:
            if fd >= 0:
                os.close(fd)


def _sweep(folder: Path) -> None:
    """Remove the lock files of the dead; only who holds the lock may unlink, so no living one is lost."""
    for path in (*folder.glob("*.lock"), *folder.glob("*.new")):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if try_lock(fd) and is_at(fd, path):
                path.unlink(missing_ok=True)
        finally:
            os.close(fd)
