"""Sources of secrets and their readers: environment variables, files, keyrings, and commands.

References are written `env:NAME`, `file:PATH`, `keyring:SERVICE/NAME`, or `command:PROGRAM` with arguments. A file is
read only if no other user could have read or replaced it. A command runs without a shell and with a time limit. The
keyring of the operating system, which the extra `keyring` supports, is queried in a separate process. A value is one
line of text, long enough to be recognized in responses.
"""

from __future__ import annotations

import os
import re
import selectors
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from holdfast.clock import Clock
from holdfast.errors import SecretUnavailable
from holdfast.vault import keyring_child
from holdfast.vault.base import Secret

Kind = Literal["env", "file", "keyring", "command", "given"]

EXAMPLES = (
    'from = "env:GITHUB_TOKEN", "file:~/.config/holdfast/github", "keyring:holdfast/github" '
    'or ["command:pass", "show", "github"]'
)
"""One example of each kind, for messages."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
"""Pattern of secret names."""


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Source of one secret. `place` is one string, or the arguments of a command.

    After `expires_us` the value is refused; None for never. `variables` are environment variables for its command in
    addition to the usual ones. Kind `given` holds the value itself, for fakes only.
    """

    name: str
    kind: Kind
    place: tuple[str, ...]
    expires_us: int | None = None
    variables: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Source({self.name!r}, {self.described()!r})"

    def described(self) -> str:
        """Return the reference as configured; for a command, only the program, since arguments may be private."""
        if self.kind == "given":
            return "given"
        return f"{self.kind}:{self.place[0]}{' …' if len(self.place) > 1 else ''}"


def read_reference(value: Any) -> tuple[Kind, tuple[str, ...]]:
    """Parse the setting `from`. Raises `ValueError` with an example.

    The message does not repeat an invalid reference, since that may be the secret itself.
    """
    words: Sequence[object] = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    texts = tuple(word for word in words if isinstance(word, str) and "\0" not in word)
    if not texts or len(texts) != len(words):
        raise ValueError(f"it must be a reference to the secret: {EXAMPLES}")
    kind, colon, rest = texts[0].partition(":")
    if kind == "command" and colon:
        return "command", _command(rest, texts, alone=isinstance(value, str))
    if len(texts) > 1 or not colon or kind not in ("env", "file", "keyring"):
        raise ValueError(f"it must be a reference to the secret, not the secret itself: {EXAMPLES}")
    if kind == "env":
        if _VARIABLE.fullmatch(rest) is None:
            raise ValueError('it does not name an environment variable; example: from = "env:GITHUB_TOKEN"')
        return "env", (rest,)
    if kind == "file":
        if not rest.startswith(("/", "~/")):
            raise ValueError('its file needs an absolute path; example: from = "file:~/.config/holdfast/github"')
        return "file", (rest,)
    service, slash, name = rest.rpartition("/")
    if not (service and slash and name) or not rest.isprintable() or rest.startswith("-"):
        raise ValueError('a keyring needs a service and a name; example: from = "keyring:holdfast/github"')
    return "keyring", (service, name)


def _command(program: str, words: tuple[str, ...], *, alone: bool) -> tuple[str, ...]:
    if not program.strip() or (alone and any(char.isspace() for char in program)):
        raise ValueError(
            'a command is a list of words, since it runs without a shell; example: from = ["command:pass", "show", '
            '"github"]'
        )
    return (program, *words[1:])


def variable_name(value: Any) -> str:
    """Validate the name of an environment variable. Raises `ValueError`."""
    if not isinstance(value, str) or _VARIABLE.fullmatch(value) is None:
        raise ValueError(f'{value!r} is not the name of an environment variable; example: "GITHUB_TOKEN"')
    return value


BYTES_MAX = 8192
"""Longest secret, in bytes."""

BYTES_MIN = 8
"""Shortest secret, in bytes. A shorter one looks like ordinary text, so it could not be masked in responses."""


