"""The tenant slot of a session: its kind, and the state that the kind keeps beside the kernel's.

The kernel runs one agent and its children. A mission, and a session that works for one, is a kind of its own: it adds
state, a part of the fold, tools, and decisions. The kernel knows it by this contract alone.
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
"""The kernel's state, which has the slot: `holdfast.session.state.State`."""


class Kind(Generic[S]):
    """The pure part of a kind of session. The defaults are those of a plain agent.

    `state_type` is the type of its own state, None for a kind that keeps none; `sources` are the packages that its part
    of the fold is made of, for the digest of snapshots (S19). `tools` are offered beside the kernel's where the agent
    names them. `fold` maps facts to what they do to its own state: each fact that it owns, and any fact of the kernel
    that concerns it too, which the kernel folds first. `unfolded` are facts that it owns and that change no state.
    """

    name = "agent"
    state_type: type[msgspec.Struct] | None = None
    sources: tuple[str, ...] = ()
    tools: Mapping[str, Tool] = {}
    fold: Mapping[type[Fact], Callable[[S, Any, Event], None]] = {}
    unfolded: frozenset[type[Fact]] = frozenset()

    def began(self, created: SessionCreated) -> msgspec.Struct | None:
        """Its own state when a session of the kind begins."""
        return None

    def after(self, state: S) -> Action | None:
        """The action that comes before the calls that are open, None when they go on."""
        return None

    def instead(self, state: S, action: Action | None) -> Action | None:
        """The action in place of `action`, which comes before the next request; None to make the request."""
        return action

    def stopped(self, state: S) -> Action | None:
        """The action when the model stopped without a call, None when the session is done."""
        return None

    def branch(self, state: S) -> str | None:
        """The branch that holds the work once the session is over, empty for none yet; None: it is in the workspace."""
        return None

    def awaits_wake(self, state: S) -> bool:
        """Return whether it rests, for a reason of the kind's own, until a user wakes it."""
        return False


AGENT: Kind[Any] = Kind()
"""A plain agent."""
KIND = AGENT


def only_agents(name: str) -> Kind[Any]:
    """The registry that knows plain agents alone."""
    if name == AGENT.name:
        return AGENT
    raise LookupError(f"no kind of session is named {name!r} here")


NAMING = ("mission", "role")
"""Fields of `session.created` that make a session one of the kind of that name."""


def kind_name(created: SessionCreated) -> str:
    """The name of a session's kind. It follows from the first event."""
    return next((name for name in NAMING if getattr(created, name) is not None), AGENT.name)


class Tenant(Generic[S]):
    """The tenant slot: the registry, the session's kind, and the state of its own, None where the kind has none."""

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
