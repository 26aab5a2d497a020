"""Statements in the `.sql` files of this folder, and the database that runs them by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

_FOLDER = Path(__file__).parent
_MIGRATIONS = {1: "from_1.sql", 2: "from_2.sql", 3: "from_3.sql", 4: "from_4.sql", 5: "from_5.sql"}
_MARK = "-- name: "

SCHEMA_VERSION = 6
"""Version of the tables in `schema.sql`, the same in every database."""

Values = Mapping[str, object] | Sequence[object]


def schema(file: str = "schema.sql") -> list[str]:
    """Return the statements that create the tables, in order."""
    return _split((_FOLDER / file).read_text(encoding="utf-8"))


def migration(version: int) -> list[str]:
    """Return the statements that migrate tables of that version to the next one, in order."""
    return schema(_MIGRATIONS[version])


def queries(*files: str) -> dict[str, str]:
    """Name → statement. A later file replaces statements of an earlier one."""
    found: dict[str, str] = {}
    for file in files:
        for part in (_FOLDER / file).read_text(encoding="utf-8").split(_MARK)[1:]:
            name, _, rest = part.partition("\n")
            (found[name.strip()],) = _split(rest)
    return found


def _split(text: str) -> list[str]:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return [" ".join(statement.split()) for statement in "\n".join(lines).split(";") if statement.strip()]


class Rows(Protocol):
    """The rows that a statement returns."""

    def fetchone(self) -> Any:
        """Return the next row, None after the last one."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the remaining rows."""
        ...

    def close(self) -> object:
        """Drop the remaining rows."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """A connection that runs statements by name, in one transaction or outside of any."""

    def run(self, name: str, values: Values = (), conditions: str = "") -> Rows:
        """Run a statement. `conditions` is put in where it has `{conditions}`."""
        ...

    def change(self, name: str, values: Values) -> bool:
        """Run a statement that changes one row.

        If there is no such row, this returns False, or the transaction fails at its commit.
        """
        ...

    def insert_event(self, values: tuple[object, ...]) -> None:
        """Insert an event: the values of `insert_event`, by position."""
        ...
