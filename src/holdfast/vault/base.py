"""The door to secrets: a reference says where a value is; whoever holds one may read it, and nothing keeps it."""

from __future__ import annotations

from typing import Protocol


class Secret:
    """A value that does not show itself: not in `repr`, not in a format string, not pickled.

    `reveal` is the only way to it; call it where the value is used and keep no name for it.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")


class Vault(Protocol):
    """Finds the values of secrets by their names, anew each time: a value that was rotated counts at once."""

    def names(self) -> tuple[str, ...]:
        """The secrets that are known, in order."""
        ...

    def resolve(self, name: str) -> Secret:
        """The value now. Raises `SecretUnavailable`, whose message never has a value in it. May block."""
        ...
