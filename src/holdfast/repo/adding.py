"""Objects on their way into a pack: each once, and none that the store has."""

from __future__ import annotations

from holdfast.repo.git import Library
from holdfast.repo.objects import CHUNK, Pack, object_id

HELD = 8 * CHUNK
"""Bytes of small objects that wait, so that the store is asked about many at once."""


class Adding:
    """Fills `pack` with what `library` does not have."""

    def __init__(self, pack: Pack, library: Library) -> None:
        self._pack = pack
        self._library = library
        self._waiting: dict[bytes, tuple[str, bytes]] = {}
        self._waiting_bytes = 0
        self._packed: set[bytes] = set()

    def offer(self, kind: str, data: bytes) -> bytes:
        """Put an object in unless it is there; decided for many at once. Returns its name."""
        name = object_id(kind, data)
        if name not in self._waiting and name not in self._packed:
            self._waiting[name] = (kind, data)
            self._waiting_bytes += len(data)
            if self._waiting_bytes > HELD:
                self.flush()
        return name

    def settle(self, blob: bytes, start: int) -> bytes:
        """An object was written to the pack at `start`; it is taken back when it is there already."""
        if blob in self._packed or not self._library.missing([blob]):
            self._pack.take_back(start)
        self._packed.add(blob)
        return blob

    def flush(self) -> None:
        """Decide about all that wait."""
        absent = self._library.missing(list(self._waiting)) if self._waiting else set()
        for name, (kind, data) in self._waiting.items():
            if name in absent:
                self._pack.add(kind, data)
        self._packed |= self._waiting.keys()
        self._waiting.clear()
        self._waiting_bytes = 0
