"""A model of the log in a few lines, for random stories: what each step must answer, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.errors import (
    BudgetRefused,
    EmergencyStop,
    Fenced,
    HeadMoved,
    HoldfastError,
    LeaseHeld,
    UnknownSession,
    UsageError,
)

NAMES = ("ses_a", "ses_b", "ses_c")
CAP = 100

Step = tuple[Any, ...]
"""A verb of `Model`, and what it is given."""


class Model:
    """What must come of a story, in the plainest words: heads, epochs, holders, keys, items, caps, money."""

    def __init__(self) -> None:
        self.head: dict[str, int] = {}
        self.epoch: dict[str, int] = {}
        self.mine: dict[str, int] = {}
        self.holder: dict[str, str] = {}
        self.keys: dict[str, str] = {}
        self.posted: set[tuple[str, str]] = set()
        self.live: set[str] = set()
        self.spent: dict[str, int] = {}
        self.held: dict[str, list[int]] = {}
        self.caps: dict[str, int | None] = {}
        self.items: dict[str, tuple[str, str]] = {}
        self.stopped = False

    def do(self, step: Step) -> type[HoldfastError] | None:
        """The error that a step must raise, or None."""
        verb, name, *rest = step
        if verb == "kill":
            self.live.discard(name)
            return None
        if verb in ("stop", "lift"):
            self.stopped = verb == "stop"
            return None
        if verb == "open":
            return self.open(name, rest[0])
        if verb == "take":
            self.live.add(rest[0])
        if verb == "settle" and not self.held.get(name):
            return None
        if verb == "release":
            if name in self.head and self.mine.get(name) == self.epoch[name] and self.holder.get(name):
                self.head[name] += 1
                self.holder[name] = ""
            return None
        if name not in self.head:
            return UnknownSession
        handler: Callable[..., type[HoldfastError] | None] = getattr(self, verb)
        return handler(name, *rest)

    def open(self, name: str, key: str) -> type[HoldfastError] | None:
        if name in self.head or self.keys.get(key):
            return None
        if self.stopped:
            return EmergencyStop
        self.caps[name] = CAP
        self.head[name], self.epoch[name] = 1, 0
        self.posted.add((name, "created"))
        if key:
            self.keys[key] = name
        return None

    def say(self, name: str, key: str) -> None:
        if (name, key) not in self.posted:
            self.posted.add((name, key))
            self.head[name] += 1

    def take(self, name: str, worker: str, steal: bool) -> type[HoldfastError] | None:
        if self.stopped:
            return EmergencyStop
        held = self.holder.get(name, "") in self.live
        if held and not steal:
            return LeaseHeld
        self.epoch[name] += 1
        self.mine[name] = self.epoch[name]
        self.holder[name] = worker
        self.head[name] += 2 if held else 1
        return None

    def append(self, name: str, count: int, off: int = 0) -> type[HoldfastError] | None:
        if self.mine.get(name, 0) + off != self.epoch[name]:
            return Fenced
        self.head[name] += count
        return None

    def fact(self, name: str, off: int, count: int) -> type[HoldfastError] | None:
        return self.append(name, count, off)

    def decide(self, name: str, off: int) -> type[HoldfastError] | None:
        if self.mine.get(name, 0) != self.epoch[name]:
            return Fenced
        if off:
            return HeadMoved
        self.head[name] += 1
        self.holder[name] = ""
        return None

    def batch(self, name: str, other: str, key: str) -> type[HoldfastError] | None:
        if self.mine.get(name, 0) != self.epoch[name]:
            return Fenced
        if other not in self.head:
            return UnknownSession
        self.head[name] += 1
        self.say(other, key)
        return None

    def path(self, name: str) -> list[str]:
        return list(dict.fromkeys((name, NAMES[0])))

    def used(self, account: str) -> int:
        below = [name for name in self.head if account in self.path(name)]
        return sum(sum(self.held.get(name, [])) + self.spent.get(name, 0) for name in below)

    def reserve(self, name: str, amount: int) -> type[HoldfastError] | None:
        if self.mine.get(name, 0) != self.epoch[name]:
            return Fenced
        if any(account not in self.head for account in self.path(name)):
            return HoldfastError
        caps = {account: self.caps[account] for account in self.path(name)}
        if any(cap is not None and self.used(account) + amount > cap for account, cap in caps.items()):
            return BudgetRefused
        self.held.setdefault(name, []).append(amount)
        self.head[name] += 1
        return None

    def settle(self, name: str, cost: int) -> type[HoldfastError] | None:
        if self.mine.get(name, 0) != self.epoch[name]:
            return Fenced
        self.held[name].pop(0)
        self.spent[name] = self.spent.get(name, 0) + cost
        self.head[name] += 1
        return None

    def ask(self, name: str, item_id: str) -> type[HoldfastError] | None:
        if self.mine.get(name, 0) != self.epoch[name]:
            return Fenced
        if item_id in self.items:
            return UsageError
        self.items[item_id] = (name, "open")
        self.head[name] += 1
        return None

    def answer(self, name: str, item_id: str, verdict: str) -> None:
        if (name, f"item:{item_id}") not in self.posted and self.items.get(item_id) == (name, "open"):
            self.items[item_id] = (name, "approved" if verdict == "approve" else "denied")
        self.say(name, f"item:{item_id}")

    def cap(self, name: str, account_id: str, cap: int | None) -> None:
        if account_id in self.caps:
            self.caps[account_id] = cap
            self.head[name] += 1
