"""Tenant slot of a session: its kind, and the state that the kind keeps beside the kernel's.

The kernel runs one agent and its children. A mission, and a session that works for one, is a kind of its own: it adds
state, a part of the fold, tools, and decisions. The kernel knows it only by this contract.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.facts.base import Fact
from holdfast.facts.codec import Event
from holdfast.facts.session import SessionCreated
from holdfast.session.actions import Action
from holdfast.session.tools import Tool

S = TypeVar("S")
"""Type of the kernel's state, which has the slot: `holdfast.session.state.State`."""


class Kind(Generic[S]):
    """Pure part of a kind of session. The defaults are those of a plain agent.

    `state_type` is the type of its own state, None for a kind without one; `sources` are the packages of its part of
    the fold, for the digest of snapshots (S19). `tools` are offered beside the kernel's if the agent names them. `fold`
    maps facts to their effect on its own state: each fact that it owns, and relevant facts of the kernel, which the
    kernel folds first. `unfolded` are facts that it owns and that change no state.
    """

    name = "agent"
    state_type: type[msgspec.Struct] | None = None
    sources: tuple[str, ...] = ()
    tools: Mapping[str, Tool] = {}
    fold: Mapping[type[Fact], Callable[[S, Any, Event], None]] = {}
    unfolded: frozenset[type[Fact]] = frozenset()
    met_word = "met"

    def began(self, created: SessionCreated) -> msgspec.Struct | None:
        """Return its own state at the beginning of a session of the kind."""
        return None

    def after(self, state: S) -> Action | None:
        """Return the action that precedes the open calls, None if they go on."""
        return None

    def instead(self, state: S, action: Action | None) -> Action | None:
        """Return the action in place of `action`, which precedes the next request; None to make the request."""
        return action

    def stopped(self, state: S) -> Action | None:
        """Return the action after a response without calls, None if the session is done."""
        return None

    def branch(self, state: S) -> str | None:
        """Return the branch with the work of an ended session, empty for none yet; None if it is in the workspace."""
        return None

    def met(self, state: S) -> tuple[int, int] | None:
        """Return how many of its criteria are met, and how many it has; None for a kind without criteria.

        `met_word` is the word for them in the live view.
        """
        return None

    def queue(self, state: S) -> tuple[str, ...]:
        """Return short lines for the live view about work that no session does at the moment."""
        return ()

    def awaits_wake(self, state: S) -> bool:
        """Return True if it is parked, for a reason of the kind's own, until a user wakes it."""
        return False


AGENT: Kind[Any] = Kind()
"""The kind of a plain agent."""
KIND = AGENT


def only_agents(name: str) -> Kind[Any]:
    """Look up a kind in a registry that contains only plain agents."""
    if name == AGENT.name:
        return AGENT
    raise LookupError(f"no kind of session is named {name!r} here")


NAMING = ("mission", "role", "duty", "firing", "items", "item", "run")
"""Fields of `session.created` that give a session the kind of that name."""


def kind_name(created: SessionCreated) -> str:
    """Return the name of a session's kind, which follows from the first event."""
    return next((name for name in NAMING if getattr(created, name) is not None), AGENT.name)


class Tenant(Generic[S]):
    """Tenant slot: the registry, the session's kind, and the kind's own state, None if it has none."""

    __slots__ = ("kind", "kinds", "own")

    def __init__(
        self,
        kinds: Callable[[str], Kind[S]] = only_agents,
        kind: Kind[S] = AGENT,
        own: msgspec.Struct | None = None,
    ) -> None:
        self.kinds = kinds
        self.kind = kind
        self.own = own

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tenant) and (self.kind.name, self.own) == (other.kind.name, other.own)

    __hash__ = None  # type: ignore[assignment]  # its state changes

    def __repr__(self) -> str:
        return f"Tenant({self.kind.name}, {self.own!r})"
