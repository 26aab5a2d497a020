"""A vault in memory, for tests and the simulator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from holdfast.clock import Clock
from holdfast.vault.base import Secret
from holdfast.vault.reference_vault import ReferenceVault
from holdfast.vault.sources import Source


class FakeVault:
    """A vault of given values. `rotate` changes a value, `drop` removes one, `expire` sets its expiry."""

    def __init__(self, values: Mapping[str, str], clock: Clock) -> None:
        self._clock = clock
        self._sources = {name: Source(name, "given", (value,)) for name, value in values.items()}

    def rotate(self, name: str, value: str) -> None:
        """Change the value."""
        self._sources[name] = msgspec.structs.replace(self._sources[name], place=(value,))

    def drop(self, name: str) -> None:
        """Remove the secret."""
        del self._sources[name]

    def expire(self, name: str, at_us: int) -> None:
        """Set the time after which the value is refused."""
        self._sources[name] = msgspec.structs.replace(self._sources[name], expires_us=at_us)

    def names(self) -> tuple[str, ...]:
        """See `Vault.names`."""
        return self._vault().names()

    def resolve(self, name: str) -> Secret:
        """See `Vault.resolve`."""
        return self._vault().resolve(name)

    def handover(self, names: Iterable[str]) -> bytes:
        """See `Vault.handover`."""
        return self._vault().handover(names)

    def _vault(self) -> ReferenceVault:
        return ReferenceVault(tuple(self._sources.values()), {}, self._clock)