def checked(data: bytes) -> Secret | str:
    """Validate the output of a source. Return the secret, or a description of the problem that does not contain it.

    Raises nothing, since an exception would hold the bytes.
    """
    if len(data) > BYTES_MAX + 2:
        return f"it is longer than {BYTES_MAX} bytes"
    text = data.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
    if not text.strip():
        return "it is empty"
    if "\n" in text or "\r" in text:
        return "it has more than one line, and a header can hold only one"
    if not text.isprintable() or "�" in text or text != text.strip():
        return "it has characters that a header cannot hold, or surrounding blanks"
    if len(text.encode()) < BYTES_MIN:
        return f"it is shorter than {BYTES_MIN} bytes, too short to be masked in responses"
    return Secret(text)


def path_of(place: str, home: str) -> Path:
    """Return the path of a reference's file; `home` replaces `~`. Relative if `home` is unknown."""
    return Path(home) / place[2:] if place.startswith("~/") else Path(place)


def read_file(place: str, home: str) -> Secret | str:
    """Read the secret from a file. On failure, return the problem and its fix. `home` replaces `~`."""
    path = path_of(place, home)
    if not path.is_absolute():
        return f"the home folder for {place} is unknown; use an absolute path"
    data = _bytes(path)
    if isinstance(data, str):
        return data
    found = checked(data)
    if isinstance(found, str):
        return f"the file {path} cannot be used: {found}; the file must contain only the secret"
    return found


def _bytes(path: Path) -> bytes | str:
    try:
        folder = Path(os.path.realpath(path.parent))
        problem = _open_to_others(folder)
        if problem:
            return problem
        # Do not follow a link, and do not block on a pipe.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(folder / path.name, flags)
    except OSError as error:
        if (path.parent / path.name).is_symlink():
            return f"{path} is a symbolic link, which is not followed; name its target"
        return f"the file {path} cannot be read: {error.strerror}; create it: install -m 600 /dev/null {path}"
    try:
        status = os.fstat(descriptor)
        problem = _file_problem(path, status)
        return problem or os.read(descriptor, BYTES_MAX + 3)
    except OSError as error:
        return f"the file {path} cannot be read: {error.strerror}"
    finally:
        os.close(descriptor)


def _file_problem(path: Path, status: os.stat_result) -> str:
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is not a regular file; name a file that contains only the secret"
    if status.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to another user, who could change it; copy it: install -m 600 {path} FILE-OF-YOURS"
    if status.st_mode & 0o077:
        return f"others on this machine can read {path}; type: chmod 600 {path}"
    return ""


def _open_to_others(folder: Path) -> str:
    """Return the reason why another user could replace a file in the folder; empty if none could."""
    for each in (folder, *folder.parents):
        status = each.stat()
        ours = status.st_uid in (os.geteuid(), 0)
        sticky = status.st_mode & stat.S_ISVTX  # only the owner of a file may move it
        if not ours or (status.st_mode & 0o022 and not sticky):
            return f"the folder {each} belongs to another user or is writable by others; type: chmod go-w {each}"
    return ""


TIMEOUT_S = 20.0
"""Time limit of a command, in seconds; long, since the user may have to touch a security key."""

VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
    "GNUPGHOME",
    "GPG_TTY",
    "SSH_AUTH_SOCK",
    "PASSWORD_STORE_DIR",
)
"""Environment variables passed to secret managers. Others are passed only if the source names them."""


@dataclass(frozen=True)
class Printed:
    """Output of a command, or its `problem`. No message contains the output."""

    data: bytes = b""
    status: int = 0
    problem: str = ""

    def __repr__(self) -> str:
        return f"Printed(status={self.status}, problem={self.problem!r})"


