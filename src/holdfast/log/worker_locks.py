"""Worker liveness on this machine: one kernel-held lock file per worker process (S5).

The kernel releases an open-file-description lock with its last descriptor: at close, at exit, at
SIGKILL; not at SIGSTOP. The descriptor closes on exec, so supervisors and tools do not inherit it; a process
that forks without exec must not outlive its worker.
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
"""Error numbers of file systems without file locks."""


def no_locks(folder: Path, error: OSError) -> LogUnavailable:
    """Return the error for a folder on a file system without file locks."""
    return LogUnavailable(
        f"file locks do not work in {folder} ({error.strerror}), and Holdfast needs them to keep two processes apart; "
        "nothing was written. Some network file systems lack them: put the home on a local disk with --home"
    )


class Worker:
    """A worker that can hold sessions. It is live until `close` or the end of the process."""

    def __init__(self, worker_id: str, path: Path, fd: int) -> None:
        self.worker_id = worker_id
        self._path = path
        self._fd = fd

    @classmethod
    def start(cls, folder: Path, worker_id: str, says: str = "") -> Worker:
        """Lock the file of `worker_id` in `folder`, write `says` into it, and remove lock files of dead workers.

        Raises `LogUnavailable` if the folder is not writable or the id is taken.
        """
        if not _NAME.fullmatch(worker_id):
            raise ValueError(f"{worker_id!r} is not a valid worker id")
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
        """Unlock the file, which ends every lease of this worker. Safe to repeat."""
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
    """Return True if a process holds the worker's lock. A stopped process keeps it; a killed one does not."""
    if not _NAME.fullmatch(worker_id):
        return False
    path = folder / f"{worker_id}.lock"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise LogUnavailable(
            f"the lock file {path} cannot be read ({error.strerror}), so it is unknown whether its worker lives; "
            "run as the user who owns it"
        ) from error
    try:
        return is_locked(fd)
    except OSError as error:
        raise no_locks(folder, error) from error
    finally:
        os.close(fd)


def _take(folder: Path, worker_id: str, says: str) -> int:
    """Create a lock file and return its descriptor. It is named once locked, so `_sweep` never sees it unlocked."""
    path, new = folder / f"{worker_id}.lock", folder / f"{worker_id}.new"
    while True:
        fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if try_lock(fd) and is_at(fd, new):  # else another process swept it: retry
                if is_live(folder, worker_id):
                    new.unlink(missing_ok=True)
                    raise LogUnavailable(f"another process runs as {worker_id}; start this one under another id")
                os.write(fd, says.encode())
                new.replace(path)
                taken, fd = fd, -1
                return taken
        finally:
            if fd >= 0:
                os.close(fd)


def _sweep(folder: Path) -> None:
    """Remove lock files of dead workers. Only the holder of a lock unlinks its file, so a live worker keeps it."""
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
