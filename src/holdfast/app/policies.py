"""The tables `[people]`, `[context]` and `[breakers]` of holdfast.toml, as the policies that a session is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.app.config import Settings, budget_pico, count, duration_s, known_key, nearest
from holdfast.app.targets import TargetSettings, read_targets
from holdfast.errors import UsageError
from holdfast.facts.session import Breakers, ContextPolicy, People
from holdfast.notify.quiet import parse_quiet

Read = Callable[[Any], Any]
"""A value as it stands in the file to the one of the policy. Raises `ValueError`."""

NEVER = "never"
"""`expires_s = "never"`: an item waits as long as it takes."""


@dataclass(frozen=True)
class _Key:
    """A key of a table: how it is read, and the policy's field when that has another name."""

    read: Read
    field: str = ""


def people(settings: Settings) -> People:
    """Who answers, and when. Without `notify`, every target is told that is one of those people's or nobody's."""
    found = _read("people", settings.people, _PEOPLE)
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
    """The targets that hear of an item at once: nobody's, and those of whoever may answer it then."""
    first = policy.approvers or ((policy.owner,) if policy.owner else ())
    return tuple(
        target.name
        for target in targets
        if not _user(target) or _user(target) in first or (not first and _user(target) not in policy.second)
    )


def _user(target: TargetSettings) -> str:
    return target.values.get("user", "").removeprefix("user:")


def context(settings: Settings) -> ContextPolicy:
    """How a context is kept small."""
    policy = msgspec.structs.replace(ContextPolicy(), **_read("context", settings.context, _CONTEXT))
    if policy.keep_tokens >= policy.line_tokens:
        raise UsageError(
            f"keep_tokens in [context] is {policy.keep_tokens} and has to be below line_tokens, {policy.line_tokens}"
        )
    return policy


def breakers(settings: Settings) -> Breakers:
    """When a session stops by itself and asks."""
    return msgspec.structs.replace(Breakers(), **_read("breakers", settings.breakers, _BREAKERS))


def _read(table: str, values: Mapping[str, Any], keys: Mapping[str, _Key]) -> dict[str, Any]:
    found = {}
    for name, value in values.items():
        known_key(name, keys, f"[{table}]")
        key = keys[name]
        try:
            found[key.field or name] = key.read(value)
        except ValueError as error:
            raise UsageError(f"{name} in [{table}]: {error}") from error
    return found


def _name(value: Any) -> str:
    text = value.removeprefix("user:") if isinstance(value, str) else ""
    if not text or not text.isprintable() or any(char.isspace() for char in text):
        raise ValueError(f'{value!r} is no name; an example is "anna"')
    return text


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f'{value!r} has to be a list of names, such as ["anna", "ben"]')
    return tuple(map(_name, value))


def _quiet(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f'{value!r} has to be text, such as "22:00-07:00 Europe/Zurich"')
    parse_quiet(value)
    return value


def _expiry(value: Any) -> float | None:
    return None if value == NEVER else duration_s(value)


def _yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} has to be true or false")
    return value


def _one_of(*words: str) -> Read:
    def read(value: Any) -> str:
        if value not in words:
            raise ValueError(f"{value!r} has to be one of {', '.join(words)}")
        return str(value)

    return read


def _money(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is not an amount of dollars, such as 2.50")
    try:
        return budget_pico(str(value))
    except UsageError as error:
        raise ValueError(f"{value!r} is not an amount of dollars above 0, such as 2.50") from error


_PEOPLE = {
    "owner": _Key(_name),
    "approvers": _Key(_names),
    "second": _Key(_names),
    "expires_s": _Key(_expiry),
    "on_expiry": _Key(_one_of("deny", "approve")),
    "remind_s": _Key(duration_s),
    "escalate_s": _Key(duration_s),
    "quiet": _Key(_quiet),
    "notify": _Key(_names),
}

_CONTEXT = {
    "strategy": _Key(_one_of("auto", "compaction", "reset", "hybrid", "off")),
    "line_tokens": _Key(count),
    "keep_tokens": _Key(count),
    "failures": _Key(count),
    "signs": _Key(_yes_or_no),
    "check_every": _Key(count),
}

_BREAKERS = {
    "spend_per_hour_usd": _Key(_money, "spend_per_hour_pico"),
    "tool_failures": _Key(count),
    "idle_turns": _Key(count),
    "provider_failures": _Key(count),
    "provider_rest_s": _Key(duration_s),
}
