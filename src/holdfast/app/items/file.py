"""`items.toml`: a run over a list in a file, with the options of `holdfast items run` as keys.

list = "reviews.jsonl"
each = "Which product does this review name? {text}"
key = "id"
schema = "answer.json"
workers = 8

The user names the file, so that it counts like the options themselves, which override it. Paths are relative to its
folder and stay below it: a file from elsewhere writes nowhere else. docs/items.md lists each key.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any, get_args

import msgspec

from holdfast.app.settings.config import check_shared, read_toml
from holdfast.app.settings.values import known_key
from holdfast.errors import UsageError
from holdfast.facts.items import ItemContext

PATHS = ("list", "schema", "out", "workspace")
"""Keys whose values are paths."""


class ItemsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of an items.toml; None for a key that it leaves out."""

    each: str | None = None
    list: str | None = None
    command: str | None = None
    key: str | None = None
    schema: str | None = None
    check: str | None = None
    workers: int | None = None
    batch: int | None = None
    context: str | None = None
    tries: int | None = None
    every: int | None = None
    max_quarantine: str | None = None
    audit: str | None = None
    judge: str | None = None
    reduce: str | None = None
    reduce_command: str | None = None
    out: str | None = None
    workspace: str | None = None
    model: str | None = None
    budget_usd: str | None = None


def read_items_file(path: Path) -> ItemsFile:
    """Read an items.toml. Raises `UsageError` with the invalid key."""
    values = read_toml(path, "the items file")
    check_shared(path, values)
    for name in values:
        known_key(name, ItemsFile.__struct_fields__, str(path))
    try:
        file = msgspec.convert(values, ItemsFile)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {str(error).replace('`$.', '`')}; nothing was started") from None
    for name in ("workers", "batch", "tries", "every"):
        number = getattr(file, name)
        if number is not None and number < 1:
            raise UsageError(f"{name} in {path} is {number}, and has to be 1 or more; nothing was started")
    if file.context not in (None, *get_args(ItemContext)):
        words = " or ".join(get_args(ItemContext))
        raise UsageError(f"context in {path} is {file.context!r}, and has to be {words}; nothing was started")
    changes: dict[str, Any] = {name: value for name in PATHS if (value := getattr(file, name))}
    for name, value in changes.items():
        if value.startswith(("/", "~")) or ".." in PurePosixPath(value).parts:
            raise UsageError(
                f"{name} in {path} is {value!r}, and has to be a path below its folder; nothing was started"
            )
        changes[name] = str(path.parent / value)
    return msgspec.structs.replace(file, **changes)
