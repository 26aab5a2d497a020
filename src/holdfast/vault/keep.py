"""Putting a secret where its reference says that it is, and taking it away. Nothing here ever shows one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.clock import Clock
from holdfast.errors import SecretUnavailable
from holdfast.vault.base import Secret
from holdfast.vault.commands import VARIABLES
from holdfast.vault.files import path_of
from holdfast.vault.keyrings import remove_keyring, write_keyring
from holdfast.vault.sources import Source
from holdfast.vault.values import checked


def value_of(data: bytes) -> Secret:
    """The secret in what a person typed or a program wrote. Raises `SecretUnavailable` without a word of it."""
    found = checked(data)
    if isinstance(found, str):
        raise SecretUnavailable(f"nothing was kept: {found}")
    return found


def put(source: Source, value: Secret, variables: Mapping[str, str], clock: Clock) -> None:
    """Keep the value there. Raises `SecretUnavailable` where that cannot be, and nothing has changed then."""
    if source.kind == "keyring":
        write_keyring(source.name, source.place, value, _needed(variables), clock)
    elif source.kind == "file":
        _write(path_of(source.place[0], variables.get("HOME", "")), value)
    else:
        raise _elsewhere(source, "set")


def take_away(source: Source, variables: Mapping[str, str], clock: Clock) -> bool:
    """Remove the value; whether there was one. Raises `SecretUnavailable`."""
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
        f"the secret {source.name!r} comes from {where} ({source.described()}), and is not {verb} here; change it "
        f'where it is, or name a place of your own: from = "keyring:holdfast/{source.name}"'
    )


def _write(path: Path, value: Secret) -> None:
    """Whole or not at all, for nobody else to read."""
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
