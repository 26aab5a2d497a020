"""Settings: `holdfast.toml` of the repository, then the user's, then `HOLDFAST_*`, then flags; the later wins."""

from __future__ import annotations

import difflib
import getpass
import os
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from holdfast.app.own import check_repository
from holdfast.errors import CannotRunSafely, UsageError
from holdfast.facts.session import Agent, Limits
from holdfast.model.prices import parse_prices
from holdfast.session.money import Price, pico_from_usd
from holdfast.session.tools import CHOOSABLE, DEFAULT_TOOLS


@dataclass(frozen=True)
class Settings:
    """What can be set. `budget_usd` is text so that no cent is lost on the way.

    Tables are checked and read elsewhere: `notify` by targets.py, `people`, `context` and `breakers` by policies.py,
    `hands` and `environment` by hands_policy.py, `egress` and `search` by egress_policy.py, `secrets` by secrets.py.
    `prices` maps models to what their tokens cost. What only the user's own file may have is in own.py.
    """

    home: str = ""
    db: str = ""
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


_NAMES = {each.name: each.type for each in fields(Settings)}

_TABLES = ("people", "context", "breakers", "hands", "environment", "egress")
"""Settings that are a table each; a later file changes only the keys that it has."""

_FAMILIES = ("notify", "secrets", "search")
"""Settings that are tables of names that people choose."""


def load_settings(start: Path, flags: Mapping[str, Any]) -> Settings:
    """The settings that hold in folder `start` with these flags; a flag that is None was not given."""
    settings = Settings()
    mine = _user_file()
    for path in (_repository_file(start), mine):
        if path is not None and path.is_file():
            found = _from_file(path, own=path.resolve() == mine.resolve())
            merged = {name: {**getattr(settings, name), **found[name]} for name in _TABLES if name in found}
            settings = replace(settings, **{**found, **merged})
    settings = replace(settings, **_from_environment())
    words = _NAMES.keys() - {"prices", *_TABLES, *_FAMILIES}
    given = {name: value for name, value in flags.items() if name in words and value is not None}
    settings = replace(settings, **given)
    if settings.prompts:
        settings = replace(settings, prompts=str((start / Path(settings.prompts).expanduser()).absolute()))
    return settings if settings.home else replace(settings, home=str(default_home()))


def default_home() -> Path:
    """The user's data directory; `/var/lib/holdfast` for root, since hands under another uid must reach in."""
    if os.geteuid() == 0:
        return Path("/var/lib/holdfast")
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    if not os.path.isabs(data):
        raise CannotRunSafely(
            f"nobody knows where the data of this user belongs ({data} is no absolute path); "
            "name a folder with --home DIR or HOLDFAST_HOME"
        )
    return Path(data) / "holdfast"


def database_path(settings: Settings) -> Path:
    """The SQLite file that `db` or the home names."""
    if not settings.db:
        return Path(settings.home).absolute() / "holdfast.db"
    scheme, _, rest = settings.db.partition("://")
    if scheme in ("postgresql", "postgres"):
        raise CannotRunSafely("this version keeps its log in SQLite only; use --db sqlite:///PATH, or leave --db out")
    if scheme != "sqlite" or not rest.startswith("/") or rest == "/":
        raise UsageError(f"--db {settings.db!r} is not a database URL; an example is --db sqlite:////var/lib/agents.db")
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
        raise UsageError(f"--budget: {error}; an example is --budget 2.50") from error
    if pico <= 0:
        raise UsageError(f"--budget {text} leaves nothing to spend; give an amount above 0, such as --budget 2.50")
    return pico


def environment() -> Mapping[str, str]:
    """The environment, for what a file names as `env:NAME`."""
    return os.environ


def terminal_wishes() -> tuple[str, bool]:
    """What `TERM` says the terminal is, and whether colors are welcome on it (`NO_COLOR` is not set)."""
    return os.environ.get("TERM", ""), not os.environ.get("NO_COLOR")


def _repository_file(start: Path) -> Path | None:
    for folder in (start, *start.parents):
        if (folder / "holdfast.toml").is_file():
            return folder / "holdfast.toml"
        if (folder / ".git").exists():
            break
    return None


