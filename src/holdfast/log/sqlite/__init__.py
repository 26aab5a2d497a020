"""The log in one SQLite file: the default."""

from __future__ import annotations

from holdfast.log.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
