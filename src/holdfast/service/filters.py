"""Filters of sessions, as users type them: `is:parked for:approval spend:>2 older:1d text`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, get_args

import msgspec

from holdfast.errors import UsageError
from holdfast.facts.shift import ParkReason
from holdfast.log.base import PAGE, Which, words_of
from holdfast.service.sessions import Session, Store, sessions
from holdfast.session.costs import Cost
from holdfast.session.rows import RowStatus, SessionRow

STATUSES = (*get_args(RowStatus), "running", "unfinished")
"""Values of `is:`. `running` sessions are held by a live process; `unfinished` ones are running, parked, or due."""

REASONS = {"approval": "person", **{reason: reason for reason in get_args(ParkReason)}}
"""Values of `for:`, with the reason that they stand for."""

SYNTAX = "is:STATUS, for:REASON, spend:>USD, spend:<USD, older:AGE, newer:AGE, or words of the goal, key, id, or model"
"""The terms that exist, for help and messages."""

_AMOUNT = re.compile(r"([<>])\$?([0-9]{1,12}(?:\.[0-9]{1,12})?)")
_AGE = re.compile(r"([0-9]{1,6})([smhdw])")
_UNITS_US = {"s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000, "w": 604_800_000_000}


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Terms that a session passes all of; empty fields pass all.

    `over_pico` and `under_pico` bound the cost of its tree, both exclusive; `older_us` and `newer_us` its age since
    the latest event. `words` are in lower case, each in the goal, key, id, name, or model.
    """

    status: str = ""
    reason: str = ""
    over_pico: int | None = None
    under_pico: int | None = None
    older_us: int | None = None
    newer_us: int | None = None
    words: tuple[str, ...] = ()

    def which(self, now_us: int, holders: Collection[str]) -> Which:
        """The part of the filter that the log answers: rows outside it do not pass. `holders` are running sessions."""
        status = self.status if self.status in ("done", "failed", "cancelled", "parked") else ""
        return Which(
            status="parked" if self.reason and not self.status else status,  # type: ignore[arg-type]
            reason=self.reason,
            ids=frozenset(holders) if self.status == "running" else frozenset(),
            updated_us=max(0, now_us - self.newer_us) if self.newer_us is not None else 0,
            before_us=max(1, now_us - self.older_us) if self.older_us is not None else 0,
            words=tuple(word for word in self.words if word.isascii()),
            over_pico=self.over_pico or 0,
        )

    def has(self, row: SessionRow, cost: Cost, now_us: int, *, running: bool) -> bool:
        """Return True if a session passes. `cost` is that of its tree."""
        status = "running" if running else row.status
        age_us = now_us - row.updated_us
        text = words_of(row)
        return (
            (self.status in ("", status) or (self.status == "unfinished" and status in _UNFINISHED))
            and (not self.reason or (status == "parked" and row.reason == self.reason))
            and (self.over_pico is None or cost.pico > self.over_pico)
            and (self.under_pico is None or cost.pico < self.under_pico)
            and (self.older_us is None or age_us > self.older_us)
            and (self.newer_us is None or age_us < self.newer_us)
            and all(word in text for word in self.words)
        )


_UNFINISHED = ("running", "runnable", "parked")


def parse(terms: Iterable[str]) -> Filter:
    """Parse terms. Raises `UsageError`, which names the invalid term and the terms that exist."""
    found, words = Filter(), []
    for term in terms:
        name, colon, value = term.partition(":")
        read = _READERS.get(name) if colon else None
        if read is not None:
            found = msgspec.structs.replace(found, **read(term, value))
        elif colon and re.fullmatch("[a-z]+", name) and name not in _PROVIDERS:
            raise UsageError(f"unknown filter {term!r}. Filters: {SYNTAX}")
        else:
            words.append(term.lower())
    return msgspec.structs.replace(found, words=tuple(words))


_PROVIDERS = ("anthropic", "openai", "google", "ollama", "scripted")
"""Prefixes of model names, which are words to search for and no filters."""


def _status(term: str, value: str) -> dict[str, str]:
    if value not in STATUSES:
        raise UsageError(f"unknown status in {term!r}. Use is: with one of {', '.join(STATUSES)}")
    return {"status": value}


def _reason(term: str, value: str) -> dict[str, str]:
    if value not in REASONS:
        raise UsageError(f"unknown reason in {term!r}. Use for: with one of {', '.join(REASONS)}")
    return {"reason": REASONS[value]}


def _spend(term: str, value: str) -> dict[str, int]:
    match = _AMOUNT.fullmatch(value)
    if match is None:
        raise UsageError(f"invalid amount in {term!r}. Write spend:>2 or spend:<0.50, in dollars")
    whole, _, part = match[2].partition(".")
    return {"over_pico" if match[1] == ">" else "under_pico": int(whole + part.ljust(12, "0"))}


def _age(term: str, value: str) -> dict[str, int]:
    match = _AGE.fullmatch(value)
    if match is None:
        raise UsageError(f"invalid age in {term!r}. Write older:1d or newer:90m (units: s, m, h, d, w)")
    return {f"{term.partition(':')[0]}_us": int(match[1]) * _UNITS_US[match[2]]}


_READERS: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "is": _status,
    "for": _reason,
    "spend": _spend,
    "older": _age,
    "newer": _age,
}


class Matches(msgspec.Struct, frozen=True):
    """Sessions that pass a filter, newest first.

    `after` is the cursor of the next page, empty at the end. `looked` is the number of sessions looked through if that
    bound ended the page early, else 0.
    """

    found: list[Session]
    after: str = ""
    looked: int = 0


async def matching(
    store: Store,
    wanted: Filter,
    now_us: int,
    *,
    after: str = "",
    limit: int | None = None,
    most: int | None = None,
    keeps: Callable[[SessionRow], Awaitable[bool]] | None = None,
    top: bool = False,
) -> Matches:
    """Return the sessions that pass a filter at this time and that `keeps` accepts; with `top`, only roots of trees.

    A page starts after the session `after`, has at most `limit` sessions, and looks through about `most` at most.
    """
    holders = await store.holders()
    if wanted.status == "running" and not holders:
        return Matches([])
    which = msgspec.structs.replace(wanted.which(now_us, holders), top=top)
    size = None if limit is None else min(PAGE, max(limit, 20))
    found, looked = list[Session](), 0
    while rows := await sessions(store, which, after=after, limit=size):
        ended = size is None or len(rows) < size
        for each in rows:
            passes = wanted.has(each.row, each.costs.tree, now_us, running=each.running)
            if passes and (keeps is None or await keeps(each.row)):
                found.append(each)
            if len(found) == limit:
                return Matches(found, "" if ended and each is rows[-1] else each.row.session_id)
        after, looked = rows[-1].row.session_id, looked + len(rows)
        if ended:
            break
        if most is not None and looked >= most:
            return Matches(found, after, looked)
    return Matches(found)
