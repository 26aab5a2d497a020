"""Limits on the sessions of an account or of a model: how many run at a time, and how fast they ask (S15)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from holdfast.facts.shift import LimitScope, LimitSet

T = TypeVar("T")

MINUTE_US = 60_000_000


class Limit(msgspec.Struct, frozen=True):
    """A limit in force, as in `LimitSet`; None is no limit."""

    running: int | None = None
    per_minute: int | None = None
    burst: int = 1

    def ask(self, used_us: int, now_us: int) -> tuple[int, int]:
        """Return when one more request may begin, and until when the rate is used up if it begins now.

        `used_us` is until when it is used up before: the generic cell rate algorithm. A time farther ahead than this
        limit can move it counts as none: the limit was lower then, or the clock was set back.
        """
        step_us = MINUTE_US // self.per_minute if self.per_minute else 0
        if used_us > now_us + self.burst * step_us + MINUTE_US:
            used_us = 0
        return used_us - (self.burst - 1) * step_us, max(used_us, now_us) + step_us


Limits = Mapping[str, Limit]
"""Limits in force by the name of what they cover, such as `account project:web` or `model m`."""


def covering(accounts: Iterable[str], model: str) -> Iterator[str]:
    """Yield the names of the limits that may cover a session with these accounts, asking that model."""
    yield _name("model", model)
    for account in accounts:
        yield _name("account", account)


def after(limits: Limits, fact: LimitSet) -> Limits:
    """Return the limits in force after one more was set."""
    name = _name(fact.scope, fact.name)
    limit = Limit(fact.running, fact.per_minute, fact.burst or 1)
    others = {each: kept for each, kept in limits.items() if each != name}
    return others if limit.running is None and limit.per_minute is None else {**others, name: limit}


def admitted(limits: Limits, due: Iterable[tuple[tuple[str, ...], T]], running: Iterable[tuple[str, ...]]) -> list[T]:
    """Return those of the due sessions that can begin beside the running ones.

    Each comes with the names of the limits that may cover it; the first ones of a limit begin.
    """
    counts, begin = Counter(name for names in running for name in names), list[T]()
    for names, each in due:
        if all(is_open(limits.get(name), counts[name]) for name in names):
            counts.update(names)
            begin.append(each)
    return begin


def is_open(limit: Limit | None, running: int) -> bool:
    """Return True if one more session may run under a limit beside that many."""
    return limit is None or limit.running is None or running < limit.running


def decode(text: str) -> Limits:
    """Decode limits from the row of a home."""
    return msgspec.json.decode(text, type=dict[str, Limit]) if text else {}


def encode(limits: Limits) -> str:
    """Encode limits for the row of a home."""
    return msgspec.json.encode(limits).decode() if limits else ""


def limit_line(fact: LimitSet) -> str:
    """Describe a limit that was set."""
    parts = (
        f"{fact.running} sessions at a time" if fact.running is not None else "",
        f"{fact.per_minute} requests a minute, {fact.burst} at once" if fact.per_minute is not None else "",
    )
    return f"limit of the {_name(fact.scope, fact.name)}: {'; '.join(filter(None, parts)) or 'none'}"


def _name(scope: LimitScope, name: str) -> str:
    return f"{scope} {name}"
