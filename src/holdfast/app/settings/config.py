"""Settings: `holdfast.toml` of the project, then the user's, then `HOLDFAST_*`, then flags; the last one wins."""

from __future__ import annotations

import getpass
import os
import pwd
import tomllib
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from holdfast.app.settings.project import (
    FILE,
    MISSION_FILE,
    Change,
    changes,
    check_repository,
    flat,
    hooks_of,
    keep,
    project_model,
    prompts_of,
    read_mission,
    read_project,
)
from holdfast.app.settings.trust import Ignored, SettingsFile, TrustStore, read_beneath
from holdfast.app.settings.values import count, known_key, postgres_address
from holdfast.errors import CannotRunSafely, UsageError
from holdfast.facts.session import Limits
from holdfast.model.prices import parse_prices
from holdfast.service.posting import Caller
from holdfast.session.money import Price, pico_from_usd


@dataclass(frozen=True)
class Settings:
    """All settings. `budget_usd` is text so that no cent is lost to rounding.

    Tables are checked and read elsewhere: `notify` by targets.py, `egress`, `search`, and `secrets` by
    egress_policy.py, the others by policies.py.
    `prices` maps models to the prices of their tokens. Keys reserved for the user's own file are listed in project.py.

    `ignored` are the keys of a project's files that do not count, since the user has not accepted them. `project` is
    the folder whose file was accepted, and `prompt_files` are the prompts that it names, as they were accepted.
    """

    home: str = ""
    db: str = ""
    objects: str = ""
    model: str = ""
    budget_usd: str = ""
    max_turns: int = Limits().max_turns
    context_tokens: int = Limits().context_tokens
    max_output_tokens: int = Limits().max_output_tokens
    user: str = ""
    prompts: str = ""
    notify: dict[str, Any] = field(default_factory=dict)
    prices: dict[str, Price] = field(default_factory=dict)
    people: dict[str, Any] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)
    breakers: dict[str, Any] = field(default_factory=dict)
    hands: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    egress: dict[str, Any] = field(default_factory=dict)
    secrets: dict[str, Any] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=dict)
    retention: dict[str, Any] = field(default_factory=dict)
    ignored: tuple[Ignored, ...] = ()
    project: str = ""
    prompt_files: Mapping[str, bytes] | None = None


FOUND = ("ignored", "project", "prompt_files")
"""Fields that neither files nor flags can set."""

NAMES = {each.name: each.type for each in fields(Settings) if each.name not in FOUND}
"""Settings that files can set, with their types."""

TABLES = ("people", "context", "breakers", "hands", "environment", "egress", "retention")
"""Settings that are a table each; a later file changes only the keys that it sets."""

FAMILIES = ("notify", "secrets", "search")
"""Settings that are tables of user-chosen names."""


def load_settings(start: Path, flags: Mapping[str, Any]) -> Settings:
    """Load the settings for folder `start` with these flags; a flag that is None was not given.

    Of a project's file only harmless keys count until the user has accepted it (docs/trust.md).
    """
    stronger = _stronger(flags)
    settings = _merged(Settings(), *stronger)
    file = find_project(start)
    if file is not None:
        settings = _with_project(file, settings, stronger)
    if settings.prompts:
        settings = replace(settings, prompts=str((start / Path(settings.prompts).expanduser()).absolute()))
    return settings if settings.home else replace(settings, home=str(default_home()))


def project_changes(file: SettingsFile, flags: Mapping[str, Any]) -> list[Change]:
    """The changes that a project's holdfast.toml would make. Raises `UsageError`."""
    stronger = _stronger(flags)
    return changes(project_values(file), vars(_merged(Settings(), *stronger)), _set_by(stronger))


