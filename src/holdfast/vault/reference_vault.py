"""A vault of references: read each value from its source at each use; store and remove values."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.clock import Clock, SystemClock, rfc3339
from holdfast.errors import SecretUnavailable
from holdfast.vault.base import Secret, Vault
from holdfast.vault.sources import (
    BYTES_MAX,
    VARIABLES,
    Source,
    checked,
    path_of,
    read_file,
    read_keyring,
    remove_keyring,
    run,
    write_keyring,
)

KEPT_S = 60.0
"""Time that a value from a keyring or a command is cached, in seconds: they are slow, and may prompt the user."""


class _Handover(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sources: tuple[Source, ...]
    variables: dict[str, str]


class ReferenceVault:
    """Secrets by reference. `variables` is the environment; only variables that a source names are read.

    Files and variables are read at each use, keyrings and commands every `KEPT_S`. Not thread-safe.
    """

    def __init__(self, sources: Sequence[Source], variables: Mapping[str, str], clock: Clock) -> None:
        self._sources = {source.name: source for source in sources}
        self._variables = variables
        self._clock = clock
        self._kept: dict[str, tuple[float, Secret]] = {}

    def names(self) -> tuple[str, ...]:
        """See `Vault.names`."""
        return tuple(self._sources)

    def source(self, name: str) -> Source:
        """Return the source of a secret. Raises `SecretUnavailable` for an unknown name."""
        if name not in self._sources:
            known = ", ".join(self._sources) or "none"
            raise SecretUnavailable(
                f"unknown secret {name!r}; known secrets: {known}. "
                f"Add a table [secrets.{name}] to your own holdfast.toml"
            )
        return self._sources[name]

    def resolve(self, name: str) -> Secret:
        """See `Vault.resolve`. May block for as long as a command may take."""
        problem = self.expired(name)
        if problem:
            raise SecretUnavailable(problem)
        return self.current(name)

    def expired(self, name: str) -> str:
        """Return the reason and the fix if the secret has expired, else an empty string. Raises `SecretUnavailable`."""
        source = self.source(name)
        if source.expires_us is None or self._clock.now_us() < source.expires_us:
            return ""
        return (
            f"the secret {name!r} expired at {rfc3339(source.expires_us)} and was not used; put a new one where "
            f"{source.described()} says, then change expires in [secrets.{name}]"
        )

    def current(self, name: str) -> Secret:
        """Read the current value even if it has expired, since it must still be masked in responses.

        Raises `SecretUnavailable`. May block for as long as a command may take.
        """
        found = self._look(self.source(name))
        if isinstance(found, str):
            # Raise here, where no local variable holds the value.
            raise SecretUnavailable(f"the secret {name!r} is not available: {found}")
        return found

    def handover(self, names: Iterable[str]) -> bytes:
        """See `Vault.handover`."""
        sources = tuple(self.source(name) for name in names)
        needed: set[str] = set()
        for source in sources:
            needed.update(_needs(source))
        variables = {name: self._variables[name] for name in sorted(needed) if name in self._variables}
        return msgspec.json.encode(_Handover(sources, variables))

    def _look(self, source: Source) -> Secret | str:
        match source.kind:
            case "env":
                return self._of_environment(source.place[0])
            case "file":
                return read_file(source.place[0], self._variables.get("HOME", ""))
            case "given":
                return checked(source.place[0].encode())
        now_s = self._clock.monotonic_s()
        at_s, kept = self._kept.get(source.name, (0.0, None))
        if kept is not None and 0 <= now_s - at_s < KEPT_S:
            return kept
        self._kept.pop(source.name, None)
        found = self._ask(source)
        if isinstance(found, Secret):
            self._kept[source.name] = (now_s, found)
        return found

    def _of_environment(self, variable: str) -> Secret | str:
        if not self._variables.get(variable):
            return f"the environment variable {variable} is not set; set it where Holdfast starts, or use a file"
        found = checked(self._variables[variable].encode("utf-8", "replace"))
        return f"the environment variable {variable} cannot be used: {found}" if isinstance(found, str) else found

    def _ask(self, source: Source) -> Secret | str:
        names = _needs(source)
        variables = {name: self._variables[name] for name in names if name in self._variables}
        if source.kind == "keyring":
            return read_keyring(source.name, source.place, variables, self._clock)
        printed = run(source.place, variables, self._clock, most=BYTES_MAX + 2)
        problem = printed.problem or checked(printed.data)
        if isinstance(problem, str):
            return f"its command {source.place[0]} failed: {problem}. Run it yourself to see why"
        return problem


def _needs(source: Source) -> tuple[str, ...]:
    """Return the environment variables that a source needs."""
    if source.kind == "env":
        return (source.place[0],)
    if source.kind == "file":
        return ("HOME",) if source.place[0].startswith("~/") else ()
    if source.kind == "given":
        return ()
    return (*VARIABLES, *source.variables)


def outline(data: bytes) -> bytes:
    """Return a handover without values: names and sources only. Raises like `take_over`."""
    known = take_over(data, SystemClock())
    sources = (known.source(name) for name in known.names())
    shown = (one if one.kind != "given" else msgspec.structs.replace(one, place=("",)) for one in sources)
    return msgspec.json.encode(_Handover(tuple(shown), {}))


def look_up(vault: ReferenceVault, name: str) -> Secret | str:
    """Return the current value even if it has expired, or the problem in reading it. Raises `SecretUnavailable`."""
    return vault._look(vault.source(name))


def take_over(data: bytes, clock: Clock, before: Vault | None = None) -> ReferenceVault:
    """Make a vault from a handover. Raises `SecretUnavailable` for invalid data.

    `before` is the vault that it replaces. It supplies needed variables that the other process, such as one in another
    terminal, does not have.
    """
    found: _Handover | None
    try:
        found = msgspec.json.decode(data, type=_Handover)
    except (msgspec.DecodeError, msgspec.ValidationError):
        found = None
    if found is None:
        raise SecretUnavailable("the handover of secrets is invalid; nothing of it was used. Start again")
    needed = {name for source in found.sources for name in _needs(source)}
    kept = before._variables if isinstance(before, ReferenceVault) else {}
    variables = {name: kept[name] for name in needed if name in kept} | found.variables
    return ReferenceVault(found.sources, variables, clock)


def value_of(data: bytes) -> Secret:
    """Validate a value from the user or a program. Raises `SecretUnavailable`, whose message does not contain it."""
    found = checked(data)
    if isinstance(found, str):
        raise SecretUnavailable(f"nothing was stored: {found}")
    return found


def put(source: Source, value: Secret, variables: Mapping[str, str], clock: Clock) -> None:
    """Store a value at its source. Raises `SecretUnavailable` if that is impossible; then nothing has changed."""
    if source.kind == "keyring":
        write_keyring(source.name, source.place, value, _needed(variables), clock)
    elif source.kind == "file":
        _write(path_of(source.place[0], variables.get("HOME", "")), value)
    else:
        raise _elsewhere(source, "set")


def take_away(source: Source, variables: Mapping[str, str], clock: Clock) -> bool:
    """Remove a value; return False if there was none. Raises `SecretUnavailable`."""
    if source.kind == "keyring":
        return remove_keyring(source.name, source.place, _needed(variables), clock)
    if source.kind != "file":
        raise _elsewhere(source, "removed")
    path = path_of(source.place[0], variables.get("HOME", ""))
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise SecretUnavailable(f"{path} cannot be removed: {error.strerror}; the secret is still there") from None
    return True


def _needed(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: variables[name] for name in VARIABLES if name in variables}


def _elsewhere(source: Source, verb: str) -> SecretUnavailable:
    where = "an environment variable" if source.kind == "env" else "a command"
    return SecretUnavailable(
        f"the secret {source.name!r} comes from {where} ({source.described()}), and cannot be {verb} here; change it "
        f'there, or choose another source: from = "keyring:holdfast/{source.name}"'
    )


def _write(path: Path, value: Secret) -> None:
    """Write a file atomically, readable only by its owner."""
    whole = path.with_name(f".{path.name}.{os.getpid()}")
    problem = ""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        whole.unlink(missing_ok=True)
        descriptor = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(value.reveal().encode() + b"\n")
            file.flush()
            os.fsync(descriptor)
        whole.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            whole.unlink()
        problem = error.strerror or "it was refused"
    if problem:
        raise SecretUnavailable(f"{path} cannot be written: {problem}; nothing has changed")
