"""All settings with their values and sources, and edits of the user's own holdfast.toml that keep its comments."""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from holdfast.app.settings import egress_policy, policies
from holdfast.app.settings.config import (
    FAMILIES,
    NAMES,
    TABLES,
    Settings,
    find_project,
    load_settings,
    own_layers,
    parse_toml,
    read_toml,
    user_file,
    user_settings,
)
from holdfast.app.settings.project import TABLES as DEFAULTS
from holdfast.app.settings.tables import Key
from holdfast.app.settings.targets import read_targets
from holdfast.app.settings.values import nearest
from holdfast.errors import CannotRunSafely, UsageError
from holdfast.facts.session import EgressPolicy, People
from holdfast.session.money import PICO, Price

KEYS: Mapping[str, Mapping[str, Key]] = {
    "people": policies.PEOPLE,
    "context": policies.CONTEXT,
    "breakers": policies.BREAKERS,
    "hands": policies.HANDS,
    "environment": policies.ENVIRONMENT,
    "retention": policies.RETENTION,
    "egress": {**egress_policy.EGRESS, "proxy": Key(str)},
}
"""Table → its keys."""

_DEFAULTS = {**DEFAULTS, "people": People(), "retention": policies.Retention(), "egress": EgressPolicy()}


@dataclass(frozen=True)
class Setting:
    """A setting: its key (`table.key` in a table), its value, and its source: a file, variable, flag, or `default`."""

    key: str
    value: Any
    source: str


def settings_in_force(start: Path, flags: Mapping[str, Any]) -> list[Setting]:
    """Every setting with the value that counts in folder `start` with these flags. Raises `UsageError`."""
    settings = load_settings(start, flags)
    check(settings)
    project = find_project(start)
    layers = [(source, dict(_flat(values))) for source, values in own_layers(flags)]
    found, changed = [], dict(_flat(vars(settings)))
    for key, value in _defaults(settings):
        source = next((source for source, values in layers if key in values), "")
        if not source and project is not None and key in changed and changed[key] != getattr(Settings(), key, None):
            source = str(project.path)
        found.append(Setting(key, _plain(changed.get(key, value)), source or "default"))
    return found


def find_setting(found: list[Setting], key: str) -> Setting:
    """The setting of that key. Raises `UsageError` with the nearest one."""
    for each in found:
        if each.key == key:
            return each
    table = [each for each in found if each.key.startswith(f"{key}.")]
    if table:
        raise UsageError(f"{key} is a table; its keys are {', '.join(each.key for each in table)}")
    raise UsageError(f"unknown setting {key!r}; {nearest(key, [each.key for each in found], '`holdfast config show`')}")


def check(settings: Settings) -> None:
    """Read every table. Raises `UsageError` with the key of an invalid value."""
    policies.people(settings)
    policies.context(settings)
    policies.breakers(settings)
    policies.hands(settings)
    policies.retention(settings)
    policies.read_environment(settings.environment, "[environment]")
    egress_policy.egress(settings)
    egress_policy.secret_sources(settings)
    egress_policy.searchers(settings)
    read_targets(settings.notify)


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The settings as `key`, `table.key`, or `family.name.key`."""
    for name, value in values.items():
        if name in TABLES or name == "prices":
            yield from ((f"{name}.{key}", each) for key, each in value.items())
        elif name in FAMILIES:
            for table, entries in value.items():
                yield from ((f"{name}.{table}.{key}", each) for key, each in entries.items())
        elif name in NAMES:
            yield name, value


def _defaults(settings: Settings) -> Iterator[tuple[str, Any]]:
    """Every key with its default; those of the user's own tables as they are set."""
    for name in NAMES:
        if name in KEYS:
            for key, entry in KEYS[name].items():
                default = getattr(_DEFAULTS[name], entry.field or key, None)
                yield f"{name}.{key}", default / PICO if entry.field.endswith("_pico") and default else default
        else:
            yield from _flat({name: getattr(settings, name)})


def _plain(value: Any) -> Any:
    """The value as data for JSON."""
    if isinstance(value, Price):
        per_mtok = {name: pico * 1_000_000 / PICO for name, pico in msgspec.structs.asdict(value).items()}
        return {f"{name}_per_mtok": dollars for name, dollars in per_mtok.items()}
    return msgspec.to_builtins(value, str_keys=True)


# --- edits -----------------------------------------------------------------------------------------


def set_values(values: Mapping[str, str]) -> Path:
    """Set keys in the user's file, each to a value in TOML or to plain text; return its path.

    Comments, order, and all other keys stay. Raises `UsageError` for an unknown key or an invalid value; the file is
    then unchanged.
    """
    path = user_file()
    try:
        text = path.read_bytes().decode() if path.is_file() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the settings file {path} cannot be read: {error}") from error
    for key, value in values.items():
        text = _with_valid(path, text, key, value)
    _write(path.resolve(), text)
    return path


