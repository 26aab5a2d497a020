"""Sizes as people write them: a number of bytes, or text such as `512M` and `8G`."""

from __future__ import annotations

import re
from typing import Any

_SIZE = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,3}))?\s?([KMGT])?(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

SIZE_MAX = 1 << 60
"""No size is larger."""


def size_bytes(value: Any) -> int:
    """A size in bytes; K, M, G and T are powers of 1024. Raises `ValueError` with a right example."""
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
    """A size for people, such as `8.0 GB`."""
    amount = float(size)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TB"
