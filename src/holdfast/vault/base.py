"""The door to secrets: a reference says where a value is; whoever holds one may read it, and nothing keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn, Protocol

_HIDDEN = "Secret(…)"


class Secret:
    """A value that does not show itself: not in `repr`, not in a format string, not copied, pickled or encoded.

    `reveal` is the only way to it; call it where the value is used and keep no name for it.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself."""
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
    """Finds the values of secrets by their names, anew each time: a value that was rotated counts at once."""

    def names(self) -> tuple[str, ...]:
        """The secrets that are known, in order."""
        ...

    def resolve(self, name: str) -> Secret:
        """The value now. Raises `SecretUnavailable`, whose message never has a value in it. May block."""
        ...

    def handover(self, names: Iterable[str]) -> bytes:
        """Encode references for another process of ours, which reads them with `vault.reference_vault.take_over`.

        It holds references, and of the environment those variables alone that they need. So it may hold values: give
        it through a pipe, never as an argument, in the environment or in a file. Raises `SecretUnavailable` for a
        name that is not known.
        """
        ...