def current(key: str) -> Any:
    """The value of a simple key in the user's file; None if it is not set there."""
    path = user_file()
    return read_toml(path, "the settings file").get(key) if path.is_file() else None


def _with_valid(path: Path, text: str, key: str, value: str) -> str:
    """The text with the key set to the first reading of `value` that is valid: TOML, else text."""
    names = _path_of(key)
    first: UsageError | None = None
    for written in _readings(value):
        new = _with(path, text, names, written)
        try:
            check(replace(Settings(), **user_settings(tomllib.loads(new), path)))
        except UsageError as error:
            first = first or error
        else:
            return new
    raise UsageError(f"{first}; {path} is unchanged")


def _path_of(key: str) -> list[str]:
    """The parts of a dotted key. Raises `UsageError`."""
    try:
        return _names(tomllib.loads(f"{key} = 0"))
    except tomllib.TOMLDecodeError:
        raise UsageError(f"{key!r} is not a key; for example: holdfast config set model anthropic:NAME") from None


def _readings(value: str) -> list[str]:
    """The value as TOML. A number may also be meant as text."""
    quoted = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    try:
        read = tomllib.loads(f"value = {value}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return [quoted]
    if list(read) != ["value"] or "\n" in value:
        return [quoted]
    number = isinstance(read["value"], int | float) and not isinstance(read["value"], bool)
    return [value, quoted] if number else [value]


def _with(path: Path, text: str, names: list[str], written: str) -> str:
    """The text with one key set. The result is parsed, so that the edit can change nothing else."""
    before: Any = parse_toml(text.encode(), path, "the settings file")
    *table, leaf = names
    line = f"{_toml_key(leaf)} = {written}"
    statements = list(_statements(text))
    ours = next((index for index, each in enumerate(statements) if each[1] == names), None)
    same = [index for index, each in enumerate(statements) if each[1] is not None and each[2] == table]
    parts = [each[0] for each in statements]
    if ours is not None:
        end = re.search(r"\s*(#[^\"'\n]*)?$", parts[ours])
        comment = end[1] if end is not None and end[1] else ""
        parts[ours] = f"{line}  {comment}\n" if comment else f"{line}\n"
    elif same:
        parts[same[-1]] = parts[same[-1]].rstrip("\n") + f"\n{line}\n"
    elif not table:
        parts.insert(0, f"{line}\n\n" if parts else f"{line}\n")
    else:
        head = ".".join(map(_toml_key, table))
        parts.append(f"{chr(10) if text else ''}[{head}]\n{line}\n")
    new = "".join(part if part.endswith("\n") else f"{part}\n" for part in parts)
    holder = before
    for name in table:
        holder = holder.setdefault(name, {}) if isinstance(holder, dict) else {}
    if isinstance(holder, dict):
        holder[leaf] = tomllib.loads(f"value = {written}")["value"]
    with suppress(tomllib.TOMLDecodeError):
        if tomllib.loads(new) == before:
            return new
    raise UsageError(f"{'.'.join(names)} cannot be set in {path} as it is written; edit the file by hand")


def _statements(text: str) -> Iterator[tuple[str, list[str] | None, list[str]]]:
    """The statements of a file: text, full path of the key (None for a comment), and path of the table."""
    table: list[str] = []
    held = ""
    for line in text.splitlines(keepends=True):
        held += line
        try:
            names = _names(tomllib.loads(held))
        except tomllib.TOMLDecodeError:
            continue  # the statement goes on in the next line
        if held.lstrip().startswith("["):
            table, names = names, [*names, ""]  # the header itself: no key of its table has this name
            yield held, names, table
        else:
            yield held, [*table, *names] if names else None, table
        held = ""


def _names(value: Any) -> list[str]:
    """The names in a statement, from the outermost; those of a table in one line are part of its value."""
    names: list[str] = []
    while isinstance(value, dict) and len(value) == 1:
        ((name, value),) = value.items()
        names.append(name)
    return names


def _toml_key(name: str) -> str:
    bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if bare else json.dumps(name, ensure_ascii=False)


def _write(path: Path, text: str) -> None:
    """Replace the file atomically; a new one can be read by its owner alone."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".holdfast-", suffix=".toml")
        try:
            with open(handle, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if path.exists():
                os.chmod(name, path.stat().st_mode & 0o777)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise CannotRunSafely(f"{path} cannot be written ({error.strerror}); it is unchanged") from error