def _stronger(flags: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Settings of the user: own file, environment, and flags."""
    path = user_file()
    mine = user_settings(read_toml(path, "the settings file"), path) if path.is_file() else {}
    words = NAMES.keys() - {"prices", *TABLES, *FAMILIES}
    given = {name: value for name, value in flags.items() if name in words and value is not None}
    return mine, _from_environment(), given


def own_layers(flags: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The settings of the user by source, strongest first: a flag, a variable, or the path of the own file."""
    mine, named, given = _stronger(flags)
    found = [(f"--{name}", {name: value}) for name, value in given.items()]
    found += [(f"HOLDFAST_{name.upper()}", {name: value}) for name, value in named.items()]
    return [*found, (str(user_file()), mine)]


def _set_by(layers: tuple[Mapping[str, Any], ...]) -> frozenset[str]:
    return frozenset(key for layer in layers for key, _ in flat(layer))


def _merged(settings: Settings, *layers: Mapping[str, Any]) -> Settings:
    """Merge these settings over each other; of a table, a later layer changes only the keys that it sets."""
    for found in layers:
        merged = {name: {**getattr(settings, name), **found[name]} for name in TABLES if name in found}
        settings = replace(settings, **{**found, **merged})
    return settings


def _with_project(file: SettingsFile, settings: Settings, stronger: tuple[Mapping[str, Any], ...]) -> Settings:
    """Add the project file's settings that count below the given ones."""
    values = project_values(file)
    accepted = trust_store().accepts(file)
    user_set = _set_by(stronger)
    found = changes(values, vars(settings), user_set)
    refused = () if accepted else tuple(each.key for each in found if (each.danger or file.problem))
    refused = tuple(key for key in refused if key not in user_set)
    counts = frozenset(key for key, _ in flat(values)) - {*refused}
    if file.problem:
        counts = frozenset()
    settings = _merged(Settings(), keep(values, counts), *stronger)
    if refused or file.problem:
        settings = replace(settings, ignored=(Ignored(str(file.path), refused, file.problem),))
    if accepted:
        settings = replace(settings, project=str(file.path.parent))
    if accepted and "prompts" in values and "prompts" not in user_set:
        settings = replace(settings, prompt_files={Path(name).name: data for name, data in prompts_of(file)})
    return settings


def project_values(file: SettingsFile) -> dict[str, Any]:
    """The checked values of a project's holdfast.toml. Raises `UsageError` unless the file is ignored anyway."""
    try:
        values = parse_toml(file.data, file.path, "the settings file")
        check_repository(file.path, values, user_file())
        found = {name: _checked(name, value, str(file.path)) for name, value in values.items()}
        if "prompts" in found:
            found["prompts"] = _prompts_folder(file.path, found["prompts"])
    except UsageError:
        if file.problem:
            return {}
        raise
    if "model" in found:
        found["model"] = project_model(file.path.parent, found["model"])
    return found


def trust_store() -> TrustStore:
    """The trust store in the user's configuration folder."""
    return TrustStore(config_folder())


def default_home() -> Path:
    """The user's data directory; `/var/lib/holdfast` for root, since hands under another uid must reach it."""
    if os.geteuid() == 0:
        return Path("/var/lib/holdfast")
    return _folder("XDG_DATA_HOME", ".local/share", "name a folder with --home DIR or HOLDFAST_HOME")


def home_directory() -> str:
    """The user's home directory: `HOME`, else that of the user database. Empty without an absolute path.

    A relative one would name a folder of the project, whose files must not count as the user's own.
    """
    home = os.environ.get("HOME", "")
    with suppress(KeyError):
        home = home if os.path.isabs(home) else pwd.getpwuid(os.geteuid()).pw_dir
    return home if os.path.isabs(home) else ""


def _folder(variable: str, below_home: str, otherwise: str) -> Path:
    """Holdfast's folder in the one that a variable names. Raises `CannotRunSafely` without an absolute path."""
    given = os.environ.get(variable) or os.path.join(home_directory(), below_home)
    if not os.path.isabs(given):
        raise CannotRunSafely(
            "there is no absolute path for the files of this user; nothing was started or changed: "
            f"set HOME or {variable} to an absolute path{otherwise and ', or '}{otherwise}"
        )
    return Path(given) / "holdfast"


def database_path(settings: Settings) -> Path:
    """The SQLite file given by `db` or the home. With PostgreSQL, the home's own: what lies beside it stays there."""
    if not settings.db or postgres_address(settings.db):
        return Path(settings.home).absolute() / "holdfast.db"
    scheme, _, rest = settings.db.partition("://")
    if scheme != "sqlite" or not rest.startswith("/") or rest == "/":
        raise UsageError(f"--db {settings.db!r} is not a database URL; for example: --db sqlite:////var/lib/agents.db")
    path = Path(rest[1:]).absolute()
    if not path.parent.is_dir():
        whole = Path(rest)
        hint = f"an absolute path has one slash more: --db sqlite:///{whole}" if whole.parent.is_dir() else ""
        raise UsageError(f"--db: the folder {path.parent} does not exist; {hint or f'make it: mkdir -p {path.parent}'}")
    return path


def budget_pico(text: str) -> int | None:
    """A money cap in pico-dollars, None for none. Raises `UsageError` unless it is above zero."""
    if not text:
        return None
    try:
        pico = pico_from_usd(str(text))
    except ValueError as error:
        raise UsageError(f"--budget: {error}; for example: --budget 2.50") from error
    if pico <= 0:
        raise UsageError(f"--budget {text} leaves nothing to spend; give an amount above 0, such as --budget 2.50")
    return pico


def environment() -> Mapping[str, str]:
    """The environment variables, for references such as `env:NAME` in a file."""
    return os.environ


def terminal_wishes() -> tuple[str, bool]:
    """The terminal type (`TERM`), and True if colors are allowed (`NO_COLOR` is not set)."""
    return os.environ.get("TERM", ""), not os.environ.get("NO_COLOR")


def has_desktop() -> bool:
    """True if a graphical session is there, where a browser can be opened."""
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def config_folder() -> Path:
    """The folder of the user's own settings."""
    given = os.environ.get("XDG_CONFIG_HOME")
    return Path(given) / "holdfast" if given else _folder("XDG_CONFIG_HOME", ".config", "")


def user_file() -> Path:
    """The user's own holdfast.toml."""
    return config_folder() / FILE


def find_project(start: Path) -> SettingsFile | None:
    """Find the holdfast.toml of the project that contains `start`, up to the repository root. Raises `UsageError`."""
    start = start.resolve()
    for folder in (start, *start.parents):
        path = folder / FILE
        if os.path.lexists(path):
            own = user_file()
            return None if own.is_file() and path.resolve() == own.resolve() else read_project(path)
        if os.path.lexists(folder / ".git"):
            break
    return None


def accepted_hooks(folder: Path) -> dict[str, bytes]:
    """The repository's hook settings and scripts, if the user accepted their current content; empty otherwise."""
    file = read_mission(folder.resolve() / MISSION_FILE)
    return hooks_of(file) if file is not None and trust_store().accepts(file) else {}


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file. Raises `UsageError` with the position of the error."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be read: {error.strerror}") from error
    return parse_toml(data, path, what)


