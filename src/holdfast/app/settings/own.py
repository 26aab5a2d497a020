"""What counts only in the user's own holdfast.toml: a repository may be anybody's, and its agent may write to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.app.settings.sizes import size_bytes
from holdfast.errors import UsageError
from holdfast.facts.session import HandsPolicy
from holdfast.model.names import is_loopback

TABLES = {
    # Whoever is sent a question can see it, and may answer it; and a table names files to read.
    "notify": "a repository must not say where your approvals go or which of your files to read",
    "prices": "what is free by a repository's word would pass every budget",
    "people": "a repository must not say who may approve what its agent does",
    "egress": "a repository must not say whom its agent may talk to",
    "secrets": "a repository must not say which secrets of yours are used, nor where",
    "search": "a repository must not say who is told what its agent looks for",
    "home": "a repository must not say where the log of its agent is kept, which its agent could then write",
    "db": "a repository must not say where the log of its agent is kept, which its agent could then write",
    "user": "a repository must not say with whose rights its agent works",
}
"""A table or key that a repository cannot have → why."""

_KINDS = {"prices": "the table", "people": "the table", "egress": "the table", "home": "", "db": "", "user": ""}

ENVIRONMENT = {
    "hosts": "a repository must not say whom its set-up may talk to, beside the package registries",
    "dotenv": "a repository must not say which secrets of yours are used",
    "toolchains": "a repository must not say which of your folders its agent may read",
}
"""The same for keys of `[environment]`."""

_DEFAULTS = HandsPolicy()
_LIMITS: dict[str, tuple[Callable[[Any], float], float | None]] = {
    "memory_bytes": (size_bytes, _DEFAULTS.memory_bytes),
    "processes": (float, _DEFAULTS.processes),
    "cpus": (float, _DEFAULTS.cpus),
    "disk_bytes": (size_bytes, _DEFAULTS.disk_bytes),
}


def check_repository(path: Path, data: Mapping[str, Any], mine: Path) -> None:
    """Raise `UsageError` for what the file of a repository may not set; `mine` is where it would count."""
    for table, why in TABLES.items():
        if table in data:
            what = f"{_KINDS.get(table, 'tables named')} {table}".strip()
            raise UsageError(f"{path} has {what}, which counts only in your own {mine}: {why}; move it, or delete it")
    for key, why in ENVIRONMENT.items():
        if key in _table(data, "environment"):
            raise UsageError(
                f"{path} sets {key} in [environment], and that counts only in your own {mine}: {why}; move it there, "
                "or delete it"
            )
    for key, value in _table(data, "hands").items():
        if _is_weaker(key, value):
            raise UsageError(
                f"{path} sets {key} in [hands] to {value!r}, and a repository can only make the limits of hands "
                f"tighter than they are; put it into your own {mine}, or delete it"
            )
    model = data.get("model")
    _, at, address = model.partition("@http") if isinstance(model, str) else ("", "", "")
    if at and not is_loopback(f"http{address}"):
        raise UsageError(
            f"{path} names a model at another machine ({model}), which would be sent your key and your files; if you "
            f"trust it, give it with --model, or move it to your own {mine}"
        )


def _table(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def _is_weaker(key: str, value: Any) -> bool:
    """Whether hands would be held less, or cost more, by it. What is no limit at all is left to its reader."""
    if key in ("require_hard", *_LIMITS) and value != "none":
        if key == "require_hard":
            return False
        read, default = _LIMITS[key]
        try:
            return default is not None and read(value) > default
        except (ValueError, TypeError):
            return False  # its reader says what is wrong with it
    if key in _LIMITS:
        return _LIMITS[key][1] is not None
    return key in HandsPolicy.__struct_fields__
