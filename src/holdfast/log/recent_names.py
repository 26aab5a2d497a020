"""Recent names in a log file, for the shell's completion: no store is opened and nothing is written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

_QUERIES = {
    "ids": "select case key when '' then session_id else key end from sessions where session_id <> 'ses_home' "
    "order by created_us desc, session_id desc limit ?",
    "items": "select item_id from items where status = 'open' order by opened_us desc limit ?",
}

LIMIT = 200
"""Number of names."""


def recent_names(database: Path, kind: str) -> list[str]:
    """The names of the newest sessions (`ids`) or open inbox items (`items`); none if the log cannot be read."""
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=0.5)) as connection:
            return [str(name) for (name,) in connection.execute(_QUERIES[kind], (LIMIT,))]
    except (sqlite3.Error, OSError):
        return []