def run(
    words: Sequence[str],
    variables: Mapping[str, str],
    clock: Clock,
    *,
    most: int,
    given: bytes = b"",
    timeout_s: float = TIMEOUT_S,
) -> Printed:
    """Run a command and return its output, at most `most` bytes. `given` is its standard input. Blocks."""
    program = shutil.which(words[0], path=variables.get("PATH", os.defpath))
    if program is None:
        return Printed(problem=f"program {words[0]} not found in PATH")
    try:
        process = subprocess.Popen(
            [program, *words[1:]],
            stdin=subprocess.PIPE if given else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(variables),
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        return Printed(problem=f"{program} cannot be started: {error.strerror}")
    try:
        return _read(process, clock, most, given, clock.monotonic_s() + timeout_s, timeout_s)
    finally:
        _end(process)


def _read(
    process: subprocess.Popen[bytes], clock: Clock, most: int, given: bytes, until_s: float, timeout_s: float
) -> Printed:
    late = Printed(problem=f"it took longer than {timeout_s:.0f} s")
    if process.stdin is not None:
        try:
            process.stdin.write(given)  # fits into the pipe's buffer
            process.stdin.close()
        except OSError:
            return Printed(problem="it did not read its input")
    assert process.stdout is not None
    taken = b""
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not ready.select(max(0.0, until_s - clock.monotonic_s())):
                return late
            piece = os.read(process.stdout.fileno(), 65_536)
            if not piece:
                break
            taken += piece
            if len(taken) > most:
                return Printed(problem=f"it printed more than {most} bytes")
    try:
        status = process.wait(max(0.0, until_s - clock.monotonic_s()))
    except subprocess.TimeoutExpired:
        return late
    if status:
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return Printed(status=status, problem=f"it ended with {how}")
    return Printed(data=taken)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group, and close its pipes."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except OSError:
                pass
    process.wait()


FAILURES = {
    keyring_child.NOT_INSTALLED: "the package keyring is not installed; type: pip install 'holdfast[keyring]'",
    keyring_child.NO_KEYRING: "this machine has no keyring; name a file or a command instead",
    keyring_child.NOT_THERE: "the keyring has no such entry; type: holdfast secret set {name}",
    keyring_child.FAILED: "the keyring refused; is it locked? Unlock it, or name a file or a command instead",
}
"""Problems and fixes by exit status of the child process."""


def read_keyring(name: str, place: tuple[str, ...], variables: Mapping[str, str], clock: Clock) -> Secret | str:
    """Read the secret from the keyring. On failure, return the problem and its fix."""
    printed = _ask("get", place, variables, clock)
    if printed.problem:
        return _said(name, printed)
    found = checked(printed.data)
    return f"the entry of the keyring cannot be used: {found}" if isinstance(found, str) else found


def write_keyring(name: str, place: tuple[str, ...], value: Secret, variables: Mapping[str, str], clock: Clock) -> None:
    """Store the value in the keyring. Raises `SecretUnavailable`."""
    printed = _ask("set", place, variables, clock, value.reveal().encode())
    if printed.problem:
        raise SecretUnavailable(f"the secret {name!r} was not stored: {_said(name, printed)}")


def remove_keyring(name: str, place: tuple[str, ...], variables: Mapping[str, str], clock: Clock) -> bool:
    """Remove the entry; return False if there was none. Raises `SecretUnavailable`."""
    printed = _ask("remove", place, variables, clock)
    if printed.status == keyring_child.NOT_THERE:
        return False
    if printed.problem:
        raise SecretUnavailable(f"the secret {name!r} was not removed: {_said(name, printed)}")
    return True


def _ask(verb: str, place: tuple[str, ...], variables: Mapping[str, str], clock: Clock, given: bytes = b"") -> Printed:
    words = (sys.executable, "-P", "-m", "holdfast.vault.keyring_child", verb, *place)
    return run(words, variables, clock, most=BYTES_MAX + 2, given=given)


def _said(name: str, printed: Printed) -> str:
    return FAILURES.get(printed.status, f"the keyring did not answer: {printed.problem}").format(name=name)
