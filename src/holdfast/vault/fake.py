"""A vault in memory, for tests and the simulator: its values are given to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from holdfast.clock import Clock
from holdfast.vault.base import Secret
from holdfast.vault.reference_vault import ReferenceVault
from holdfast.vault.sources import Source


class FakeVault:
    """Holds what it is told. `rotate` changes a value, `drop` forgets one, `expire` says from when one is too old."""

    def __init__(self, values: Mapping[str, str], clock: Clock) -> None:
        self._clock = clock
        self._sources = {name: Source(name, "given", (value,)) for name, value in values.items()}

    def rotate(self, name: str, value: str) -> None:
        """From now on it is another value."""
        self._sources[name] = msgspec.structs.replace(self._sources[name], place=(value,))

    def drop(self, name: str) -> None:
        """It is no longer known."""
        del self._sources[name]

    def expire(self, name: str, at_us: int) -> None:
        """It counts until then."""
        self._sources[name] = msgspec.structs.replace(self._sources[name], expires_us=at_us)

    def names(self) -> tuple[str, ...]:
        """The secrets that are known, in order."""
        return self._vault().names()

    def resolve(self, name: str) -> Secret:
        """The value now."""
        return self._vault().resolve(name)

    def handover(self, names: Iterable[str]) -> bytes:
        """All values that are asked for, for another process."""
        return self._vault().handover(names)

    def _vault(self) -> ReferenceVault:
        return ReferenceVault(tuple(self._sources.values()), {}, self._clock)
