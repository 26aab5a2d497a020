"""The statements of `sql/*.sql`, by name."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "sql"
_MIGRATIONS = {1: "from_1.sql", 2: "from_2.sql", 3: "from_3.sql", 4: "from_4.sql"}
_MARK = "-- name: "


def schema() -> list[str]:
    """The statements that make the tables, in order."""
    return _split((_FOLDER / "schema.sql").read_text(encoding="utf-8"))


def migration(version: int) -> list[str]:
    """The statements that make tables of that version those of the next, in order."""
    return _split((_FOLDER / _MIGRATIONS[version]).read_text(encoding="utf-8"))


def queries() -> dict[str, str]:
    """Name → statement."""
    found: dict[str, str] = {}
    for part in (_FOLDER / "queries.sql").read_text(encoding="utf-8").split(_MARK)[1:]:
        name, _, rest = part.partition("\n")
        (found[name.strip()],) = _split(rest)
    return found


def _split(text: str) -> list[str]:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return [" ".join(statement.split()) for statement in "\n".join(lines).split(";") if statement.strip()]
