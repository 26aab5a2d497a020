"""The settings files of a project and the files that each of them names."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.app.settings.trust import SettingsFile, read_settings_file
from holdfast.errors import UsageError
from holdfast.facts.tool import SCRIPTS, SETTINGS

FILE = "holdfast.toml"
MISSION_FILE = "mission.toml"

_OF_FILES = ("scripted", "oracle")


def read_project(path: Path) -> SettingsFile:
    """A holdfast.toml with the prompts and the model file that it names. Raises `UsageError`."""
    return _read(path, lambda data: _names_of_project(path.parent, data))


def read_mission(path: Path) -> SettingsFile | None:
    """A mission.toml with the contract and model files that it names, and the repository's hooks; None without both.

    Hooks of a repository without a mission.toml belong to an empty one. Raises `UsageError`.
    """
    if not any(os.path.lexists(path.parent / name) for name in (path.name, *SETTINGS)):
        return None
    file = _read(path, lambda data: _names_of_mission(path.parent, data))
    return file if file.data or file.problem or has_hooks(file.named) else None


def _read(path: Path, names: Callable[[bytes], Iterator[str]]) -> SettingsFile:
    try:
        return read_settings_file(path, names)
    except OSError as error:
        raise UsageError(f"the settings file {path} cannot be read: {error.strerror}") from error


def has_hooks(files: Mapping[str, bytes]) -> bool:
    """Whether the settings of hooks among these files name any hook. What cannot be read might."""
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
        return {}  # its reader says what is wrong with it


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
