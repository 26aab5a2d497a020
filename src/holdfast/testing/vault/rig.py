"""What a check needs of a vault and of the places where its secrets are."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Protocol

from holdfast.errors import SecretUnavailable
from holdfast.vault.base import Vault


class Rig(Protocol):
    """A fresh vault that knows one secret, `token`, and the means to change it where it is."""

    @property
    def vault(self) -> Vault:
        """The vault under test."""
        ...

    def put(self, value: str) -> None:
        """Have the secret's place hold this value."""
        ...

    def lose(self) -> None:
        """Take the value away from its place."""
        ...

    def expire(self) -> None:
        """Have the secret be one that expired."""
        ...


Check = Callable[[Rig], None]


def refused(attempt: Callable[[], object], *values: str) -> str:
    """`attempt` raises `SecretUnavailable`, and nothing about the error has any of the values; what it says."""
    caught: SecretUnavailable | None = None
    try:
        attempt()
    except SecretUnavailable as error:
        caught = error
    assert caught is not None, "SecretUnavailable was expected and nothing was raised"
    seen = [repr(caught), *traceback.format_exception(caught), *_locals_of(caught)]
    for value in values:
        assert not any(value in text for text in seen), "the value shows in the error, its causes or its frames"
    return str(caught)


def _locals_of(error: BaseException) -> list[str]:
    """What a report with local variables would print of the frames below this file's."""
    found: list[str] = []
    step: BaseException | None = error
    while step is not None:
        for frame, _ in traceback.walk_tb(step.__traceback__):
            if frame.f_globals.get("__name__", "").startswith("holdfast.vault"):
                found += [repr(value) for value in frame.f_locals.values()]
        step = step.__cause__ or step.__context__
    return found