def _user_file() -> Path:
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(config) / "holdfast" / "holdfast.toml"


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """A TOML file, or a `UsageError` that says where it goes wrong."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{what} {path} is not TOML: {error}") from error


def _from_file(path: Path, *, own: bool) -> dict[str, Any]:
    data = read_toml(path, "the settings file")
    if not own:
        check_repository(path, data, _user_file())
    found = {name: _checked(name, value, str(path)) for name, value in data.items()}
    if "prompts" in found:
        found["prompts"] = _prompts_folder(path, found["prompts"], own=own)
    return found


def check_shared(path: Path, data: Mapping[str, Any]) -> None:
    """Raise `UsageError` for what a file of a repository may not set."""
    check_repository(path, data, _user_file())


def _prompts_folder(path: Path, value: str, *, own: bool) -> str:
    """The folder that a file names. One of a repository stays below it, so that its place tells who may write there."""
    folder = path.parent / Path(value).expanduser()
    if not own and not folder.resolve().is_relative_to(path.parent.resolve()):
        raise UsageError(
            f"prompts in {path} is {value!r}, which lies outside the folder of that file; name a folder below it, or "
            f"set it in your own {_user_file()}"
        )
    return str(folder.absolute())


def variables(names: Collection[str]) -> dict[str, str]:
    """Those of the named environment variables that are set and not empty."""
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def _from_environment() -> dict[str, Any]:
    found = {}
    for variable, value in os.environ.items():
        if variable.startswith("HOLDFAST_") and value:
            name = variable.removeprefix("HOLDFAST_").lower()
            found[name] = _checked(name, value, f"the environment variable {variable}")
    return found


def _checked(name: str, value: Any, where: str) -> Any:
    known_key(name, _NAMES, where)
    if name == "prices":
        return parse_prices(value, where)
    if name in _FAMILIES:
        return _tables(name, value, where)
    if name in _TABLES:
        return _table(name, value, where)
    if _NAMES[name] == "int":
        try:
            return count(value)
        except ValueError as error:
            raise UsageError(f"{name} in {where}: {error}") from error
    if not isinstance(value, str) and (name != "budget_usd" or isinstance(value, bool | list | dict)):
        raise UsageError(f'{name} in {where} is {value!r}; it has to be text, such as {name} = "…"')
    return str(value)


def _tables(name: str, value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(table, dict) for table in value.values()):
        raise UsageError(f"{name} in {where} has to be tables in a file, such as [{name}.NAME]")
    return value


def _table(name: str, value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{name} in {where} has to be a table in a file, such as [{name}]")
    return value


COUNT_MAX = 10**12
"""No cap on turns or tokens is larger."""


def count(value: Any) -> int:
    """A whole number from 1, as a number or as text. Raises `ValueError` with a right example."""
    try:
        number = int(value) if isinstance(value, int | str) and not isinstance(value, bool) else 0
    except ValueError:
        number = 0
    if not 1 <= number <= COUNT_MAX:
        raise ValueError(f"{value!r} is not a whole number from 1 to {COUNT_MAX}, such as 40")
    return number


def known_key(name: str, known: Collection[str], where: str) -> None:
    """Raise `UsageError` for a key that does not exist, naming the nearest that does."""
    if name not in known:
        raise UsageError(f"unknown key {name!r} in {where}; {nearest(name, known)}")


def nearest(name: str, known: Collection[str]) -> str:
    """What somebody may have meant by a name that does not exist."""
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"


THINKING = ("off", "low", "medium", "high")
"""How much a model may reason before it answers."""


def load_agent(path: str, model: str) -> Agent:
    """The agent of an `--agent` file. `model` overrides.

    Its keys are name, model, fallbacks, thinking, system or system_file, and tools.
    """
    if not path:
        return Agent(model=model, tools=DEFAULT_TOOLS)
    file = Path(path)
    data = read_toml(file, "the agent file")
    texts = dict.fromkeys(("name", "model", "system", "system_file", "thinking"), str)
    known: dict[str, type] = {**texts, "tools": list, "fallbacks": list}
    for name, value in data.items():
        known_key(name, known, str(file))
        if not isinstance(value, known[name]):
            raise UsageError(f"{name} in {file} has to be a {'list' if known[name] is list else 'text'}")
    tools = tuple(data.get("tools", DEFAULT_TOOLS))
    for tool in tools:
        if tool not in CHOOSABLE:
            raise UsageError(f"{file} has the tool {tool!r}, which does not exist; {nearest(str(tool), CHOOSABLE)}")
    system = data.get("system", "")
    if "system_file" in data:
        system = _read_text(file.parent / data["system_file"], f"the system prompt of {file},")
    thinking = data.get("thinking", "")
    if thinking not in ("", *THINKING):
        raise UsageError(f"thinking in {file} is {thinking!r}; it is one of {', '.join(THINKING)}, or left out")
    fallbacks = data.get("fallbacks", [])
    if not all(isinstance(each, str) and each for each in fallbacks):
        raise UsageError(f'fallbacks in {file} are names of models, such as fallbacks = ["anthropic:NAME"]')
    return Agent(
        model=model or data.get("model", ""),
        name=data.get("name", file.stem),
        system=system,
        tools=tools,
        fallbacks=tuple(fallbacks),
        thinking=thinking,
    )


def _read_text(path: Path, what: str, *, follow: bool = True) -> str:
    """The text of a file. Where a command may be at work at this moment, a link is not followed."""
    flags = os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        with open(path, encoding="utf-8", opener=lambda name, mode: os.open(name, mode | flags)) as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} {path} is not UTF-8 text (byte {error.start + 1})") from error


_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

DURATION_MAX_S = 10 * 366 * 86_400
"""No time span is longer."""


def duration_s(value: Any) -> float:
    """A time span in seconds: a number of them, or text such as `90s`, `2h`, `3d`. Raises `ValueError`."""
    seconds: float = 0
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str):
        number, unit = (value[:-1], value[-1:]) if value[-1:] in _UNITS_S else (value, "s")
        if number.replace(".", "", 1).isdecimal() and number.isascii():
            seconds = float(number) * _UNITS_S[unit]
    if not 0 < seconds <= DURATION_MAX_S:
        raise ValueError(f"{value!r} is not a time span above 0 and up to ten years, such as 90s, 30m, 2h or 3d")
    return seconds


RULE_FILES = ("AGENTS.md", "CLAUDE.md")


def pinned_rules(workspace: Path) -> str:
    """The text of the workspace's AGENTS.md, or CLAUDE.md when there is none; empty without both."""
    for name in RULE_FILES:
        file = workspace / name
        if file.is_file() and not file.is_symlink():
            return _read_text(file, "the project's rules", follow=False)
    return ""


def passed_on(names: Collection[str]) -> dict[str, str]:
    """Those variables of our own environment that are set, for a program of the user's own."""
    return {name: os.environ[name] for name in names if name in os.environ}


def actor() -> str:
    """Who is at the keyboard, as events name it."""
    try:
        return f"user:{getpass.getuser()}"
    except (KeyError, OSError):
        return f"user:{os.geteuid()}"
