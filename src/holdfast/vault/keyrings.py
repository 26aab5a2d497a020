"""Secrets in the keyring of the operating system, which the extra `keyring` reaches, in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from holdfast.clock import Clock
from holdfast.errors import SecretUnavailable
from holdfast.vault import keyring_child
from holdfast.vault.base import Secret
from holdfast.vault.commands import Printed, run
from holdfast.vault.values import BYTES_MAX, checked

FAILURES = {
    keyring_child.NOT_INSTALLED: "the package keyring is not installed; type: pip install 'holdfast[keyring]'",
    keyring_child.NO_KEYRING: "this machine has no keyring; name a file or a command instead",
    keyring_child.NOT_THERE: "the keyring has no such entry; type: holdfast secret set {name}",
    keyring_child.FAILED: "the keyring refused; is it locked? Unlock it, or name a file or a command instead",
}
"""What the exit status of the process that asks means, and what to type."""


def read_keyring(name: str, place: tuple[str, ...], variables: Mapping[str, str], clock: Clock) -> Secret | str:
    """The secret in the keyring, or why there is none and what to type."""
    printed = _ask("get", place, variables, clock)
    if printed.problem:
        return _said(name, printed)
    found = checked(printed.data)
    return f"the entry of the keyring cannot be used: {found}" if isinstance(found, str) else found


def write_keyring(name: str, place: tuple[str, ...], value: Secret, variables: Mapping[str, str], clock: Clock) -> None:
    """Put the value there. Raises `SecretUnavailable`."""
    printed = _ask("set", place, variables, clock, value.reveal().encode())
    if printed.problem:
        raise SecretUnavailable(f"the secret {name!r} was not kept: {_said(name, printed)}")


def remove_keyring(name: str, place: tuple[str, ...], variables: Mapping[str, str], clock: Clock) -> bool:
    """Take the entry away; whether there was one. Raises `SecretUnavailable`."""
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
