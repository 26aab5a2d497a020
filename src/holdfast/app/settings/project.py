"""Settings files of a project: the files they name, and the keys that count before the user accepts them."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.app.settings.trust import SettingsFile, read_settings_file
from holdfast.app.settings.values import size_bytes
from holdfast.errors import UsageError
from holdfast.facts.mission import MissionPolicy
from holdfast.facts.session import Breakers, ContextPolicy, Environment, HandsPolicy, Limits
from holdfast.facts.tool import SCRIPTS, SETTINGS
from holdfast.model.names import is_loopback

OWN_TABLES = {
    # A user who is notified of an item sees it and may answer it, and the table names files to read.
    "notify": "a repository must not say where your approvals go or which of your files to read",
    "prices": "what is free by a repository's word would pass every budget",
    "people": "a repository must not say who may approve what its agent does",
    "egress": "a repository must not say whom its agent may talk to",
    "secrets": "a repository must not say which secrets of yours are used, nor where",
    "search": "a repository must not say who is told what its agent looks for",
    "retention": "a repository must not say which of your data is deleted",
    "home": "a repository must not say where the log of its agent is kept, which its agent could then write",
    "db": "a repository must not say where the log of its agent is kept, which its agent could then write",
    "objects": "a repository must not say where copies of your workspaces go",
    "user": "a repository must not say with whose rights its agent works",
}
"""A table or key that a repository cannot set → the reason."""

_KINDS = {
    "prices": "the table",
    "people": "the table",
    "egress": "the table",
    "retention": "the table",
    "home": "",
    "db": "",
    "objects": "",
    "user": "",
}

ENVIRONMENT = {
    "hosts": "a repository must not say whom its set-up may talk to, beside the package registries",
    "dotenv": "a repository must not say which secrets of yours are used",
    "toolchains": "a repository must not say which of your folders its agent may read",
}
"""A key of `[environment]` that a repository cannot set → the reason."""

_DEFAULTS = HandsPolicy()
_LIMITS: dict[str, tuple[Callable[[Any], float], float | None]] = {
    "memory_bytes": (size_bytes, _DEFAULTS.memory_bytes),
    "processes": (float, _DEFAULTS.processes),
    "cpus": (float, _DEFAULTS.cpus),
    "disk_bytes": (size_bytes, _DEFAULTS.disk_bytes),
}


def check_repository(path: Path, data: Mapping[str, Any], mine: Path) -> None:
    """Raise `UsageError` for keys that a repository's file may not set; `mine` is the file that may."""
    for table, why in OWN_TABLES.items():
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
    """True if the value weakens a sandbox limit or raises its cost. Invalid limits are reported by their reader."""
    if key in ("require_hard", *_LIMITS) and value != "none":
        if key == "require_hard":
            return False
        read, default = _LIMITS[key]
        try:
            return default is not None and read(value) > default
        except (ValueError, TypeError, ArithmeticError):
            return False  # its reader reports the error
    if key in _LIMITS:
        return _LIMITS[key][1] is not None
    return key in HandsPolicy.__struct_fields__


TABLES = {
    "breakers": Breakers(),
    "context": ContextPolicy(),
    "environment": Environment(),
    "hands": HandsPolicy(),
}
"""The tables that a project may have, with their defaults."""

BY_ROLE = ("models", "turns")
"""Tables of mission.toml with a key per role."""

SET_UP = ("auto", "setup", "packages", "services", "recipes", "submodules", "lfs")
"""The keys of `[environment]` that run or fetch something."""

ALWAYS = ("hands.require_hard", "goal", "name", "protected", "hidden")
"""Keys that count without trust at any value: they only add isolation or protection, or name the work."""


def _amount(value: Any) -> Decimal:
    try:
        return Decimal(str(value))
    except InvalidOperation as error:
        raise ValueError(str(error)) from error


LOWERED: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("max_turns", "context_tokens", "max_output_tokens"), int),
    **dict.fromkeys(("budget_usd", "task_budget_usd", "breakers.spend_per_hour_usd"), _amount),
    **dict.fromkeys((f"breakers.{name}" for name in ("tool_failures", "idle_turns", "provider_failures")), int),
    **dict.fromkeys(("hands.memory_bytes", "hands.disk_bytes"), size_bytes),
    **dict.fromkeys(("hands.processes", "hands.cpus"), float),
    **dict.fromkeys(("workers", "max_iterations", "max_attempts", "max_replans", "task_tokens"), int),
}
"""Caps that count without trust unless they exceed the effective ones, and how to parse each."""

DANGERS = {
    "model": "your API key and all that the agent reads go to this model and its address",
    "models": "your API key and all that these roles read go to these models and their addresses",
    "prompts": "the files of this folder are the orders that begin each model request",
    "environment": "runs in the sandbox before the work, and may send what it reads to package registries",
    "hooks": "commands of the repository run in the sandbox around each tool call of a run or a worker",
    "checks": "commands that run in the sandbox when a worker hands in its work",
    "edit_checks": "commands that run in the sandbox after each edit of a worker",
    "context": "changes what the model is shown, what that costs, and whether loops are noticed",
    "breakers": "the session goes on longer before it stops and asks",
    "unprotected": "workers may change files that are protected otherwise",
    "judge": "changes who judges the work",
    "follow": "takes in commits of this branch while the mission works",
    "contract": "says what is to be done, and the commands that check it",
}
"""A key or table → the danger that requires trust. Every other key raises a cap or changes how the work is done."""

_RAISED = "raises a cap"
_OTHER = "changes how the work is done"


class Change(NamedTuple):
    """A key of a project's settings file: its effective value without the file and with it; why it needs trust."""

    key: str
    old: Any
    new: Any
    danger: str


def flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The keys with their values; those of a table as `table.key`."""
    for name, value in values.items():
        if isinstance(value, dict) and (name in TABLES or name in BY_ROLE):
            yield from ((f"{name}.{key}", each) for key, each in value.items())
        else:
            yield name, value


def keep(values: Mapping[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    """The settings reduced to these flat keys."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and (name in TABLES or name in BY_ROLE):
            inner = {key: each for key, each in value.items() if f"{name}.{key}" in keys}
            found |= {name: inner} if inner else {}
        elif name in keys:
            found[name] = value
    return found


def changes(values: Mapping[str, Any], before: Mapping[str, Any], given: frozenset[str] = frozenset()) -> list[Change]:
    """The change that each key of a project's settings would make. `danger` is empty for one that counts without trust.

    `before` are the settings without the file, `given` the flat keys that the user set and the file cannot change.
    """
    found = []
    for key, new in flat(values):
        old = _before(key, before)
        if key in given:
            found.append(Change(key, old, old, ""))
        else:
            found.append(Change(key, old, new, _danger(key, new, old)))
    return found


def _before(key: str, before: Mapping[str, Any]) -> Any:
    table, _, name = key.rpartition(".")
    if not table:
        return before.get(key, getattr(MissionPolicy(), key, None))
    default = getattr(TABLES[table], name, None) if table in TABLES else None
    default = before.get("max_turns", Limits().max_turns) if table == "turns" else default
    return before.get(table, {}).get(name, default)


def _danger(key: str, new: Any, old: Any) -> str:
    table = key.partition(".")[0]
    if new == old or key in ALWAYS or (key == "hooks" and new is False) or _is_lowered(key, new, old):
        return ""
    return DANGERS.get(table) or (_RAISED if key in LOWERED or table == "turns" else _OTHER)


def _is_lowered(key: str, new: Any, old: Any) -> bool:
    read = LOWERED.get("max_turns" if key.startswith("turns.") else key)
    if read is None or isinstance(new, bool):
        return False
    try:
        lowest = read(new)
        return bool(old in (None, "", "none") or lowest <= read(old))
    except (ValueError, TypeError, ArithmeticError):
        return False


FILE = "holdfast.toml"
MISSION_FILE = "mission.toml"

_OF_FILES = ("scripted", "oracle")


def read_project(path: Path) -> SettingsFile:
    """Read a holdfast.toml with the prompts and the model file that it names. Raises `UsageError`."""
    return _read(path, lambda data: _names_of_project(path.parent, data))


def read_mission(path: Path) -> SettingsFile | None:
    """Read a mission.toml with its contract and model files, and the repository's hooks; None without both.

    Hooks of a repository without a mission.toml belong to an empty one. Raises `UsageError`.
    """
    if not any(os.path.lexists(path.parent / name) for name in (path.name, *SETTINGS)):
        return None
    file = _read(path, lambda data: _names_of_mission(path.parent, data))
    return file if file.data or file.problem or has_hooks(file.named) else None


def _read(path: Path, names: Callable[[bytes], Iterator[str]]) -> SettingsFile:
    try:
        # A name with a NUL is no file; the reader of its key reports it.
        return read_settings_file(path, lambda data: (name for name in names(data) if "\0" not in name))
    except OSError as error:
        raise UsageError(f"the settings file {path} cannot be read: {error.strerror}") from error


def has_hooks(files: Mapping[str, bytes]) -> bool:
    """True if the hook settings among these files name a hook, or cannot be read."""
    for name in SETTINGS:
        try:
            if name in files and json.loads(files[name]).get("hooks"):
                return True
        except (ValueError, AttributeError, RecursionError):
            return True
    return False


def hooks_of(file: SettingsFile | None) -> dict[str, bytes]:
    """The settings and scripts of hooks beside a mission.toml."""
    return {name: data for name, data in file.named.items() if name.startswith(".claude/")} if file else {}


def prompts_of(file: SettingsFile) -> Iterator[tuple[str, bytes]]:
    """The prompts among the files that a holdfast.toml names."""
    return ((name, data) for name, data in file.named.items() if name.endswith(".md"))


def project_model(folder: Path, model: str) -> str:
    """The model with the path of its file, if it is one, relative to the folder of the settings file."""
    provider, _, rest = model.partition(":")
    return f"{provider}:{folder / rest}" if provider in _OF_FILES and rest else model


def _values(data: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        return {}  # its reader reports the error


def _names_of_project(folder: Path, data: bytes) -> Iterator[str]:
    values = _values(data)
    if isinstance(prompts := values.get("prompts"), str):
        inside = os.path.normpath(Path(prompts).expanduser())
        if not os.path.isabs(inside) and not inside.startswith(".."):
            yield f"{inside}/*.md"
    yield from _model_files(folder, values)


def _names_of_mission(folder: Path, data: bytes) -> Iterator[str]:
    values = _values(data)
    if isinstance(contract := values.get("contract"), str):
        yield os.path.normpath(contract)
    yield from _model_files(folder, values)
    if values.get("hooks", True) is not False:
        yield from (name for name in SETTINGS if os.path.lexists(folder / name))
        if os.path.lexists(folder / SCRIPTS):
            yield f"{SCRIPTS}/*"


def _model_files(folder: Path, values: dict[str, Any]) -> Iterator[str]:
    models = values.get("models")
    for model in (values.get("model"), *(models.values() if isinstance(models, dict) else ())):
        provider, _, rest = model.partition(":") if isinstance(model, str) else ("", "", "")
        if provider in _OF_FILES and rest:
            yield os.path.relpath(folder / rest, folder)
