"""The tables `[people]`, `[context]` and `[breakers]` of holdfast.toml, as the policies that a session is given."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.app.settings.config import Settings, count, duration_s, nearest
from holdfast.app.settings.tables import Key, money, one_of, person, persons, read_table, yes_or_no
from holdfast.app.settings.targets import TargetSettings, read_targets
from holdfast.errors import UsageError
from holdfast.facts.session import Breakers, ContextPolicy, People
from holdfast.notify.base import parse_quiet

NEVER = "never"
"""`expires_s = "never"`: an item waits as long as it takes."""


def people(settings: Settings) -> People:
    """Who answers, and when. Without `notify`, every target is told that is one of those people's or nobody's."""
    found = read_table("[people]", settings.people, _PEOPLE)
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
    policy = msgspec.structs.replace(ContextPolicy(), **read_table("[context]", settings.context, _CONTEXT))
    if policy.keep_tokens >= policy.line_tokens:
        raise UsageError(
            f"keep_tokens in [context] is {policy.keep_tokens} and has to be below line_tokens, {policy.line_tokens}"
        )
    return policy


def breakers(settings: Settings) -> Breakers:
    """When a session stops by itself and asks."""
    return msgspec.structs.replace(Breakers(), **read_table("[breakers]", settings.breakers, _BREAKERS))


def _quiet(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f'{value!r} has to be text, such as "22:00-07:00 Europe/Zurich"')
    parse_quiet(value)
    return value


def _expiry(value: Any) -> float | None:
    return None if value == NEVER else duration_s(value)


_PEOPLE = {
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

_CONTEXT = {
    "strategy": Key(one_of("auto", "compaction", "reset", "hybrid", "off")),
    "line_tokens": Key(count),
    "keep_tokens": Key(count),
    "failures": Key(count),
    "signs": Key(yes_or_no),
    "check_every": Key(count),
}

_BREAKERS = {
    "spend_per_hour_usd": Key(money, "spend_per_hour_pico"),
    "tool_failures": Key(count),
    "idle_turns": Key(count),
    "provider_failures": Key(count),
    "provider_rest_s": Key(duration_s),
}
