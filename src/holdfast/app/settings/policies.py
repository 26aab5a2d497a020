"""The tables [people], [context], [breakers], [hands], [environment], and [retention] of holdfast.toml, as policies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.app.settings.config import Settings
from holdfast.app.settings.project import SET_UP
from holdfast.app.settings.tables import (
    NAME,
    Key,
    at_least,
    destinations,
    is_text,
    money,
    one_of,
    or_none,
    person,
    persons,
    read_table,
    some_of,
    text,
    texts,
    yes_or_no,
)
from holdfast.app.settings.targets import TargetSettings, read_targets
from holdfast.app.settings.trust import require
from holdfast.app.settings.values import count, duration_s, known_key, nearest, size_bytes
from holdfast.environment.recipes import RECIPES
from holdfast.errors import UsageError
from holdfast.facts.session import Breakers, ContextPolicy, Environment, HandsPolicy, People, Service
from holdfast.notify.base import parse_quiet
from holdfast.vault.sources import variable_name

NEVER = "never"
"""`expires_s = "never"`: an item has no deadline."""


def people(settings: Settings) -> People:
    """The approvers and their deadlines. Without `notify`, their targets and all shared targets are notified."""
    found = read_table("[people]", settings.people, PEOPLE)
    policy = msgspec.structs.replace(People(), **found)
    targets = read_targets(settings.notify)
    known = [target.name for target in targets]
    for name in policy.notify:
        if name not in known:
            meant = nearest(name, known) if known else "there is no [notify.NAME] table yet"
            raise UsageError(f"notify in [people] names the target {name!r}, which does not exist; {meant}")
    if "notify" not in found:
        policy = msgspec.structs.replace(policy, notify=_first(targets, policy))
    late = (target.name for target in targets if _user(target) in policy.second and target.name not in policy.notify)
    return msgspec.structs.replace(policy, notify_second=tuple(late))


def _first(targets: tuple[TargetSettings, ...], policy: People) -> tuple[str, ...]:
    """The targets notified of an item at once: shared ones, and those of the users who may answer it then."""
    first = policy.approvers or ((policy.owner,) if policy.owner else ())
    return tuple(
        target.name
        for target in targets
        if not _user(target) or _user(target) in first or (not first and _user(target) not in policy.second)
    )


def _user(target: TargetSettings) -> str:
    return target.values.get("user", "").removeprefix("user:")


def context(settings: Settings) -> ContextPolicy:
    """The policy that keeps the context small."""
    policy = msgspec.structs.replace(ContextPolicy(), **read_table("[context]", settings.context, CONTEXT))
    if policy.keep_tokens >= policy.line_tokens:
        raise UsageError(
            f"keep_tokens in [context] is {policy.keep_tokens} and has to be below line_tokens, {policy.line_tokens}"
        )
    return policy


class Retention(msgspec.Struct, frozen=True):
    """The age at which the space of finished sessions is freed. With `daily`, a worker frees it once a day."""

    older_than_s: float = 30 * 86_400.0
    daily: bool = False


def retention(settings: Settings) -> Retention:
    """When the space of finished sessions is freed. Raises `UsageError`."""
    return msgspec.structs.replace(Retention(), **read_table("[retention]", settings.retention, RETENTION))


RETENTION = {"older_than": Key(duration_s, "older_than_s"), "daily": Key(yes_or_no)}


def breakers(settings: Settings) -> Breakers:
    """The limits at which a session stops by itself and asks a user."""
    return msgspec.structs.replace(Breakers(), **read_table("[breakers]", settings.breakers, BREAKERS))


def _quiet(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f'{value!r} has to be text, such as "22:00-07:00 Europe/Zurich"')
    parse_quiet(value)
    return value


def _expiry(value: Any) -> float | None:
    return None if value == NEVER else duration_s(value)


PEOPLE = {
    "owner": Key(person),
    "approvers": Key(persons),
    "second": Key(persons),
    "expires_s": Key(_expiry),
    "on_expiry": Key(one_of("deny", "approve")),
    "remind_s": Key(duration_s),
    "escalate_s": Key(duration_s),
    "quiet": Key(_quiet),
    "notify": Key(persons),
}

CONTEXT = {
    "strategy": Key(one_of("auto", "compaction", "reset", "hybrid", "off")),
    "line_tokens": Key(count),
    "keep_tokens": Key(count),
    "failures": Key(count),
    "signs": Key(yes_or_no),
    "check_every": Key(count),
}

BREAKERS = {
    "spend_per_hour_usd": Key(money, "spend_per_hour_pico"),
    "tool_failures": Key(count),
    "idle_turns": Key(count),
    "provider_failures": Key(count),
    "provider_rest_s": Key(duration_s),
}


ISOLATION = ("files", "network", "processes", "syscalls", "users", "memory", "disk", "cpu")
"""The aspects in which hands can be isolated, as named by `holdfast doctor`."""

PROCESSES_LEAST = 16
"""Minimum number of processes: with fewer, even a shell with a pipeline fails."""

MEMORY_LEAST = 64 << 20

_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(?:=[A-Za-z0-9.+:~-]+)?")


def hands(settings: Settings) -> HandsPolicy:
    """The sandbox provider and limits of a session. Raises `UsageError`."""
    return read_hands(settings.hands, "[hands]")


def read_hands(values: Mapping[str, Any], where: str) -> HandsPolicy:
    """The same from a table; `where` names it in errors."""
    return msgspec.structs.replace(HandsPolicy(), **read_table(where, values, HANDS))


def read_environment(values: Mapping[str, Any], where: str) -> Environment:
    """The environment described by a table; `where` names it in errors. Raises `UsageError`."""
    return msgspec.structs.replace(Environment(), **read_table(where, values, ENVIRONMENT))


def environment(settings: Settings) -> Environment:
    """The environment that is prepared before work begins. Raises `UsageError`, also for a missing secret.

    Raises `NotTrusted` if a setup step is only in a project's file that the user has not accepted.
    """
    require(settings.ignored, *(f"environment.{name}" for name in SET_UP))
    found = read_environment(settings.environment, "[environment]")
    for variable, secret in found.dotenv.items():
        if secret not in settings.secrets:
            known = settings.secrets
            meant = nearest(secret, known) if known else "there is no [secrets.NAME] table yet"
            raise UsageError(
                f"dotenv in [environment] gives {variable} the secret {secret!r}, which does not exist; {meant}"
            )
    return found


def _at_least(least: int, why: str) -> Any:
    def read(value: Any) -> int:
        number = size_bytes(value) if least == MEMORY_LEAST else count(value)
        if number < least:
            raise ValueError(f"{value!r} is too little: {why}")
        return number

    return read


def _cpus(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.05 <= value <= 4096:
        raise ValueError(f"{value!r} is not a number of processors from 0.05, such as 2 or 0.5")
    return float(value)


def _packages(value: Any) -> tuple[str, ...]:
    names = texts('["libpq-dev", "cmake"]')(value)
    for name in names:
        if _PACKAGE.fullmatch(name) is None:
            raise ValueError(f'{name!r} is no name of a Debian package, such as "libpq-dev" or "cmake=3.25.1-1"')
    return tuple(names)


def _toolchains(value: Any) -> tuple[str, ...]:
    folders = texts('["/opt/node-22"]')(value)
    for folder in folders:
        if not folder.startswith("/") or folder.rstrip("/") == "" or ".." in folder.split("/"):
            raise ValueError(f"{folder!r} has to be the whole path of a folder, such as /opt/node-22")
    return tuple(folders)


def _services(value: Any) -> tuple[Service, ...]:
    example = '[{name = "db", command = "postgres -D data", health = "pg_isready"}]'
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise ValueError(f"{value!r} has to be a list of services, such as {example}")
    services = tuple(_service(each, example) for each in value)
    names = [service.name for service in services]
    if len(set(names)) != len(names):
        raise ValueError(f"two services have one name: {', '.join(names)}")
    return services


def _service(value: dict[str, Any], example: str) -> Service:
    for key in value:
        try:
            known_key(key, Service.__struct_fields__, "a service")
        except UsageError as error:
            raise ValueError(str(error)) from error
    name, command, health = value.get("name"), value.get("command"), value.get("health", "")
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise ValueError(
            f"a service has the name {name!r}: it takes letters, digits, - and _, up to 32; such as {example}"
        )
    if not is_text(command) or not isinstance(health, str):
        raise ValueError(f"the service {name!r} has no command; for example: {example}")
    return Service(name, str(command), health, duration_s(value.get("ready_s", Service("", "").ready_s)))


def _dotenv(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(is_text(each) for each in value.values()):
        raise ValueError(f'{value!r} has to map variables to names of secrets, such as {{API_KEY = "payments"}}')
    return {variable_name(name): secret for name, secret in value.items()}


HANDS = {
    "provider": Key(text("bubblewrap")),
    "memory_bytes": Key(or_none(_at_least(MEMORY_LEAST, "commands need 64M at the very least"))),
    "processes": Key(or_none(_at_least(PROCESSES_LEAST, "commands need 16 at the very least"))),
    "cpus": Key(or_none(_cpus)),
    "disk_bytes": Key(or_none(size_bytes)),
    "require_hard": Key(some_of(ISOLATION)),
    "accept_weak": Key(yes_or_no),
    "warm": Key(at_least(0)),
    "idle_s": Key(duration_s),
}

ENVIRONMENT = {
    "auto": Key(yes_or_no),
    "setup": Key(texts('["npm ci"]')),
    "packages": Key(_packages),
    "toolchains": Key(_toolchains),
    "services": Key(_services),
    "recipes": Key(some_of(RECIPES)),
    "hosts": Key(destinations),
    "dotenv": Key(_dotenv),
    "submodules": Key(yes_or_no),
    "lfs": Key(yes_or_no),
    "timeout_s": Key(duration_s),
}
