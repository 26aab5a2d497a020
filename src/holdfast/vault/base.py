"""The vault interface: code refers to secrets by name, reads values where it uses them, and stores them nowhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn, Protocol

_HIDDEN = "Secret(…)"


class Secret:
    """A value that is hidden in `repr` and format strings, and cannot be copied, pickled, or encoded.

    Call `reveal` where the value is used, and keep no reference to the result.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value."""
        return self._value

    def __repr__(self) -> str:
        return _HIDDEN

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return _HIDDEN

    def __bytes__(self) -> NoReturn:
        raise TypeError("a secret is not turned into bytes; reveal it where it is used")

    def __getstate__(self) -> NoReturn:
        raise TypeError("a secret is not pickled or copied")


class Vault(Protocol):
    """The values of secrets by name, read at each use, so that a rotated value applies at once."""

    def names(self) -> tuple[str, ...]:
        """Return the names of the known secrets, in order."""
        ...

    def resolve(self, name: str) -> Secret:
        """Read the current value. Raises `SecretUnavailable`, whose message never contains a value. May block."""
        ...

    def handover(self, names: Iterable[str]) -> bytes:
        """Encode references for another Holdfast process, which decodes them with `vault.reference_vault.take_over`.

        The result has the references and only the environment variables that they need. These may be values: pass it
        through a pipe, never in an argument, the environment, or a file. Raises `SecretUnavailable` for unknown names.
        """
        ...
