"""Values of settings: counts, time spans, sizes, and suggestions for unknown keys."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from holdfast.errors import UsageError

COUNT_MAX = 10**12
"""Maximum cap on turns or tokens."""


def count(value: Any) -> int:
    """Parse a whole number of at least 1, from a number or text. Raises `ValueError` with a valid example."""
    try:
        number = int(value) if isinstance(value, int | str) and not isinstance(value, bool) else 0
    except ValueError:
        number = 0
    if not 1 <= number <= COUNT_MAX:
        raise ValueError(f"{value!r} is not a whole number from 1 to {COUNT_MAX}, such as 40")
    return number


def known_key(name: str, known: Collection[str], where: str) -> None:
    """Raise `UsageError` for an unknown key, naming the nearest known one."""
    if name not in known:
        raise UsageError(f"unknown key {name!r} in {where}; {nearest(name, known)}")


LISTED = 40
"""Most names that an error lists."""


def nearest(name: str, known: Collection[str], listed_by: str = "") -> str:
    """Suggest the nearest known name, or list them; of many only the first, with the command that lists all."""
    import difflib  # only a mistake needs it

    near = difflib.get_close_matches(name, known, 1)
    if near:
        return f"did you mean {near[0]!r}?"
    names = sorted(known)
    if len(names) <= LISTED:
        return f"there are {', '.join(names)}"
    return f"there are {len(names)}, such as {', '.join(names[:3])}{listed_by and f'; {listed_by} lists them'}"


_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

DURATION_MAX_S = 10 * 366 * 86_400  # longest valid time span


def duration_s(value: Any) -> float:
    """Parse a time span in seconds: a number, or text such as `90s`, `2h`, `3d`. Raises `ValueError`."""
    seconds: float = 0
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value  # compared before it becomes a float: a whole number may be too large for one
    elif isinstance(value, str):
        number, unit = (value[:-1], value[-1:]) if value[-1:] in _UNITS_S else (value, "s")
        if number.replace(".", "", 1).isdecimal() and number.isascii():
            seconds = float(number) * _UNITS_S[unit]
    if not 0 < seconds <= DURATION_MAX_S:
        raise ValueError(f"{value!r} is not a time span above 0 and up to ten years, such as 90s, 30m, 2h or 3d")
    return float(seconds)


_SIZE = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,3}))?\s?([KMGT])?(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

SIZE_MAX = 1 << 60
"""Maximum size."""


def size_bytes(value: Any) -> int:
    """Parse a size in bytes; K, M, G and T are powers of 1024. Raises `ValueError` with a valid example."""
    size = 0
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is not None:
            whole, part, unit = match.groups(default="")
            size = (int(whole + part) * _UNITS[unit.upper()]) // 10 ** len(part)
    if not 0 < size <= SIZE_MAX:
        raise ValueError(f"{value!r} is not a size, such as 512M or 8G")
    return size


def size_text(size: int) -> str:
    """Format a size, such as `8.0 GB`."""
    amount = float(size)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TB"


POSTGRES = ("postgresql", "postgres")
"""Schemes of addresses of a PostgreSQL database."""


def postgres_address(db: str) -> str:
    """The address of the PostgreSQL database given by `db`, empty for a log in a file. Raises `UsageError`."""
    if db.partition("://")[0] not in POSTGRES:
        return ""
    try:
        parts = urlsplit(db)
    except ValueError as error:
        raise UsageError(f"--db: the address of the database is invalid ({error}); nothing was started") from error
    if parts.password is not None or "password=" in parts.query:
        raise UsageError(
            "the address of the database has a password, which other users could read in the arguments of a process; "
            "nothing was started: leave it out, and put it into ~/.pgpass or PGPASSWORD"
        )
    return db
