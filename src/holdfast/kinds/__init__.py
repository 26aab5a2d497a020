"""The kinds of sessions. Each is loaded when a session of it is met."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from holdfast.session.state import State
from holdfast.session.tenant import Kind

_MODULES = {
    "agent": ("holdfast.session.tenant", "holdfast.brain.shift"),
    "mission": ("holdfast.kinds.mission.kind", "holdfast.kinds.mission.acts.conducting"),
    "role": ("holdfast.kinds.mission.role.kind", "holdfast.kinds.mission.acts.role"),
}
"""Name of a kind → the module with its `KIND`, and the module with its `ACTS`."""

LOOP = "loop:command"
"""Model of a loop, which is an agent whose model is code: `kinds.loop`, loaded for sessions with this model alone."""


class Registry:
    """Finds what a kind of session is made of, by its name."""

    def __call__(self, name: str) -> Kind[State]:
        """Its pure part: state, fold, tools, decisions. Raises `LookupError` for a name that is no kind."""
        kind: Kind[State] = _loaded(name, 0).KIND
        return kind

    def acts(self, name: str) -> Callable[[Any], object]:
        """The part that acts. Raises `LookupError` for a name that is no kind."""
        acts: Callable[[Any], object] = _loaded(name, 1).ACTS
        return acts


@cache
def _loaded(name: str, part: int) -> ModuleType:
    if name not in _MODULES:
        raise LookupError(f"no kind of session is named {name!r}")
    return import_module(_MODULES[name][part])


KINDS = Registry()
"""The registry of this program. Composition roots hand it down; nothing below them reads it here."""
