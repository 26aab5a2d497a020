"""Git for a user's repository, unaffected by the settings of a repository or a working tree (S24).

Two git directories: our own, written by hand, has a clean configuration and no refs, and works on the user's store of
objects; the user's own is used for refs alone, without hooks. Neither ever runs a program other than git's own, and
neither sees a working tree, except for comparing files in `look`, again with our own directory.
"""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from holdfast.errors import RepositoryUnfit, StorageFull
from holdfast.repo.git import find_program
from holdfast.repo.plumbing.place import Place, Settings, locate, read_settings
from holdfast.uids import run_as

OLDEST = (2, 38)
"""The first version whose `merge-tree` merges without a working tree."""

_PATH = "/usr/local/bin:/usr/bin:/bin"
_TIMEOUT_S = 1800.0
_SAID = 400

IDENTITY = ("Holdfast", "holdfast@localhost")
"""Author of every commit of the harness: an address that no mail can reach."""

_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.attributesFile": "/dev/null",
    "core.excludesFile": "/dev/null",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.fsync": "all",
    "core.filesRefLockTimeout": "2000",
    "core.packedRefsTimeout": "2000",
    "core.protectNTFS": "true",
    "core.protectHFS": "true",
    "core.quotePath": "false",
    "core.commitGraph": "false",
    "commit.gpgSign": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "pack.threads": "1",
    "protocol.allow": "never",
    "submodule.recurse": "false",
}
_CONFIG = {
    "sha1": "[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tlogallrefupdates = false\n",
    "sha256": "[core]\n\trepositoryformatversion = 1\n\tbare = true\n\tlogallrefupdates = false\n"
    "[extensions]\n\tobjectformat = sha256\n",
}