def parse_toml(data: bytes, path: Path, what: str) -> dict[str, Any]:
    """Parse the bytes of a TOML file. Raises as `read_toml`."""
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{what} {path} is not TOML: {error}") from error


def user_settings(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The checked values of the user's own holdfast.toml at `path`. Raises `UsageError`."""
    found = {name: _checked(name, value, str(path)) for name, value in values.items()}
    if "prompts" in found:
        found["prompts"] = str((path.parent / Path(found["prompts"]).expanduser()).absolute())
    return found


def check_shared(path: Path, data: Mapping[str, Any]) -> None:
    """Raise `UsageError` for a key that a repository's file may not set."""
    check_repository(path, data, user_file())


def _prompts_folder(path: Path, value: str) -> str:
    """The prompts folder named by a project's file; it must be below the file's folder."""
    inside = os.path.normpath(Path(value).expanduser())
    if os.path.isabs(inside) or inside.split(os.sep)[0] == "..":
        raise UsageError(
            f"prompts in {path} is {value!r}, which lies outside the folder of that file; name a folder below it, or "
            f"set it in your own {user_file()}"
        )
    return str(path.parent / inside)


def variables(names: Collection[str]) -> dict[str, str]:
    """The named environment variables that are set and not empty."""
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def _from_environment() -> dict[str, Any]:
    found = {}
    for variable, value in os.environ.items():
        if variable.startswith("HOLDFAST_") and value:
            name = variable.removeprefix("HOLDFAST_").lower()
            found[name] = _checked(name, value, f"the environment variable {variable}")
    return found


def _checked(name: str, value: Any, where: str) -> Any:
    known_key(name, NAMES, where)
    if name == "prices":
        return parse_prices(value, where)
    if name in FAMILIES and not (isinstance(value, dict) and all(isinstance(each, dict) for each in value.values())):
        raise UsageError(f"{name} in {where} has to be tables in a file, such as [{name}.NAME]")
    if name in TABLES and not isinstance(value, dict):
        raise UsageError(f"{name} in {where} has to be a table in a file, such as [{name}]")
    if name in FAMILIES or name in TABLES:
        return value
    if NAMES[name] == "int":
        try:
            return count(value)
        except ValueError as error:
            raise UsageError(f"{name} in {where}: {error}") from error
    types = (str, int, float) if name == "budget_usd" else (str,)
    if not isinstance(value, types) or isinstance(value, bool) or "\0" in str(value):
        raise UsageError(f'{name} in {where} is {value!r}; it has to be text, such as {name} = "…"')
    return str(value)


RULE_FILES = ("AGENTS.md", "CLAUDE.md")


def pinned_rules(workspace: Path) -> str:
    """The text of the workspace's AGENTS.md, or else CLAUDE.md; empty without both. Links are not followed."""
    for name in RULE_FILES:
        file = workspace / name
        if file.is_file() and not file.is_symlink():
            return read_text(workspace, name, "the project's rules")
    return ""


def read_text(folder: Path, name: str, what: str) -> str:
    """The text of a file below a folder; links are not followed. Raises `UsageError`."""
    try:
        return read_beneath(folder, name).decode()
    except OSError as error:
        raise UsageError(f"{what} {folder / name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} {folder / name} is not UTF-8 text (byte {error.start + 1})") from error
    except ValueError as error:
        raise UsageError(f"{what} {name!r} cannot be read: {error}") from error


def passed_on(names: Collection[str]) -> dict[str, str]:
    """The named environment variables that are set, for a program chosen by the user."""
    return {name: os.environ[name] for name in names if name in os.environ}


def local_caller(via: str) -> Caller:
    """The user of this process as a caller. The kernel proves the user id, not the name."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.geteuid())
    return Caller(f"user:{name}", via, f"process_uid:{os.geteuid()}")