class Failed(Exception):
    """Git ended with an unexpected status; its message."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status
        self.said = said


@functools.lru_cache(maxsize=16)
def _list_settings(program: str, config: bytes) -> bytes | None:
    """Return the settings in the bytes of a configuration file as git lists them, None if git cannot read them."""
    command = [program, "config", "--file", "-", "--no-includes", "--list", "-z"]
    environment = _environment("/nonexistent")
    done = subprocess.run(
        command, input=config, capture_output=True, env=environment, cwd="/", check=False, timeout=_TIMEOUT_S
    )
    return None if done.returncode else done.stdout


class Plumbing:
    """The git of one repository. `path` is a folder in it, `state_folder` ours, for the git directories we write."""

    def __init__(self, path: Path, state_folder: Path, program: Path | None = None) -> None:
        self.path = path
        self._state = state_folder
        self._named = program
        self._program = ""
        self._found: tuple[Place, Settings] | None = None
        self._lock = threading.Lock()

    @property
    def place(self) -> Place:
        """Location of the repository. Raises `RepositoryUnfit`."""
        return self._opened()[0]

    @property
    def settings(self) -> Settings:
        """Relevant settings of the repository. Raises `RepositoryUnfit`."""
        return self._opened()[1]

    def _opened(self) -> tuple[Place, Settings]:
        with self._lock:
            if self._found is None:
                if not self._program:
                    self._program = find_program(self._named, OLDEST, "commits and merges the work of missions")
                place = locate(self.path)
                self._found = (place, self._read(place))
            return self._found

    def _read(self, place: Place) -> Settings:
        config = place.common / "config"
        try:
            raw = config.read_bytes()  # read by us, so that git opens no file that we could not
        except FileNotFoundError:
            return read_settings(place, b"")
        except OSError as error:
            raise RepositoryUnfit(
                f"{config} cannot be read: {error.strerror}; nothing was changed: make it readable for this user, or "
                "run as its owner"
            ) from None
        listed = _list_settings(self._program, raw)
        if listed is None:
            raise RepositoryUnfit(f"{config} is no configuration of git; nothing was changed: mend it, then try again")
        return read_settings(place, listed)

    def scratch(self) -> Path:
        """Our folder for temporary files."""
        folder = self._state / "tmp"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def _our_dir(self) -> Path:
        """Return our git directory for the repository's object format, created if absent."""
        kind = self.settings.object_format
        folder = self._state / f"{kind}.git"
        if (folder / "config").exists():
            return folder
        self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("", "objects", "refs", "refs/heads"):
            (folder / name).mkdir(exist_ok=True)
            (folder / name).chmod(0o755)  # the owner may be another user than the one that git runs as
        for name, text in (("HEAD", "ref: refs/heads/none\n"), ("config", _CONFIG[kind])):  # the last completes it
            with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as new:
                new.write(text)
            os.chmod(new.name, 0o644)
            os.replace(new.name, folder / name)
        return folder

    def _command(self, arguments: Sequence[str]) -> list[str]:
        settings = dict(_SETTINGS)
        if self.settings.shared:
            settings["core.sharedRepository"] = self.settings.shared
        return [
            self._program,
            *[word for name, value in settings.items() for word in ("-c", f"{name}={value}")],
            *arguments,
        ]

    @contextmanager
    def start(
        self,
        arguments: Sequence[str],
        *,
        stdin: IO[bytes] | int = subprocess.DEVNULL,
        theirs: bool = False,
        extra: Mapping[str, str] | None = None,
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run git for the block: ours on the user's objects, or with `theirs` the user's own directory.

        It ends with the block. Its standard error is discarded; use `run` to get it.
        """
        process = self._spawn(arguments, stdin, subprocess.DEVNULL, theirs, extra)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def _spawn(
        self,
        arguments: Sequence[str],
        stdin: IO[bytes] | int,
        stderr: int,
        theirs: bool,
        extra: Mapping[str, str] | None,
    ) -> subprocess.Popen[bytes]:
        place, owner = self.place, self.settings.owner
        if theirs:
            environment, cwd = _environment(str(place.git_dir)), "/"
        else:
            # Relative: another user may lack access to part of the absolute path.
            environment, cwd = _environment("."), str(self._our_dir())
            environment["GIT_OBJECT_DIRECTORY"] = str(place.objects)
            if place.shallow.exists():
                environment["GIT_SHALLOW_FILE"] = str(place.shallow)
        environment.update(extra or {})
        if extra:  # it only reads, from more places than the owner may have access to
            environment["GIT_DIR"], owner = cwd, None
        command, identity = self._command(arguments), dict[str, Any]()
        if owner:
            command, identity = run_as(owner.uid, owner.gid, command)
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment,
            cwd=cwd,
            **identity,
            start_new_session=True,  # a signal to our whole process group does not leave a lock of git behind
        )

    def run(
        self,
        *arguments: str,
        stdin: bytes | IO[bytes] | None = None,
        theirs: bool = False,
        extra: Mapping[str, str] | None = None,
        also: Sequence[int] = (),
    ) -> tuple[int, bytes]:
        """Run git to its end; returns its status and output. A status that is neither 0 nor in `also` raises `Failed`.

        Raises `StorageFull`, or `RepositoryUnfit` if it does not end.
        """
        source = subprocess.PIPE if isinstance(stdin, bytes) else stdin if stdin is not None else subprocess.DEVNULL
        process = self._spawn(arguments, source, subprocess.PIPE, theirs, extra)
        try:
            out, errors = process.communicate(stdin if isinstance(stdin, bytes) else None, timeout=_TIMEOUT_S)
        except BaseException as error:
            process.kill()
            process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise RepositoryUnfit(
                    f"git did not end within {_TIMEOUT_S:g} s on {self.path}; no ref was changed: see what holds the "
                    "disk or the repository, then try again"
                ) from None
            raise
        if process.returncode == 0 or process.returncode in also:
            return process.returncode, out
        said = errors.decode("utf-8", "backslashreplace").strip()
        if "No space left on device" in said or "Disk quota exceeded" in said:
            raise StorageFull(
                f"the disk took no more bytes of {self.place.objects}; no ref was changed: free some space, then try "
                "again"
            )
        line = "; ".join([each for each in said.splitlines() if each and not each.startswith("hint:")])
        raise Failed(process.returncode, line[-_SAID:] or f"status {process.returncode}")

    def need(self, what: str, *arguments: str, stdin: bytes | IO[bytes] | None = None) -> bytes:
        """Run git and return its output. Raises `RepositoryUnfit`, which says that `what` failed."""
        try:
            return self.run(*arguments, stdin=stdin)[1]
        except Failed as error:
            raise self.unfit(what, error.said) from None

    def unfit(self, what: str, said: str) -> RepositoryUnfit:
        """Return the error for a git command that failed on this repository."""
        if "ermission denied" in said or "insufficient permission" in said or "Read-only file system" in said:
            hint = "make the repository writable for this user, or run as its owner"
        else:
            hint = f"run `git -C {self.path} fsck`, mend what it names, then try again"
        return RepositoryUnfit(f"{what} in {self.path} was not possible: {said}; no ref was changed: {hint}")


def _environment(git_dir: str) -> dict[str, str]:
    name, address = IDENTITY
    return {
        "PATH": _PATH,
        "LC_ALL": "C",
        "TZ": "UTC",
        "HOME": "/nonexistent",
        "GIT_DIR": git_dir,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",  # older versions support only this one, and it precedes any configuration
        "GIT_GRAFT_FILE": "/dev/null",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_ADVICE": "0",
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": address,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": address,
    }
